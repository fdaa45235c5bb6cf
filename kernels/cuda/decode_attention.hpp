// Rotary embedding, appending to the KV cache, and attention of one new token of each sequence, in one kernel: what
// decoding needs. Host side: plan, arguments and launch. Reads lengths, slots and angles from device memory, so that a
// captured graph stays right as sequences grow.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/kv_view.hpp"
#include "kernels/cuda/operation_stamps.hpp"
#include "kernels/dtype.hpp"

namespace shardscope::cuda {

/// What does not change from step to step, and decides the grid.
struct DecodeAttentionShape {
  kernels::DType kv_dtype = kernels::DType::kF16;  // of keys and values: fp32, fp16 or bf16
  kernels::DType dtype = kernels::DType::kF32;     // of qkv and out: fp32, fp16 or bf16
  int64_t head_dim = 0;                            // a multiple of 8, at most 256
  int64_t rotary_dims = 0;                         // even, at most head_dim: pairs (i, i + rotary_dims / 2) are rotated
  // Query head h of the model uses KV head h / queries_per_kv. This rank holds query_heads of them from
  // first_query_head on and the KV heads that they need; its groups may be ragged at both ends.
  int64_t queries_per_kv = 1;
  int64_t first_query_head = 0;
  int64_t query_heads = 0;
  int64_t first_kv_head = 0;
  int64_t kv_heads = 0;
  int64_t sequences = 0;
  int64_t max_length = 0;  // no length will exceed it

  bool operator==(const DecodeAttentionShape&) const = default;
};

struct DecodeAttentionPlan {
  int64_t splits = 1;  // blocks that share the positions of one sequence and KV head
  int64_t workspace_bytes = 0;
};

/// Splits sequences as far as it takes to fill `multiprocessors`, if they are long enough.
DecodeAttentionPlan plan_decode_attention(const DecodeAttentionShape& shape, int64_t multiprocessors);

struct DecodeAttention {
  DecodeAttentionShape shape;
  DecodeAttentionPlan plan;
  float scale = 0;  // of the scores, usually 1 / sqrt(head_dim)
  // [sequences][query_heads + 2 kv_heads][head_dim], qkv_stride elements apart: query, key and value of each new
  // token, not yet rotated. Only read.
  const void* qkv = nullptr;
  int64_t qkv_stride = 0;
  const float2* rotary = nullptr;    // [sequences][rotary_dims / 2] cosine and sine of the new token's position
  KvView kv;                         // of shape.kv_dtype; the new token's key and value are written at lengths[i] - 1
  const int32_t* lengths = nullptr;  // [sequences] positions to attend to, the new token's included; 0: padding
  const int32_t* slots = nullptr;    // [sequences]
  void* out = nullptr;               // [sequences][query_heads][head_dim], sequences out_stride elements apart
  int64_t out_stride = 0;
  void* workspace = nullptr;          // plan.workspace_bytes, aligned to 16; zero-filled once; one call at a time
  OperationStamps* stamps = nullptr;  // where it notes when it ran, or null
  bool programmatic = false;          // as Launch::programmatic
};

/// Rotates the new queries and keys (in fp32), appends key and value to the cache (rounded once, to kv_dtype), and
/// out = softmax(scale * q keys^T) values for each query head over the cache, the new position as it was stored
/// included; zeros where a length is 0 or less, and nothing is appended there. Scores, sums and weights in fp32,
/// rounded once, to dtype. Each cached key and value is read once for up to 8 queries of its KV head's group.
/// No two sequences of length above 0 have the same slot. Device memory throughout, also lengths and slots; enqueued
/// on `stream`, does not wait. cudaErrorInvalidValue for shapes, strides or alignments that the comments above do not
/// allow. No sequences or KV heads: nothing to do.
[[nodiscard]] cudaError_t decode_attention(const DecodeAttention& arguments, cudaStream_t stream);

}  // namespace shardscope::cuda
