// Places on a ring. Within the topology library only.
#pragma once

#include <cstddef>
#include <vector>

#include "topology/draw/islands.hpp"

namespace shardscope::topology {

struct RingPoint {
  double x = 0, y = 0;
};

struct RingPlaces {
  std::vector<int> order;         // positions of GPUs
  std::vector<RingPoint> points;  // of each of `order`: the middle of its box, around (0, 0)
  bool halves = false;            // two NUMA nodes: a half of the ring for each
  bool one_node = false;
  size_t left = 0;  // of `order`: how many stand on the left half
};

/// Of at least one GPU. `tall`: boxes have a line of NICs below.
RingPlaces ring_places(const Topology& topology, bool tall);

}  // namespace shardscope::topology
