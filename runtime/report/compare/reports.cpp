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

/// Reads a document up to its schema, without keeping what stands before it.
struct SchemaFinder : nlohmann::json_sax<nlohmann::json> {
  std::string schema;
  bool broken = false;  // before a schema was found

  bool null() override { return passed(); }
  bool boolean(bool /*value*/) override { return passed(); }
  bool number_integer(number_integer_t /*value*/) override { return passed(); }
  bool number_unsigned(number_unsigned_t /*value*/) override { return passed(); }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return passed(); }
  bool binary(binary_t& /*value*/) override { return passed(); }
  bool string(string_t& value) override {
    if (at_schema_) schema = value;
    return passed();
  }
  bool start_object(size_t /*size*/) override { return opened(); }
  bool start_array(size_t /*size*/) override { return opened(); }
  bool end_object() override { return closed(); }
  bool end_array() override { return closed(); }
  bool key(string_t& name) override {
    at_schema_ = depth_ == 1 && name == "schema";
    return true;
  }
  bool parse_error(size_t /*at*/, const std::string& /*token*/, const nlohmann::json::exception& /*error*/) override {
    broken = true;
    return false;
  }

 private:
  /// Goes on unless this was the schema.
  bool passed() const { return !at_schema_; }
  bool opened() {
    ++depth_;
    return passed();
  }
  bool closed() {
    --depth_;
    return true;
  }

  size_t depth_ = 0;
  bool at_schema_ = false;  // the next value is the schema
};

}  // namespace

bool is_report(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || text[first] != '{') return false;
  SchemaFinder finder;
  nlohmann::json::sax_parse(text.begin(), text.end(), &finder);
  if (finder.broken) return text.find(kAnyVersion) != std::string_view::npos;
  return finder.schema.starts_with(kAnyVersion);
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
