// Rotary embedding of queries and keys, and appending keys and values to the cache: for passes over prompts. Decoding
// has both fused into its attention (decode_attention.hpp).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/kv_view.hpp"
#include "kernels/dtype.hpp"

namespace shardscope::cuda {

struct RopeAppend {
  kernels::DType dtype = kernels::DType::kF32;  // of qkv: fp32, fp16 or bf16
  int64_t tokens = 0;
  int64_t query_heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;     // a multiple of 8, at most 256
  int64_t rotary_dims = 0;  // even, at most head_dim: pairs (i, i + rotary_dims / 2) are rotated
  void* qkv = nullptr;      // [tokens][query_heads + 2 kv_heads][head_dim], qkv_stride elements apart: queries are
                            // rotated in place, keys and values only read; any alignment, best of 16 bytes
  int64_t qkv_stride = 0;
  const float2* rotary = nullptr;      // [tokens][rotary_dims / 2] cosine and sine
  const int32_t* positions = nullptr;  // [tokens]; below 0: the token is padding, nothing is appended for it
  const int32_t* slots = nullptr;      // [tokens]
  KvView kv;
};

/// Rotates in fp32, rounded once: queries to dtype, keys to the cache's dtype. Device memory throughout; enqueued on
/// `stream`, does not wait. cudaErrorInvalidValue for shapes and strides that the comments do not allow. No tokens or
/// heads: nothing to do.
[[nodiscard]] cudaError_t rope_append(const RopeAppend& arguments, cudaStream_t stream);

}  // namespace shardscope::cuda
