// Root-mean-square norm of rows, with the residual's addition fused in. Host side: arguments and launch.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/dtype.hpp"

namespace shardscope::cuda {

struct RmsNorm {
  kernels::DType dtype = kernels::DType::kF32;         // of x, addend and out: fp32, fp16 or bf16
  kernels::DType weight_dtype = kernels::DType::kF32;  // fp32, or the same as dtype
  int64_t rows = 0;
  int64_t columns = 0;
  const void* x = nullptr;  // [rows][columns], rows x_stride elements apart
  int64_t x_stride = 0;
  const void* addend = nullptr;  // [rows][columns] or null
  int64_t addend_stride = 0;
  void* sum = nullptr;  // [rows][columns]: receives x + addend; needed where there is an addend, else not written
  int64_t sum_stride = 0;
  const void* weight = nullptr;  // [columns]; read before the wait for the kernel before, see programmatic
  void* out = nullptr;           // [rows][columns]
  int64_t out_stride = 0;
  float epsilon = 0;
  bool programmatic = false;  // as Launch::programmatic: weight must not come from the kernel before
};

/// Without addend: out = x / sqrt(mean(x^2) + epsilon) * weight, row by row; out may be x.
/// With addend: sum = x + addend, rounded to dtype; then the same of sum. sum may be x or addend; out may be x or
/// addend, but not sum.
/// Sums in fp32. Any number of columns and any strides; where all pointers and strides are multiples of 16 bytes, rows
/// are moved 8 or 16 bytes at a time. Device memory throughout; enqueued on `stream`, does not wait.
/// cudaErrorInvalidValue for other dtypes, less than one column or more than 2^30, or strides below the columns. No
/// rows: nothing to do. Source of the norm: arXiv:1910.07467.
[[nodiscard]] cudaError_t rms_norm(const RmsNorm& arguments, cudaStream_t stream);

}  // namespace shardscope::cuda
