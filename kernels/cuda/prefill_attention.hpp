// Causal attention of the tokens of a prompt, or a piece of one, over their sequences' caches, which hold their keys
// and values already (rope_append.hpp). Host side: arguments and launch.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/kv_view.hpp"
#include "kernels/dtype.hpp"

namespace shardscope::cuda {

struct PrefillAttention {
  kernels::DType dtype = kernels::DType::kF32;  // of q and out: fp32, fp16 or bf16
  int64_t head_dim = 0;                         // a multiple of 8, at most 256
  // As in DecodeAttentionShape: query head h of the model uses KV head h / queries_per_kv; groups may be ragged.
  int64_t queries_per_kv = 1;
  int64_t first_query_head = 0;
  int64_t query_heads = 0;
  int64_t first_kv_head = 0;
  int64_t kv_heads = 0;
  int64_t sequences = 0;
  int64_t max_count = 0;    // no sequence has more tokens in this call
  float scale = 0;          // of the scores
  const void* q = nullptr;  // [tokens][query_heads][head_dim], q_stride elements apart, rotated; q and out aligned to
                            // 16 bytes, their strides multiples of them
  int64_t q_stride = 0;
  KvView kv;
  const int32_t* first_tokens = nullptr;     // [sequences + 1] its rows of q and out: first_tokens[i] to
                                             // first_tokens[i + 1]
  const int32_t* first_positions = nullptr;  // [sequences] of its first token; token j attends to positions up to
                                             // first_positions[i] + j
  const int32_t* slots = nullptr;            // [sequences]
  void* out = nullptr;                       // [tokens][query_heads][head_dim], out_stride elements apart
  int64_t out_stride = 0;
};

/// out = softmax(scale * q keys^T) values, causal. Scores, sums and weights in fp32; with kv and dtype of 16 bits both
/// products in tensor cores, else in fp32. For the first queries are rounded to the cache's dtype where theirs is the
/// other 16-bit one, for the second the weights are. Keys and values are read once for each tile of queries. Device
/// memory throughout; enqueued on `stream`, does not wait. cudaErrorInvalidValue for shapes, strides or alignments that
/// the comments above do not allow. No sequences or heads: nothing to do.
[[nodiscard]] cudaError_t prefill_attention(const PrefillAttention& arguments, cudaStream_t stream);

}  // namespace shardscope::cuda
