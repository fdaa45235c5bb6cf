#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "topology/compare/compare_parts.hpp"
#include "topology/draw/islands.hpp"
#include "topology/draw/plain_text.hpp"

namespace shardscope::topology {
namespace {

using Values = std::vector<std::optional<std::string>>;

size_t at(int position) {
  return static_cast<size_t>(position);
}

// ---- links ----------------------------------------------------------------------------------------------------------

Aspect class_aspect(const std::vector<Topology>& machines, const std::vector<std::string>& names) {
  Aspect result = aspect(machines, "class", Rank::kClass, [](const Topology& machine) -> std::optional<std::string> {
    if (machine.topology_class == TopologyClass::kUnknown) return std::nullopt;
    return std::string(name_of(machine.topology_class));
  });
  Values degrees;
  for (const Topology& machine : machines) {
    const std::optional<int> degree = largest_linked_degree(machine);
    degrees.push_back(!degree        ? std::nullopt
                      : *degree == 1 ? std::optional<std::string>("none")
                                     : std::optional(fmt::format("TP={}", *degree)));
  }
  result.effect = fmt::format("The largest degree that stays on NVLink: {}.", each_in_words(names, degrees));
  return result;
}

std::string narrowest_effect(const std::vector<Topology>& machines, const std::vector<std::string>& names, int degree) {
  Values crossed;
  for (const Topology& machine : machines) {
    const std::optional<Path> path = narrowest_of(machine, degree);
    crossed.push_back(path ? std::optional(crossing_in_words(*path)) : std::nullopt);
  }
  return fmt::format("What TP={} crosses twice a layer: {}.", degree, each_in_words(names, crossed));
}

std::vector<Aspect> group_aspects(const std::vector<Topology>& machines, const std::vector<std::string>& names) {
  std::vector<Aspect> aspects;
  Values last_rates;
  for (const int degree : kComparedDegrees) {
    const auto able = std::count_if(machines.begin(), machines.end(),
                                    [&](const Topology& machine) { return machine.gpu_count.value_or(0) >= degree; });
    if (able < 2) continue;
    Aspect links = aspect(machines, fmt::format("narrowest link of the best {} GPUs", degree), Rank::kNarrowest,
                          [&](const Topology& machine) -> std::optional<std::string> {
                            const std::optional<Path> path = narrowest_of(machine, degree);
                            return path ? std::optional(text_of(*path)) : std::nullopt;
                          });
    links.effect = narrowest_effect(machines, names, degree);
    aspects.push_back(std::move(links));

    Aspect rates =
        aspect(machines, fmt::format("what it carries each way ({} GPUs)", degree), Rank::kRates,
               [&](const Topology& machine) -> std::optional<std::string> {
                 const std::optional<Rate> rate = rate_of(machine, degree);
                 if (!rate) return std::nullopt;
                 return fmt::format("{} GB/s{}", short_figure(rate->gb_per_s), rate->measured ? " measured" : "");
               });
    bool any_measured = false;
    for (const Topology& machine : machines) {
      const std::optional<Rate> rate = rate_of(machine, degree);
      rates.sizes.push_back(rate ? std::optional(rate->gb_per_s) : std::nullopt);
      any_measured = any_measured || (rate && rate->measured);
    }
    constexpr double kNoise = 0.1;  // of copies that were measured once
    rates.tolerance = any_measured ? kNoise : 0;
    rates.effect =
        fmt::format("Bounds long all-reduces (prefill, large batches) at TP={}; short ones wait for latency.", degree);
    if (rates.values != last_rates) {
      last_rates = rates.values;
      aspects.push_back(std::move(rates));
    }
  }
  return aspects;
}

std::optional<std::string> degraded_in_words(const Topology& machine) {
  if (!machine.links) return std::nullopt;
  const std::vector<NvIsland> islands = nvlink_islands(machine);
  const std::vector<LinkCount> counts = link_counts(machine, islands);
  std::vector<std::string> weak;
  bool known = true;
  for (size_t gpu = 0; gpu < counts.size(); ++gpu) {
    known = known && counts[gpu].row_known;
    if (!counts[gpu].degraded()) continue;
    weak.push_back(fmt::format("GPU{} {} of {}", machine.gpus[gpu].index, counts[gpu].links, *counts[gpu].expected));
  }
  if (weak.empty()) return known ? std::optional<std::string>("none") : std::nullopt;
  constexpr size_t kNamed = 3;
  const bool many = weak.size() > kNamed;
  if (many) weak.resize(kNamed);
  return fmt::format("{}{}", fmt::join(weak, ", "), many ? ", …" : "");
}

Aspect degraded_aspect(const std::vector<Topology>& machines) {
  Aspect degraded = aspect(machines, "GPUs with too few NVLinks", Rank::kDegraded, degraded_in_words);
  degraded.effect = "Each slows every group that it is in: leave it out, or have it repaired.";
  return degraded;
}

// ---- differences ----------------------------------------------------------------------------------------------------

/// Whether two known values differ.
bool differs(const Aspect& aspect) {
  std::set<std::string> texts;
  std::optional<double> least;
  std::optional<double> most;
  for (size_t i = 0; i < aspect.values.size(); ++i) {
    if (aspect.values[i]) texts.insert(*aspect.values[i]);
    if (aspect.sizes.empty() || !aspect.sizes[i]) continue;
    least = least ? std::min(*least, *aspect.sizes[i]) : *aspect.sizes[i];
    most = most ? std::max(*most, *aspect.sizes[i]) : *aspect.sizes[i];
  }
  if (texts.size() < 2) return false;
  return !least || !(*most <= *least * (1 + aspect.tolerance));
}

double weight_of(const Aspect& aspect) {
  constexpr double kRankStep = 100;
  constexpr double kPerDoubling = 10;
  double ratio = 1;
  for (const std::optional<double>& a : aspect.sizes) {
    for (const std::optional<double>& b : aspect.sizes) {
      if (a && b && *a > 0 && *b > 0) ratio = std::max(ratio, *a / *b);
    }
  }
  return kRankStep * static_cast<int>(aspect.rank) + std::min(kRankStep - 1, kPerDoubling * std::log2(ratio));
}

}  // namespace

Comparison compare_topologies(const std::vector<Topology>& topologies, const std::vector<std::string>& names) {
  Comparison comparison;
  for (const std::string& name : names) comparison.names.push_back(printable(name));
  std::vector<Aspect> aspects = {class_aspect(topologies, comparison.names), degraded_aspect(topologies)};
  for (std::vector<Aspect>& more : std::vector{group_aspects(topologies, comparison.names),
                                               measured_aspects(topologies), machine_aspects(topologies)}) {
    std::move(more.begin(), more.end(), std::back_inserter(aspects));
  }
  for (Aspect& aspect : aspects) {
    const auto known =
        std::count_if(aspect.values.begin(), aspect.values.end(), [](const auto& v) { return v.has_value(); });
    const bool different = differs(aspect);
    if (known == 0 || (!different && at(static_cast<int>(known)) == aspect.values.size())) continue;
    Difference difference{.what = std::move(aspect.what)};
    for (const std::optional<std::string>& value : aspect.values)
      difference.values.push_back(value.value_or("unknown"));
    difference.effect = different ? aspect.effect : "Not told of all: no difference that is known.";
    difference.weight = different ? weight_of(aspect) : 0;
    comparison.differences.push_back(std::move(difference));
  }
  std::stable_sort(comparison.differences.begin(), comparison.differences.end(),
                   [](const Difference& a, const Difference& b) { return a.weight > b.weight; });
  comparison.summary = summary_of(topologies, comparison);
  return comparison;
}

}  // namespace shardscope::topology
