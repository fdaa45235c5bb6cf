// What each rank knows of a point after a visit, on its way to rank 0, and the figures of two visits as one.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <vector>

#include "runtime/measure/bandwidth.hpp"
#include "runtime/measure/point.hpp"

namespace shardscope::runtime {

/// Measured by one rank in one visit; times are its own clock's.
struct OwnFigures {
  std::vector<double> tpot_ms;  // of each measured generation
  ReadBandwidth before, after;
  double waited_seconds = 0, seconds = 0;  // of the time in which waiting could be read
  double load_seconds = 0;
  std::optional<double> timer_step_ns;  // of the clock that its instruments read
};

/// The part of RankFigures that is measured, as doubles for World::all_gather.
inline constexpr size_t kRankDoubles = 10;
std::array<double, kRankDoubles> to_doubles(const OwnFigures& own, const MemoryBytes& memory);
RankFigures rank_figures_of(std::span<const double> doubles, int rank);

/// One rank's figures of both visits: the better bandwidth, the larger drift and step of the timer, the first load
/// time, means of the rest.
RankFigures both_visits(const RankFigures& first, const RankFigures& second);

}  // namespace shardscope::runtime
