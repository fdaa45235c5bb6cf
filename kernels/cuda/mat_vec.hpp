// Products of a weight matrix with one to eight rows of activations, with the norm before them and the gate after them
// fused in: what decoding spends its time with. Host side: arguments and launch. Larger batches belong to matmul.hpp.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/device_matrix.hpp"
#include "kernels/cuda/operation_stamps.hpp"
#include "kernels/dtype.hpp"

namespace shardscope::cuda {

inline constexpr int64_t kMaxMatVecBatch = 8;

/// Root-mean-square norm of the input, where weight is not null: the product is of
/// s / sqrt(mean(s^2) + epsilon) * weight, where s = x + addend, rounded to dtype, or x where there is no addend.
struct InputNorm {
  const float* weight = nullptr;  // [columns]
  float epsilon = 0;
  const void* addend = nullptr;  // [batch][columns] of dtype, or null
  int64_t addend_stride = 0;
  void* sum = nullptr;  // [batch][columns] of dtype; receives s; needed where there is an addend, else null. Shares no
                        // bytes with what is read
  int64_t sum_stride = 0;
};

struct MatVec {
  DeviceMatrix weights;  // fp32, fp16, bf16, q4_0, q4_1 or q8_0
  // weights holds f rows of gate, then f rows of up: y[i] = silu(gate_i) * up_i, f outputs (each with its bias).
  bool gated = false;
  int64_t batch = 1;                            // 1 to kMaxMatVecBatch
  kernels::DType dtype = kernels::DType::kF32;  // of x: fp32, fp16 or bf16
  const void* x = nullptr;                      // [batch][columns], x_stride elements apart
  int64_t x_stride = 0;
  InputNorm norm;
  const float* bias = nullptr;                    // [weights.rows] or null
  kernels::DType y_dtype = kernels::DType::kF32;  // fp32, or dtype
  void* y = nullptr;  // [batch][weights.rows, or half of them if gated], y_stride elements apart; shares no bytes with
                      // what is read
  int64_t y_stride = 0;
  bool read_again = false;            // the weights, soon: they are left in the caches
  OperationStamps* stamps = nullptr;  // where it notes when it ran, or null
  bool programmatic = false;  // as Launch::programmatic: weights, scales, norm weight and bias must not come from the
                              // kernel before
};

/// y = x * weights^T (+ bias). Weights are exact in fp32, x is taken as stored, sums in fp32 and rounded once, to
/// y_dtype; with a norm, sums of s * weight are multiplied by 1 / sqrt(...). Weights and scales are read once; x,
/// addend and sum of any alignment, better one of 16 bytes, as for the norm's weight. Device memory throughout;
/// enqueued on `stream`, does not wait. cudaErrorInvalidValue for other dtypes, batches, alignments or strides. No
/// rows: nothing to do (`sum` is not written either); no columns (a rank without a share): zeros plus bias.
[[nodiscard]] cudaError_t mat_vec(const MatVec& arguments, cudaStream_t stream);

}  // namespace shardscope::cuda
