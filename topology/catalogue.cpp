#include "topology/catalogue.hpp"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <set>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "topology/boards.hpp"
#include "topology/gpu_names.hpp"
#include "topology/understanding.hpp"

namespace shardscope::topology {
namespace {

using namespace boards;

constexpr int kLanes = 16;  // of PCIe, of every GPU here

/// NVLinks between two GPUs.
int nvlinks_between(const Machine& machine, size_t a, size_t b) {
  switch (machine.fabric) {
    case TopologyClass::kNvSwitch:
    case TopologyClass::kNvLinkMesh:
      return machine.nvlinks;
    case TopologyClass::kCubeMesh:
      return machine.wiring[a * static_cast<size_t>(machine.gpus) + b] - '0';
    case TopologyClass::kPairs:
      return a / 2 == b / 2 ? machine.nvlinks : 0;
    case TopologyClass::kPcie:
    case TopologyClass::kMixed:
    case TopologyClass::kSingle:
    case TopologyClass::kNone:
    case TopologyClass::kUnknown:
      break;
  }
  return 0;
}

/// nullopt: without NVLink, and their nodes are not known.
std::optional<Path> path_between(const Machine& machine, size_t a, size_t b) {
  if (a == b) return Path{};
  if (const int nvlinks = nvlinks_between(machine, a, b); nvlinks > 0) return Path{PathKind::kNvLink, nvlinks};
  const char of_a = machine.numa[a], of_b = machine.numa[b];
  if (of_a == '?' || of_b == '?') return std::nullopt;
  return Path{of_a == of_b ? machine.near : PathKind::kSys};
}

/// Of one GPU, to all others or to switches.
int nvlinks_of(const Machine& machine, size_t gpu) {
  if (machine.fabric == TopologyClass::kNvSwitch) return machine.nvlinks;
  int sum = 0;
  for (size_t other = 0; other < machine.numa.size(); ++other) {
    if (other != gpu) sum += nvlinks_between(machine, gpu, other);
  }
  return sum;
}

/// Not understood yet.
Topology built(const Machine& machine) {
  const DevicePeaks* const peaks = find_device_peaks(machine.gpu);
  const auto gpus = static_cast<size_t>(machine.gpus);
  const bool wired = machine.fabric != TopologyClass::kCubeMesh || machine.wiring.size() == gpus * gpus;
  require(peaks != nullptr && machine.numa.size() == gpus && wired, "topology_of: a machine that is none of a table");
  Topology topology{.source = SourceKind::kCatalogue, .gpu_count = machine.gpus, .nics_known = false};
  topology.links.emplace(gpus);
  std::set<int> nodes;
  for (size_t i = 0; i < gpus; ++i) {
    Gpu gpu{.index = static_cast<int>(i), .name = std::string(driver_name_of(*peaks))};
    if (machine.numa[i] != '?') {
      gpu.numa_nodes = {machine.numa[i] - '0'};
      nodes.insert(gpu.numa_nodes.front());
    }
    gpu.nvlinks = nvlinks_of(machine, i);
    if (machine.pcie_generation > 0) {
      gpu.pcie_generation_most = machine.pcie_generation;
      gpu.pcie_width_most = kLanes;
    }
    topology.gpus.push_back(std::move(gpu));
    for (size_t j = 0; j < gpus; ++j) (*topology.links)[i].push_back(path_between(machine, i, j));
  }
  for (const int node : nodes) topology.numa_nodes.push_back({.id = node, .cores = {}, .memory_bytes = std::nullopt});
  topology.switched = machine.fabric == TopologyClass::kNvSwitch;
  return topology;
}

bool equals_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char one, unsigned char other) { return std::tolower(one) == std::tolower(other); });
}

struct UsualBoard {
  std::string_view words;
  Machine board;
};
constexpr std::string_view kHgx = "8 GPUs behind NVSwitches, as on NVIDIA's HGX boards";
constexpr std::string_view kCards = "8 cards without NVLink, four to each of two NUMA nodes";
constexpr std::string_view kDgx1Words = "8 GPUs in the cube mesh of NVIDIA's DGX-1";
constexpr std::string_view kAlone = "one GPU beside its own CPU";
constexpr Machine alone(std::string_view gpu) {
  return {.gpu = gpu, .gpus = 1, .fabric = TopologyClass::kSingle, .numa = "0"};
}
constexpr UsualBoard kUsual[] = {
    {kDgx1Words, cube_mesh("v100-sxm2-16gb")},
    {kDgx1Words, cube_mesh("v100-sxm2-32gb")},
    {kCards, cards("v100-pcie-16gb", 3)},
    {kCards, cards("v100-pcie-32gb", 3)},
    {kCards, cards("t4", 3)},
    {kHgx, kA100Small},
    {"4 GPUs, each linked to each, as in Leonardo", kLeonardo},
    {kHgx, kA100Large},
    {kCards, cards("a100-80gb-pcie", 4)},
    {kCards, cards("a10g", 4)},
    {kCards, cards("l4", 4)},
    {kCards, cards("l40s", 4)},
    {kCards, cards("h100-pcie", 5)},
    {kHgx, kH100},
    {"8 cards, bridged in pairs, four to each of two NUMA nodes", bridged_pairs("h100-nvl", 5)},
    {kHgx, kH200},
    {kAlone, alone("gh200-96gb")},
    {kAlone, alone("gh200-144gb")},
    {kHgx, kB200},
    {"the 4 GPUs of a compute tray, behind a rack's NVSwitches", kGb200Tray},
    {kCards, cards("rtx-3090", 4)},
    {kCards, cards("rtx-4090", 4)},
    {kCards, cards("rtx-5090", 5)},
    {kCards, cards("rtx-pro-6000", 5)},
};

}  // namespace

const Machine* find_machine(std::string_view name) {
  for (const Machine& machine : machines()) {
    if (equals_ignoring_case(name, machine.name) || equals_ignoring_case(name, machine.instance)) return &machine;
  }
  return nullptr;
}

Topology topology_of(const Machine& machine) {
  Topology topology = built(machine);
  topology.file = machine.name;
  topology.platform = machine.what.substr(0, machine.what.find(": "));
  if (!machine.recorded) {
    topology.warnings.push_back(
        fmt::format("{} was not recorded: what is said of it rests on {}. `shardscope topo` on the machine tells.",
                    machine.name, machine.source));
  }
  understand(topology);
  return topology;
}

Topology usual_topology(const DevicePeaks& peaks) {
  const auto* const usual = std::find_if(std::begin(kUsual), std::end(kUsual),
                                         [&](const UsualBoard& each) { return each.board.gpu == peaks.name; });
  require(usual != std::end(kUsual), "usual_topology: no row of device_peaks()");
  Topology topology = built(usual->board);
  topology.file = peaks.name;
  topology.platform = usual->words;
  topology.warnings.push_back(
      fmt::format("No machine was named: {} are assumed, as {} is often found. Another machine with this GPU may be "
                  "joined otherwise.",
                  usual->words, peaks.name));
  understand(topology);
  return topology;
}

}  // namespace shardscope::topology
