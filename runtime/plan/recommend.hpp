// Which division of a machine's GPUs to take: TP degree x pipeline stages x replicas, for three goals. Pure functions
// over predicted rows.
#pragma once

#include <functional>
#include <vector>

#include "runtime/plan/plan.hpp"

namespace shardscope::runtime {

/// Rows of a degree and a number of stages in a placement, one for each workload of the options.
using RowsOf = std::function<std::vector<PredictedRow>(int degree, int stages, topology::Placement placement)>;

/// For the bound first where one is given, then for the lowest latency, then for the highest throughput; none where
/// nothing fits. Degrees are the options'; stages 1, 2, 4, … as GPUs and layers allow; the rest of the GPUs are
/// replicas, which are as slow as the worst placed group unless all can be joined as well as the best.
std::vector<Recommendation> recommendations(const topology::Topology& topology, int gpus, int layers,
                                            const PlanOptions& options, const Spread90& spread, const RowsOf& rows_of);

/// Whether that many groups of that degree can stand beside each other, each joined as well as the best one.
bool equal_groups(const topology::Topology& topology, int degree, int groups);

}  // namespace shardscope::runtime
