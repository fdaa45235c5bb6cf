// The small operations of the CPU backend, for the running CPU's instruction set. Plain pointers: shapes were checked
// by the caller. None of them knows threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/backend.hpp"
#include "kernels/cpu/kv_cache.hpp"

namespace shardscope::kernels::cpu {

/// Name of the instruction set that the kernels dispatch to, e.g. AVX3_DL.
const char* instruction_set();

/// out [columns] = s / sqrt(mean(s^2) + epsilon) * weight; s is x or, where an addend is given, x + addend, which `sum`
/// then receives. out and sum may be x.
struct NormRow {
  const float* x = nullptr;
  const float* addend = nullptr;
  float* sum = nullptr;
  const float* weight = nullptr;
  float* out = nullptr;
  int64_t columns = 0;
  float epsilon = 0;
};
void norm_row(const NormRow& row);

/// Rotates head [2 * half] in place: pairs (i, i + half) by the angles whose cosines and sines [half] are given.
void rotate_head(float* head, const float* cosines, const float* sines, int64_t half);

/// Attention of some queries that share one KV head, over positions `positions` of the cache. Query q sees
/// visible[q] positions in all (counted from position 0).
struct AttentionTask {
  const float* keys = nullptr;  // of the KV head; layout: kv_cache.hpp
  const float* values = nullptr;
  int64_t capacity = 0;  // positions that the cache holds
  int64_t head_dim = 0;
  float scale = 0;
  Range positions;
  std::span<const float* const> queries;  // each [head_dim]
  std::span<const int64_t> visible;
  float* scratch = nullptr;  // [attention_scratch_floats(queries, head_dim)]
};
int64_t attention_scratch_floats(int64_t queries, int64_t head_dim);

/// Unnormalised result, so that parts over different positions can be put together: per query,
/// out [padded_head_dim], maximum of the scores, and sum of exp(score - maximum), all within scratch.
struct AttentionPart {
  const float* out = nullptr;      // [queries][out_stride]
  const float* maximum = nullptr;  // [queries]
  const float* sum = nullptr;      // [queries]
  int64_t out_stride = 0;
};
AttentionPart attend(const AttentionTask& task);
/// The result that attend left in `scratch`.
AttentionPart attention_part(const float* scratch, int64_t queries, int64_t head_dim);

/// Column of the largest of logits [count >= 1], the smallest on a tie; NaN counts as +inf.
int64_t largest(const float* logits, int64_t count);

/// The first column in [begin, count) whose logit is > limit (no NaN), or count; NaN counts as +inf.
int64_t first_above(const float* logits, int64_t begin, int64_t count, float limit);

/// Sum of the 64-bit words of the bytes (and of the bytes after the last whole word), read in several streams.
uint64_t checksum(std::span<const std::byte> bytes);

}  // namespace shardscope::kernels::cpu
