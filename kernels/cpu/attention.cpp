// Attention of a group of queries over one KV head, in blocks of 64 positions with a running softmax (the streaming
// form of arXiv:1805.02867). Scores: a vector holds 16 positions at one dim, multiplied by each query's value of that
// dim, so no sum across lanes; weighted values: a vector holds dims of one position. Keys and values of a block are
// read from memory once and stay in L1 for all queries.
#include <hwy/base.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/cpu/operations.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention.cpp"
#include <hwy/foreach_target.h>  // before highway.h

#include <hwy/highway.h>

#include <hwy/contrib/math/math-inl.h>

#ifndef SHARDSCOPE_KERNELS_CPU_ATTENTION_ONCE
#define SHARDSCOPE_KERNELS_CPU_ATTENTION_ONCE
namespace shardscope::kernels::cpu {

inline constexpr int64_t kScoreBlock = 64;  // positions
inline constexpr int64_t kDimPadding = 16;

/// Places of one task within its scratch.
struct AttentionScratch {
  AttentionScratch(float* base, int64_t queries, int64_t head_dim) {
    out_stride = (head_dim + kDimPadding - 1) / kDimPadding * kDimPadding;
    queries_scaled = base;
    scores = queries_scaled + queries * head_dim;
    out = scores + queries * kScoreBlock;
    maximum = out + queries * out_stride;
    sum = maximum + queries;
  }
  float* queries_scaled;  // [query][head_dim], times the scale
  float* scores;          // [query][kScoreBlock]
  float* out;             // [query][out_stride]
  float* maximum;         // [query]
  float* sum;             // [query]
  int64_t out_stride;
};

}  // namespace shardscope::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace shardscope::kernels::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::CappedTag<float, kKeyBlock>;
using VF = hn::Vec<DF>;
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(DF()));
constexpr int64_t kWideDims = kLanes >= 16 ? 4 : 2;  // vectors of dims at once

/// scores [kQueries][kScoreBlock], one vector of positions: the dot products with keys [dim][step].
template <int kQueries>
HWY_INLINE void score_vector(const float* queries, int64_t head_dim, const float* keys, int64_t step, float* scores) {
  const DF df;
  VF even[kQueries];
  VF odd[kQueries];
#pragma GCC unroll 4
  for (int q = 0; q < kQueries; ++q) even[q] = odd[q] = hn::Zero(df);
  int64_t dim = 0;
  for (; dim + 2 <= head_dim; dim += 2) {
    const VF first = hn::LoadU(df, keys + dim * step);
    const VF second = hn::LoadU(df, keys + (dim + 1) * step);
#pragma GCC unroll 4
    for (int q = 0; q < kQueries; ++q) {
      even[q] = hn::MulAdd(first, hn::Set(df, queries[q * head_dim + dim]), even[q]);
      odd[q] = hn::MulAdd(second, hn::Set(df, queries[q * head_dim + dim + 1]), odd[q]);
    }
  }
#pragma GCC unroll 4
  for (int q = 0; q < kQueries; ++q) {
    if (dim < head_dim) {
      even[q] = hn::MulAdd(hn::LoadU(df, keys + dim * step), hn::Set(df, queries[q * head_dim + dim]), even[q]);
    }
    hn::StoreU(hn::Add(even[q], odd[q]), df, scores + q * kScoreBlock);
  }
}

/// Scores of positions [begin, begin + count), begin a multiple of 16; the lanes beyond count get garbage.
template <int kQueries>
HWY_INLINE void score_block(const AttentionTask& task, const float* queries, int64_t begin, int64_t count,
                            float* scores) {
  for (int64_t i = 0; i < count; i += kKeyBlock) {
    const int64_t position = begin + i;
    const float* keys = task.keys + position * task.head_dim;
    const int64_t step = std::min(kKeyBlock, task.capacity - position);
    for (int64_t lane = 0; lane < kKeyBlock; lane += kLanes) {
      score_vector<kQueries>(queries, task.head_dim, keys + lane, step, scores + i + lane);
    }
  }
}

/// out [kQueries][stride] += weights [kQueries][kScoreBlock] * values [count][head_dim], kVectors vectors of dims.
template <int kQueries, int kVectors>
HWY_INLINE void add_values(const float* values, int64_t head_dim, int64_t count, const float* weights, float* out,
                           int64_t stride) {
  const DF df;
  VF sums[kQueries][kVectors];
#pragma GCC unroll 4
  for (int q = 0; q < kQueries; ++q) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sums[q][v] = hn::LoadU(df, out + q * stride + v * kLanes);
  }
  for (int64_t p = 0; p < count; ++p) {
    VF value[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) value[v] = hn::LoadU(df, values + p * head_dim + v * kLanes);
#pragma GCC unroll 4
    for (int q = 0; q < kQueries; ++q) {
      const VF weight = hn::Set(df, weights[q * kScoreBlock + p]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[q][v] = hn::MulAdd(value[v], weight, sums[q][v]);
    }
  }
#pragma GCC unroll 4
  for (int q = 0; q < kQueries; ++q) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sums[q][v], df, out + q * stride + v * kLanes);
  }
}

