// What differs between the runs of two or more reports, in the order of what changes times most: a table of facts, each
// with how a report tells it and what it does.
#include <algorithm>
#include <functional>
#include <set>

#include <fmt/format.h>

#include "runtime/model/json_file.hpp"
#include "runtime/report/comparable.hpp"
#include "runtime/report/compare/comparing.hpp"
#include "runtime/report/table_text.hpp"
#include "topology/host.hpp"

namespace shardscope::runtime {
namespace {

using topology::Difference;
using Text = std::optional<std::string>;
using Path = std::vector<std::string>;

constexpr const char* kNotTold = "unknown";

const Json* value_at(const Json& document, const Path& path) {
  const Json* value = &document;
  for (const std::string& key : path) {
    if (!value->is_object()) return nullptr;
    const auto found = value->find(key);
    if (found == value->end()) return nullptr;
    value = &*found;
  }
  return value;
}

Text text_of(const Json& value) {
  if (value.is_null()) return std::nullopt;
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (value.is_number_float()) return figure_text(value.get<double>());
  constexpr size_t kLongest = 200;
  return printable(value.is_string() ? value.get<std::string>() : value.dump(), kLongest);
}

Text text_at(const Json& document, const Path& path) {
  const Json* value = value_at(document, path);
  return value == nullptr ? std::nullopt : text_of(*value);
}

/// The items of a list of objects; none where there is no such list.
std::vector<Json> items_at(const Json& document, const Path& path) {
  const Json* value = value_at(document, path);
  if (value == nullptr || !value->is_array()) return {};
  return {value->begin(), value->end()};
}

/// "8 x NVIDIA H100 80GB HBM3"
Text devices_text(const Json& document) {
  std::vector<std::pair<std::string, int>> kinds;
  for (const Json& device : items_at(document, {"environment", "devices"})) {
    const std::string name = text_at(device, {"name"}).value_or("unnamed");
    const auto kind = std::find_if(kinds.begin(), kinds.end(), [&](const auto& one) { return one.first == name; });
    if (kind == kinds.end()) {
      kinds.emplace_back(name, 1);
    } else {
      ++kind->second;
    }
  }
  if (kinds.empty()) return std::nullopt;
  std::vector<std::string> texts;
  for (const auto& [name, count] : kinds) texts.push_back(fmt::format("{} x {}", count, name));
  return fmt::format("{}", fmt::join(texts, ", "));
}

/// The least and the greatest over the devices: "1410", "1410..1980".
Text device_range(const Json& document, const char* field) {
  std::optional<double> least, most;
  for (const Json& device : items_at(document, {"environment", "devices"})) {
    const Json* value = value_at(device, {field});
    if (value == nullptr || !value->is_number()) continue;
    const auto number = value->get<double>();
    least = std::min(number, least.value_or(number));
    most = std::max(number, most.value_or(number));
  }
  if (!least) return std::nullopt;
  const std::string low = figure_text(*least);
  const std::string high = figure_text(*most);
  return low == high ? low : fmt::format("{}..{}", low, high);
}

/// "8 on 2 hosts"
Text ranks_text(const Json& document) {
  std::set<std::string> hosts;
  const std::vector<Json> ranks = items_at(document, {"environment", "ranks"});
  for (const Json& rank : ranks) hosts.insert(text_at(rank, {"host"}).value_or(""));
  if (ranks.empty()) return std::nullopt;
  return fmt::format("{} on {} host{}", ranks.size(), hosts.size(), hosts.size() == 1 ? "" : "s");
}

/// The ranks' cores: "0-3, 4-7".
Text cores_text(const Json& document) {
  std::vector<std::string> texts;
  for (const Json& rank : items_at(document, {"environment", "ranks"})) {
    std::vector<int> cores;
    for (const Json& core : items_at(rank, {"cores"})) {
      if (core.is_number_integer()) cores.push_back(core.get<int>());
    }
    texts.push_back(topology::core_list_text(cores));
  }
  constexpr size_t kNamed = 8;
  const bool more = texts.size() > kNamed;
  if (more) texts.resize(kNamed);
  return texts.empty() ? std::nullopt : Text(fmt::format("{}{}", fmt::join(texts, " | "), more ? " | …" : ""));
}

/// One thing that reports tell of their run.
struct Aspect {
  std::string what;
  std::function<Text(const Json&)> value;
  std::string effect;
};

Aspect at(std::string what, const Path& path, std::string effect) {
  return {std::move(what), [path](const Json& document) { return text_at(document, path); }, std::move(effect)};
}

bool all_same(const std::vector<std::string>& texts) {
  return std::all_of(texts.begin(), texts.end(), [&](const auto& text) { return text == texts[0]; });
}

/// Appends the aspect where it differs. told: its effect is worth a line.
void add(std::vector<Difference>& out, const Aspect& aspect, const std::vector<ReadReport>& reports, bool told) {
  Difference difference{.what = aspect.what, .values = {}, .effect = aspect.effect, .weight = told ? 1.0 : 0.0};
  for (const ReadReport& report : reports)
    difference.values.push_back(aspect.value(report.document).value_or(kNotTold));
  if (!all_same(difference.values)) out.push_back(std::move(difference));
}

/// The work itself, field by field: what comparable_facts hold. Lists of different lengths are one field.
void add_facts(std::vector<Difference>& out, const std::string& path, const std::vector<const Json*>& values) {
  const auto all = [&](auto holds) { return std::all_of(values.begin(), values.end(), holds); };
  if (all([&](const Json* value) { return *value == *values[0]; })) return;
  if (all([](const Json* value) { return value->is_object(); })) {
    std::vector<std::string> keys;
    for (const Json* value : values) {
      for (const auto& [key, item] : value->items()) {
        if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
      }
    }
    static const Json nothing = nullptr;
    for (const std::string& key : keys) {
      std::vector<const Json*> inner;
      for (const Json* value : values) inner.push_back(value->contains(key) ? &(*value)[key] : &nothing);
      add_facts(out, path.empty() ? key : fmt::format("{}.{}", path, key), inner);
    }
    return;
  }
  if (all([&](const Json* value) { return value->is_array() && value->size() == values[0]->size(); })) {
    for (size_t i = 0; i < values[0]->size(); ++i) {
      std::vector<const Json*> inner;
      for (const Json* value : values) inner.push_back(&(*value)[i]);
      add_facts(out, fmt::format("{}[{}]", path, i), inner);
    }
    return;
  }
  Difference difference{.what = printable(path), .values = {}, .effect = "Not the same work.", .weight = 1};
  for (const Json* value : values) {
    difference.values.push_back(value->is_array()
                                    ? fmt::format("{} value{}", value->size(), value->size() == 1 ? "" : "s")
                                    : text_of(*value).value_or("none"));
  }
  if (all_same(difference.values)) {
    // Figures that rounding makes one: all their digits.
    for (size_t i = 0; i < values.size(); ++i) difference.values[i] = printable(values[i]->dump());
  }
  out.push_back(std::move(difference));
}

void add_work(std::vector<Difference>& out, const std::vector<ReadReport>& reports) {
  std::vector<Json> facts;
  for (const ReadReport& report : reports) facts.push_back(comparable_facts(report.document));
  std::vector<const Json*> values;
  for (const Json& fact : facts) values.push_back(&fact);
  add_facts(out, "", values);
}

/// How the devices are joined, where every report tells of some.
void add_wiring(std::vector<Difference>& out, const std::vector<ReadReport>& reports) {
  std::vector<topology::Topology> machines;
  std::vector<std::string> names;
  for (const ReadReport& report : reports) {
    if (!report.topology || report.topology->gpu_count.value_or(0) == 0) return;
    machines.push_back(*report.topology);
    names.push_back(report.name);
  }
  for (Difference& difference : topology::compare_topologies(machines, names).differences) {
    difference.weight = difference.weight > 0 ? 1 : 0;
    out.push_back(std::move(difference));
  }
}

/// Every key of a map that any of the reports has there, but those named.
std::vector<Aspect> map_aspects(const std::vector<ReadReport>& reports, const Path& path, const char* noun,
                                const std::set<std::string>& but = {}) {
  std::set<std::string> keys;
  for (const ReadReport& report : reports) {
    const Json* map = value_at(report.document, path);
    if (map == nullptr || !map->is_object()) continue;
    for (const auto& [key, value] : map->items()) {
      if (but.count(key) == 0) keys.insert(key);
    }
  }
  std::vector<Aspect> aspects;
  for (const std::string& key : keys) {
    Path inner = path;
    inner.push_back(key);
    aspects.push_back(at(fmt::format("{} {}", noun, printable(key)), inner, "What it does depends on it."));
  }
  return aspects;
}

/// Files, what a run says, and what stands in the work or in a line of its own.
const std::set<std::string> kOptionsTold = {
    "json",       "csv",         "html",  "resume",    "config",        "verbose",       "progress",
    "timeout",    "samples",     "model", "batch",     "prompt-tokens", "output-tokens", "warmup",
    "iterations", "max-seconds", "seed",  "allreduce", "threads",       "backend",       "help"};

const std::vector<Aspect>& machine_aspects() {
  static const std::vector<Aspect> aspects = {
      at("backend", {"environment", "backend"}, "What does the arithmetic."),
      {"devices", devices_text, "Another device reads its memory at another speed: TPOT follows that first of all."},
      at("CPU", {"environment", "cpu"}, "On the CPU backend the device itself; beside GPUs what launches."),
      at("build", {"environment", "build_type"}, "A build without optimisation is many times slower."),
      {"ranks", ranks_text, "More ranks share the host; ranks on several hosts sum through a network."}};
  return aspects;
}

const std::vector<Aspect>& run_aspects() {
  static const std::vector<Aspect> aspects = {
      at("all-reduce", {"protocol", "allreduce"}, "How partial sums meet, twice a layer and token."),
      at("threads of a rank", {"environment", "threads_per_rank"}, "On the CPU backend: how many cores a rank uses."),
      at("usable cores", {"environment", "allowed_cores"}, "What all ranks of the host share."),
      at("CPU quota (cores)", {"environment", "cpu_quota_cores"}, "Beyond it the kernel stops the ranks for a while."),
      at("more threads than cores", {"environment", "oversubscribed"}, "Ranks then wait for cores."),
      {"cores of the ranks", cores_text, "Which cores, caches and memory a rank has near."},
      {"device clock, at most (MHz)", [](const Json& d) { return device_range(d, "highest_mhz"); },
       "Bounds prefill and large batches."},
      {"device memory clock (MHz)", [](const Json& d) { return device_range(d, "highest_memory_mhz"); },
       "Bounds what a device reads, and so TPOT."},
      at("CPU clock, at most (MHz)", {"environment", "highest_mhz"}, "Bounds the CPU backend, and launching."),
      at("CPU governor", {"environment", "governor"}, "Another one may keep the clock low."),
      at("turbo", {"environment", "turbo"}, "Without it the clock stays at its nominal value."),
      at("last-level cache (B)", {"environment", "last_level_cache_bytes"}, "A shard that fits it is read faster."),
      at("CUDA", {"environment", "cuda"}, "Kernels and launching come with it."),
      at("NCCL", {"environment", "nccl"}, "Its all-reduces differ between versions."),
      at("MPI", {"environment", "mpi"}, "On hosts, and between them, partial sums go through it.")};
  return aspects;
}

/// What seldom matters: shown without a sentence.
const std::vector<Aspect>& other_aspects() {
  static const std::vector<Aspect> aspects = [] {
    std::vector<Aspect> list;
    for (const auto& [what, key] :
         std::initializer_list<std::pair<const char*, const char*>>{{"version", "version"},
                                                                    {"commit", "commit"},
                                                                    {"compiler", "compiler"},
                                                                    {"machine", "machine"},
                                                                    {"virtual machine", "virtual_machine"},
                                                                    {"container", "container"},
                                                                    {"kernel", "kernel"},
                                                                    {"sockets", "sockets"},
                                                                    {"SMT", "smt_active"},
                                                                    {"huge pages", "transparent_hugepages"},
                                                                    {"NUMA balancing", "numa_balancing"},
                                                                    {"memory limit (B)", "memory_limit_bytes"},
                                                                    {"launcher", "launcher"},
                                                                    {"host", "host"}}) {
      list.push_back(at(what, {"environment", key}, "Seldom matters by itself."));
    }
    return list;
  }();
  return aspects;
}

}  // namespace

std::vector<Difference> report_differences(const std::vector<ReadReport>& reports) {
  std::vector<Difference> differences;
  const auto add_all = [&](const std::vector<Aspect>& aspects, bool told) {
    for (const Aspect& aspect : aspects) add(differences, aspect, reports, told);
  };
  add_work(differences, reports);
  add_all(machine_aspects(), true);
  add_wiring(differences, reports);
  add_all(run_aspects(), true);
  add_all(map_aspects(reports, {"options"}, "option", kOptionsTold), false);
  add_all(map_aspects(reports, {"environment", "variables"}, "variable"), false);
  add_all(other_aspects(), false);
  add_all(map_aspects(reports, {"environment", "libraries"}, "library"), false);
  return differences;
}

}  // namespace shardscope::runtime
