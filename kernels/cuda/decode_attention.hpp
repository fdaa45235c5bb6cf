// Attention of one new token of each sequence over its cached keys and values: what decoding needs. Host side: plan,
// arguments and launch. Reads lengths and slots from device memory, so that a captured graph stays right as sequences
// grow; appending to the cache is somebody else's.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/dtype.hpp"

namespace shardscope::cuda {

/// What does not change from step to step, and decides the grid.
struct DecodeAttentionShape {
  kernels::DType kv_dtype = kernels::DType::kF16;  // of keys and values: fp32, fp16 or bf16
  kernels::DType dtype = kernels::DType::kF32;     // of q and out: fp32, fp16 or bf16
  int64_t head_dim = 0;                            // a multiple of 8, at most 256
  // Query head h of the model uses KV head h / queries_per_kv. This rank holds query_heads of them from
  // first_query_head on and the KV heads that they need; its groups may be ragged at both ends.
  int64_t queries_per_kv = 1;
  int64_t first_query_head = 0;
  int64_t query_heads = 0;
  int64_t first_kv_head = 0;
  int64_t kv_heads = 0;
  int64_t sequences = 0;
  int64_t max_length = 0;  // no length will exceed it
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
  float scale = 0;          // of the scores, usually 1 / sqrt(head_dim)
  const void* q = nullptr;  // [sequences][query_heads][head_dim], sequences q_stride elements apart
  int64_t q_stride = 0;
  // [slot][kv_head][position][head_dim], with these strides in elements for both, all multiples of 16 bytes.
  const void* keys = nullptr;
  const void* values = nullptr;
  int64_t slot_stride = 0;
  int64_t head_stride = 0;
  int64_t position_stride = 0;
  const int32_t* lengths = nullptr;  // [sequences] positions to attend to, the new token's included
  const int32_t* slots = nullptr;    // [sequences], or null: sequence i is in slot i
  void* out = nullptr;               // [sequences][query_heads][head_dim], sequences out_stride elements apart
  int64_t out_stride = 0;
  void* workspace = nullptr;  // plan.workspace_bytes, aligned to 16; zero-filled once; one call at a time
  bool programmatic = false;  // as Launch::programmatic
};

/// out = softmax(scale * q keys^T) values for each query head; zeros where a length is 0 or less. Scores, sums and
/// weights in fp32, rounded once, to dtype. Each key and value is read once for up to 8 queries of its KV head's group.
/// Device memory throughout, also lengths and slots; enqueued on `stream`, does not wait. cudaErrorInvalidValue for
/// shapes, strides or alignments that the comments above do not allow. No sequences or heads: nothing to do.
[[nodiscard]] cudaError_t decode_attention(const DecodeAttention& arguments, cudaStream_t stream);

}  // namespace shardscope::cuda
