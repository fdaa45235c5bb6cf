// What launchers know of every device and ask of the current one, to choose a grid. Host code; may be called while a
// stream is captured.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

namespace shardscope::cuda {

/// Dynamic shared memory that a block may have without allow_shared_bytes. CUDA C++ Programming Guide, "Technical
/// Specifications".
inline constexpr size_t kSharedWithoutAsking = 48 * 1024;

[[nodiscard]] inline cudaError_t count_multiprocessors(int& count) {
  int device = 0;
  if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return error;
  return cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
}

/// Blocks of so many threads that the device holds at once, as far as threads limit it.
[[nodiscard]] inline cudaError_t count_resident_blocks(int threads, int& count) {
  int device = 0;
  int multiprocessors = 0;
  int threads_each = 0;
  if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return error;
  if (const cudaError_t error = count_multiprocessors(multiprocessors); error != cudaSuccess) return error;
  const cudaError_t error = cudaDeviceGetAttribute(&threads_each, cudaDevAttrMaxThreadsPerMultiProcessor, device);
  count = multiprocessors * (threads_each / threads);
  return error;
}

}  // namespace shardscope::cuda
