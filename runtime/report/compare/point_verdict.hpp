// The same point of two reports: faster, slower, the same, or unclear, and where the difference comes from. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/measure/figures.hpp"
#include "runtime/measure/point.hpp"

namespace shardscope::runtime {

/// Fewer generations give intervals that a bad draw leaves too narrow: of twelve, the median's leaves out two on each
/// side.
inline constexpr int64_t kLeastCompared = 12;
/// Faster and slower need intervals that do not even overlap when they reach this many times as far from the medians.
/// Two intervals of 95 % that merely do not overlap come by chance in 1 of 500 comparisons; so, in fewer than 1 of
/// 10,000 (twelve generations each, with any noise of one kind).
inline constexpr double kApart = 2;
/// The same: whatever the two TPOTs are within their noise, their ratio is within this of 1.
inline constexpr double kSameMargin = 0.02;

enum class PointVerdict : uint8_t { kSame, kFaster, kSlower, kUnclear };
std::string_view name_of(PointVerdict verdict);

/// What stands against a verdict on TPOT, and how far two must differ to be told apart.
struct ComparedPoint {
  size_t report = 1;  // the other report's index; the first has 0
  const PointResult* first = nullptr;
  const PointResult* other = nullptr;
  std::optional<double> ratio;                 // TPOT p50 of the other / of the first
  std::optional<ClosedInterval> ratio_bounds;  // that their noise leaves
  PointVerdict verdict = PointVerdict::kUnclear;
  std::string reason;                   // why it is unclear; empty else
  std::optional<Parts> explained;       // parts of the other - of the first: they sum to the difference of TPOT. Only
                                        // where both rows know the same parts, or neither does
  std::optional<double> difference_ms;  // TPOT of the other - of the first
  std::string words;                    // "+1.20 ms: 80 % waiting for rank 1"; empty where nothing can be said
};

/// PointVerdict, bounds, parts and words of a pair. noise_bound: the larger of the two reports'; a smaller difference
/// than that is none. `report`, `first` and `other` are set from the arguments.
ComparedPoint compare_points(const PointResult& first, const PointResult& other, size_t report, double noise_bound);

/// A part as a difference between two runs: "products of weights".
std::string difference_words(Part part);

}  // namespace shardscope::runtime
