#include "launch/host_topology.hpp"

#include <algorithm>
#include <chrono>
#include <future>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "topology/probe.hpp"
#include "topology/topology_json.hpp"

namespace shardscope::launch {
namespace {

/// A driver that starts with each question takes its time: meanwhile this rank says that it lives.
topology::Topology probe_alive(Session& session) {
  constexpr std::chrono::milliseconds kBetween{20};
  std::future<topology::Topology> probe = std::async(std::launch::async, [] { return topology::probe_topology(); });
  do {
    session.world.progress("asking the driver for the topology");
  } while (probe.wait_for(kBetween) != std::future_status::ready);
  return probe.get();
}

/// The first rank on this rank's host.
size_t first_of_host(const parallel::World& world) {
  const std::vector<std::string>& hosts = world.hosts();
  return static_cast<size_t>(std::find(hosts.begin(), hosts.end(), world.host()) - hosts.begin());
}

/// Of each rank of this host, by its number there; none where that cannot be told.
std::vector<topology::NearGpu> near_gpus(const parallel::World& world, const BackendChoice& choice,
                                         const topology::Topology& topology) {
  std::vector<topology::NearGpu> gpus;
  for (size_t rank = 0; rank < choice.facts.size(); ++rank) {
    if (world.hosts()[rank] == world.host()) {
      gpus.push_back(topology::near_gpu(topology, choice.facts[rank].pci_bus_id));
    }
  }
  // Two containers of one name, which share no memory.
  if (static_cast<int>(gpus.size()) != world.host_size()) return {};
  return gpus;
}

/// Collective.
std::vector<FarRank> gather_far(parallel::World& world, const Place& place,
                                const std::vector<topology::NearGpu>& gpus) {
  nlohmann::json mine = nullptr;
  if (!gpus.empty()) {
    const topology::NearGpu& gpu = gpus[static_cast<size_t>(world.host_rank())];
    const bool near = std::any_of(place.cores.begin(), place.cores.end(), [&](int core) {
      return std::find(gpu.cores.begin(), gpu.cores.end(), core) != gpu.cores.end();
    });
    if (!gpu.cores.empty() && !near) {
      mine = {{"allowed", place.host.allowed_cores}, {"bus_id", gpu.bus_id}, {"cores", gpu.cores}};
    }
  }
  const std::vector<std::string> all = world.all_gather_text(mine.dump(), "cores near the GPUs");
  std::vector<FarRank> far;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const nlohmann::json theirs = nlohmann::json::parse(all[rank]);
    if (theirs.is_null()) continue;
    far.push_back({.rank = static_cast<int>(rank),
                   .host = world.hosts()[rank],
                   .allowed = theirs.at("allowed").get<std::vector<int>>(),
                   .gpu = {.bus_id = theirs.at("bus_id").get<std::string>(),
                           .cores = theirs.at("cores").get<std::vector<int>>(),
                           .numa_node = std::nullopt}});
  }
  return far;
}

}  // namespace

std::optional<topology::Topology> host_topology(const BackendChoice& choice, Session& session) {
  parallel::World& world = session.world;
  if (!choice.on_devices) {
    if (world.rank() != 0) return std::nullopt;
    return probe_alive(session);
  }
  const size_t first = first_of_host(world);
  std::optional<topology::Topology> topology;
  if (static_cast<size_t>(world.rank()) == first) topology = probe_alive(session);
  const std::vector<std::string> all =
      world.all_gather_text(topology ? topology::topology_json(*topology).dump() : std::string(), "topologies");
  if (!topology) topology = topology::topology_of_json(nlohmann::json::parse(all[first]), world.host());
  return topology;
}

Place take_place(Session& session, std::optional<int64_t> threads, const BackendChoice& choice,
                 const std::optional<topology::Topology>& topology) {
  parallel::World& world = session.world;
  if (!choice.on_devices || !topology) return take_place(session, threads);
  const std::vector<topology::NearGpu> gpus = near_gpus(world, choice, *topology);
  Place place = take_place(session, threads, gpus);
  place.warnings = far_warnings(gather_far(world, place, gpus), world.size());
  return place;
}

Place take_place(Session& session, std::optional<int64_t> threads, const BackendChoice& choice) {
  return take_place(session, threads, choice, choice.on_devices ? host_topology(choice, session) : std::nullopt);
}

std::vector<std::string> far_warnings(const std::vector<FarRank>& far, int ranks) {
  if (far.empty()) return {};
  const FarRank& first = far.front();
  return {fmt::format(
      "masks: {} of {} ranks may use no core near {} GPU (rank {} on {} may use {}, the GPU {} is near {}): what the "
      "host does for a step crosses the link between the sockets, and every step pays for it; let the launcher or the "
      "container give the rank cores of that NUMA node, too",
      far.size(), ranks, far.size() == 1 ? "its" : "their", first.rank, first.host,
      topology::core_list_text(first.allowed), first.gpu.bus_id, topology::core_list_text(first.gpu.cores))};
}

}  // namespace shardscope::launch
