// Products of a weight matrix with one to eight rows of activations: what decoding spends its time with. Host side:
// arguments and launch. Larger batches belong to matrix products.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/dtype.hpp"

namespace shardscope::cuda {

inline constexpr int64_t kMaxMatVecBatch = 8;

struct MatVec {
  kernels::DType weight_dtype = kernels::DType::kBF16;  // bf16, or q4_0 in planes (q4_planes.hpp)
  int64_t rows = 0;
  int64_t columns = 0;  // q4_0: a multiple of 32
  // bf16: [rows], weight_row_bytes apart: a multiple of 16. Where columns is no multiple of 8, the elements up to the
  // next one are read too and must be zero. q4_0: the plane of nibbles.
  const void* weights = nullptr;
  int64_t weight_row_bytes = 0;                 // bf16 only
  const void* scales = nullptr;                 // q4_0 only: the plane of scales
  int64_t batch = 1;                            // 1 to kMaxMatVecBatch
  kernels::DType dtype = kernels::DType::kF32;  // of x and y: fp32, fp16 or bf16
  const void* x = nullptr;                      // [batch][columns], x_stride elements apart
  int64_t x_stride = 0;
  const float* bias = nullptr;  // [rows] or null
  void* y = nullptr;            // [batch][rows], y_stride elements apart; shares no bytes with x
  int64_t y_stride = 0;
  bool programmatic = false;  // as Launch::programmatic: weights, scales and bias must not come from the kernel before
};

/// y = x * weights^T (+ bias). Weights are exact in fp32, x is taken as stored, sums in fp32 and rounded once, to
/// dtype. Weights and scales are read once, 16 bytes at a time, and lie at multiples of 16 bytes; x of any alignment,
/// better one of 16 bytes. Device memory throughout; enqueued on `stream`, does not wait. cudaErrorInvalidValue for
/// other dtypes, batches, alignments or strides. No rows: nothing to do.
[[nodiscard]] cudaError_t mat_vec(const MatVec& arguments, cudaStream_t stream);

}  // namespace shardscope::cuda
