// Within runtime/report: what takes less of a part that dominates losses.
#pragma once

#include <string>
#include <vector>

#include "runtime/report/loss.hpp"

namespace shardscope::runtime {

/// A part as a loss: "all-reduce transfer".
std::string loss_words(Part part);

/// What is known of a part from the ranks' shards and bandwidths; empty: nothing. One or more sentences without a space
/// at their ends.
std::string seen_in_ranks(const ShownLoss& loss, Part part);

/// One sentence on the rows in which that part dominates; empty where nothing is known to help. points: all rows.
std::string remedy_of(Part part, const std::vector<ShownLoss>& losses, const std::vector<PointResult>& points);

}  // namespace shardscope::runtime
