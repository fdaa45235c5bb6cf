// The same as check.hpp for cuBLASLt.
#pragma once

#include <cublasLt.h>

#include <string_view>

#include "kernels/cuda/check.hpp"

namespace shardscope::cuda {

/// Throws SystemError "cuBLASLt error N (name): operation, detail, device D of rank R, what to do" unless `status` is
/// CUBLAS_STATUS_SUCCESS.
void throw_cublas_error(cublasStatus_t status, std::string_view operation, const CallContext& context);
inline void check_cublas(cublasStatus_t status, std::string_view operation, const CallContext& context = {}) {
  if (status != CUBLAS_STATUS_SUCCESS) throw_cublas_error(status, operation, context);
}

/// What to do about it, "" where the code alone does not tell.
std::string_view advice_for(cublasStatus_t status);

}  // namespace shardscope::cuda
