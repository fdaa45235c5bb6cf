// What was measured on several machines, and is the same measurement: as many GPUs, as many bytes.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

#include "topology/compare/compare_parts.hpp"
#include "topology/draw/figures_text.hpp"
#include "topology/draw/islands.hpp"
#include "topology/draw/plain_text.hpp"

namespace shardscope::topology {
namespace {

constexpr double kNoise = 0.1;  // runs of the same benchmark on the same machine differ by some percent

/// By bytes: the best of all algorithms.
struct Reduces {
  std::map<int64_t, double> time_us, busbw_gb_per_s;
};

std::map<int, Reduces> reduces_of(const Topology& machine) {
  std::map<int, Reduces> by_gpus;
  for (const Measurement& figure : machine.measurements) {
    // Without peer access on purpose: not what the machine can do.
    if (figure.kind != Measurement::Kind::kAllReduce || !figure.gpu_count || !figure.bytes || figure.p2p == false)
      continue;
    Reduces& reduces = by_gpus[*figure.gpu_count];
    if (figure.time_us && *figure.time_us > 0) {
      const auto [at, first] = reduces.time_us.try_emplace(*figure.bytes, *figure.time_us);
      if (!first) at->second = std::min(at->second, *figure.time_us);
    }
    if (figure.busbw_gb_per_s && *figure.busbw_gb_per_s > 0) {
      const auto [at, first] = reduces.busbw_gb_per_s.try_emplace(*figure.bytes, *figure.busbw_gb_per_s);
      if (!first) at->second = std::max(at->second, *figure.busbw_gb_per_s);
    }
  }
  return by_gpus;
}

using Figures = std::map<int64_t, double> Reduces::*;

/// Sizes for which at least two machines have a figure.
std::vector<int64_t> common_sizes(const std::vector<std::map<int, Reduces>>& all, int gpus, Figures figures) {
  std::map<int64_t, int> counts;
  for (const std::map<int, Reduces>& machine : all) {
    const auto found = machine.find(gpus);
    if (found == machine.end()) continue;
    for (const auto& [bytes, figure] : found->second.*figures) ++counts[bytes];
  }
  std::vector<int64_t> sizes;
  for (const auto& [bytes, count] : counts) {
    if (count >= 2) sizes.push_back(bytes);
  }
  return sizes;
}

Aspect aspect_of(const std::vector<std::map<int, Reduces>>& all, int gpus, int64_t bytes, Figures figures) {
  const bool times = figures == &Reduces::time_us;
  Aspect aspect{.what = fmt::format("all-reduce of {} on {} GPUs, measured", bytes_text(bytes), gpus),
                .rank = Rank::kAllReduces,
                .tolerance = kNoise};
  for (const std::map<int, Reduces>& machine : all) {
    const auto found = machine.find(gpus);
    std::optional<double> value;
    if (found != machine.end()) {
      const auto figure = (found->second.*figures).find(bytes);
      if (figure != (found->second.*figures).end()) value = figure->second;
    }
    aspect.sizes.push_back(value);
    aspect.values.push_back(
        value ? std::optional(fmt::format("{} {}", short_figure(*value), times ? "us" : "GB/s (bus)")) : std::nullopt);
  }
  return aspect;
}

/// A size like that of decoding, and what a layer's two cost in a large model.
std::optional<Aspect> small_aspect(const std::vector<std::map<int, Reduces>>& all, int gpus) {
  constexpr double kTypical = 64 << 10;  // 4 sequences x 8192 x 2 bytes
  constexpr int64_t kMostBytes = 1 << 20;
  constexpr int kReducesPerToken = 160;  // 80 layers, as of 70 billion parameters
  std::optional<int64_t> chosen;
  const auto distance = [&](int64_t bytes) { return std::abs(std::log2(static_cast<double>(bytes) / kTypical)); };
  for (const int64_t bytes : common_sizes(all, gpus, &Reduces::time_us)) {
    if (bytes <= 0 || bytes > kMostBytes) continue;
    if (!chosen || distance(bytes) < distance(*chosen)) chosen = bytes;
  }
  if (!chosen) return std::nullopt;
  Aspect aspect = aspect_of(all, gpus, *chosen, &Reduces::time_us);
  std::vector<std::string> costs;
  for (const std::optional<double>& time_us : aspect.sizes) {
    costs.push_back(time_us ? fmt::format("{} ms", short_figure(*time_us * kReducesPerToken / 1000)) : "unknown");
  }
  aspect.effect = fmt::format("A model of 80 layers does {} of them per token: {}, if both were measured alike.",
                              kReducesPerToken, fmt::join(costs, " against "));
  return aspect;
}

std::optional<Aspect> large_aspect(const std::vector<std::map<int, Reduces>>& all, int gpus) {
  constexpr int64_t kLeastBytes = 32 << 20;
  const std::vector<int64_t> sizes = common_sizes(all, gpus, &Reduces::busbw_gb_per_s);
  if (sizes.empty() || sizes.back() < kLeastBytes) return std::nullopt;
  Aspect aspect = aspect_of(all, gpus, sizes.back(), &Reduces::busbw_gb_per_s);
  aspect.effect = "Bounds prefill and large batches.";
  return aspect;
}

/// One way between two GPUs, not with peer access switched off.
bool is_plain_copy(const Measurement& figure) {
  return figure.kind == Measurement::Kind::kP2pBandwidth && figure.from && figure.to && figure.from != figure.to &&
         figure.gb_per_s && figure.p2p != false && figure.both_ways != true && figure.algorithm.empty();
}

std::optional<double> slowest_copy(const Topology& machine) {
  std::optional<double> slowest;
  for (const Measurement& figure : machine.measurements) {
    if (!is_plain_copy(figure)) continue;
    slowest = slowest ? std::min(*slowest, *figure.gb_per_s) : *figure.gb_per_s;
  }
  return slowest;
}

}  // namespace

namespace {

/// Within the best group where measured, else by the links' data sheets: of the pairs as far as the farthest.
std::optional<double> measured_rate(const Topology& topology, const std::vector<int>& gpus) {
  std::map<std::pair<int, int>, double> copies;
  for (const Measurement& figure : topology.measurements) {
    if (!is_plain_copy(figure)) continue;
    const std::optional<int> from = position_of(topology, *figure.from);
    const std::optional<int> to = position_of(topology, *figure.to);
    if (!from || !to) continue;
    const auto [at, first] = copies.try_emplace({*from, *to}, *figure.gb_per_s);
    if (!first) at->second = std::min(at->second, *figure.gb_per_s);
  }
  std::optional<double> slowest;
  for (const int a : gpus) {
    for (const int b : gpus) {
      if (a == b) continue;
      const auto copy = copies.find({a, b});
      if (copy == copies.end()) return std::nullopt;
      slowest = slowest ? std::min(*slowest, copy->second) : copy->second;
    }
  }
  return slowest;
}

}  // namespace

std::optional<Rate> rate_of(const Topology& topology, int degree) {
  const std::optional<Path> narrowest = narrowest_of(topology, degree);
  if (!narrowest) return std::nullopt;
  const Group& group = topology.groups.at(degree);
  if (const std::optional<double> measured = measured_rate(topology, group.best)) return Rate{*measured, true};
  if (!topology.link_gb_per_s) return std::nullopt;
  std::optional<double> slowest;
  for (const int a : group.best) {
    for (const int b : group.best) {
      if (a >= b || path_between(topology, a, b) != group.best_narrowest) continue;
      const std::optional<double> rate = (*topology.link_gb_per_s)[static_cast<size_t>(a)][static_cast<size_t>(b)];
      if (!rate) return std::nullopt;
      slowest = slowest ? std::min(*slowest, *rate) : *rate;
    }
  }
  return slowest ? std::optional(Rate{*slowest, false}) : std::nullopt;
}

std::vector<Aspect> measured_aspects(const std::vector<Topology>& machines) {
  std::vector<Aspect> aspects;
  std::vector<std::map<int, Reduces>> all;
  std::set<int> counts;
  for (const Topology& machine : machines) {
    all.push_back(reduces_of(machine));
    for (const auto& [gpus, reduces] : all.back()) counts.insert(gpus);
  }
  for (const int gpus : counts) {
    for (std::optional<Aspect>& aspect : std::vector{small_aspect(all, gpus), large_aspect(all, gpus)}) {
      if (aspect) aspects.push_back(std::move(*aspect));
    }
  }
  // Where the matrix is known, the copies stand with the groups' narrowest links already.
  Aspect copies{.what = "slowest copy between two GPUs, measured", .rank = Rank::kAllReduces, .tolerance = kNoise};
  bool all_linked = true;
  for (const Topology& machine : machines) {
    const std::optional<double> slowest = slowest_copy(machine);
    all_linked = all_linked && (machine.links || !slowest);
    copies.sizes.push_back(slowest);
    copies.values.push_back(slowest ? std::optional(fmt::format("{} GB/s", short_figure(*slowest))) : std::nullopt);
  }
  copies.effect = "The farthest pair bounds long all-reduces over all GPUs.";
  if (!all_linked) aspects.push_back(std::move(copies));
  return aspects;
}

}  // namespace shardscope::topology
