// A comparison of reports as a document shardscope.compare/1, and the page that shows it.
#include "runtime/report/compare/comparing.hpp"
#include "runtime/report/json_values.hpp"
#include "runtime/report/names.hpp"

namespace shardscope::runtime {
namespace {

Json report_facts(const ReadReport& report) {
  const auto fact = [&](const char* part, const char* key) {
    const auto& object = report.document.at(part);
    const auto found = object.find(key);
    return found == object.end() ? Json(nullptr) : Json(*found);
  };
  return {{"file", report.file},
          {"name", report.name},
          {"command", report.document.at("command")},
          {"time", fact("environment", "time")},
          {"host", fact("environment", "host")},
          {"version", fact("environment", "version")},
          {"commit", fact("environment", "commit")},
          {"model", fact("model", "name")},
          {"points", report.points.size()}};
}

Json place_json(const PointResult& point) {
  Json placements = Json::array();
  for (const topology::Placement placement : topology::kPlacements) {
    if (was_asked(point.group, placement)) placements.push_back(name_of(placement));
  }
  return {{"kind", kind_name(point.kind)},
          {"tp", point.tp},
          {"replicas", point.group.replicas},
          {"placements", std::move(placements)},
          {"batch", point.workload.batch},
          {"prompt_tokens", point.workload.prompt_tokens},
          {"output_tokens", point.workload.output_tokens}};
}

Json bounds_json(const std::optional<ClosedInterval>& bounds) {
  if (!bounds) return nullptr;
  return Json::array({bounds->low, bounds->high});
}

/// Null where it is not explained; so is a part that neither row knows.
Json explained_json(const ComparedPoint& pair) {
  if (!pair.explained) return nullptr;
  Json document = Json::object();
  for (const Part part : kParts) {
    document[std::string(name_of(part))] = pair.first->knows(part) ? Json((*pair.explained)[part]) : Json(nullptr);
  }
  return document;
}

Json pair_json(const ComparedPoint& pair) {
  Json document = place_json(*pair.first);
  document["report"] = pair.report;
  document["tpot_ms"] = Json::array({value_or_null(pair.first->tpot_ms.p50), value_or_null(pair.other->tpot_ms.p50)});
  document["tpot_range_ms"] =
      Json::array({bounds_json(tpot_interval(*pair.first)), bounds_json(tpot_interval(*pair.other))});
  document["difference_ms"] = value_or_null(pair.difference_ms);
  document["ratio"] = value_or_null(pair.ratio);
  document["ratio_range"] = bounds_json(pair.ratio_bounds);
  document["verdict"] = name_of(pair.verdict);
  document["reason"] = text_or_null(pair.reason);
  document["explained_ms"] = explained_json(pair);
  document["words"] = text_or_null(pair.words);
  return document;
}

}  // namespace

Json comparison_json(const ReportComparison& comparison, const std::vector<ReadReport>& reports) {
  Json document = {{"schema", "shardscope.compare/1"},
                   {"files", Json::array()},
                   {"names", Json::array()},
                   {"reports", Json::array()},
                   {"incomparable", comparison.incomparable},
                   {"differences", Json::array()},
                   {"points", Json::array()},
                   {"lone_points", Json::array()},
                   {"summary", comparison.summary}};
  for (const ReadReport& report : reports) {
    document["files"].push_back(report.file);
    document["names"].push_back(report.name);
    document["reports"].push_back(report_facts(report));
  }
  for (const topology::Difference& difference : comparison.differences) {
    document["differences"].push_back(
        {{"what", difference.what}, {"values", difference.values}, {"effect", difference.effect}});
  }
  for (const ComparedPoint& pair : comparison.points) document["points"].push_back(pair_json(pair));
  for (const LonePoint& lone : comparison.lone) {
    Json point = place_json(*lone.point);
    point["report"] = lone.report;
    point["lacks"] = lone.lacks;
    document["lone_points"].push_back(std::move(point));
  }
  return document;
}

}  // namespace shardscope::runtime
