// What the figures show of a loss: whether it is beyond the noise, what its parts are worth, and which rank the others
// wait for. Pure functions; the thresholds of advice about losses stand here once, with their reasons.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/measure/point.hpp"

namespace shardscope::runtime {

/// Of the loss: a smaller part is not named, since the parts themselves are uncertain by a few percent.
inline constexpr double kLeastNamed = 0.1;
/// Of the loss: a part this large that is the largest, too, dominates. Doing away with less than a third of a loss is
/// hardly worth another setup.
inline constexpr double kDominant = 1.0 / 3;
/// Of the loss: where more is unexplained, the order of the parts is not known.
inline constexpr double kMostUnexplained = 0.25;
/// The late rank waits less than half of what any other does: a rank that is late in a part of the steps only does not.
inline constexpr double kWaitsMuchLess = 0.5;
/// Of TPOT: a difference between the ranks' waits that is worth a line.
inline constexpr double kWorthNaming = 0.02;
/// Of bytes: shards whose bytes differ by more are uneven.
inline constexpr double kUneven = 0.02;
/// Of read bandwidth: a difference that is no drift (see kDriftWarning).
inline constexpr double kSlowerMemory = 0.05;

/// The row of tp_base for this workload and placement; null: there is none, or it is the row itself.
const PointResult* base_row(const PointResult& point, const std::vector<PointResult>& points);

/// Whether TPOT(tp) - TPOT(base) x base / tp is positive whatever the two TPOTs are within their noise.
bool loss_beyond_noise(const PointResult& point, const std::vector<PointResult>& points);

/// A loss of which the parts may be told.
struct ShownLoss {
  const PointResult* row = nullptr;
  const PointResult* base = nullptr;
  double total_ms = 0;
  std::vector<std::pair<Part, double>> shares;  // of the total, the largest first; without the residual
  double unexplained = 0;                       // share of the residual

  /// The largest part, where it dominates.
  std::optional<Part> dominant() const;
};

/// nullopt: the two rows do not support advice (see rivals.hpp), the loss is not beyond their noise, the residual of
/// one of them is over kLargestResidual of its TPOT, or that of the loss over kMostUnexplained.
std::optional<ShownLoss> shown_loss(const PointResult& point, const std::vector<PointResult>& points);

/// A rank that waits much less than each other: the others wait for it. Nothing where the residual is over
/// kLargestResidual: the parts are too uncertain then.
struct SlowestRank {
  int rank = 0;  // of the group
  double wait_ms = 0;
  double others_ms = 0;  // the least of the others

  /// "waits 0.020 ms of a step, each other 0.41 ms or more"
  std::string waits(size_t ranks) const;
};
std::optional<SlowestRank> slowest_rank(const PointResult& point);

}  // namespace shardscope::runtime
