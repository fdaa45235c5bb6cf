// Turns error codes of the CUDA runtime into SystemError: which call, on what, on which device and rank, what the code
// means, and what to do about it. Host code; nothing here calls more of CUDA than the names of its errors.
#pragma once

#include <cuda_runtime.h>

#include <string>
#include <string_view>

namespace shardscope::cuda {

/// What a call was about, for the error that says so. What is left out is not said.
struct CallContext {
  std::string_view detail;  // shape or size: "[4096, 14336] bf16"
  int device = -1;
  int rank = -1;
};

/// Throws SystemError "CUDA error N (name): operation, detail, device D of rank R, what to do" unless `error` is
/// cudaSuccess. `operation`: the function that gave it, or what was being done.
void throw_cuda_error(cudaError_t error, std::string_view operation, const CallContext& context);
inline void check_cuda(cudaError_t error, std::string_view operation, const CallContext& context = {}) {
  if (error != cudaSuccess) throw_cuda_error(error, operation, context);
}

/// What to do about an error, "" where the code alone does not tell. Never the name of the error.
std::string_view advice_for(cudaError_t error);

/// "device 2 of rank 5", "rank 5", "device 2" or "": what the context knows.
std::string place_of(const CallContext& context);

}  // namespace shardscope::cuda
