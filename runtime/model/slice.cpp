#include "runtime/model/slice.hpp"

#include "kernels/base/error.hpp"

namespace shardscope::runtime {
namespace {

Range scaled(Range heads, int64_t width) {
  return {heads.begin * width, heads.end * width};
}

/// `columns` widened to whole blocks of `dtype`; an empty range stays empty.
Range whole_blocks(Range columns, kernels::DType dtype) {
  if (columns.empty()) return {0, 0};
  const int64_t block = kernels::facts(dtype).block_elements;
  return {columns.begin / block * block, (columns.end + block - 1) / block * block};
}

struct PlainSlice {
  Range rows;
  Range columns;
};

/// The rank's part in elements, before blocks are made whole.
PlainSlice plain_slice(const ModelConfig& config, Role role, const parallel::RankShard& shard, int rank) {
  const WeightShape shape = shape_of(config, role);
  const Range all_rows{0, shape.rows};
  const Range all_columns{0, shape.columns};
  const WeightRule& rule = rule_of(role);
  // A vector is one row; its cut runs along the columns.
  const auto along_output = [&](Range range) {
    return rule.vector ? PlainSlice{all_rows, range} : PlainSlice{range, all_columns};
  };
  switch (rule.cut) {
    case Cut::kReplicate:
      return {all_rows, all_columns};
    case Cut::kQueryRows:
      return along_output(scaled(shard.query_heads, config.head_dim));
    case Cut::kKvRows:
      return along_output(scaled(shard.kv_heads, config.head_dim));
    case Cut::kQueryColumns:
      return {all_rows, scaled(shard.query_heads, config.head_dim)};
    case Cut::kFfnRows:
      return along_output(shard.ffn);
    case Cut::kFfnColumns:
      return {all_rows, shard.ffn};
    case Cut::kVocabRows:
      return along_output(shard.vocab);
    case Cut::kFirstRank:
      return rank == 0 ? PlainSlice{all_rows, all_columns} : PlainSlice{{0, 0}, {0, 0}};
  }
  throw BugError("slice_of: unknown cut");
}

}  // namespace

int64_t WeightSlice::bytes(kernels::DType dtype) const {
  return empty() ? 0 : rows.size() * kernels::row_bytes(dtype, columns.size());
}

parallel::ShardDimensions shard_dimensions(const ModelConfig& config) {
  return {.query_heads = config.query_heads, .kv_heads = config.kv_heads, .ffn = config.ffn, .vocab = config.vocab};
}

WeightSlice slice_of(const ModelConfig& config, Role role, kernels::DType dtype, const parallel::ShardPlan& plan,
                     int rank) {
  const PlainSlice plain = plain_slice(config, role, plan.ranks.at(static_cast<size_t>(rank)), rank);
  return {.rows = plain.rows, .columns = whole_blocks(plain.columns, dtype), .used_columns = plain.columns};
}

int64_t kv_head_holders(const parallel::ShardPlan& plan, int64_t head) {
  int64_t holders = 0;
  for (const parallel::RankShard& shard : plan.ranks) holders += shard.kv_heads.contains(head) ? 1 : 0;
  return holders;
}

SliceBytes slice_bytes(const ModelConfig& config, Role role, kernels::DType dtype, const parallel::ShardPlan& plan,
                       int rank) {
  const WeightSlice slice = slice_of(config, role, dtype, plan, rank);
  SliceBytes result{.stored = slice.bytes(dtype)};
  if (result.stored == 0) return result;
  const auto ranks = static_cast<double>(plan.ranks.size());
  switch (rule_of(role).cut) {
    case Cut::kReplicate:
      result.replicated = static_cast<double>(result.stored) * (1.0 - 1.0 / ranks);
      break;
    case Cut::kKvRows: {
      const Range heads = plan.ranks[static_cast<size_t>(rank)].kv_heads;
      const double head_bytes = static_cast<double>(result.stored) / static_cast<double>(heads.size());
      for (int64_t head = heads.begin; head < heads.end; ++head) {
        result.replicated += head_bytes * (1.0 - 1.0 / static_cast<double>(kv_head_holders(plan, head)));
      }
      break;
    }
    case Cut::kQueryColumns:
    case Cut::kFfnColumns: {
      // Blocks that straddle a cut are held whole by both sides: what lies outside the rank's own columns is a copy.
      const double outside = static_cast<double>(slice.columns.size() - slice.used_columns.size());
      result.replicated = static_cast<double>(result.stored) * outside / static_cast<double>(slice.columns.size());
      break;
    }
    case Cut::kQueryRows:
    case Cut::kFfnRows:
    case Cut::kVocabRows:
    case Cut::kFirstRank:
      break;
  }
  return result;
}

}  // namespace shardscope::runtime
