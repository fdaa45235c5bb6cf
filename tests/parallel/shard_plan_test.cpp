// plan_shards against brute force and its promises, for the head counts of real models.
#include "parallel/shard_plan.hpp"

#include <catch2/catch.hpp>
#include <chrono>
#include <set>
#include <tuple>

#include "kernels/base/error.hpp"

namespace shardscope::parallel {
namespace {

struct HeadCounts {
  int64_t query;
  int64_t kv;
};

constexpr HeadCounts kModels[] = {{9, 3},  {32, 8}, {8, 2},   {40, 40},   {52, 52}, {28, 4}, {71, 1}, {64, 8},
                                  {14, 2}, {1, 1},  {128, 8}, {128, 128}, {25, 5},  {6, 6},  {12, 4}};

ShardDimensions dimensions_of(HeadCounts heads) {
  return {heads.query, heads.kv, 1536, 49152};
}

/// Counted head by head, unlike the code's arithmetic on ends.
int64_t kv_heads_of(const HeadCounts& heads, Range queries) {
  std::set<int64_t> kv;
  for (int64_t query = queries.begin; query < queries.end; ++query) kv.insert(query * heads.kv / heads.query);
  return static_cast<int64_t>(kv.size());
}

struct Deal {
  int64_t heaviest = 0;
  int64_t kv_heads = 0;
  auto operator<=>(const Deal&) const = default;
};

/// The best deal among all contiguous ones, tried one by one.
Deal best_by_trying(const HeadCounts& heads, int64_t begin, int ranks) {
  if (ranks == 0) return begin == heads.query ? Deal{0, 0} : Deal{1'000'000, 1'000'000};
  Deal best{1'000'000, 1'000'000};
  for (int64_t end = begin; end <= heads.query; ++end) {
    const int64_t kv = kv_heads_of(heads, {begin, end});
    const Deal rest = best_by_trying(heads, end, ranks - 1);
    best = std::min(best, Deal{std::max(rest.heaviest, end - begin + kv), rest.kv_heads + kv});
  }
  return best;
}

Deal deal_of(const HeadCounts& heads, const ShardPlan& plan) {
  Deal deal;
  for (const RankShard& shard : plan.ranks) {
    const int64_t kv = kv_heads_of(heads, shard.query_heads);
    deal.heaviest = std::max(deal.heaviest, shard.query_heads.size() + kv);
    deal.kv_heads += kv;
  }
  return deal;
}

void check_partition(const ShardPlan& plan, Range RankShard::*part, int64_t count) {
  int64_t begin = 0;
  for (const RankShard& shard : plan.ranks) {
    CHECK((shard.*part).begin == begin);
    CHECK((shard.*part).end >= begin);
    begin = (shard.*part).end;
  }
  CHECK(begin == count);
}

TEST_CASE("plan_shards: covers heads, FFN columns and vocabulary exactly once") {
  for (const HeadCounts& heads : kModels) {
    for (int ranks = 1; ranks <= 16; ++ranks) {
      INFO(heads.query << "/" << heads.kv << " on " << ranks);
      ShardDimensions dimensions = dimensions_of(heads);
      for (int64_t ffn : {1, 31, 1536, 1376, 11008, 1000}) {
        dimensions.ffn = ffn;
        const ShardPlan plan = plan_shards(dimensions, ranks);
        REQUIRE(plan.ranks.size() == static_cast<size_t>(ranks));
        check_partition(plan, &RankShard::query_heads, heads.query);
        check_partition(plan, &RankShard::ffn, ffn);
        check_partition(plan, &RankShard::vocab, dimensions.vocab);
      }
    }
  }
}

TEST_CASE("plan_shards: every query head finds its KV head on its own rank") {
  for (const HeadCounts& heads : kModels) {
    for (int ranks = 1; ranks <= 16; ++ranks) {
      for (const RankShard& shard : plan_shards(dimensions_of(heads), ranks).ranks) {
        INFO(heads.query << "/" << heads.kv << " on " << ranks);
        for (int64_t query = shard.query_heads.begin; query < shard.query_heads.end; ++query) {
          CHECK(shard.kv_heads.contains(query * heads.kv / heads.query));
        }
        CHECK(shard.kv_heads.size() == kv_heads_of(heads, shard.query_heads));  // and none for nobody
      }
    }
  }
}

TEST_CASE("plan_shards: the heaviest rank and the KV heads held are as few as trying all deals finds") {
  for (const HeadCounts& heads :
       {HeadCounts{9, 3}, {8, 2}, {14, 2}, {6, 6}, {12, 4}, {7, 1}, {10, 5}, {1, 1}, {12, 3}}) {
    for (int ranks = 1; ranks <= 5; ++ranks) {
      INFO(heads.query << "/" << heads.kv << " on " << ranks);
      const Deal best = best_by_trying(heads, 0, ranks);
      const Deal planned = deal_of(heads, plan_shards(dimensions_of(heads), ranks));
      CHECK(planned.heaviest == best.heaviest);
      CHECK(planned.kv_heads == best.kv_heads);
    }
  }
}

TEST_CASE("plan_shards: 9 query heads on 3 KV heads split 5 + 4 over 2 ranks, the middle KV head on both") {
  const ShardPlan plan = plan_shards({9, 3, 1536, 49152}, 2);
  CHECK(plan.ranks[0] == RankShard{{0, 5}, {0, 2}, {0, 768}, {0, 24576}});
  CHECK(plan.ranks[1] == RankShard{{5, 9}, {1, 3}, {768, 1536}, {24576, 49152}});
}

TEST_CASE("plan_shards: divisible heads split as everybody expects") {
  const ShardPlan plan = plan_shards({32, 8, 14336, 128256}, 4);
  for (int rank = 0; rank < 4; ++rank) {
    CHECK(plan.ranks[rank].query_heads == Range{rank * 8, rank * 8 + 8});
    CHECK(plan.ranks[rank].kv_heads == Range{rank * 2, rank * 2 + 2});
    CHECK(plan.ranks[rank].ffn == Range{rank * 3584, rank * 3584 + 3584});
  }
}

TEST_CASE("plan_shards: ranks beyond the heads hold none, and come last") {
  const ShardPlan plan = plan_shards({4, 2, 64, 5}, 7);
  for (int rank = 0; rank < 7; ++rank) {
    INFO("rank " << rank);
    CHECK(plan.ranks[rank].query_heads.size() == (rank < 4 ? 1 : 0));
    CHECK(plan.ranks[rank].kv_heads.size() == (rank < 4 ? 1 : 0));
    CHECK(plan.ranks[rank].ffn.size() == (rank < 2 ? 32 : 0));
    CHECK(plan.ranks[rank].vocab.size() == (rank < 5 ? 1 : 0));
  }
}

TEST_CASE("plan_shards: FFN cuts lie on the granule, and the rank of a partial unit is not the heaviest") {
  for (int64_t ffn : {1000, 4864, 1376, 33, 95}) {
    for (int ranks = 1; ranks <= 9; ++ranks) {
      const ShardPlan plan = plan_shards({8, 8, ffn, 100}, ranks);
      int64_t most = 0;
      for (const RankShard& shard : plan.ranks) most = std::max(most, shard.ffn.size());
      CHECK(most == std::min(ffn, ((ffn + 31) / 32 + ranks - 1) / ranks * 32));
      for (const RankShard& shard : plan.ranks) {
        CHECK((shard.ffn.begin % kFfnGranule == 0 || shard.ffn.empty()));
        if (shard.ffn.end == ffn && !shard.ffn.empty()) CHECK(shard.ffn.size() <= most);
      }
    }
  }
}

TEST_CASE("plan_shards: 128 heads on up to 64 ranks take no time") {
  const auto start = std::chrono::steady_clock::now();
  for (int ranks = 1; ranks <= 64; ++ranks) {
    plan_shards({128, 8, 53248, 128256}, ranks);
    plan_shards({128, 128, 53248, 128256}, ranks);
  }
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(5));
  CHECK(plan_shards({128, 8, 53248, 128256}, kMaxRanks).ranks.size() == kMaxRanks);
}

TEST_CASE("plan_shards: senseless dimensions are a bug") {
  CHECK_THROWS_AS(plan_shards({9, 2, 1, 1}, 1), BugError);
  CHECK_THROWS_AS(plan_shards({0, 1, 1, 1}, 1), BugError);
  CHECK_THROWS_AS(plan_shards({8, 8, 0, 1}, 1), BugError);
  CHECK_THROWS_AS(plan_shards({8, 8, 1, -1}, 1), BugError);
  CHECK_THROWS_AS(plan_shards({8, 8, 1, 1}, 0), BugError);
  CHECK_THROWS_AS(plan_shards({8, 8, 1, 1}, kMaxRanks + 1), BugError);
}

TEST_CASE("even_share: the first ranks get one more") {
  CHECK(even_share(7, 0, 3) == Range{0, 3});
  CHECK(even_share(7, 1, 3) == Range{3, 5});
  CHECK(even_share(7, 2, 3) == Range{5, 7});
  CHECK(even_share(1, 2, 3).empty());
  CHECK(even_share(0, 0, 1).empty());
}

}  // namespace
}  // namespace shardscope::parallel
