// What a person must know before believing a row: one line each, "word: explanation". Pure functions of the figures.
#pragma once

#include "runtime/measure/point.hpp"
#include "runtime/measure/protocol.hpp"

namespace shardscope::runtime {

inline constexpr int64_t kLeastForIntervals = 6;  // generations: from here on the median has one, (1/2)^n <= 2.5 %
inline constexpr double kDriftWarning = 0.05;     // of read bandwidth between before and after
inline constexpr double kStolenWarning = 0.01;    // share of the cores' time
inline constexpr double kWaitedWarning = 0.02;    // share of the threads' time
inline constexpr double kClockWarning = 0.05;     // highest / lowest clock - 1
inline constexpr double kShiftWarning = 0.03;     // of the median between the visits

/// Class of each sample by Tukey's fences, and the cause that was seen with it. Fewer than 6 samples: none is one.
Outliers classify_outliers(const std::vector<GenerationSample>& samples);

/// Appends to point.verdicts, in this order where they hold: `too_few` (n < 6: no closed interval), `unsteady`,
/// `limit` (a limit ended it first), `noise` (interval wider than the bound, or the visits' medians apart),
/// `interference` (stolen time, waiting for cores, moving clock), `outliers`, `bandwidth_drift`, `oversubscribed`. What
/// utilisation rules out (`cache_resident`, `invalid`) comes from figures.hpp.
void add_verdicts(PointResult& point, const Protocol& protocol);

/// `resumed`: the point was measured whole by an earlier run. Its visits do not bracket those of this run, so that a
/// drift between the runs would pass for scaling.
void mark_resumed(PointResult& point);
bool is_resumed(const PointResult& point);

}  // namespace shardscope::runtime
