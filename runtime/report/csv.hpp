// A report as one flat table for spreadsheets: a header line, then one line a point (RFC 4180).
#pragma once

#include <string>
#include <vector>

#include "runtime/measure/point.hpp"

namespace shardscope::runtime {

/// Units stand in the column names; unknown is an empty cell. Needs no environment, so that files can be joined:
/// `host` and `model` are columns.
std::string points_csv(const std::vector<PointResult>& points, const std::string& model, const std::string& host);

}  // namespace shardscope::runtime
