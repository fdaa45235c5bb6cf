// Comparison of computed with expected numbers. Comparators accept when the difference is at most the tolerance, so
// that a NaN never passes; infinities pass only where they are expected, with their sign.
#pragma once

#include <cmath>
#include <cstddef>
#include <span>
#include <string>

namespace shardscope::test {

inline bool close(double actual, double expected, double tolerance) {
  return actual == expected || std::abs(actual - expected) <= tolerance;
}

/// Empty where every element is within its tolerance; else one line about the first that is not.
/// tolerances: one for all, or one per element.
inline std::string first_difference(std::span<const float> actual, std::span<const double> expected,
                                    std::span<const double> tolerances) {
  if (actual.size() != expected.size()) return "sizes differ";
  if (tolerances.size() != 1 && tolerances.size() != expected.size()) return "wrong number of tolerances";
  for (size_t i = 0; i < actual.size(); ++i) {
    const double tolerance = tolerances[tolerances.size() == 1 ? 0 : i];
    if (close(static_cast<double>(actual[i]), expected[i], tolerance)) continue;
    return "element " + std::to_string(i) + ": " + std::to_string(actual[i]) + " instead of " +
           std::to_string(expected[i]) + ", tolerance " + std::to_string(tolerance);
  }
  return "";
}

inline std::string first_difference(std::span<const float> actual, std::span<const double> expected, double tolerance) {
  return first_difference(actual, expected, std::span<const double>(&tolerance, 1));
}

}  // namespace shardscope::test
