// Which rows of a sweep bear a statement, and which of them may be set against each other. Pure functions that the
// sentences of advice share.
#pragma once

#include <string>
#include <vector>

#include "runtime/measure/point.hpp"

namespace shardscope::runtime {

/// Whether the figures bear a statement: measured whole on what is no stand-in, without sharing cores, and with a
/// closed interval.
bool figures_bear(const PointResult& point);

/// That, of one group that had the devices to itself: replicas at once are no degree's row.
bool supports_advice(const PointResult& point);

/// Whether the intervals of TPOT, widened to hold both visits' medians, do not overlap. Of points that support advice.
bool surely_below(const PointResult& point, const PointResult& other);

/// The degrees of a workload that can be compared with the smallest one, and those that cannot.
struct Rivals {
  std::vector<const PointResult*> judged;  // ascending by degree
  std::vector<int> unjudged;
};
Rivals rivals_of(const PointResult& base, topology::Placement placement, const std::vector<PointResult>& points);

/// The smallest degree from which none of the faster ones can be told apart; null: none is faster than the base.
const PointResult* best_of(const PointResult& base, const std::vector<const PointResult*>& judged);

/// Those that show something of their own: placements for which all rows are the same are one.
std::vector<topology::Placement> distinct_placements(const std::vector<PointResult>& points);

/// "batch 1 with 512 + 128 tokens"
std::string workload_text(const Workload& workload);

}  // namespace shardscope::runtime
