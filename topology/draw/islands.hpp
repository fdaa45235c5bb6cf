// The matrix of links as something that can be drawn: which GPUs hang together by NVLink, and the tree of PCIe
// switches, host bridges, NUMA nodes and sockets that the path kinds of the other pairs add up to.
#pragma once

#include <optional>
#include <vector>

#include "topology/topology.hpp"

namespace shardscope::topology {

/// The cell of two GPUs by position; nullopt where it or the whole matrix is unknown.
std::optional<Path> path_between(const Topology& topology, int a, int b);

/// GPUs that reach each other by NVLink alone.
struct NvIsland {
  std::vector<int> gpus;  // positions, ascending
  bool switched = false;  // through switches: each GPU's links serve all its pairs
};
/// Those of at least two GPUs; and of one, where the source shows that its links lead to switches.
std::vector<NvIsland> nvlink_islands(const Topology& topology);

/// What a GPU has of the links that it should have: of a switched island the most to any peer, else all together.
/// `expected`: its model's count, or that of most others; nullopt without NVLinks.
struct LinkCount {
  int links = 0;
  std::optional<int> expected;
  bool row_known = true;  // false: a cell of its row is unknown

  bool degraded() const { return expected && links < *expected; }
};
/// One for each GPU.
std::vector<LinkCount> link_counts(const Topology& topology, const std::vector<NvIsland>& islands);

/// A single GPU, or what joins several over PCIe.
struct PcieIsland {
  PathKind kind = PathKind::kSelf;  // of the pairs between parts; kSelf: a single GPU
  std::vector<int> gpus;            // positions, in an order in which islands can be drawn side by side
  std::vector<PcieIsland> parts;    // at least two; none of a single GPU
  int unknown_pairs = 0;            // between parts
  int farther_pairs = 0;            // between parts: the matrix is no tree here
};
/// The largest islands. Pairs with NVLinks say nothing about PCIe and are left out.
std::vector<PcieIsland> pcie_islands(const Topology& topology);

}  // namespace shardscope::topology
