// Two or more reports side by side: what differs between the runs in the order of its effect, then each point with a
// verdict and where its difference comes from. All are compared with the first.
#pragma once

#include <string>
#include <vector>

#include "runtime/report/compare/point_verdict.hpp"
#include "runtime/report/compare/reports.hpp"
#include "topology/comparing.hpp"

namespace shardscope::runtime {

/// A point that only one of the first and another report have.
struct LonePoint {
  size_t report = 0;  // that has it
  size_t lacks = 0;   // that has not
  const PointResult* point = nullptr;
};

/// Borrows the reports.
struct ReportComparison {
  std::vector<std::string> incomparable;          // incomparable_facts: not empty only with --force
  std::vector<topology::Difference> differences;  // the weightiest first
  std::vector<ComparedPoint> points;              // by the other report, then as the first report has them
  std::vector<LonePoint> lone;
  std::string summary;  // a paragraph: which is faster, by how much, and what explains it
};

/// Whether the group, alone or the first of replicas, was asked for by that placement.
bool was_asked(const topology::PlacedGroup& group, topology::Placement placement);

/// Two or more reports. Points are paired by degree, replicas, placement, workload and kind.
ReportComparison compare_reports(const std::vector<ReadReport>& reports);

/// What differs between the runs (not their figures): the work itself, backend and devices, their wiring, the
/// all-reduce, threads and cores, clocks, versions, the rest. report_differences.cpp
std::vector<topology::Difference> report_differences(const std::vector<ReadReport>& reports);

/// For a terminal. width: of a line.
std::string comparison_text(const ReportComparison& comparison, const std::vector<ReadReport>& reports,
                            int width = 100);

/// A document shardscope.compare/1.
Json comparison_json(const ReportComparison& comparison, const std::vector<ReadReport>& reports);

/// One HTML file with that document.
std::string comparison_page(const Json& document);

}  // namespace shardscope::runtime
