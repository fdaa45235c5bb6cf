// Reports of runs that nobody made, for tests of their comparison: rows with known parts, machines of recorded
// topologies.
#pragma once

#include <string>
#include <vector>

#include "runtime/report/compare/reports.hpp"
#include "tests/support/parted_points.hpp"

namespace shardscope::test {

struct RunFacts {
  std::string topology_file;  // within tests/data/topologies: eight A100s; empty: a CPU
  std::string commit = "0123456";
  std::string host = "node";
  std::string nccl = "2.27.3";
  int threads = 1;
  double noise_bound = 0.02;
  bool complete = true;
};

/// A report of `scale` with those rows as text.
std::string report_text(std::vector<runtime::PointResult> points, const RunFacts& facts = {});
/// The same, read back.
runtime::ReadReport a_report(const std::string& name, const std::vector<runtime::PointResult>& points,
                             const RunFacts& facts = {});

/// A row of 24 generations known to ± 1 %, each of whose ranks has its parts.
runtime::PointResult a_known_point(const std::vector<PartMs>& ranks);
runtime::PointResult a_known_point(int tp, const PartMs& parts);  // the same for all

/// Two clouds' eight A100s: one joined through NVSwitches, one in bridged pairs, where TP=8 takes twice the time.
std::vector<runtime::ReadReport> two_clouds();

}  // namespace shardscope::test
