// Operations that read long arrays once: the search for the largest logits, and the checksum for bandwidth.
// They move 4 bytes a logit (from L2 or L3), and every byte of the weights (from memory) respectively.
#include <hwy/base.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/base/logit_rank.hpp"
#include "kernels/cpu/operations.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/scan.cpp"
#include <hwy/foreach_target.h>  // before highway.h

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace shardscope::kernels::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;
using DU = hn::ScalableTag<uint64_t>;
using VU = hn::Vec<DU>;

constexpr int kStreams = 4;  // more than one row of memory open at once: worth 40 % on some machines

/// logit_rank of each lane.
VF load_ranks(DF df, const float* logits) {
  const VF v = hn::LoadU(df, logits);
  return hn::IfThenElse(hn::IsNaN(v), hn::Set(df, std::numeric_limits<float>::infinity()), v);
}

int64_t largest(const float* logits, int64_t count) {
  const DF df;
  const auto lanes = static_cast<int64_t>(hn::Lanes(df));
  VF best[kStreams];
  for (VF& v : best) v = hn::Set(df, -std::numeric_limits<float>::infinity());
  int64_t i = 0;
  for (; i + kStreams * lanes <= count; i += kStreams * lanes) {
#pragma GCC unroll 4
    for (int s = 0; s < kStreams; ++s) {
      best[s] = hn::Max(best[s], load_ranks(df, logits + i + s * lanes));
    }
  }
  const VF both = hn::Max(hn::Max(best[0], best[1]), hn::Max(best[2], best[3]));
  float maximum = hn::GetLane(hn::MaxOfLanes(df, both));
  for (; i < count; ++i) maximum = std::max(maximum, logit_rank(logits[i]));
  for (i = 0; i + lanes <= count; i += lanes) {
    const auto equal = hn::Eq(load_ranks(df, logits + i), hn::Set(df, maximum));
    if (!hn::AllFalse(df, equal)) return i + static_cast<int64_t>(hn::FindFirstTrue(df, equal));
  }
  while (logit_rank(logits[i]) != maximum) ++i;
  return i;
}

int64_t first_above(const float* logits, int64_t begin, int64_t count, float limit) {
  const DF df;
  const auto lanes = static_cast<int64_t>(hn::Lanes(df));
  int64_t i = begin;
  for (; i + lanes <= count; i += lanes) {
    const auto above = hn::Gt(load_ranks(df, logits + i), hn::Set(df, limit));
    if (!hn::AllFalse(df, above)) return i + static_cast<int64_t>(hn::FindFirstTrue(df, above));
  }
  for (; i < count; ++i) {
    if (logit_rank(logits[i]) > limit) return i;
  }
  return count;
}

uint64_t checksum(std::span<const std::byte> bytes) {
  const DU du;
  const auto lanes = static_cast<int64_t>(hn::Lanes(du));
  const auto* words = reinterpret_cast<const uint64_t*>(bytes.data());
  const int64_t count = std::ssize(bytes) / 8;
  const int64_t stream = count / kStreams / (2 * lanes) * (2 * lanes);
  VU sums[kStreams][2];
  for (auto& pair : sums) pair[0] = pair[1] = hn::Zero(du);
  for (int64_t i = 0; i < stream; i += 2 * lanes) {
#pragma GCC unroll 4
    for (int s = 0; s < kStreams; ++s) {
      sums[s][0] = hn::Add(sums[s][0], hn::LoadU(du, words + s * stream + i));
      sums[s][1] = hn::Add(sums[s][1], hn::LoadU(du, words + s * stream + i + lanes));
    }
  }
  for (int s = 1; s < kStreams; ++s) {
    for (int j = 0; j < 2; ++j) sums[0][j] = hn::Add(sums[0][j], sums[s][j]);
  }
  const VU lane_sums = hn::Add(sums[0][0], sums[0][1]);
  HWY_ALIGN uint64_t parts[hn::MaxLanes(DU())];
  hn::Store(lane_sums, du, parts);
  uint64_t sum = 0;
  for (int64_t i = 0; i < lanes; ++i) sum += parts[i];
  for (int64_t i = stream * kStreams; i < count; ++i) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + i * 8, sizeof(word));
    sum += word;
  }
  for (int64_t i = count * 8; i < std::ssize(bytes); ++i) sum += std::to_integer<uint64_t>(bytes[i]);
  return sum;
}

}  // namespace HWY_NAMESPACE
}  // namespace shardscope::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shardscope::kernels::cpu {

HWY_EXPORT(largest);
HWY_EXPORT(first_above);
HWY_EXPORT(checksum);

int64_t largest(const float* logits, int64_t count) {
  return HWY_DYNAMIC_DISPATCH(largest)(logits, count);
}

int64_t first_above(const float* logits, int64_t begin, int64_t count, float limit) {
  return HWY_DYNAMIC_DISPATCH(first_above)(logits, begin, count, limit);
}

uint64_t checksum(std::span<const std::byte> bytes) {
  return HWY_DYNAMIC_DISPATCH(checksum)(bytes);
}

}  // namespace shardscope::kernels::cpu
#endif
