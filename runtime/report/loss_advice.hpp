// Sentences about where speed-up is lost, and about what would help. Every number in them comes from `loss` or stands
// in the rows; a cause that the figures do not show is not claimed.
#pragma once

#include <string>
#include <vector>

#include "runtime/measure/point.hpp"

namespace shardscope::runtime {

/// Per workload and placement one sentence about the degree that speed-up advice names (the smallest one above the base
/// where none is faster): its loss by parts, and what the ranks' figures say about them. Then one per part that
/// dominates some of these rows: what takes less of it. Only of losses that are shown (loss.hpp).
std::vector<std::string> loss_advice(const std::vector<PointResult>& points);

}  // namespace shardscope::runtime
