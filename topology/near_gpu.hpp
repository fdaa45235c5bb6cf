// Which cores a rank gets that works on a GPU: those of the NUMA node that the GPU hangs on. Pure.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "topology/host.hpp"
#include "topology/topology.hpp"

namespace shardscope::topology {

/// The GPU with that bus id, however its leading zeros and letters are written; nullopt: there is none.
std::optional<size_t> position_of(const Topology& machine, const std::string& bus_id);

/// What a rank's GPU is near to.
struct NearGpu {
  std::string bus_id;
  std::vector<int> cores;        // ascending; empty: unknown
  std::optional<int> numa_node;  // of those cores
};
/// Of the GPU with that bus id; of one that is not there nothing but the id.
NearGpu near_gpu(const Topology& machine, const std::string& bus_id);

/// Cores for local rank `rank`, of those near its GPU (gpus: of each local rank): what this host allows of them, split
/// evenly among the ranks with a GPU near the same ones, at most `threads`. None where that is unknown, or nothing of
/// it is allowed.
std::vector<int> cores_near_gpu(const HostCpu& host, std::span<const NearGpu> gpus, int rank, int threads);

}  // namespace shardscope::topology
