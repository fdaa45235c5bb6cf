// The one way in which partial sums are added: rank by rank, so that every rank and every algorithm gets the same bits.
// Private to parallel/.
#pragma once

#include <algorithm>
#include <cstdint>

namespace shardscope::parallel {

/// out[i] = ((part(0)[i] + part(1)[i]) + part(2)[i]) + … for i < count. part(r): pointer to rank r's partial. out may
/// be none of the parts. Block by block, so that the sums stay in the first-level cache.
template <typename Part>
void sum_in_rank_order(const Part& part, int ranks, int64_t count, float* out) {
  constexpr int64_t kBlock = 2048;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t block = std::min(kBlock, count - begin);
    float* __restrict sum = out + begin;
    const float* __restrict a = part(0) + begin;
    if (ranks == 1) {
      std::copy_n(a, block, sum);
      continue;
    }
    const float* __restrict b = part(1) + begin;
    for (int64_t i = 0; i < block; ++i) sum[i] = a[i] + b[i];
    int rank = 2;
    for (; rank + 1 < ranks; rank += 2) {
      const float* __restrict c = part(rank) + begin;
      const float* __restrict d = part(rank + 1) + begin;
      for (int64_t i = 0; i < block; ++i) sum[i] = (sum[i] + c[i]) + d[i];
    }
    if (rank < ranks) {
      const float* __restrict c = part(rank) + begin;
      for (int64_t i = 0; i < block; ++i) sum[i] += c[i];
    }
  }
}

}  // namespace shardscope::parallel
