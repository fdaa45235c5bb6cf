// What compare_topologies() looks at, one machine at a time. Within the topology library only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "topology/comparing.hpp"
#include "topology/topology.hpp"

namespace shardscope::topology {

// Weights. Tensor parallelism exchanges data among all its GPUs twice a layer and a token, so the kind of network comes
// first, then the narrowest link of each degree (the farthest pair sets the pace), what it carries, and what
// all-reduces took. The number and model of GPUs decide what fits and how fast a GPU alone is. The rest matters where
// the host has a hand in the transfer, or between machines. A rank is worth 100; within a rank the larger ratio comes
// first.
enum class Rank : uint8_t {
  kVirtual = 1,
  kPcieGeneration,
  kNics,
  kNuma,
  kDegraded,
  kModel,
  kCount,
  kAllReduces,
  kRates,
  kNarrowest,
  kClass,
};

/// One quantity of all machines.
struct Aspect {
  std::string what;
  std::vector<std::optional<std::string>> values;  // nullopt: unknown
  std::vector<std::optional<double>> sizes;        // of the same; none: values are compared as texts alone
  std::string effect;
  Rank rank = Rank::kVirtual;
  double tolerance = 0;  // sizes whose ratio is at most 1 + that are equal
};

/// `value` of each machine.
template <class Function>
Aspect aspect(const std::vector<Topology>& machines, std::string what, Rank rank, const Function& value) {
  Aspect result{.what = std::move(what), .rank = rank};
  for (const Topology& machine : machines) result.values.push_back(value(machine));
  return result;
}

/// The degrees that are compared.
inline constexpr int kComparedDegrees[] = {2, 4, 8, 16};

bool has_group(const Topology& topology, int degree);
/// The narrowest link of the best group; SOC as SYS. nullopt: unknown.
std::optional<Path> narrowest_of(const Topology& topology, int degree);
/// What that link carries in one direction.
struct Rate {
  double gb_per_s = 0;
  bool measured = false;
};
std::optional<Rate> rate_of(const Topology& topology, int degree);
/// The largest degree whose best group has NVLinks between all its pairs; 1: none. nullopt: links unknown.
std::optional<int> largest_linked_degree(const Topology& topology);

/// "PCIe switches (PIX)", "the link between CPU sockets (SYS)": what a transfer crosses.
std::string crossing_in_words(const Path& path);
/// "A: 5, B: 7": values of machines, in a sentence.
std::string each_in_words(const std::vector<std::string>& names, const std::vector<std::optional<std::string>>& values);

/// Of copies and all-reduces that were measured on at least two of the machines.
std::vector<Aspect> measured_aspects(const std::vector<Topology>& machines);

/// Of the GPUs and the host.
std::vector<Aspect> machine_aspects(const std::vector<Topology>& machines);

/// The paragraph; `comparison` has its differences already.
std::string summary_of(const std::vector<Topology>& machines, const Comparison& comparison);

}  // namespace shardscope::topology
