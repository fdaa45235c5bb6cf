#include "topology/collective_times.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "kernels/base/error.hpp"

namespace shardscope::topology {
namespace {

/// NCCL between the GPUs of a node behind NVSwitches, bf16, in a CUDA graph: microseconds by number of ranks (2, 4, 8)
/// and message.  Source: the public performance tables of aiconfigurator, H100 SXM with NCCL 2.29, A100 SXM with 2.27.
constexpr std::array<int64_t, 5> kTableBytes = {8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10};
constexpr std::array<int, 3> kTableRanks = {2, 4, 8};
struct PublicTable {
  std::string_view gpu;  // in the GPU's name
  std::string_view what;
  std::array<std::array<double, kTableBytes.size()>, kTableRanks.size()> us;
};
constexpr std::array kPublic = {
    PublicTable{"H100",
                "H100 SXM, NCCL 2.29",
                {{{6.8, 7.3, 7.1, 7.3, 7.7}, {10.0, 12.5, 11.2, 11.3, 11.4}, {16.0, 19.0, 18.4, 18.7, 19.0}}}},
    PublicTable{"A100",
                "A100 SXM, NCCL 2.27",
                {{{11.0, 12.8, 12.8, 13.0, 13.4}, {14.7, 16.3, 17.4, 17.8, 17.8}, {21.3, 22.6, 26.0, 28.1, 27.4}}}}};

/// Whoever sums a larger message sums the smaller one in that time, too: what is over it is a disturbance.
std::map<int64_t, double> never_falling(std::map<int64_t, double> us) {
  double next = INFINITY;
  for (auto entry = us.rbegin(); entry != us.rend(); ++entry) {
    entry->second = std::min(entry->second, next);
    next = entry->second;
  }
  return us;
}

std::optional<double> microseconds_of(const Measurement& figure) {
  if (figure.time_us) return figure.time_us;
  if (!figure.gb_per_s || !(*figure.gb_per_s > 0)) return std::nullopt;
  return static_cast<double>(*figure.bytes) / *figure.gb_per_s * 1e-3;  // of all bytes: nccl-tests' algbw
}

bool is_usable(const Measurement& figure) {
  return figure.kind == Measurement::Kind::kAllReduce && figure.gpu_count.value_or(0) >= 2 &&
         figure.bytes.value_or(0) > 0 && microseconds_of(figure).value_or(0) > 0;
}

const PublicTable* public_table_of(const Topology& topology) {
  if (topology.topology_class != TopologyClass::kNvSwitch) return nullptr;
  const auto* const found = std::find_if(kPublic.begin(), kPublic.end(), [&](const PublicTable& table) {
    return std::all_of(topology.gpus.begin(), topology.gpus.end(),
                       [&](const Gpu& gpu) { return gpu.name.find(table.gpu) != std::string::npos; });
  });
  return topology.gpus.empty() || found == kPublic.end() ? nullptr : found;
}

}  // namespace

CollectiveTimes::CollectiveTimes(const Topology& topology) {
  if (const PublicTable* table = public_table_of(topology)) {
    for (size_t row = 0; row < kTableRanks.size(); ++row) {
      Table& of = tables_[kTableRanks[row]];
      of.source = fmt::format("a public table of its class ({})", table->what);
      for (size_t i = 0; i < kTableBytes.size(); ++i) of.us[kTableBytes[i]] = table->us[row][i];
    }
  }
  std::map<int, std::map<bool, std::map<int64_t, double>>> measured;  // by number of GPUs and without peer access
  std::map<int, std::set<std::string>> algorithms;
  for (const Measurement& figure : topology.measurements) {
    if (!is_usable(figure)) continue;
    std::map<int64_t, double>& us = measured[*figure.gpu_count][figure.p2p == false];
    const double time_us = *microseconds_of(figure);
    const auto [entry, is_new] = us.emplace(*figure.bytes, time_us);
    if (!is_new) entry->second = std::min(entry->second, time_us);
    if (!figure.algorithm.empty()) algorithms[*figure.gpu_count].insert(figure.algorithm);
  }
  for (auto& [gpus, by_access] : measured) {
    const bool without_access = by_access.begin()->first;
    const std::set<std::string>& names = algorithms[gpus];
    const std::string how = names.empty() ? "" : fmt::format(" ({})", fmt::join(names, ", "));
    tables_[gpus] = {
        fmt::format("all-reduces measured on {} GPUs{}{}", gpus, how, without_access ? ", peer access off" : ""),
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

std::string CollectiveTimes::source(int ranks) const {
  const auto table = tables_.find(ranks);
  return table == tables_.end() ? "" : table->second.source;
}

}  // namespace shardscope::topology
