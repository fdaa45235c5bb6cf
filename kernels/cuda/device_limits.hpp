// What launchers ask of the current device to choose a grid. Host code; may be called while a stream is captured.
#pragma once

#include <cuda_runtime.h>

namespace shardscope::cuda {

[[nodiscard]] inline cudaError_t count_multiprocessors(int& count) {
  int device = 0;
  if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return error;
  return cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
}

}  // namespace shardscope::cuda
