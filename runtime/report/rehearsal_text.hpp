// What stands above a table whose rows were rehearsed, so that nobody takes them for measured ones.
#pragma once

#include <string>
#include <vector>

#include "runtime/measure/point.hpp"

namespace shardscope::runtime {

/// Lines, each ended; empty where no row was rehearsed.
std::string rehearsal_lines(const std::vector<PointResult>& points);

}  // namespace shardscope::runtime
