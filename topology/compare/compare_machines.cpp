// What differs between machines besides their links: GPUs, memory, NUMA nodes, NICs, PCIe.
#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "topology/compare/compare_parts.hpp"
#include "topology/draw/plain_text.hpp"
#include "topology/gpu_names.hpp"

namespace shardscope::topology {
namespace {

std::optional<std::string> models_of(const Topology& machine) {
  std::set<std::string> names;
  for (const Gpu& gpu : machine.gpus) names.insert(printable(gpu.name));
  if (names.empty() || names.count("") > 0) return std::nullopt;
  return fmt::format("{}", fmt::join(names, ", "));
}

/// GB/s of the slowest GPU's memory: by its clock and width, else by its name.
std::optional<double> memory_rate(const Topology& machine) {
  std::optional<double> slowest;
  for (const Gpu& gpu : machine.gpus) {
    std::optional<double> rate;
    if (gpu.memory_clock_mhz.value_or(0) > 0 && gpu.memory_bus_bits.value_or(0) > 0) {
      rate = bandwidth_of_clock(*gpu.memory_clock_mhz, *gpu.memory_bus_bits);
    } else if (const DevicePeaks* const peaks = peaks_of_name(gpu.name)) {
      rate = peaks->gb_per_s;
    }
    if (!rate) return std::nullopt;
    slowest = slowest ? std::min(*slowest, *rate) : *rate;
  }
  return slowest;
}

/// How many NUMA nodes the best group of that degree spans.
std::optional<std::string> numa_spread(const Topology& machine, int degree) {
  if (!has_group(machine, degree)) return std::nullopt;
  std::set<int> nodes;
  for (const int gpu : machine.groups.at(degree).best) {
    const std::vector<int>& of_gpu = machine.gpus[static_cast<size_t>(gpu)].numa_nodes;
    if (of_gpu.empty()) return std::nullopt;
    nodes.insert(of_gpu.front());
  }
  return counted(static_cast<int64_t>(nodes.size()), "node");
}

/// An empty list proves nothing: some NICs (EFA, gVNIC) never show.
std::optional<std::string> near_nics_in_words(const Topology& machine) {
  if (!machine.nics_known || machine.nics.empty() || !machine.nic_links) return std::nullopt;
  size_t near = 0;
  for (size_t gpu = 0; gpu < machine.gpus.size(); ++gpu) {
    const bool has = gpu < machine.nearest_nics.size() && !machine.nearest_nics[gpu].empty();
    const auto& row = (*machine.nic_links)[gpu];
    if (!has && std::any_of(row.begin(), row.end(), [](const auto& path) { return !path; })) return std::nullopt;
    near += has ? 1 : 0;
  }
  return fmt::format("{} of {} GPUs", near, machine.gpus.size());
}

std::optional<int> pcie_generation(const Topology& machine) {
  std::optional<int> least;
  for (const Gpu& gpu : machine.gpus) {
    const std::optional<int> generation = gpu.pcie_generation_most ? gpu.pcie_generation_most : gpu.pcie_generation;
    if (!generation) return std::nullopt;
    least = least ? std::min(*least, *generation) : *generation;
  }
  return least;
}

}  // namespace

std::vector<Aspect> machine_aspects(const std::vector<Topology>& machines) {
  std::vector<Aspect> aspects;
  Aspect count = aspect(machines, "GPUs", Rank::kCount, [](const Topology& machine) {
    return machine.gpu_count ? std::optional(fmt::format("{}", *machine.gpu_count)) : std::nullopt;
  });
  count.effect = "More GPUs allow larger degrees, or more replicas of a smaller one.";
  aspects.push_back(std::move(count));

  Aspect models = aspect(machines, "GPU model", Rank::kModel, models_of);
  models.effect = "Another model has other memory and arithmetic: it changes what a GPU alone can do.";
  aspects.push_back(std::move(models));

  Aspect memory = aspect(machines, "GPU memory bandwidth", Rank::kModel, [](const Topology& machine) {
    const std::optional<double> rate = memory_rate(machine);
    return rate ? std::optional(fmt::format("{:.0f} GB/s", *rate)) : std::nullopt;
  });
  for (const Topology& machine : machines) memory.sizes.push_back(memory_rate(machine));
  memory.effect = "Bounds the time per token at small batches, whatever the links.";
  aspects.push_back(std::move(memory));

  int degree = 0;
  for (const int candidate : kComparedDegrees) {
    const auto able = std::count_if(machines.begin(), machines.end(),
                                    [&](const Topology& machine) { return has_group(machine, candidate); });
    if (able >= 2) degree = candidate;
  }
  if (degree > 0) {
    Aspect numa = aspect(machines, fmt::format("NUMA nodes of the best {} GPUs", degree), Rank::kNuma,
                         [&](const Topology& machine) { return numa_spread(machine, degree); });
    numa.effect = "Ranks of one node share host memory and cores nearby; it matters where data are staged there.";
    aspects.push_back(std::move(numa));
  }

  Aspect nics = aspect(machines, "GPUs with a NIC at PHB or nearer", Rank::kNics, near_nics_in_words);
  nics.effect = "Matters to groups over several machines only.";
  aspects.push_back(std::move(nics));

  Aspect pcie = aspect(machines, "PCIe generation of the GPUs", Rank::kPcieGeneration, [](const Topology& machine) {
    const std::optional<int> generation = pcie_generation(machine);
    return generation ? std::optional(fmt::format("{}", *generation)) : std::nullopt;
  });
  pcie.effect = "Each generation doubles what pairs without NVLink, and loading weights, can reach.";
  aspects.push_back(std::move(pcie));

  Aspect guest = aspect(machines, "virtual machine", Rank::kVirtual, [](const Topology& machine) {
    return machine.virtual_machine ? std::optional<std::string>(*machine.virtual_machine ? "yes" : "no") : std::nullopt;
  });
  guest.effect = "A virtual machine may hide sockets and PCIe switches: its distances need a measurement.";
  aspects.push_back(std::move(guest));
  return aspects;
}

}  // namespace shardscope::topology
