#include "launch/workplaces.hpp"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "topology/system.hpp"

namespace shardscope::launch {
namespace {

using topology::PlacedGroup;
using topology::Placement;

/// Collective.
std::vector<Seat> gather_seats(parallel::World& world, const Place& place) {
  nlohmann::json mine = {{"cores", place.cores}, {"memory_node", nullptr}};
  if (place.memory_node) mine["memory_node"] = *place.memory_node;
  std::vector<Seat> seats;
  for (const std::string& text : world.all_gather_text(mine.dump(), "cores of the ranks")) {
    const nlohmann::json theirs = nlohmann::json::parse(text);
    Seat& seat = seats.emplace_back(Seat{.cores = theirs.at("cores").get<std::vector<int>>()});
    if (!theirs.at("memory_node").is_null()) seat.memory_node = theirs.at("memory_node").get<int>();
  }
  return seats;
}

topology::Places places_of(const BackendChoice& choice, const std::optional<topology::Topology>& topology,
                           const Place& place, const std::vector<Seat>& seats, const parallel::World& world) {
  topology::Places places{.count = world.size(), .noun = "places"};
  if (!world.one_host()) {
    places.why_linear = "the ranks are on several hosts";
    places.remedy = "start them on one host, or use --placement linear";
    return places;
  }
  if (!choice.on_devices) {
    std::vector<std::vector<int>> cores;
    for (const Seat& seat : seats) cores.push_back(seat.cores);
    return topology::places_of_cores(place.host, topology::probe_system().numa_nodes, cores);
  }
  if (!choice.blind.empty()) {
    places.why_linear = fmt::format("rank {} does not see the devices of all ranks", choice.blind.front());
    places.remedy =
        "start with all devices visible to all ranks (srun --gpus-per-node=N and no --gpus-per-task, no "
        "CUDA_VISIBLE_DEVICES of each rank's own), or use --placement linear";
    return places;
  }
  std::vector<std::string> bus_ids;
  for (const cuda::DeviceFacts& facts : choice.facts) bus_ids.push_back(facts.pci_bus_id);
  return topology::places_of_gpus(topology.value_or(topology::Topology{}), bus_ids);
}

std::string encoded(const std::vector<std::vector<PlacedGroup>>& groups) {
  nlohmann::json document = nlohmann::json::array();
  for (const std::vector<PlacedGroup>& of_degree : groups) {
    nlohmann::json list = nlohmann::json::array();
    for (const PlacedGroup& group : of_degree) list.push_back({group.placement, group.also, group.places});
    document.push_back(std::move(list));
  }
  return document.dump();
}

std::vector<std::vector<PlacedGroup>> decoded(const std::string& text) {
  std::vector<std::vector<PlacedGroup>> groups;
  for (const nlohmann::json& list : nlohmann::json::parse(text)) {
    groups.emplace_back();
    for (const nlohmann::json& group : list) {
      groups.back().push_back({.placement = group.at(0).get<Placement>(),
                               .also = group.at(1).get<std::vector<Placement>>(),
                               .places = group.at(2).get<std::vector<int>>()});
    }
  }
  return groups;
}

}  // namespace

std::vector<int> PlacementPlan::later_places(int rank) const {
  std::set<int> places;
  for (const std::vector<PlacedGroup>& of_degree : groups) {
    for (const PlacedGroup& group : of_degree) {
      const std::vector<int> all = topology::all_places(group, static_cast<int>(seats.size()));
      places.insert(all[static_cast<size_t>(rank)]);
    }
  }
  places.erase(rank);
  return {places.begin(), places.end()};
}

bool PlacementPlan::moves() const {
  for (int rank = 0; rank < static_cast<int>(seats.size()); ++rank) {
    if (!later_places(rank).empty()) return true;
  }
  return false;
}

PlacementPlan plan_placements(std::span<const Placement> asked, std::span<const int> degrees,
                              const BackendChoice& choice, const std::optional<topology::Topology>& topology,
                              const Place& place, Session& session) {
  PlacementPlan plan;
  if (std::all_of(asked.begin(), asked.end(), [](Placement one) { return one == Placement::kLinear; })) return plan;
  parallel::World& world = session.world;
  plan.seats = gather_seats(world, place);
  std::string text;
  if (session.speaks()) {
    const topology::Places places = places_of(choice, topology, place, plan.seats, world);
    for (const int degree : degrees) plan.groups.push_back(place_groups(places, degree, asked, plan.notes));
    text = encoded(plan.groups);
  }
  plan.groups = decoded(world.broadcast_text(text, 0, "placements"));
  return plan;
}

Workplaces::Workplaces(const PlacementPlan& plan, const EngineRequest& request, const BackendChoice& choice,
                       Engine& engine, const Place& place, Session& session)
    : plan_(plan),
      request_(request),
      choice_(choice),
      engine_(engine),
      place_(place),
      session_(session),
      at_(topology::linear_group(session.world.size()).places) {
  activity_.emplace(place.cores);
}

runtime::Workplace Workplaces::take(const PlacedGroup& group) {
  const std::vector<int> next = topology::all_places(group, session_.world.size());
  if (next != at_) {
    const auto self = static_cast<size_t>(session_.world.rank());
    const bool moves = next[self] != at_[self];
    // Nobody comes to a device before whoever was there has left its memory.
    if (moves) end_backend(engine_);
    session_.world.barrier("ranks that leave their places");
    if (moves) move(next[self]);
    at_ = next;
  }
  return {.backend = engine_.backend.get(), .on_device = engine_.on_device, .activity = &*activity_};
}

void Workplaces::move(int to) {
  const Seat& seat = plan_.seats[static_cast<size_t>(to)];
  session_.world.progress("moving to another place");
  if (seat.cores != place_.cores) {
    topology::bind_process(seat.cores);
    place_.cores = seat.cores;
    activity_.emplace(seat.cores);
  }
  if (seat.memory_node != place_.memory_node && place_.host.numa_nodes > 1) {
    topology::prefer_memory_of(seat.memory_node);
  }
  place_.memory_node = seat.memory_node;
  const int device = engine_.on_devices() ? choice_.ordinals[static_cast<size_t>(to)] : -1;
  remake_backend(engine_, request_, device, place_, session_);
}

}  // namespace shardscope::launch
