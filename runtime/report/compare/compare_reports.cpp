#include <algorithm>

#include <fmt/format.h>

#include "runtime/model/json_file.hpp"
#include "runtime/report/compare/comparing.hpp"
#include "runtime/report/rivals.hpp"

namespace shardscope::runtime {
namespace {

bool same_point(const PointResult& a, const PointResult& b) {
  if (a.tp != b.tp || a.pp != b.pp || a.group.replicas != b.group.replicas || !(a.workload == b.workload) ||
      a.kind != b.kind)
    return false;
  return std::any_of(topology::kPlacements.begin(), topology::kPlacements.end(), [&](topology::Placement placement) {
    return was_asked(a.group, placement) && was_asked(b.group, placement);
  });
}

const PointResult* counterpart(const PointResult& point, const ReadReport& report) {
  const auto found = std::find_if(report.points.begin(), report.points.end(),
                                  [&](const PointResult& other) { return same_point(point, other); });
  return found == report.points.end() ? nullptr : &*found;
}

void pair_up(ReportComparison& comparison, const std::vector<ReadReport>& reports, size_t at) {
  const ReadReport& first = reports.front();
  const ReadReport& other = reports[at];
  const double noise_bound = std::max(first.noise_bound, other.noise_bound);
  for (const PointResult& point : first.points) {
    if (const PointResult* with = counterpart(point, other)) {
      comparison.points.push_back(compare_points(point, *with, at, noise_bound));
    } else {
      comparison.lone.push_back({.report = 0, .lacks = at, .point = &point});
    }
  }
  for (const PointResult& point : other.points) {
    if (counterpart(point, first) == nullptr) {
      comparison.lone.push_back({.report = at, .lacks = 0, .point = &point});
    }
  }
}

/// "slower at 3 (1.98x to 2.05x the TPOT)"; empty where there is none.
std::string share_text(const std::vector<const ComparedPoint*>& pairs, PointVerdict verdict) {
  std::vector<double> ratios;
  for (const ComparedPoint* pair : pairs) {
    if (pair->verdict == verdict) ratios.push_back(pair->ratio.value_or(1));
  }
  if (ratios.empty()) return "";
  const std::string text = fmt::format("{} at {}", name_of(verdict), ratios.size());
  if (verdict != PointVerdict::kFaster && verdict != PointVerdict::kSlower) return text;
  const auto [least, most] = std::minmax_element(ratios.begin(), ratios.end());
  const std::string low = fmt::format("{:.2f}x", *least);
  const std::string high = fmt::format("{:.2f}x", *most);
  return fmt::format("{} ({}{} the TPOT)", text, low, low == high ? "" : fmt::format(" to {}", high));
}

/// Where TPOT moved most, relative to itself, of those with a verdict.
const ComparedPoint* largest(const std::vector<const ComparedPoint*>& pairs) {
  const ComparedPoint* found = nullptr;
  const auto size = [](const ComparedPoint& pair) { return std::max(*pair.ratio, 1 / *pair.ratio); };
  for (const ComparedPoint* pair : pairs) {
    if (!pair->words.empty() && (found == nullptr || size(*pair) > size(*found))) found = pair;
  }
  return found;
}

std::string sentences_on(const ReportComparison& comparison, const std::vector<ReadReport>& reports, size_t at) {
  std::vector<const ComparedPoint*> pairs;
  for (const ComparedPoint& pair : comparison.points) {
    if (pair.report == at) pairs.push_back(&pair);
  }
  const std::string who = fmt::format("{} against {}", printable(reports[at].name), printable(reports.front().name));
  if (pairs.empty()) return fmt::format("{}: no point is in both.", who);
  std::vector<std::string> parts;
  for (const PointVerdict verdict :
       {PointVerdict::kSlower, PointVerdict::kFaster, PointVerdict::kSame, PointVerdict::kUnclear}) {
    if (std::string text = share_text(pairs, verdict); !text.empty()) parts.push_back(std::move(text));
  }
  std::string text =
      fmt::format("{}: of {} point{} {}.", who, pairs.size(), pairs.size() == 1 ? "" : "s", fmt::join(parts, ", "));
  if (const ComparedPoint* most = largest(pairs)) {
    const int replicas = most->first->group.replicas;
    text += fmt::format(" Most at TP={}{}, {}: {}.", most->first->tp,
                        replicas > 1 ? fmt::format(" x {} replicas", replicas) : "",
                        workload_text(most->first->workload), most->words);
  }
  return text;
}

/// What topologies say about the wiring of the machines that ran, where they differ in it.
std::string wiring_text(const std::vector<ReadReport>& reports) {
  std::vector<topology::Topology> machines;
  std::vector<std::string> names;
  for (const ReadReport& report : reports) {
    if (!report.topology || report.topology->gpu_count.value_or(0) == 0) return "";
    machines.push_back(*report.topology);
    names.push_back(printable(report.name));
  }
  const topology::Comparison comparison = topology::compare_topologies(machines, names);
  return comparison.differences.empty() ? "" : comparison.summary;
}

std::string summary_of(const ReportComparison& comparison, const std::vector<ReadReport>& reports) {
  std::vector<std::string> sentences;
  if (!comparison.incomparable.empty()) {
    sentences.emplace_back(
        "These reports did not measure the same work (the first differences below): ratios of their "
        "times say little.");
  }
  for (size_t at = 1; at < reports.size(); ++at) sentences.push_back(sentences_on(comparison, reports, at));
  if (std::string wiring = wiring_text(reports); !wiring.empty()) sentences.push_back(std::move(wiring));
  if (comparison.differences.empty())
    sentences.emplace_back("The runs do not differ in anything that the reports tell.");
  return fmt::format("{}", fmt::join(sentences, " "));
}

}  // namespace

bool was_asked(const topology::PlacedGroup& group, topology::Placement placement) {
  return group.placement == placement || std::find(group.also.begin(), group.also.end(), placement) != group.also.end();
}

ReportComparison compare_reports(const std::vector<ReadReport>& reports) {
  ReportComparison comparison{.incomparable = incomparable_facts(reports)};
  comparison.differences = report_differences(reports);
  for (size_t at = 1; at < reports.size(); ++at) pair_up(comparison, reports, at);
  comparison.summary = summary_of(comparison, reports);
  return comparison;
}

}  // namespace shardscope::runtime
