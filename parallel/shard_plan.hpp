// Which part of a model each rank holds. Pure arithmetic; knows no layers, files or devices.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/base/range.hpp"

namespace shardscope::parallel {

/// FFN columns are dealt in units of this many: one block of the 32-wide block formats.
inline constexpr int64_t kFfnGranule = 32;
inline constexpr int kMaxRanks = 1024;

struct ShardDimensions {
  int64_t query_heads = 0;
  int64_t kv_heads = 0;  // divides query_heads
  int64_t ffn = 0;
  int64_t vocab = 0;
};

/// Half-open ranges of global indices. A range may be empty: there are more ranks than units.
struct RankShard {
  Range query_heads;
  Range kv_heads;  // every KV head that query_heads need; neighbours may hold the same one
  Range ffn;
  Range vocab;
  bool operator==(const RankShard&) const = default;
};

struct ShardPlan {
  std::vector<RankShard> ranks;
};

/// Deals query heads, FFN columns and vocabulary rows over `ranks` ranks, each as evenly as its unit allows.
/// Query heads: contiguous; the rank with the largest cost (query heads + KV heads, which is what its projections and
/// cache reads weigh) is as light as any contiguous deal can make it; then the fewest KV heads are held twice.
/// Throws BugError for dimensions that are not positive or kv_heads that does not divide query_heads.
ShardPlan plan_shards(const ShardDimensions& dimensions, int ranks);

/// `count` units dealt over `ranks`: the first count % ranks ranks get one more. Returns the range of `rank`.
Range even_share(int64_t count, int rank, int ranks);

}  // namespace shardscope::parallel
