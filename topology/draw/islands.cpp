#include "topology/draw/islands.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "topology/understanding.hpp"

namespace shardscope::topology {
namespace {

constexpr int kMostLinks = 18;  // of any GPU: NVLink 4 and 5; a row that adds up to more counts shared links

bool is_nvlink(const std::optional<Path>& path) {
  return path && path->kind == PathKind::kNvLink;
}

size_t at(int position) {
  return static_cast<size_t>(position);
}

int size_of(const Topology& topology) {
  return static_cast<int>(topology.gpus.size());
}

/// Of each GPU the smallest one that it reaches by NVLinks.
std::vector<int> nvlink_roots(const Topology& topology) {
  std::vector<int> roots(topology.gpus.size());
  std::iota(roots.begin(), roots.end(), 0);
  for (int i = 0; i < size_of(topology); ++i) {
    for (int j = i + 1; j < size_of(topology); ++j) {
      if (!is_nvlink(path_between(topology, i, j)) || roots[at(i)] == roots[at(j)]) continue;
      const int kept = std::min(roots[at(i)], roots[at(j)]);
      const int gone = std::max(roots[at(i)], roots[at(j)]);
      std::replace(roots.begin(), roots.end(), gone, kept);
    }
  }
  return roots;
}

int row_sum(const Topology& topology, int gpu) {
  int sum = 0;
  for (int other = 0; other < size_of(topology); ++other) {
    const std::optional<Path> path = path_between(topology, gpu, other);
    if (other != gpu && is_nvlink(path)) sum += path->nvlinks;
  }
  return sum;
}

bool through_switches(const Topology& topology, const std::vector<int>& gpus) {
  if (topology.switched) return *topology.switched;
  if (topology.topology_class == TopologyClass::kNvSwitch) return true;
  return std::any_of(gpus.begin(), gpus.end(), [&](int gpu) { return row_sum(topology, gpu) > kMostLinks; });
}

int mode_of(const std::vector<int>& values) {
  std::map<int, int> counts;
  for (const int value : values) ++counts[value];
  const auto most =
      std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == counts.end() ? 0 : most->first;
}

/// Of each GPU its rank among those of its NUMA node: GPUs of a linked pair stand side by side.
std::vector<int> pair_ranks(const Topology& topology) {
  const std::vector<int> roots = nvlink_roots(topology);
  std::vector<int> ranks;
  for (int gpu = 0; gpu < size_of(topology); ++gpu) {
    const int root = roots[at(gpu)];
    ranks.push_back(std::count(roots.begin(), roots.end(), root) == 2 ? root : gpu);
  }
  return ranks;
}

/// Left before right.
auto place_of(const Topology& topology, const std::vector<int>& ranks, const PcieIsland& island) {
  constexpr int kNowhere = 1 << 20;
  const auto node = [&](int gpu) {
    const std::vector<int>& nodes = topology.gpus[at(gpu)].numa_nodes;
    return nodes.empty() ? kNowhere : nodes.front();
  };
  const int first = *std::min_element(island.gpus.begin(), island.gpus.end(), [&](int a, int b) {
    return std::tuple(node(a), ranks[at(a)], a) < std::tuple(node(b), ranks[at(b)], b);
  });
  return std::tuple(node(first), ranks[at(first)], first);
}

PcieIsland joined(const Topology& topology, PathKind kind, std::vector<PcieIsland> parts) {
  PcieIsland island{.kind = kind};
  for (size_t a = 0; a < parts.size(); ++a) {
    for (size_t b = a + 1; b < parts.size(); ++b) {
      for (const int i : parts[a].gpus) {
        for (const int j : parts[b].gpus) {
          const std::optional<Path> path = path_between(topology, i, j);
          if (!path) ++island.unknown_pairs;
          if (path && nearer({.kind = kind}, *path)) ++island.farther_pairs;
        }
      }
    }
    island.gpus.insert(island.gpus.end(), parts[a].gpus.begin(), parts[a].gpus.end());
  }
  island.parts = std::move(parts);
  return island;
}

/// Whether a pair between the two is at `kind` or nearer.
bool touching(const Topology& topology, PathKind kind, const PcieIsland& a, const PcieIsland& b) {
  for (const int i : a.gpus) {
    for (const int j : b.gpus) {
      const std::optional<Path> path = path_between(topology, i, j);
      if (path && !is_nvlink(path) && !nearer({.kind = kind}, *path)) return true;
    }
  }
  return false;
}

}  // namespace

std::optional<Path> path_between(const Topology& topology, int a, int b) {
  if (!topology.links || at(a) >= topology.links->size() || at(b) >= (*topology.links)[at(a)].size()) {
    return std::nullopt;
  }
  return (*topology.links)[at(a)][at(b)];
}

std::vector<NvIsland> nvlink_islands(const Topology& topology) {
  const std::vector<int> roots = nvlink_roots(topology);
  std::map<int, std::vector<int>> members;
  for (int gpu = 0; gpu < size_of(topology); ++gpu) members[roots[at(gpu)]].push_back(gpu);
  std::vector<NvIsland> islands;
  for (const auto& [root, gpus] : members) {
    const bool to_switch = topology.switched == true && topology.gpus[at(root)].nvlinks.value_or(0) > 0;
    if (gpus.size() < 2 && !to_switch) continue;
    islands.push_back({.gpus = gpus, .switched = through_switches(topology, gpus)});
  }
  return islands;
}

std::vector<LinkCount> link_counts(const Topology& topology, const std::vector<NvIsland>& islands) {
  std::vector<LinkCount> counts(topology.gpus.size());
  for (int gpu = 0; gpu < size_of(topology); ++gpu) {
    for (int other = 0; other < size_of(topology); ++other) {
      if (other != gpu && !path_between(topology, gpu, other)) counts[at(gpu)].row_known = false;
    }
  }
  for (const NvIsland& island : islands) {
    std::vector<int> seen;
    for (const int gpu : island.gpus) {
      int& links = counts[at(gpu)].links;
      if (!island.switched) {
        links = row_sum(topology, gpu);
        // NVLinks to POWER CPUs are not in the matrix, but are up all the same.
        for (const NvLinkPort& port : topology.gpus[at(gpu)].ports) {
          if (port.remote == NvLinkPort::Remote::kCpu && port.active != false) ++links;
        }
      } else {
        for (int other = 0; other < size_of(topology); ++other) {
          const std::optional<Path> path = path_between(topology, gpu, other);
          if (other != gpu && is_nvlink(path)) links = std::max(links, path->nvlinks);
        }
        if (links == 0) links = topology.gpus[at(gpu)].nvlinks.value_or(0);
      }
      seen.push_back(links);
    }
    const int mode = mode_of(seen);
    for (const int gpu : island.gpus) {
      const std::optional<int> full = full_link_count(topology.gpus[at(gpu)].name);
      // A sum over a row with holes is no count.
      if (island.switched || counts[at(gpu)].row_known) counts[at(gpu)].expected = std::max(mode, full.value_or(0));
    }
  }
  return counts;
}

std::vector<PcieIsland> pcie_islands(const Topology& topology) {
  const std::vector<int> ranks = pair_ranks(topology);
  const auto left_of = [&](const PcieIsland& a, const PcieIsland& b) {
    return place_of(topology, ranks, a) < place_of(topology, ranks, b);
  };
  std::vector<PcieIsland> islands;
  islands.reserve(topology.gpus.size());
  for (int gpu = 0; gpu < size_of(topology); ++gpu) islands.push_back({.gpus = {gpu}});
  for (const PathKind kind : {PathKind::kPix, PathKind::kPxb, PathKind::kPhb, PathKind::kNode, PathKind::kSys}) {
    std::vector<PcieIsland> merged;
    while (!islands.empty()) {
      std::vector<PcieIsland> parts = {std::move(islands.front())};
      islands.erase(islands.begin());
      for (size_t part = 0; part < parts.size(); ++part) {
        for (auto other = islands.begin(); other != islands.end();) {
          if (!touching(topology, kind, parts[part], *other)) {
            ++other;
            continue;
          }
          parts.push_back(std::move(*other));
          other = islands.erase(other);
        }
      }
      std::sort(parts.begin(), parts.end(), left_of);
      merged.push_back(parts.size() == 1 ? std::move(parts.front()) : joined(topology, kind, std::move(parts)));
    }
    islands = std::move(merged);
  }
  std::sort(islands.begin(), islands.end(), left_of);
  return islands;
}

}  // namespace shardscope::topology
