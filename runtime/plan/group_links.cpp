#include "runtime/plan/group_links.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/base/error.hpp"

namespace shardscope::runtime {
namespace {

using topology::Path;
using topology::PathKind;

struct SlotGeneration {
  std::string_view gpu;  // begins so
  double gb_per_s;       // x16, one direction
};
/// Data sheets; PCI Express base specifications 3.0, 4.0, 5.0 (8, 16, 32 GT/s, 128b/130b).
constexpr double kGen3 = 15.75;
constexpr double kGen4 = 31.5;
constexpr double kGen5 = 63;
constexpr std::array kSlots = {
    SlotGeneration{"v100", kGen3},  SlotGeneration{"t4", kGen3},       SlotGeneration{"h100", kGen5},
    SlotGeneration{"h200", kGen5},  SlotGeneration{"gh200", kGen5},    SlotGeneration{"b200", kGen5},
    SlotGeneration{"gb200", kGen5}, SlotGeneration{"rtx-5090", kGen5}, SlotGeneration{"rtx-pro-6000", kGen5}};

/// One NVLink, one direction, where the topology does not tell: by generation, hardware sheets.
constexpr std::array kNvLinks = {SlotGeneration{"b200", 50}, SlotGeneration{"gb200", 50},
                                 SlotGeneration{"rtx-3090", 14.06}};
constexpr double kUsualNvLink = 25;

double by_gpu(std::span<const SlotGeneration> table, std::string_view gpu, double usual) {
  const auto found =
      std::find_if(table.begin(), table.end(), [&](const SlotGeneration& one) { return gpu.starts_with(one.gpu); });
  return found == table.end() ? usual : found->gb_per_s;
}

GroupPath path_of(const Path& path) {
  switch (path.kind) {
    case PathKind::kSelf:
    case PathKind::kNvLink:
      return GroupPath::kNvLink;
    case PathKind::kPix:
    case PathKind::kPxb:
      return GroupPath::kPciePeer;
    case PathKind::kPhb:
    case PathKind::kNode:
    case PathKind::kSys:
    case PathKind::kSoc:
      return GroupPath::kHostMemory;
  }
  return GroupPath::kHostMemory;
}

const std::optional<Path>& path_between(const topology::Topology& topology, int from, int to) {
  return (*topology.links).at(static_cast<size_t>(from)).at(static_cast<size_t>(to));
}

bool linked(const topology::Topology& topology, int from, int to) {
  const std::optional<Path>& path = path_between(topology, from, to);
  return path && path->kind == PathKind::kNvLink;
}

/// Whether the GPUs can be ordered so that each has an NVLink to the one before, and the last to the first. Gives up,
/// as if not, after so many trials as no real machine needs.
class RingSearch {
 public:
  RingSearch(const topology::Topology& topology, std::span<const int> gpus)
      : topology_(topology), ring_(gpus.begin(), gpus.end()) {}

  bool found() {
    const auto has_two = [&](int gpu) {
      return std::count_if(ring_.begin(), ring_.end(),
                           [&](int other) { return other != gpu && linked(topology_, gpu, other); }) >= 2;
    };
    return ring_.size() > 2 && std::all_of(ring_.begin(), ring_.end(), has_two) && extend(1);
  }

 private:
  bool extend(size_t at) {
    constexpr int kMostTrials = 100'000;
    if (at == ring_.size()) return linked(topology_, ring_.back(), ring_.front());
    for (size_t next = at; next < ring_.size() && trials_ < kMostTrials; ++next) {
      ++trials_;
      if (!linked(topology_, ring_[at - 1], ring_[next])) continue;
      std::swap(ring_[at], ring_[next]);
      if (extend(at + 1)) return true;
      std::swap(ring_[at], ring_[next]);
    }
    return false;
  }

  const topology::Topology& topology_;
  std::vector<int> ring_;
  int trials_ = 0;
};

/// What a GPU of the group can send to the others over NVLinks: through switches all its links to any of them, else
/// those to each of them together.
double nvlink_gb_per_s(const topology::Topology& topology, std::span<const int> gpus, std::string_view gpu,
                       bool switched) {
  double least = std::numeric_limits<double>::infinity();
  for (const int from : gpus) {
    double sum = 0;
    double most = 0;
    for (const int to : gpus) {
      if (from == to || !linked(topology, from, to)) continue;
      const auto row = static_cast<size_t>(from);
      const auto column = static_cast<size_t>(to);
      double speed = by_gpu(kNvLinks, gpu, kUsualNvLink) * std::max(path_between(topology, from, to)->nvlinks, 1);
      if (topology.link_gb_per_s && (*topology.link_gb_per_s)[row][column]) {
        speed = *(*topology.link_gb_per_s)[row][column];
      }
      sum += speed;
      most = std::max(most, speed);
    }
    least = std::min(least, switched ? most : sum);
  }
  return least;
}

}  // namespace

std::string_view name_of(GroupPath path) {
  switch (path) {
    case GroupPath::kNvLink:
      return "nvlink";
    case GroupPath::kPciePeer:
      return "pcie-peer";
    case GroupPath::kHostMemory:
      return "host-memory";
  }
  return "";
}

double slot_gb_per_s(std::string_view gpu) {
  return by_gpu(kSlots, gpu, kGen4);
}

GroupLinks links_of_group(const topology::Topology& topology, std::span<const int> gpus, std::string_view gpu) {
  require(gpus.size() >= 2, "links_of_group: fewer than two GPUs have no links");
  GroupLinks links{.gb_per_s = slot_gb_per_s(gpu), .topology_class = topology.topology_class};
  const auto unknown = [&] {
    links.known = false;
    return links;
  };
  if (!topology.links) return unknown();
  std::optional<Path> narrowest;
  for (const int from : gpus) {
    for (const int to : gpus) {
      if (from == to) continue;
      const std::optional<Path>& path = path_between(topology, from, to);
      if (!path) return unknown();
      if (!narrowest || topology::nearer(*narrowest, *path)) narrowest = path;
    }
  }
  links.path = path_of(*narrowest);
  links.narrowest = topology::text_of(*narrowest);
  if (links.path != GroupPath::kNvLink) {
    // NCCL's rings need no more than a ring of NVLinks: that of a cube mesh, say.
    if (!RingSearch(topology, gpus).found()) return links;
    links.path = GroupPath::kNvLink;
    links.all_pairs = false;
  }
  const bool switched = topology.topology_class == topology::TopologyClass::kNvSwitch;
  links.gb_per_s = nvlink_gb_per_s(topology, gpus, gpu, switched);
  return links;
}

}  // namespace shardscope::runtime
