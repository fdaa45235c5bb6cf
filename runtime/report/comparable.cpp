#include "runtime/report/comparable.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <span>
#include <string_view>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "runtime/model/json_file.hpp"
#include "runtime/model/mapped_file.hpp"

namespace shardscope::runtime {
namespace {

constexpr size_t kDifferencesNamed = 3;

/// The value at a path of keys, or null.
const Json& value_at(const Json& document, std::initializer_list<std::string_view> path) {
  static const Json nothing = nullptr;
  const Json* value = &document;
  for (const std::string_view key : path) {
    if (!value->is_object()) return nothing;
    const auto found = value->find(std::string(key));
    if (found == value->end()) return nothing;
    value = &*found;
  }
  return *value;
}

/// The same value however it was written: keys sorted, 60 for 60.0.
nlohmann::json canonical(const Json& value) {
  if (value.is_object()) {
    nlohmann::json object = nlohmann::json::object();
    for (const auto& [key, item] : value.items()) object[key] = canonical(item);
    return object;
  }
  if (value.is_array()) {
    nlohmann::json array = nlohmann::json::array();
    for (const Json& item : value) array.push_back(canonical(item));
    return array;
  }
  if (value.is_number_float()) {
    constexpr double kExact = 9007199254740992;  // 2^53: up to here every whole double is that integer
    const double number = value.get<double>();
    if (std::abs(number) <= kExact && number == std::trunc(number)) return static_cast<int64_t>(number);
  }
  return nlohmann::json(value);
}

/// A value in a few words.
std::string summary(const Json& value) {
  if (value.is_array()) return fmt::format("{} value{}", value.size(), value.size() == 1 ? "" : "s");
  if (value.is_object()) return fmt::format("{} field{}", value.size(), value.size() == 1 ? "" : "s");
  if (value.is_null()) return "none";
  const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  return text.empty() ? "\"\"" : printable(text, 60);
}

std::string joined(const std::string& path, std::string_view key) {
  return path.empty() ? std::string(key) : fmt::format("{}.{}", path, key);
}

/// One line for each leaf in which the two differ; lists of different lengths are one leaf.
void collect(const std::string& path, const Json& a, const Json& b, std::vector<std::string>& out) {
  if (a == b) return;
  if (a.is_object() && b.is_object()) {
    for (const auto& [key, item] : a.items()) {
      if (b.contains(key)) {
        collect(joined(path, key), item, b[key], out);
      } else {
        out.push_back(fmt::format("{}: {}, absent", joined(path, key), summary(item)));
      }
    }
    for (const auto& [key, item] : b.items()) {
      if (!a.contains(key)) out.push_back(fmt::format("{}: absent, {}", joined(path, key), summary(item)));
    }
    return;
  }
  if (a.is_array() && b.is_array() && a.size() == b.size()) {
    for (size_t i = 0; i < a.size(); ++i) collect(fmt::format("{}[{}]", path, i), a[i], b[i], out);
    return;
  }
  out.push_back(fmt::format("{}: {}, {}", path, summary(a), summary(b)));
}

std::string first_of(const std::vector<std::string>& differences) {
  const size_t named = std::min(differences.size(), kDifferencesNamed);
  std::string text =
      fmt::format("{}", fmt::join(differences.begin(), differences.begin() + static_cast<long>(named), "; "));
  if (differences.size() > named) text += fmt::format("; and {} more", differences.size() - named);
  return text;
}

/// Whether a run may go on from the point. Those that did not fit or cannot be right are tried again; an incomplete one
/// lends its first visit.
bool is_continuable(const PointResult& point) {
  switch (point.status) {
    case PointStatus::kOk:
      return true;
    case PointStatus::kIncomplete: {
      const auto first = [](const GenerationSample& sample) { return sample.pass == 0; };
      return !point.samples.empty() && std::all_of(point.samples.begin(), point.samples.end(), first) &&
             static_cast<int>(point.ranks.size()) == (point.rehearsal ? 1 : point.tp);
    }
    case PointStatus::kOutOfMemory:
    case PointStatus::kInvalid:
      return false;
  }
  return false;
}

/// Throws unless the points of `report` may stand beside those of this run.
void check_continuable(const Json& report, const Json& planned, const std::string& file) {
  constexpr const char* kRemedy = "name the report (or the .partial file) of the run that is to go on";
  const auto refuse = [&](const std::string& what) { throw UserError(what, file, kRemedy); };
  if (!report.is_object()) refuse("not a report: no JSON object");
  const Json& schema = value_at(report, {"schema"});
  const Json& our_schema = value_at(planned, {"schema"});
  if (schema != our_schema) {
    refuse(fmt::format("not a report of this kind: its schema is {}, not {}", summary(schema), summary(our_schema)));
  }
  const Json& command = value_at(report, {"command"});
  const Json& our_command = value_at(planned, {"command"});
  if (command != our_command) {
    refuse(fmt::format("a report of another command: {}, not {}", summary(command), summary(our_command)));
  }
  if (comparable_key(report) != comparable_key(planned)) {
    throw UserError(fmt::format("the report was measured otherwise (there, here): {}",
                                first_of(comparable_differences(report, planned))),
                    file, "use the same model and options, or leave out --resume");
  }
  if (!value_at(report, {"results"}).is_array()) refuse("not a report: it has no list of results");
}

}  // namespace

Json comparable_facts(const Json& report) {
  Json model = value_at(report, {"model"});
  if (model.is_object()) model.erase("name");
  Json protocol = value_at(report, {"protocol"});
  if (protocol.is_object()) {
    protocol.erase("steady");              // an outcome
    protocol.erase("allreduce");           // may be what a comparison is about
    protocol.erase("rehearsed_topology");  // a name; what the file says is in rehearsed_collectives
    if (value_at(protocol, {"rehearsed_collectives"}).is_null()) protocol.erase("rehearsed_collectives");
  }
  return {{"schema", value_at(report, {"schema"})},
          {"model", std::move(model)},
          {"workload", value_at(report, {"workload"})},
          {"protocol", std::move(protocol)}};
}

std::string comparable_key(const Json& report) {
  const std::string text =
      canonical(comparable_facts(report)).dump(-1, ' ', false, nlohmann::json::error_handler_t::ignore);
  return fmt::format("{:016x}", fnv1a(std::as_bytes(std::span(text))));
}

std::vector<std::string> comparable_differences(const Json& a, const Json& b) {
  std::vector<std::string> differences;
  collect("", comparable_facts(a), comparable_facts(b), differences);
  return differences;
}

std::vector<std::string> machine_differences(const Json& a, const Json& b) {
  std::vector<std::string> differences;
  for (const std::string_view key :
       {"cpu", "allowed_cores", "cpu_quota_cores", "threads_per_rank", "backend", "peak_gb_per_s", "peak_tflops"}) {
    collect(std::string(key), value_at(a, {"environment", key}), value_at(b, {"environment", key}), differences);
  }
  collect("allreduce", value_at(a, {"protocol", "allreduce"}), value_at(b, {"protocol", "allreduce"}), differences);
  // Of the ranks that both runs have: points name devices by rank.
  const Json& there = value_at(a, {"environment", "devices"});
  const Json& here = value_at(b, {"environment", "devices"});
  for (size_t rank = 0; rank < std::min(there.size(), here.size()); ++rank) {
    for (const char* key : {"name", "uuid", "pci_bus_id"}) {
      collect(fmt::format("rank {}'s device, {}", rank, key), value_at(there[rank], {key}), value_at(here[rank], {key}),
              differences);
    }
  }
  return differences;
}

std::vector<std::string> environment_differences(const Json& a, const Json& b) {
  std::vector<std::string> differences;
  for (const std::string_view key :
       {"host", "version", "commit", "mpi", "kernel", "container", "governor", "turbo", "transparent_hugepages"}) {
    collect(std::string(key), value_at(a, {"environment", key}), value_at(b, {"environment", key}), differences);
  }
  const auto ranks = [](const Json& report) { return value_at(report, {"environment", "ranks"}).size(); };
  if (ranks(a) != ranks(b)) differences.push_back(fmt::format("ranks: {}, {}", ranks(a), ranks(b)));
  return differences;
}

Continued continue_report(const std::string& file, const Json& planned) {
  const Json report = parse_json(read_text_file(file, kLargestReportBytes), file);
  check_continuable(report, planned, file);
  Continued continued;
  std::set<std::pair<std::array<int64_t, 5>, std::vector<int>>> seen;
  const Json& results = value_at(report, {"results"});
  for (size_t i = 0; i < results.size(); ++i) {
    const std::string where = fmt::format("{}: results[{}]", file, i);
    PointResult point = point_from_json(results[i], where);
    const Workload& workload = point.workload;
    const std::array<int64_t, 5> key = {point.tp, point.group.replicas, workload.batch, workload.prompt_tokens,
                                        workload.output_tokens};
    if (!seen.insert({key, point.places()}).second) {
      throw UserError("this point stands twice in the report", where, "remove one of them");
    }
    if (is_continuable(point)) continued.points.push_back(std::move(point));
  }
  const std::vector<std::string> machines = machine_differences(report, planned);
  if (!continued.points.empty() && !machines.empty()) {
    throw UserError(
        fmt::format("its points would not be comparable with those of this run (there, here): {}", first_of(machines)),
        file, "go on with the same machine and options, or leave out --resume");
  }
  const std::vector<std::string> differences = environment_differences(report, planned);
  if (!continued.points.empty() && !differences.empty()) {
    continued.warnings.push_back(
        fmt::format("the {} point{} of {} {} measured in another environment (there, here): {}",
                    continued.points.size(), continued.points.size() == 1 ? "" : "s", file,
                    continued.points.size() == 1 ? "was" : "were", fmt::join(differences, "; ")));
  }
  return continued;
}

}  // namespace shardscope::runtime
