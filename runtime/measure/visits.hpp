// Which shards are loaded in which order, and what is measured on them. A pure function, so that every rank can make
// the same plan from what rank 0 told it.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "runtime/measure/traffic.hpp"

namespace shardscope::runtime {

/// A group of ranks and a workload in a sweep. kHalf: an earlier run made its first visit.
enum class PlaceState : uint8_t { kOpen, kHalf, kDone };
struct Place {
  int tp = 0;
  size_t group = 0;  // which of the sweep's: those of one degree differ by where their ranks work
  Workload workload;
  PlaceState state = PlaceState::kOpen;
};

/// One loading of shards and the places that are measured on them.
struct Visit {
  int tp = 0;
  size_t group = 0;
  int pass = 0;
  std::vector<size_t> places;
};

struct VisitPlan {
  std::vector<Visit> visits;    // in order: degrees up, then (with two passes) down
  std::vector<size_t> refused;  // places that fit no memory
};

/// places: those of one group together, ascending by degree. fits: whether shards of the group of that place with room
/// for these workloads fit the memory.
VisitPlan plan_visits(const std::vector<Place>& places, int passes,
                      const std::function<bool(const Place& of, const std::vector<Workload>&)>& fits);

}  // namespace shardscope::runtime