template <int kQueries>
HWY_INLINE void add_all_values(const AttentionTask& task, int64_t begin, int64_t count, const float* weights,
                               float* out, int64_t stride) {
  const float* values = task.values + begin * task.head_dim;
  int64_t dim = 0;
  for (; dim + (kWideDims - 1) * kLanes < task.head_dim; dim += kWideDims * kLanes) {
    add_values<kQueries, static_cast<int>(kWideDims)>(values + dim, task.head_dim, count, weights, out + dim, stride);
  }
  for (; dim < task.head_dim; dim += kLanes) {
    add_values<kQueries, 1>(values + dim, task.head_dim, count, weights, out + dim, stride);
  }
}

/// scores [kScoreBlock] of a query become exp(score - maximum), zero from `count` on; out is scaled to the new maximum.
HWY_INLINE void soften(float* scores, int64_t count, float* maximum, float* sum, float* out, int64_t out_stride) {
  const DF df;
  const VF lowest = hn::Set(df, -std::numeric_limits<float>::infinity());
  VF largest = hn::Set(df, *maximum);
  for (int64_t i = 0; i < kScoreBlock; i += kLanes) {
    const auto seen = hn::FirstN(df, static_cast<size_t>(std::clamp<int64_t>(count - i, 0, kLanes)));
    const VF v = hn::IfThenElse(seen, hn::LoadU(df, scores + i), lowest);
    hn::StoreU(v, df, scores + i);
    largest = hn::Max(largest, v);
  }
  const float now = hn::GetLane(hn::MaxOfLanes(df, largest));
  VF total = hn::Zero(df);
  for (int64_t i = 0; i < kScoreBlock; i += kLanes) {
    const VF weight = hn::Exp(df, hn::Sub(hn::LoadU(df, scores + i), hn::Set(df, now)));
    hn::StoreU(weight, df, scores + i);
    total = hn::Add(total, weight);
  }
  const float change = now == *maximum ? 1.0F : std::exp(*maximum - now);
  *sum = *sum * change + hn::GetLane(hn::SumOfLanes(df, total));
  *maximum = now;
  if (change == 1.0F) return;
  for (int64_t i = 0; i < out_stride; i += kLanes) {
    hn::StoreU(hn::Mul(hn::LoadU(df, out + i), hn::Set(df, change)), df, out + i);
  }
}

template <int kQueries>
HWY_INLINE void attend_block(const AttentionTask& task, const AttentionScratch& scratch, int64_t query, int64_t begin,
                             int64_t end) {
  float* scores = scratch.scores + query * kScoreBlock;
  float* out = scratch.out + query * scratch.out_stride;
  int64_t furthest = 0;
  for (int q = 0; q < kQueries; ++q) furthest = std::max(furthest, task.visible[query + q]);
  const int64_t count = std::min(end, furthest) - begin;
  if (count <= 0) return;
  score_block<kQueries>(task, scratch.queries_scaled + query * task.head_dim, begin, count, scores);
  for (int q = 0; q < kQueries; ++q) {
    const int64_t seen = std::min(end, task.visible[query + q]) - begin;
    soften(scores + q * kScoreBlock, seen, scratch.maximum + query + q, scratch.sum + query + q,
           out + q * scratch.out_stride, scratch.out_stride);
  }
  add_all_values<kQueries>(task, begin, count, scores, out, scratch.out_stride);
}

AttentionPart attend(const AttentionTask& task) {
  const auto queries = static_cast<int64_t>(task.queries.size());
  const AttentionScratch scratch(task.scratch, queries, task.head_dim);
  for (int64_t q = 0; q < queries; ++q) {
    for (int64_t dim = 0; dim < task.head_dim; ++dim) {
      scratch.queries_scaled[q * task.head_dim + dim] = task.queries[q][dim] * task.scale;
    }
    scratch.maximum[q] = -std::numeric_limits<float>::infinity();
    scratch.sum[q] = 0;
  }
  std::fill(scratch.out, scratch.out + queries * scratch.out_stride, 0.0F);
  for (int64_t begin = task.positions.begin; begin < task.positions.end; begin += kScoreBlock) {
    const int64_t end = std::min(begin + kScoreBlock, task.positions.end);
    int64_t q = 0;
    for (; q + 4 <= queries; q += 4) attend_block<4>(task, scratch, q, begin, end);
    if (q + 3 <= queries) {
      attend_block<3>(task, scratch, q, begin, end);
      q += 3;
    }
    for (; q < queries; ++q) attend_block<1>(task, scratch, q, begin, end);
  }
  return {scratch.out, scratch.maximum, scratch.sum, scratch.out_stride};
}

}  // namespace HWY_NAMESPACE
}  // namespace shardscope::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shardscope::kernels::cpu {

HWY_EXPORT(attend);

AttentionPart attend(const AttentionTask& task) {
  return HWY_DYNAMIC_DISPATCH(attend)(task);
}

AttentionPart attention_part(const float* scratch, int64_t queries, int64_t head_dim) {
  const AttentionScratch places(const_cast<float*>(scratch), queries, head_dim);  // only to find the places
  return {places.out, places.maximum, places.sum, places.out_stride};
}

int64_t attention_scratch_floats(int64_t queries, int64_t head_dim) {
  const int64_t out_stride = (head_dim + kDimPadding - 1) / kDimPadding * kDimPadding;
  return queries * (head_dim + kScoreBlock + out_stride + 2);
}

}  // namespace shardscope::kernels::cpu
#endif
