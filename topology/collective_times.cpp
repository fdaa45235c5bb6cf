#include "topology/collective_times.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "topology/gpu_names.hpp"

namespace shardscope::topology {
namespace {

std::optional<double> microseconds_of(const Measurement& figure) {
  if (figure.time_us) return figure.time_us;
  if (!figure.gb_per_s || !(*figure.gb_per_s > 0)) return std::nullopt;
  return static_cast<double>(*figure.bytes) / *figure.gb_per_s * 1e-3;  // of all bytes: nccl-tests' algbw
}

bool is_usable(const Measurement& figure) {
  return figure.kind == Measurement::Kind::kAllReduce && figure.gpu_count.value_or(0) >= 2 &&
         figure.bytes.value_or(0) > 0 && microseconds_of(figure).value_or(0) > 0;
}

bool is_of(const KnownTimes& known, const Topology& topology) {
  if (topology.topology_class != TopologyClass::kNvSwitch || topology.gpus.empty()) return false;
  return std::all_of(topology.gpus.begin(), topology.gpus.end(), [&](const Gpu& gpu) {
    const DevicePeaks* peaks = peaks_of_name(gpu.name);
    return peaks != nullptr && peaks->name == known.gpu;
  });
}

}  // namespace

std::map<int64_t, double> never_falling(std::map<int64_t, double> us) {
  double next = INFINITY;
  for (auto entry = us.rbegin(); entry != us.rend(); ++entry) {
    entry->second = std::min(entry->second, next);
    next = entry->second;
  }
  return us;
}

CollectiveTimes::CollectiveTimes(const Topology& topology, std::span<const KnownTimes> known) {
  for (const KnownTimes& one : known) {
    if (is_of(one, topology)) tables_[one.ranks] = {fmt::format("measured on machines like it ({})", one.what), one.us};
  }
  std::map<int, std::map<bool, std::map<int64_t, double>>> measured;  // by number of GPUs and without peer access
  std::map<int, std::set<std::string>> algorithms;
  std::map<int, bool> one_process;  // of all figures
  for (const Measurement& figure : topology.measurements) {
    if (!is_usable(figure)) continue;
    std::map<int64_t, double>& us = measured[*figure.gpu_count][figure.p2p == false];
    const double time_us = *microseconds_of(figure);
    const auto [entry, is_new] = us.emplace(*figure.bytes, time_us);
    if (!is_new) entry->second = std::min(entry->second, time_us);
    bool& one = one_process.emplace(*figure.gpu_count, true).first->second;
    one = one && figure.one_process == true;
    if (!figure.algorithm.empty()) algorithms[*figure.gpu_count].insert(figure.algorithm);
  }
  for (auto& [gpus, by_access] : measured) {
    const bool without_access = by_access.begin()->first;
    const std::set<std::string>& names = algorithms[gpus];
    const std::string how = names.empty() ? "" : fmt::format(" ({})", fmt::join(names, ", "));
    const char* const launches = one_process[gpus] ? ", launched by one process, which is part of their times" : "";
    tables_[gpus] = {fmt::format("all-reduces measured on {} GPUs{}{}{}", gpus, how,
                                 without_access ? ", peer access off" : "", launches),
                     std::move(by_access.begin()->second)};
  }
  for (auto& [ranks, table] : tables_) table.us = never_falling(std::move(table.us));
}

std::optional<CollectiveTime> CollectiveTimes::time(int ranks, int64_t bytes) const {
  require(ranks >= 2 && bytes > 0, "CollectiveTimes: a sum of fewer than two ranks, or of nothing");
  const auto table = tables_.find(ranks);
  if (table == tables_.end()) return std::nullopt;
  const std::map<int64_t, double>& us = table->second.us;
  const auto above = us.lower_bound(bytes);
  if (above == us.end()) return std::nullopt;
  if (above->first == bytes) return CollectiveTime{.us = above->second};
  if (above == us.begin()) return CollectiveTime{.us = above->second, .below = true};
  const auto below = std::prev(above);
  const double share = std::log(static_cast<double>(bytes) / static_cast<double>(below->first)) /
                       std::log(static_cast<double>(above->first) / static_cast<double>(below->first));
  return CollectiveTime{.us = below->second * std::pow(above->second / below->second, share)};
}

std::map<int, std::map<int64_t, double>> CollectiveTimes::tables() const {
  std::map<int, std::map<int64_t, double>> tables;
  for (const auto& [ranks, table] : tables_) tables[ranks] = table.us;
  return tables;
}

std::string CollectiveTimes::source(int ranks) const {
  const auto table = tables_.find(ranks);
  return table == tables_.end() ? "" : table->second.source;
}

}  // namespace shardscope::topology
