// `bench` and `scale` are one command with different defaults, tables and conclusions.
#pragma once

#include <string>
#include <vector>

#include "launch/session.hpp"
#include "launch/sweep_options.hpp"
#include "runtime/measure/point.hpp"

namespace shardscope::launch {

struct SweepKind {
  SweepDefaults defaults;
  const char* what_it_does;  // for its help
  const char* example;
  std::string (*table)(const std::vector<runtime::PointResult>& points);
  std::vector<std::string> (*advice)(const std::vector<runtime::PointResult>& points);
};

/// Measures, prints and writes the reports. Collective. Returns the exit status; throws Error.
int sweep_command(const SweepKind& kind, Session& session, const std::vector<std::string>& words);

}  // namespace shardscope::launch
