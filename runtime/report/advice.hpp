// Sentences to act on, and only where the figures bear them.
#pragma once

#include <string>
#include <vector>

#include "runtime/measure/point.hpp"

namespace shardscope::runtime {

/// Per workload (and placement, where several were measured), the smallest degree from which the fastest cannot be told
/// apart against the smallest that ran, with the range of the speed-up that their intervals leave. Nothing from points
/// that are not `ok`, whose median has no closed interval (n < 6), that were emulated, or whose ranks shared cores:
/// those are named as not judged. "Faster" only where the intervals, widened to hold both visits' medians, do not
/// overlap.
std::vector<std::string> speedup_advice(const std::vector<PointResult>& points);

/// Per workload and degree of which the best and the worst placement were measured apart: what the wiring is worth. Of
/// points that bear a statement, as above.
std::vector<std::string> wiring_advice(const std::vector<PointResult>& points);

/// Both, and between them what loss_advice.hpp and replica_advice.hpp say.
std::vector<std::string> scale_advice(const std::vector<PointResult>& points);

}  // namespace shardscope::runtime
