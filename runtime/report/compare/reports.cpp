#include "runtime/report/compare/reports.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "runtime/model/json_file.hpp"
#include "runtime/report/comparable.hpp"
#include "runtime/report/json_field.hpp"
#include "topology/topology_json.hpp"

namespace shardscope::runtime {
namespace {

constexpr std::string_view kSchema = "shardscope.report/1";
constexpr std::string_view kAnyVersion = "shardscope.report/";

std::optional<topology::Topology> topology_from(const Json& document, const std::string& file) {
  if (document.is_null()) return std::nullopt;
  return topology::topology_of_json(nlohmann::json(document), fmt::format("{}: topology", file));
}

}  // namespace

bool is_report(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || text[first] != '{') return false;
  const nlohmann::json document = nlohmann::json::parse(text, nullptr, false);
  if (document.is_discarded()) return text.find(kAnyVersion) != std::string_view::npos;
  const auto schema = document.find("schema");
  return schema != document.end() && schema->is_string() && schema->get<std::string>().starts_with(kAnyVersion);
}

ReadReport read_report(std::string_view text, const std::string& file, const std::string& name) {
  ReadReport report{.file = file, .name = name, .document = parse_json(text, file), .points = {}};
  const Field field(report.document, file);
  if (const std::string& schema = field["schema"].text(); schema != kSchema) {
    throw UserError(fmt::format("a report of schema \"{}\", not \"{}\"", printable(schema), kSchema), file,
                    "write it with this version of shardscope, or read it with the version that wrote it");
  }
  if (!field["complete"].boolean()) {
    throw UserError("the report of a run that did not end: not all of its points are measured", file,
                    "finish it with --resume and the same options, then compare its report");
  }
  for (const char* part : {"environment", "model", "workload", "protocol"}) {
    if (!field[part].value().is_object()) field[part].refuse("not an object");
  }
  report.noise_bound = field["protocol"]["noise_bound"].number();
  if (!(report.noise_bound >= 0)) field["protocol"]["noise_bound"].refuse("less than 0");
  for (const Field& result : field["results"].items()) {
    report.points.push_back(point_from_json(result.value(), result.path()));
  }
  report.topology = topology_from(field["topology"].value(), file);
  return report;
}

std::vector<std::string> incomparable_facts(const std::vector<ReadReport>& reports) {
  std::vector<std::string> facts;
  for (size_t other = 1; other < reports.size(); ++other) {
    for (std::string& fact : comparable_differences(reports.front().document, reports[other].document)) {
      if (std::find(facts.begin(), facts.end(), fact) == facts.end()) facts.push_back(std::move(fact));
    }
  }
  return facts;
}

}  // namespace shardscope::runtime
