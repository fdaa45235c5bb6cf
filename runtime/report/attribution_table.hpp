// Where each row's TPOT goes, and where what it loses against ideal scaling goes, as text for a terminal.
#pragma once

#include <string>
#include <vector>

#include "runtime/measure/point.hpp"

namespace shardscope::runtime {

/// Two tables of at most 100 columns with their legend: of the rows that have an attribution, the milliseconds of each
/// part and below them their share of TPOT; of those that have a loss and a smaller base, the same of the loss, whose
/// shares stand only where the loss is beyond the noise. Then which rank the others wait for, where that is evident.
/// Empty without an attribution.
std::string attribution_table(const std::vector<PointResult>& points);

/// One rank's parts in a line: "ideal 6.12, matrices 1.01, …, resid 0.02 ms"; empty without an attribution.
/// point: that the rank is one of.
std::string rank_parts_line(const PointResult& point, const RankFigures& figures);

}  // namespace shardscope::runtime
