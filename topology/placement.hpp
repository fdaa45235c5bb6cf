// Which of the ranks' devices form a group that does not need them all, and which cores a rank gets that works on a
// GPU. Pure: everything follows from a topology and from what the ranks have. Groups of devices: groups.hpp.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "topology/host.hpp"
#include "topology/topology.hpp"

namespace shardscope::topology {

/// The first ranks' devices, or those with the best or the worst links between them.
enum class Placement : uint8_t { kLinear, kBest, kWorst };
inline constexpr std::array kPlacements = {Placement::kLinear, Placement::kBest, Placement::kWorst};
inline constexpr std::array<std::string_view, 3> kPlacementNames = {"linear", "best", "worst"};
std::string_view name_of(Placement placement);

/// Where the ranks of a group work.
struct PlacedGroup {
  Placement placement = Placement::kLinear;
  std::vector<Placement> also;  // that were asked for, too, and are the same places
  std::vector<int> places;      // [degree] of each rank; place n is where rank n works from the start
  int replicas = 1;             // groups at work at once: this one, and others at the places after it

  /// Whether this is the group of that placement, alone.
  bool stands_for(Placement one) const;
  /// Ranks at work.
  int ranks() const { return static_cast<int>(places.size()) * replicas; }
  bool operator==(const PlacedGroup&) const = default;
};
/// Each rank at its own place.
PlacedGroup linear_group(int degree);

/// All ranks' places, and what joins them.
struct Places {
  int count = 0;
  Topology topology;  // gpus: the places, in the order of ranks; links: between them. Empty where why_linear is not
  std::string noun;   // "devices", "cores of ranks": for messages
  std::string why_linear;  // why nothing else than kLinear can be had; empty: it can
  std::string remedy;      // of that
};

/// Of ranks that work on GPUs of one machine. bus_ids: of each rank's, in any of the ways to write them.
Places places_of_gpus(const Topology& machine, std::span<const std::string> bus_ids);

/// Of ranks that work on cores of one host: those that share a last-level cache are nearest (PIX), then those of one
/// NUMA node (NODE), then the others (SYS). cores: of each rank.
Places places_of_cores(const HostCpu& host, std::span<const NumaNode> nodes, std::span<const std::vector<int>> cores);

/// The groups of that many ranks for the placements asked for (ascending, distinct). Where two are the same places, the
/// first stands for both, and notes get a line that says so. Among groups that are joined alike the best is the first
/// by number, and so is the worst: what would show nothing but noise is one group. Throws UserError, which names the
/// placement, where it cannot be had.
std::vector<PlacedGroup> place_groups(const Places& places, int degree, std::span<const Placement> asked,
                                      std::vector<std::string>& notes);

/// Where every rank works while that group does: its ranks at its places; of the others each at its own, or where that
/// is taken, at one that is left.
std::vector<int> all_places(const PlacedGroup& group, int ranks);

}  // namespace shardscope::topology
