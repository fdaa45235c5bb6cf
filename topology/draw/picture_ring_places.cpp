// Where GPUs stand on the ring: NUMA nodes on halves of their own, short lines between linked ones.
#include "topology/draw/picture_ring.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>

namespace shardscope::topology {
namespace {

bool linked(const Topology& topology, int a, int b) {
  const std::optional<Path> path = path_between(topology, a, b);
  return path && path->kind == PathKind::kNvLink;
}

/// Centres of the boxes, around (0, 0). With two nodes the first `left` stand on the left half, the others on the right
/// half, both from top to bottom: who faces whom is linked across most often. Else clockwise from the left of the top.
std::vector<RingPoint> points_of(const RingPlaces& ring, bool tall) {
  constexpr double kTallStep = 27, kStep = 23, kStepAside = 36;  // from one box to the next
  constexpr double kLeastAside = 225, kLeast = 170, kLeastOfFour = 120;
  const auto count = static_cast<double>(ring.order.size());
  const double radius_x = std::max(kLeastAside, count * kStepAside);
  const double radius_y = std::max(ring.order.size() <= 4 ? kLeastOfFour : kLeast, count * (tall ? kTallStep : kStep));
  std::vector<RingPoint> points;
  const auto add_at = [&](double turn) {  // 0: top, a quarter: right
    const double angle = 2 * std::numbers::pi * turn;
    points.push_back({radius_x * std::sin(angle), -radius_y * std::cos(angle)});
  };
  for (size_t i = 0; i < ring.order.size(); ++i) {
    const auto step = static_cast<double>(i);
    if (!ring.halves) {
      add_at((step - 0.5) / count);
    } else if (i < ring.left) {
      add_at(1 - (step + 0.5) / (2 * static_cast<double>(ring.left)));
    } else {
      add_at((step - static_cast<double>(ring.left) + 0.5) / (2 * static_cast<double>(ring.order.size() - ring.left)));
    }
  }
  return points;
}

double length_of_lines(const Topology& topology, const RingPlaces& ring) {
  double sum = 0;
  for (size_t i = 0; i < ring.order.size(); ++i) {
    for (size_t j = i + 1; j < ring.order.size(); ++j) {
      if (!linked(topology, ring.order[i], ring.order[j])) continue;
      sum += std::hypot(ring.points[i].x - ring.points[j].x, ring.points[i].y - ring.points[j].y) *
             path_between(topology, ring.order[i], ring.order[j])->nvlinks;
    }
  }
  return sum;
}

/// GPUs of one half change places as long as that makes lines shorter.
void shorten_lines(const Topology& topology, RingPlaces& ring) {
  constexpr int kRounds = 16;
  constexpr size_t kMostGpus = 24;  // each round takes GPUs^4 steps
  constexpr double kShorter = 0.999999;
  if (ring.order.size() > kMostGpus) return;
  double best = length_of_lines(topology, ring);
  for (int round = 0; round < kRounds; ++round) {
    bool better = false;
    for (size_t i = 0; i < ring.order.size(); ++i) {
      for (size_t j = i + 1; j < ring.order.size(); ++j) {
        if ((i < ring.left) != (j < ring.left)) continue;
        std::swap(ring.order[i], ring.order[j]);
        const double length = length_of_lines(topology, ring);
        if (length < best * kShorter) {
          best = length;
          better = true;
        } else {
          std::swap(ring.order[i], ring.order[j]);
        }
      }
    }
    if (!better) return;
  }
}

/// Upside down is as good: the first GPU stands in the upper half.
void turn_first_up(RingPlaces& ring) {
  const auto first = std::find(ring.order.begin(), ring.order.end(), 0) - ring.order.begin();
  if (!ring.halves || ring.points[static_cast<size_t>(first)].y <= 0) return;
  const auto middle = ring.order.begin() + static_cast<std::ptrdiff_t>(ring.left);
  std::reverse(ring.order.begin(), middle);
  std::reverse(middle, ring.order.end());
}

}  // namespace

RingPlaces ring_places(const Topology& topology, bool tall) {
  RingPlaces ring;
  std::set<std::vector<int>> nodes;
  for (size_t gpu = 0; gpu < topology.gpus.size(); ++gpu) {
    ring.order.push_back(static_cast<int>(gpu));
    nodes.insert(topology.gpus[gpu].numa_nodes);
  }
  const auto node_of = [&](int gpu) -> const std::vector<int>& {
    return topology.gpus[static_cast<size_t>(gpu)].numa_nodes;
  };
  std::stable_sort(ring.order.begin(), ring.order.end(), [&](int a, int b) { return node_of(a) < node_of(b); });
  const bool known = !nodes.begin()->empty();
  ring.halves = known && nodes.size() == 2;
  ring.one_node = known && nodes.size() == 1;
  ring.left = ring.order.size();
  if (ring.halves) {
    ring.left = static_cast<size_t>(
        std::count_if(ring.order.begin(), ring.order.end(), [&](int gpu) { return node_of(gpu) == *nodes.begin(); }));
  }
  ring.points = points_of(ring, tall);
  shorten_lines(topology, ring);
  turn_first_up(ring);
  return ring;
}

}  // namespace shardscope::topology
