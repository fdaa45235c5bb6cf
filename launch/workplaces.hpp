// Where ranks work: each at a place of its own, a device or cores, from the start; and where --placement asks for it,
// at one another's places while a group of fewer ranks than there are is measured.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "launch/engine.hpp"
#include "launch/session.hpp"
#include "runtime/measure/sweep.hpp"
#include "topology/activity.hpp"
#include "topology/placement.hpp"

namespace shardscope::launch {

/// What a place has beside its device.
struct Seat {
  std::vector<int> cores;
  std::optional<int> memory_node;

  bool operator==(const Seat&) const = default;
};

/// The groups of a sweep, and what there is for them.
struct PlacementPlan {
  std::vector<std::vector<topology::PlacedGroup>> groups;  // of each degree; empty: each rank stays at its place
  std::vector<Seat> seats;                                 // of each rank's place; empty: as above
  std::vector<std::string> notes;                          // on rank 0

  /// Places of that rank during the sweep, other than its own.
  std::vector<int> later_places(int rank) const;
  bool moves() const;
};

/// Decided on rank 0, told to all: collective, unless only kLinear is asked for, which needs nothing. topology: of rank
/// 0's host. Throws UserError where a placement cannot be had.
PlacementPlan plan_placements(std::span<const topology::Placement> asked, std::span<const int> degrees,
                              const BackendChoice& choice, const std::optional<topology::Topology>& topology,
                              const Place& place, Session& session);

/// Takes this rank, with its backend, from place to place. Everything that it is given outlives it.
class Workplaces {
 public:
  Workplaces(const PlacementPlan& plan, const EngineRequest& request, const BackendChoice& choice, Engine& engine,
             const Place& place, Session& session);

  /// Collective; nothing is made anew for a rank that stays. Valid until the next call.
  runtime::Workplace take(const topology::PlacedGroup& group);

 private:
  void move(int to);

  const PlacementPlan& plan_;
  const EngineRequest& request_;
  const BackendChoice& choice_;
  Engine& engine_;
  Place place_;  // with the cores of now
  Session& session_;
  std::vector<int> at_;  // of each rank, its place now
  std::optional<topology::ActivityProbe> activity_;
};

}  // namespace shardscope::launch
