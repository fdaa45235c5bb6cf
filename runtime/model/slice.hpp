// What of each tensor a rank holds: the weight rules applied to a shard plan. Loading, memory ledger, traffic model and
// the printed plan all ask here, so that they cannot disagree.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/base/range.hpp"
#include "kernels/dtype.hpp"
#include "parallel/shard_plan.hpp"
#include "runtime/model/config.hpp"
#include "runtime/model/weights.hpp"

namespace shardscope::runtime {

/// The part of a tensor on one rank. Columns are widened to whole quantisation blocks: `columns` is what is stored,
/// `used_columns` what belongs to the rank; activations outside used_columns are zero.
struct WeightSlice {
  Range rows;
  Range columns;
  Range used_columns;
  bool empty() const { return rows.empty() || columns.empty(); }
  int64_t bytes(kernels::DType dtype) const;
};

parallel::ShardDimensions shard_dimensions(const ModelConfig& config);

/// The slice of `role` for rank `rank` of the plan, stored as `dtype`.
WeightSlice slice_of(const ModelConfig& config, Role role, kernels::DType dtype, const parallel::ShardPlan& plan,
                     int rank);

/// Bytes of one tensor on one rank, and how many of them another rank holds too: each byte counts (1 - 1 / holders).
struct SliceBytes {
  int64_t stored = 0;
  double replicated = 0;
};
SliceBytes slice_bytes(const ModelConfig& config, Role role, kernels::DType dtype, const parallel::ShardPlan& plan,
                       int rank);

/// How many ranks hold KV head `head` (1 where the plan has no copies).
int64_t kv_head_holders(const parallel::ShardPlan& plan, int64_t head);

}  // namespace shardscope::runtime
