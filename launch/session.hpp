// What a command works with once the process has its place: the world of ranks, this host, our core mask, the backend.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/backend.hpp"
#include "launch/launcher.hpp"
#include "parallel/world.hpp"
#include "runtime/measure/sweep.hpp"
#include "topology/host.hpp"
#include "topology/near_gpu.hpp"

namespace shardscope::launch {

struct Place {
  topology::HostCpu host;
  int threads = 1;
  std::vector<int> cores;             // ours
  int ranks = 1;                      // that share this host: those started, or those that this one stands for
  bool oversubscribed = false;        // with all ranks at work: more threads than usable cores on this host
  std::optional<int> memory_node;     // whose memory is preferred: that of the rank's GPU
  std::vector<std::string> warnings;  // of all ranks' masks
};

/// What the first `tp` ranks have of this host, each at its place.
runtime::GroupPlace group_place(const parallel::World& world, const Place& place, int tp);
/// What ranks with these cores have of this host.
runtime::GroupPlace group_place(const Place& place, const std::vector<std::vector<int>>& cores_of_ranks);

/// What a measurement at that place has to say of it.
std::vector<std::string> place_warnings(const parallel::World& world, const Place& place);

/// What every command gets.
struct Session {
  parallel::World& world;
  Launcher launcher;
  std::vector<std::string> argv;  // the whole command line

  bool speaks() const { return world.rank() == 0; }
  /// A line on standard error, from rank 0 only.
  void note(const std::string& line) const;
};

/// Chooses threads and cores of this rank and binds the process to them, before any thread or large memory exists.
/// threads: as given, or usable cores of the host / ranks on it, at least 1. A launcher's mask is a hint; without a
/// launcher the mask is the user's own (taskset) and is kept. gpus: of each rank of this host, if they work on GPUs:
/// each rank then gets cores and memory of its GPU's NUMA node, as far as that is known and allowed. stands_for: ranks
/// that are not there, but in whose company a lone rank works as the first.
Place take_place(const Session& session, std::optional<int64_t> threads, std::span<const topology::NearGpu> gpus = {},
                 int stands_for = 1);

using Command = int (*)(Session& session, const std::vector<std::string>& arguments);
int bench_command(Session& session, const std::vector<std::string>& arguments);
int comm_command(Session& session, const std::vector<std::string>& arguments);
int compare_command(Session& session, const std::vector<std::string>& arguments);
int doctor_command(Session& session, const std::vector<std::string>& arguments);
int generate_command(Session& session, const std::vector<std::string>& arguments);
int plan_command(Session& session, const std::vector<std::string>& arguments);
int scale_command(Session& session, const std::vector<std::string>& arguments);
int topo_command(Session& session, const std::vector<std::string>& arguments);

}  // namespace shardscope::launch
