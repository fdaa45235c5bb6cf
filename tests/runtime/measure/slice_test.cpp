#include "runtime/model/slice.hpp"

#include <catch2/catch.hpp>

using namespace shardscope;
using namespace shardscope::runtime;
using kernels::DType;

namespace {

ModelConfig config_of(int64_t heads, int64_t kv, int64_t head_dim, int64_t hidden) {
  return {.layers = 1,
          .hidden = hidden,
          .query_heads = heads,
          .kv_heads = kv,
          .head_dim = head_dim,
          .ffn = 96,
          .vocab = 50,
          .max_positions = 64};
}

}  // namespace

TEST_CASE("slice_of: column cuts widen to whole blocks and remember what is theirs") {
  const ModelConfig config = config_of(8, 2, 8, 64);  // o: 64 columns, two blocks of 32
  const auto plan = plan_shards(shard_dimensions(config), 3);
  for (int rank = 0; rank < 3; ++rank) {
    const Range heads = plan.ranks[rank].query_heads;
    const WeightSlice slice = slice_of(config, Role::kAttentionOut, DType::kQ4_0, plan, rank);
    CHECK(slice.used_columns == Range{heads.begin * 8, heads.end * 8});
    CHECK(slice.columns.begin % 32 == 0);
    CHECK(slice.columns.end % 32 == 0);
    CHECK(slice.columns.begin <= slice.used_columns.begin);
    CHECK(slice.columns.end >= slice.used_columns.end);
    CHECK(slice.columns.size() - slice.used_columns.size() < 64);
    const WeightSlice plain = slice_of(config, Role::kAttentionOut, DType::kF32, plan, rank);
    CHECK(plain.columns == plain.used_columns);
  }
}

TEST_CASE("slice_of: row cuts of every tensor cover each row once, and KV rows at least once") {
  const ModelConfig config = config_of(9, 3, 16, 72);
  const int ranks = GENERATE(1, 2, 3, 4, 7, 12);
  const auto plan = plan_shards(shard_dimensions(config), ranks);
  for (const Role role : {Role::kEmbedding, Role::kQuery, Role::kKey, Role::kValue, Role::kGate, Role::kUp}) {
    const int64_t rows = shape_of(config, role).rows;
    std::vector<int> held(rows, 0);
    for (int rank = 0; rank < ranks; ++rank) {
      const WeightSlice slice = slice_of(config, role, DType::kF16, plan, rank);
      for (int64_t row = slice.rows.begin; row < slice.rows.end; ++row) ++held[row];
    }
    const bool kv = role == Role::kKey || role == Role::kValue;
    for (const int count : held) CHECK((kv ? count >= 1 : count == 1));
  }
}

TEST_CASE("slice_of: a bias after an all-reduce belongs to the first rank alone") {
  const ModelConfig config = config_of(4, 4, 16, 64);
  const auto plan = plan_shards(shard_dimensions(config), 2);
  CHECK_FALSE(slice_of(config, Role::kDownBias, DType::kF32, plan, 0).empty());
  CHECK(slice_of(config, Role::kDownBias, DType::kF32, plan, 1).empty());
}
