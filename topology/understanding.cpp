// The class of a topology, by its matrix:
//
// Every pair linked: through switches, if the source shows them; if a GPU's links to all others add up to more than the
// 18 that any GPU has (behind switches the same links are counted once for every peer); or if each pair has the model's
// full count. Else directly: a mesh.
//
// Some pairs linked: with switches, as above, "nvswitch" still, as long as most pairs are linked: what is missing is a
// fault. No GPU linked to two others: pairs. All connected: the cube mesh. Else mixed.
//
// No pair linked: PCIe.
//
// Unknown cells are left out, as long as every GPU stands in a known one; a warning says so.
#include "topology/understanding.hpp"

#include <algorithm>
#include <numeric>
#include <set>

#include <fmt/format.h>

#include "topology/groups.hpp"
#include "topology/warnings.hpp"

namespace shardscope::topology {
namespace {

constexpr int kMostLinks = 18;  // of any GPU: NVLink 4 and 5

/// The matrix in numbers.
struct Census {
  int linked = 0;  // pairs
  int unlinked = 0;
  int unknown = 0;
  std::vector<int> peers;  // of each GPU: to how many it is linked
  std::vector<int> known;  // of each GPU: known cells
  std::vector<int> links;  // of each GPU: NVLinks to others, summed
};

Census take_census(const PathMatrix& matrix) {
  const size_t gpus = matrix.size();
  Census census{.peers = std::vector<int>(gpus), .known = std::vector<int>(gpus), .links = std::vector<int>(gpus)};
  for (size_t i = 0; i < gpus; ++i) {
    for (size_t j = i + 1; j < gpus; ++j) {
      const std::optional<Path>& path = matrix[i][j];
      if (!path) {
        ++census.unknown;
        continue;
      }
      ++census.known[i];
      ++census.known[j];
      if (path->kind != PathKind::kNvLink) {
        ++census.unlinked;
        continue;
      }
      ++census.linked;
      for (const size_t gpu : {i, j}) {
        ++census.peers[gpu];
        census.links[gpu] += path->nvlinks;
      }
    }
  }
  return census;
}

bool linked(const std::optional<Path>& path) {
  return path && path->kind == PathKind::kNvLink;
}

bool all_connected(const PathMatrix& matrix) {
  std::vector<bool> reached(matrix.size());
  std::vector<size_t> to_visit = {0};
  reached[0] = true;
  while (!to_visit.empty()) {
    const size_t gpu = to_visit.back();
    to_visit.pop_back();
    for (size_t other = 0; other < matrix.size(); ++other) {
      if (reached[other] || !linked(matrix[gpu][other])) continue;
      reached[other] = true;
      to_visit.push_back(other);
    }
  }
  return std::find(reached.begin(), reached.end(), false) == reached.end();
}

/// Whether each linked pair has the full count of its GPUs' model.
bool full_counts(const Topology& topology) {
  for (size_t i = 0; i < topology.gpus.size(); ++i) {
    const std::optional<int> full = full_link_count(topology.gpus[i].name);
    if (!full || *full == 0) return false;
    for (const std::optional<Path>& path : (*topology.links)[i]) {
      if (linked(path) && path->nvlinks != *full) return false;
    }
  }
  return true;
}

bool through_switches(const Topology& topology, const Census& census) {
  if (topology.switched) return *topology.switched;
  const bool of_two = topology.gpus.size() == 2;
  if (of_two) return linked((*topology.links)[0][1]) && (*topology.links)[0][1]->nvlinks == kMostLinks;
  if (*std::max_element(census.links.begin(), census.links.end()) > kMostLinks) return true;
  return *std::max_element(census.peers.begin(), census.peers.end()) > 1 && full_counts(topology);
}

TopologyClass class_of(const Topology& topology) {
  if (!topology.gpu_count) return TopologyClass::kUnknown;
  if (*topology.gpu_count < 2) {
    if (!topology.complete) return TopologyClass::kUnknown;  // the others may have been cut away
    return *topology.gpu_count == 0 ? TopologyClass::kNone : TopologyClass::kSingle;
  }
  if (!topology.links) return TopologyClass::kUnknown;
  const Census census = take_census(*topology.links);
  if (std::find(census.known.begin(), census.known.end(), 0) != census.known.end()) return TopologyClass::kUnknown;
  if (census.linked == 0) return TopologyClass::kPcie;
  const bool switched = through_switches(topology, census);
  if (census.unlinked == 0 && switched) return TopologyClass::kNvSwitch;
  if (switched && 2 * census.linked > census.linked + census.unlinked) return TopologyClass::kNvSwitch;
  if (*std::max_element(census.peers.begin(), census.peers.end()) == 1) return TopologyClass::kPairs;
  if (switched) return TopologyClass::kMixed;
  if (census.unlinked == 0) return TopologyClass::kNvLinkMesh;
  return all_connected(*topology.links) ? TopologyClass::kCubeMesh : TopologyClass::kMixed;
}

// ---- NICs and bandwidth ---------------------------------------------------------------------------------------------

void find_nearest_nics(Topology& topology) {
  topology.nearest_nics.assign(topology.gpus.size(), {});
  topology.nearest_nic_links.assign(topology.gpus.size(), std::nullopt);
  if (!topology.nic_links) return;
  for (size_t gpu = 0; gpu < topology.gpus.size(); ++gpu) {
    std::optional<Path>& nearest = topology.nearest_nic_links[gpu];
    for (size_t nic = 0; nic < topology.nics.size(); ++nic) {
      const std::optional<Path>& path = (*topology.nic_links)[gpu][nic];
      if (!path || nearer({.kind = PathKind::kPhb}, *path)) continue;
      if (nearest && nearer(*nearest, *path)) continue;
      if (!nearest || nearer(*path, *nearest)) topology.nearest_nics[gpu].clear();
      nearest = path;
      topology.nearest_nics[gpu].push_back(topology.nics[nic].name);
    }
  }
}

std::optional<double> pcie_link(const Gpu& gpu) {
  const std::optional<int> generation = gpu.pcie_generation_most ? gpu.pcie_generation_most : gpu.pcie_generation;
  const std::optional<int> width = gpu.pcie_width_most ? gpu.pcie_width_most : gpu.pcie_width;
  return generation && width ? pcie_gb_per_s(*generation, *width) : std::nullopt;
}

/// Of one direction. PCIe only where no CPU lies between: what a host bridge or the link between sockets carries is no
/// data-sheet figure of the GPUs.
std::optional<double> bandwidth_of(const Path& path, const Gpu& a, const Gpu& b) {
  switch (path.kind) {
    case PathKind::kNvLink: {
      const std::optional<double> of_a = nvlink_gb_per_s(a);
      const std::optional<double> of_b = nvlink_gb_per_s(b);
      return of_a && of_b ? std::optional(path.nvlinks * std::min(*of_a, *of_b)) : std::nullopt;
    }
    case PathKind::kPix:
    case PathKind::kPxb: {
      const std::optional<double> of_a = pcie_link(a);
      const std::optional<double> of_b = pcie_link(b);
      return of_a && of_b ? std::optional(std::min(*of_a, *of_b)) : std::nullopt;
    }
    case PathKind::kSelf:
    case PathKind::kPhb:
    case PathKind::kNode:
    case PathKind::kSys:
    case PathKind::kSoc:
      break;
  }
  return std::nullopt;
}

void find_bandwidths(Topology& topology) {
  topology.link_gb_per_s.reset();
  if (!topology.links) return;
  bool any = false;
  const size_t gpus = topology.gpus.size();
  Matrix<std::optional<double>> bandwidths(gpus, std::vector<std::optional<double>>(gpus));
  for (size_t i = 0; i < gpus; ++i) {
    for (size_t j = 0; j < gpus; ++j) {
      const std::optional<Path>& path = (*topology.links)[i][j];
      if (path) bandwidths[i][j] = bandwidth_of(*path, topology.gpus[i], topology.gpus[j]);
      any = any || bandwidths[i][j];
    }
  }
  if (any) topology.link_gb_per_s = std::move(bandwidths);
}

}  // namespace

void understand(Topology& topology) {
  topology.topology_class = class_of(topology);
  find_nearest_nics(topology);
  find_bandwidths(topology);
  topology.groups = best_and_worst_groups(topology);
  for (const std::string& warning : warnings_about(topology)) {
    if (std::find(topology.warnings.begin(), topology.warnings.end(), warning) == topology.warnings.end()) {
      topology.warnings.push_back(warning);
    }
  }
}

void forget_conclusions(Topology& topology) {
  for (const std::string& warning : warnings_about(topology)) std::erase(topology.warnings, warning);
}

}  // namespace shardscope::topology
