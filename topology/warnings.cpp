#include "topology/warnings.hpp"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "topology/understanding.hpp"

namespace shardscope::topology {
namespace {

using Sentences = std::vector<std::string>;

bool linked(const std::optional<Path>& path) {
  return path && path->kind == PathKind::kNvLink;
}

std::string gpu_name(const Topology& topology, size_t position) {
  return fmt::format("GPU{}", topology.gpus[position].index);
}

/// The first few, by commas.
std::string first_of(std::vector<std::string> names) {
  constexpr size_t kNamed = 6;
  const bool many = names.size() > kNamed;
  if (many) names.resize(kNamed);
  return fmt::format("{}{}", fmt::join(names, ", "), many ? ", …" : "");
}

/// The value that most have; of equally frequent ones the largest. 0 of none.
int mode_of(const std::vector<int>& values) {
  std::map<int, int> counts;
  for (const int value : values) ++counts[value];
  int mode = 0;
  for (const auto& [value, count] : counts) {
    if (mode == 0 || count >= counts[mode]) mode = value;
  }
  return mode;
}

// ---- NVLinks --------------------------------------------------------------------------------------------------------

/// Each pair once.
template <class Visit>
void for_pairs(const Topology& topology, const Visit& visit) {
  for (size_t i = 0; i < topology.gpus.size(); ++i) {
    for (size_t j = i + 1; j < topology.gpus.size(); ++j) visit(i, j, (*topology.links)[i][j]);
  }
}

void about_unknown_pairs(const Topology& topology, Sentences& out) {
  std::vector<std::string> unknown;
  int64_t pairs = 0;
  for_pairs(topology, [&](size_t i, size_t j, const std::optional<Path>& path) {
    ++pairs;
    if (!path) unknown.push_back(fmt::format("{}-{}", topology.gpus[i].index, topology.gpus[j].index));
  });
  if (unknown.empty()) return;
  const size_t count = unknown.size();
  out.push_back(fmt::format("{} of {} GPU pairs {} unknown ({}): the class is judged by the others.", count, pairs,
                            count == 1 ? "is" : "are", first_of(std::move(unknown))));
}

/// GPUs that are to have the same links to all others through switches, and do not.
void about_switched_links(const Topology& topology, int mode, Sentences& out) {
  const PathMatrix& links = *topology.links;
  const auto full = [&](size_t gpu) { return std::max(mode, full_link_count(topology.gpus[gpu].name).value_or(0)); };
  const auto most_links = [&](size_t gpu) {
    int most = 0;
    for (const std::optional<Path>& path : links[gpu]) most = std::max(most, linked(path) ? path->nvlinks : 0);
    return most;
  };
  for (size_t gpu = 0; gpu < links.size(); ++gpu) {
    const int most = most_links(gpu);
    if (most == 0) {
      out.push_back(fmt::format(
          "{} has no NVLink to the other GPUs, which have {} each: it has dropped from the NVLink fabric. Look at its "
          "fabric state (nvidia-smi -q) and leave it out of groups until then.",
          gpu_name(topology, gpu), mode));
    } else if (most < full(gpu)) {
      out.push_back(
          fmt::format("{} has {} of {} NVLinks: degraded, and it slows every group that it is in. nvidia-smi nvlink -s "
                      "shows which links are down.",
                      gpu_name(topology, gpu), most, full(gpu)));
    }
  }
  std::vector<std::string> faults;
  for_pairs(topology, [&](size_t i, size_t j, const std::optional<Path>& path) {
    if (!path || most_links(i) == 0 || most_links(j) == 0) return;
    const int expected = std::min({mode, most_links(i), most_links(j)});
    if (linked(path) && path->nvlinks >= expected) return;
    faults.push_back(fmt::format("{}-{} is {}", gpu_name(topology, i), gpu_name(topology, j), text_of(*path)));
  });
  if (faults.empty()) return;
  out.push_back(fmt::format("{} although both GPUs have more NVLinks to others: a fault of the fabric.",
                            first_of(std::move(faults))));
}

/// NVLinks of one GPU to the GPUs shown and to CPUs, where no cell of its row is unknown.
std::optional<int> summed_links(const Topology& topology, size_t gpu) {
  int sum = 0;
  for (const std::optional<Path>& path : (*topology.links)[gpu]) {
    if (!path) return std::nullopt;
    sum += path->nvlinks;
  }
  if (sum == 0) return 0;
  for (const NvLinkPort& port : topology.gpus[gpu].ports) sum += port.remote == NvLinkPort::Remote::kCpu ? 1 : 0;
  return sum;
}

/// Of direct links: how many a GPU with `sum` of them should have, where that is more.
std::optional<std::string> expected_links(const Topology& topology, size_t gpu, int sum, int mode) {
  constexpr int kFullCounts[] = {2, 4, 6, 8, 12, 18};  // of the models in link_facts.cpp
  if (const std::optional<int> full = full_link_count(topology.gpus[gpu].name); full && *full > 0) {
    return sum < *full ? std::optional(fmt::format("{}", *full)) : std::nullopt;
  }
  if (sum < mode) return fmt::format("{}", mode);
  if (std::find(std::begin(kFullCounts), std::end(kFullCounts), sum) != std::end(kFullCounts)) return std::nullopt;
  const int* const next = std::upper_bound(std::begin(kFullCounts), std::end(kFullCounts), sum);
  if (next == std::end(kFullCounts)) return std::nullopt;
  return fmt::format("{} (no GPU has {})", *next, sum);
}

/// Direct links: a GPU's add up to its model's count, unless some are broken or lead to GPUs that are not shown.
void about_direct_links(const Topology& topology, Sentences& out) {
  std::vector<int> known;
  for (size_t gpu = 0; gpu < topology.gpus.size(); ++gpu) {
    if (const std::optional<int> sum = summed_links(topology, gpu); sum && *sum > 0) known.push_back(*sum);
  }
  std::map<std::string, std::vector<int>> gpus_of;  // of each sentence, without its subject
  for (size_t gpu = 0; gpu < topology.gpus.size(); ++gpu) {
    const std::optional<int> sum = summed_links(topology, gpu);
    if (!sum || *sum == 0) continue;
    const std::optional<std::string> expected = expected_links(topology, gpu, *sum, mode_of(known));
    if (!expected) continue;
    std::vector<std::string> pairs;
    for (size_t other = 0; other < topology.gpus.size(); ++other) {
      const std::optional<Path>& path = (*topology.links)[gpu][other];
      if (!linked(path)) continue;
      const auto [low, high] = std::minmax(topology.gpus[gpu].index, topology.gpus[other].index);
      pairs.push_back(fmt::format("{}-{}={}", low, high, text_of(*path)));
    }
    gpus_of[fmt::format("{} of {} NVLinks to what is shown here ({}): links are down, a bridge is badly seated, or "
                        "further GPUs are hidden from this view. nvidia-smi nvlink -s shows which.",
                        *sum, *expected, fmt::join(pairs, ", "))]
        .push_back(static_cast<int>(gpu));
  }
  for (const auto& [sentence, gpus] : gpus_of) {
    out.push_back(fmt::format("{} {} {}", gpu_names(topology, gpus), gpus.size() == 1 ? "has" : "have", sentence));
  }
}

void about_missing_links(const Topology& topology, Sentences& out) {
  std::vector<int> counts;
  for_pairs(topology, [&](size_t, size_t, const std::optional<Path>& path) {
    if (linked(path)) counts.push_back(path->nvlinks);
  });
  if (counts.empty()) return;
  if (topology.topology_class == TopologyClass::kNvSwitch) {
    about_switched_links(topology, mode_of(counts), out);
  } else {
    about_direct_links(topology, out);
  }
}

void about_ports(const Topology& topology, Sentences& out) {
  for (size_t gpu = 0; gpu < topology.gpus.size(); ++gpu) {
    std::vector<int> down;
    const std::vector<NvLinkPort>& ports = topology.gpus[gpu].ports;
    for (const NvLinkPort& port : ports) {
      if (port.active == false) down.push_back(port.link);
    }
    if (down.empty() || down.size() == ports.size()) continue;
    out.push_back(fmt::format("{}: {} down: a group with it has {} of {} links' bandwidth at most.",
                              gpu_name(topology, gpu),
                              down.size() == 1 ? fmt::format("NVLink {} is", down.front())
                                               : fmt::format("NVLinks {} are", fmt::join(down, ", ")),
                              ports.size() - down.size(), ports.size()));
  }
}

void about_three(const Topology& topology, Sentences& out) {
  if (topology.topology_class != TopologyClass::kNvLinkMesh || topology.gpus.size() != 3 || topology.switched) return;
  out.push_back(
      "Three GPUs with equal links may be direct neighbours, or a part of a machine with NVSwitches: the links' number "
      "alone does not tell.");
}

// ---- peer access ----------------------------------------------------------------------------------------------------

void about_peer_access(const Topology& topology, Sentences& out) {
  if (!topology.p2p) return;
  std::map<std::string, int> refused;
  int pairs = 0;
  for (size_t i = 0; i < topology.p2p->size(); ++i) {
    for (size_t j = 0; j < topology.p2p->size(); ++j) {
      const std::string& code = (*topology.p2p)[i][j];
      if (i == j || code.empty()) continue;
      ++pairs;
      if (code != "OK") ++refused[code];
    }
  }
  for (const auto& [code, count] : refused) {
    static const std::map<std::string, std::string> kMeanings = {
        {"CNS", "the chipset does not support it"},
        {"GNS", "the GPU or its driver does not support it"},
        {"TNS", "the topology does not support it"},
        {"DR", "it is disabled by a registry key of the driver"},
        {"NS", "it is not supported"},
        {"U", "the driver does not know"},
    };
    const auto meaning = kMeanings.find(code);
    out.push_back(fmt::format(
        "No peer access ({}: {}) in {} of {} directions: data between these GPUs is staged through host memory.", code,
        meaning == kMeanings.end() ? "an unknown code" : meaning->second, count, pairs));
  }
}

void about_pcie(const Topology& topology, Sentences& out) {
  if (topology.topology_class != TopologyClass::kPcie) return;
  int far = 0;
  int pairs = 0;
  for_pairs(topology, [&](size_t, size_t, const std::optional<Path>& path) {
    ++pairs;
    if (path && !nearer(*path, {.kind = PathKind::kPhb})) ++far;
  });
  if (far == 0) return;
  out.push_back(fmt::format(
      "{} of {} GPU pairs are joined through a CPU (PHB, NODE or SYS): NCCL takes host memory between them unless "
      "NCCL_P2P_LEVEL says otherwise.",
      far, pairs));
}

// ---- NUMA -----------------------------------------------------------------------------------------------------------

void about_numa(const Topology& topology, Sentences& out) {
  constexpr size_t kManyGpus = 8;
  std::set<int> nodes;
  std::set<std::string> affinities;
  size_t known = 0;
  for (const Gpu& gpu : topology.gpus) {
    if (!gpu.numa_nodes.empty()) {
      ++known;
      nodes.insert(gpu.numa_nodes.front());
    }
    affinities.insert(gpu.cpu_affinity);
  }
  const bool all_known = known == topology.gpus.size() && known > 0;
  if (all_known && nodes.size() == 1 && known >= kManyGpus) {
    out.push_back(fmt::format(
        "All {} GPUs claim NUMA node {}: one socket, or a virtual machine that hides the others. Distances and the "
        "places of ranks are not to be trusted before they are measured.",
        known, *nodes.begin()));
  }
  if (all_known && nodes.size() > 1 && affinities.size() == 1 && !affinities.begin()->empty()) {
    out.push_back(fmt::format(
        "All GPUs have the CPU affinity {} although they are on {} NUMA nodes: that of a cgroup or container, not of "
        "the hardware.",
        *affinities.begin(), nodes.size()));
  }
}

// ---- health ---------------------------------------------------------------------------------------------------------

void about_health(const Topology& topology, Sentences& out) {
  std::set<std::string> names;
  for (size_t position = 0; position < topology.gpus.size(); ++position) {
    const Gpu& gpu = topology.gpus[position];
    const std::string name = gpu_name(topology, position);
    if (!gpu.name.empty()) names.insert(gpu.name);
    if (gpu.fabric == "in progress" || gpu.fabric == "not started") {
      out.push_back(fmt::format(
          "{}: its registration with the NVLink fabric is {}: NVLinks do not work before it is completed. Start the "
          "fabric manager, of the driver's very version.",
          name, gpu.fabric));
    }
    if (gpu.mig == true) {
      out.push_back(fmt::format("{}: MIG is on: its instances have no peer access and no NVLink.", name));
    }
    if (!gpu.slowed_by.empty()) {
      out.push_back(fmt::format("{}: its clocks are held down now ({}).", name, fmt::join(gpu.slowed_by, ", ")));
    }
    if (gpu.pcie_width && gpu.pcie_width_most && *gpu.pcie_width < *gpu.pcie_width_most) {
      out.push_back(fmt::format("{}: its PCIe link has {} of {} lanes.", name, *gpu.pcie_width, *gpu.pcie_width_most));
    }
    if (gpu.processes.value_or(0) > 0) {
      out.push_back(fmt::format("{}: {} other process{} hold{} memory of it.", name, *gpu.processes,
                                *gpu.processes == 1 ? "" : "es", *gpu.processes == 1 ? "s" : ""));
    }
  }
  if (names.size() > 1) {
    out.push_back(fmt::format(
        "GPUs of different models ({}): there is no peer access between models, and the slowest sets the pace.",
        fmt::join(names, ", ")));
  }
}

// ---- measurements ---------------------------------------------------------------------------------------------------

/// One direction between two GPUs, with and without peer access.
void about_measurements(const Topology& topology, Sentences& out) {
  constexpr double kFaster = 1.1;
  constexpr double kNarrow = 10;  // GB/s: less than 16 lanes of the third generation reach
  std::map<std::pair<int, int>, std::pair<double, double>> pairs;  // with, without
  for (const Measurement& figure : topology.measurements) {
    if (figure.kind != Measurement::Kind::kP2pBandwidth || !figure.from || !figure.to || figure.from == figure.to ||
        !figure.gb_per_s || figure.both_ways == true || !figure.p2p || !figure.algorithm.empty()) {
      continue;
    }
    std::pair<double, double>& pair = pairs[{*figure.from, *figure.to}];
    (*figure.p2p ? pair.first : pair.second) = *figure.gb_per_s;
  }
  int slower = 0;
  std::vector<std::string> narrow;
  for (const auto& [gpus, pair] : pairs) {
    if (pair.first > 0 && pair.second > pair.first * kFaster) ++slower;
    if (pair.first > 0 && pair.first < kNarrow) {
      narrow.push_back(fmt::format("{}-{} {:.1f}", gpus.first, gpus.second, pair.first));
    }
  }
  if (slower > 0) {
    out.push_back(fmt::format(
        "Between {} of {} ordered pairs data go faster through host memory than by peer access: look at ACS and IOMMU "
        "settings, or switch peer access off (NCCL_P2P_DISABLE=1).",
        slower, pairs.size()));
  }
  if (!narrow.empty()) {
    out.push_back(fmt::format(
        "Peer access at less than {} GB/s (GPUs {}): less than 16 lanes of PCIe 3 carry. A narrow slot or riser?",
        kNarrow, first_of(std::move(narrow))));
  }
}

}  // namespace

std::string gpu_names(const Topology& topology, const std::vector<int>& positions) {
  std::string names;
  for (size_t i = 0; i < positions.size(); ++i) {
    const char* const before = i == 0 ? "" : i + 1 == positions.size() ? " and " : ", ";
    names += fmt::format("{}GPU{}", before, topology.gpus[static_cast<size_t>(positions[i])].index);
  }
  return names;
}

std::vector<std::string> warnings_about(const Topology& topology) {
  Sentences out;
  about_health(topology, out);
  if (topology.links && topology.gpus.size() > 1) {
    about_missing_links(topology, out);
    about_unknown_pairs(topology, out);
    about_three(topology, out);
    about_pcie(topology, out);
  }
  about_ports(topology, out);
  about_peer_access(topology, out);
  about_numa(topology, out);
  about_measurements(topology, out);
  return out;
}

}  // namespace shardscope::topology
