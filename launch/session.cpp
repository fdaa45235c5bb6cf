#include "launch/session.hpp"

#include <algorithm>
#include <cstdio>
#include <set>

#include <fmt/format.h>

#include "launch/command_line.hpp"

namespace shardscope::launch {

Place take_place(const Session& session, std::optional<int64_t> threads, std::span<const topology::NearGpu> gpus,
                 int stands_for) {
  const parallel::World& world = session.world;
  Place place{.host = topology::probe_host(), .ranks = std::max(world.host_size(), stands_for)};
  if (!session.launcher.use_mpi) {
    const std::vector<int>& own = place.host.launcher_cores;
    std::erase_if(place.host.allowed_cores,
                  [&](int core) { return !std::binary_search(own.begin(), own.end(), core); });
    std::erase_if(place.host.second_threads,
                  [&](int core) { return !std::binary_search(own.begin(), own.end(), core); });
    if (place.host.allowed_cores.empty()) place.host.allowed_cores = own;
  }
  const int64_t usable = place.host.usable_cores();
  if (threads) check_range(*threads, "--threads", 1, 1024);
  place.threads = static_cast<int>(threads.value_or(std::max<int64_t>(1, usable / place.ranks)));
  place.oversubscribed = static_cast<int64_t>(place.threads) * place.ranks > usable;
  place.cores = topology::cores_for_rank(place.host, world.host_rank(), place.ranks, place.threads);
  if (!gpus.empty()) {
    std::vector<int> near = topology::cores_near_gpu(place.host, gpus, world.host_rank(), place.threads);
    if (!near.empty()) {
      place.cores = std::move(near);
      place.memory_node = gpus[static_cast<size_t>(world.host_rank())].numa_node;
    }
  }
  topology::bind_process(place.cores);
  if (place.memory_node && place.host.numa_nodes > 1) topology::prefer_memory_of(place.memory_node);
  return place;
}

runtime::GroupPlace group_place(const parallel::World& world, const Place& place, int tp) {
  std::vector<std::vector<int>> cores;
  const int ranks_here = std::min(tp, world.host_size());
  for (int rank = 0; rank < ranks_here; ++rank) {
    cores.push_back(topology::cores_for_rank(place.host, rank, world.host_size(), place.threads));
  }
  return group_place(place, cores);
}

runtime::GroupPlace group_place(const Place& place, const std::vector<std::vector<int>>& cores_of_ranks) {
  std::vector<int> cores;
  for (const std::vector<int>& own : cores_of_ranks) cores.insert(cores.end(), own.begin(), own.end());
  const int64_t busy = static_cast<int64_t>(cores_of_ranks.size()) * place.threads;
  const bool shared = std::set<int>(cores.begin(), cores.end()).size() < cores.size();
  return {.cache_bytes = topology::cache_bytes_of(place.host, cores),
          .oversubscribed = shared || busy > place.host.usable_cores()};
}

std::vector<std::string> place_warnings(const parallel::World& world, const Place& place) {
  std::vector<std::string> warnings = place.warnings;
  const int ranks = std::max(world.host_size(), place.ranks);
  if (place.oversubscribed) {
    warnings.push_back(
        fmt::format("ranks > cores: {} ranks with {} thread{} each share {} usable cores; degrees above {} show "
                    "overhead, not scaling",
                    ranks, place.threads, place.threads == 1 ? "" : "s", place.host.usable_cores(),
                    std::max<int64_t>(1, place.host.usable_cores() / place.threads)));
  }
  return warnings;
}

void Session::note(const std::string& line) const {
  if (speaks()) std::fprintf(stderr, "%s\n", line.c_str());
}

}  // namespace shardscope::launch
