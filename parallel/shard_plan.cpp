// Dealing attention heads, FFN columns and vocabulary rows over ranks. Pure arithmetic.
//
// Attention: cost of a rank = query heads + KV heads that they need. A shorter run of heads never costs more than a
// longer one around it, so whether a limit suffices is answered greedily; the smallest limit is found by bisection, and
// the cheapest deal within it by dynamic programming over (rank, first head).
#include "parallel/shard_plan.hpp"

#include <algorithm>
#include <limits>

#include "kernels/base/error.hpp"

namespace shardscope::parallel {
namespace {

struct Heads {
  int64_t query = 0;
  int64_t group = 0;  // query heads of one KV head

  Range kv(int64_t begin, int64_t end) const {
    if (begin == end) return {begin / group, begin / group};
    return {begin / group, (end - 1) / group + 1};
  }
  int64_t cost(int64_t begin, int64_t end) const { return end - begin + kv(begin, end).size(); }
};

/// The longest run of heads from `begin` that costs at most `limit`.
int64_t furthest_end(const Heads& heads, int64_t begin, int64_t limit) {
  int64_t end = begin;
  while (end < heads.query && heads.cost(begin, end + 1) <= limit) ++end;
  return end;
}

bool limit_suffices(const Heads& heads, int ranks, int64_t limit) {
  int64_t begin = 0;
  for (int rank = 0; rank < ranks && begin < heads.query; ++rank) begin = furthest_end(heads, begin, limit);
  return begin == heads.query;
}

/// The smallest cost of the heaviest rank that any contiguous deal reaches.
int64_t smallest_limit(const Heads& heads, int ranks) {
  int64_t low = 2;  // one query head and its KV head
  int64_t high = heads.cost(0, heads.query);
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (limit_suffices(heads, ranks, middle)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

/// What is left to minimise once the heaviest rank is settled. Both add up over ranks.
struct Price {
  int64_t kv_heads = std::numeric_limits<int64_t>::max();
  int64_t squares = 0;  // of each rank's cost: smallest where ranks are most alike

  bool at_most(const Price& other) const {
    return kv_heads != other.kv_heads ? kv_heads < other.kv_heads : squares <= other.squares;
  }
};

/// Ends of the ranks' runs of heads. Among equals earlier ranks get more, so that empty ranks come last.
std::vector<int64_t> deal_heads(const Heads& heads, int ranks) {
  const int64_t limit = smallest_limit(heads, ranks);
  const int64_t width = heads.query + 1;
  std::vector<Price> after(width);  // price of heads [begin, query) on the ranks that follow
  after[heads.query] = {0, 0};
  std::vector<int64_t> choice(ranks * width);  // [rank, begin] where the run of `rank` ends
  for (int rank = ranks - 1; rank >= 0; --rank) {
    std::vector<Price> here(width);
    for (int64_t begin = 0; begin < width; ++begin) {
      for (int64_t end = begin; end < width && heads.cost(begin, end) <= limit; ++end) {
        if (after[end].kv_heads == std::numeric_limits<int64_t>::max()) continue;
        const int64_t cost = heads.cost(begin, end);
        const Price price{after[end].kv_heads + heads.kv(begin, end).size(), after[end].squares + cost * cost};
        if (price.at_most(here[begin])) {
          here[begin] = price;
          choice[rank * width + begin] = end;
        }
      }
    }
    after = std::move(here);
  }
  std::vector<int64_t> ends(ranks);
  int64_t begin = 0;
  for (int rank = 0; rank < ranks; ++rank) begin = ends[rank] = choice[rank * width + begin];
  return ends;
}

}  // namespace

Range even_share(int64_t count, int rank, int ranks) {
  require(count >= 0 && ranks >= 1 && rank >= 0 && rank < ranks, "even_share: rank outside the ranks");
  const int64_t each = count / ranks;
  const int64_t more = count % ranks;
  const int64_t begin = rank * each + std::min<int64_t>(rank, more);
  return {begin, begin + each + (rank < more ? 1 : 0)};
}

ShardPlan plan_shards(const ShardDimensions& dimensions, int ranks) {
  require(dimensions.query_heads > 0 && dimensions.kv_heads > 0 && dimensions.ffn > 0 && dimensions.vocab > 0,
          "plan_shards: dimensions must be positive");
  require(dimensions.query_heads % dimensions.kv_heads == 0, "plan_shards: kv_heads must divide query_heads");
  require(ranks >= 1 && ranks <= kMaxRanks, "plan_shards: number of ranks outside 1 .. 1024");

  const Heads heads{dimensions.query_heads, dimensions.query_heads / dimensions.kv_heads};
  const std::vector<int64_t> ends = deal_heads(heads, ranks);
  // The last unit may be partial. It falls to the last rank that holds any, and later ranks never hold more units.
  const int64_t ffn_units = (dimensions.ffn + kFfnGranule - 1) / kFfnGranule;

  ShardPlan plan;
  plan.ranks.reserve(ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    const int64_t begin = rank == 0 ? 0 : ends[rank - 1];
    const Range units = even_share(ffn_units, rank, ranks);
    RankShard shard;
    shard.query_heads = {begin, ends[rank]};
    shard.kv_heads = heads.kv(begin, ends[rank]);
    shard.ffn = {std::min(units.begin * kFfnGranule, dimensions.ffn),
                 std::min(units.end * kFfnGranule, dimensions.ffn)};
    shard.vocab = even_share(dimensions.vocab, rank, ranks);
    plan.ranks.push_back(shard);
  }
  return plan;
}

}  // namespace shardscope::parallel
