// How far logits may be from their references.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "runtime/model/config.hpp"

namespace shardscope::test {

/// Rounding of fp32 along the longest chain: every layer passes two products and two norms, each a sum of at most
/// `length` terms of relative error epsilon, and the head one more. The references are rounded to 4 decimals.
inline double logit_tolerance(const runtime::ModelConfig& config, const std::vector<double>& expected) {
  double magnitude = 0;
  for (const double logit : expected) magnitude = std::max(magnitude, std::abs(logit));
  const double length = static_cast<double>(std::max(config.hidden, config.ffn));
  const double chain = 4.0 * static_cast<double>(config.layers) + 1;
  return 0.5e-4 + chain * length * std::numeric_limits<float>::epsilon() / 2 * magnitude;
}

inline std::string first_wrong(const std::vector<float>& actual, const std::vector<double>& expected,
                               double tolerance) {
  if (actual.size() != expected.size()) return "sizes differ";
  for (size_t i = 0; i < actual.size(); ++i) {
    if (std::abs(static_cast<double>(actual[i]) - expected[i]) <= tolerance) continue;
    return "logit " + std::to_string(i) + ": " + std::to_string(actual[i]) + " instead of " +
           std::to_string(expected[i]);
  }
  return "";
}

}  // namespace shardscope::test
