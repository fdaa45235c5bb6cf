// Sentences to act on, and only where the figures bear them.
#pragma once

#include <string>
#include <vector>

#include "runtime/measure/point.hpp"

namespace shardscope::runtime {

/// Per workload, the smallest degree from which the fastest cannot be told apart against the smallest that ran, with
/// the range of the speed-up that their intervals leave. Nothing from points that are not `ok`, whose median has no
/// closed interval (n < 6), or whose ranks shared cores: those are named as not judged. "Faster" only where the
/// intervals, widened to hold both visits' medians, do not overlap.
std::vector<std::string> speedup_advice(const std::vector<PointResult>& points);

}  // namespace shardscope::runtime
