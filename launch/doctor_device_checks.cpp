// Which rank has which GPU, and whether it runs near it.
#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "launch/doctor_checks.hpp"
#include "topology/host.hpp"
#include "topology/near_gpu.hpp"

namespace shardscope::launch {
namespace {

using topology::Gpu;

const Gpu* gpu_at(const topology::Topology& topology, const std::string& bus_id) {
  const std::optional<size_t> position = bus_id.empty() ? std::nullopt : topology::position_of(topology, bus_id);
  return position ? &topology.gpus[*position] : nullptr;
}

bool meet(const std::vector<int>& a, const std::vector<int>& b) {
  return std::any_of(a.begin(), a.end(), [&](int core) { return std::find(b.begin(), b.end(), core) != b.end(); });
}

std::string node_text(const Gpu& gpu) {
  return gpu.numa_nodes.empty() ? "" : fmt::format(" of NUMA node {}", fmt::join(gpu.numa_nodes, ","));
}

}  // namespace

/// Ranks take cores near their GPUs where they may use some: whoever does not, may not.
Findings near_findings(const DeviceUse& use, Ranks ranks, const HostFacts& host) {
  Findings out;
  if (use.ranks.empty()) return out;
  std::vector<std::string> far;
  std::vector<int> hidden;  // whose GPU has no core in the cpuset at all
  int known = 0;
  int here = 0;
  for (const RankFacts& rank : ranks) {
    if (rank.host != host.host) continue;
    ++here;
    const std::string& bus_id = use.ranks[static_cast<size_t>(rank.rank)].pci_bus_id;
    const Gpu* const gpu = gpu_at(host.gpus.topology, bus_id);
    if (gpu == nullptr) continue;
    const std::vector<int> cores = topology::near_gpu(host.gpus.topology, bus_id).cores;
    if (cores.empty()) continue;
    ++known;
    if (meet(rank.cores, cores)) continue;
    if (!meet(host.cpu.allowed_cores, cores)) hidden.push_back(rank.rank);
    far.push_back(fmt::format("rank {} runs on core{} {}, its GPU{} belongs to cores {}{}", rank.rank,
                              rank.cores.size() == 1 ? "" : "s", topology::core_list_text(rank.cores), gpu->index,
                              topology::core_list_text(cores), node_text(*gpu)));
  }
  if (known == 0) {
    out.push_back({.check = "GPU and cores",
                   .verdict = Verdict::kUnknown,
                   .evidence = "neither driver nor kernel say which cores are near which GPU, as in virtual machines",
                   .remedy = ""});
    return out;
  }
  if (far.empty()) {
    out.push_back({.check = "GPU and cores",
                   .verdict = Verdict::kOk,
                   .evidence = known < here ? fmt::format("ranks run near their GPUs, {} of {} known", known, here)
                                            : "each rank runs on cores near its GPU",
                   .remedy = ""});
    return out;
  }
  constexpr size_t kNamed = 3;
  const size_t count = far.size();
  if (count > kNamed) {
    far.resize(kNamed);
    far.push_back(fmt::format("{} more", count - kNamed));
  }
  std::string remedy =
      "a mask with cores near the GPU (taskset, srun --cpu-bind), or a GPU near these cores "
      "(CUDA_VISIBLE_DEVICES)";
  if (!hidden.empty()) {
    remedy = fmt::format(
        "cores near all GPUs (taskset, docker --cpuset-cpus, srun --cpus-per-gpu): none that may be used here is near "
        "the GPU of {}",
        ranks_text(hidden));
  }
  out.push_back({.check = "GPU and cores",
                 .verdict = Verdict::kWarning,
                 .evidence = fmt::format("{}", fmt::join(far, "; ")),
                 .remedy = remedy});
  return out;
}

Findings device_findings(const DeviceUse& use, Ranks ranks, const HostFacts& host) {
  Findings out;
  if (!use.tried) return out;
  if (!use.why_not.empty()) {
    out.push_back({.check = "device per rank",
                   .verdict = Verdict::kProblem,
                   .evidence = use.why_not,
                   .remedy = "a device for each rank: fewer ranks, or more devices in CUDA_VISIBLE_DEVICES"});
    return out;
  }
  bool failed = false;
  for (const RankFacts& rank : ranks) {
    const std::string& error = use.ranks[static_cast<size_t>(rank.rank)].error;
    failed = failed || !error.empty();
  }
  if (failed) {
    out.push_back({.check = "device per rank",
                   .verdict = Verdict::kProblem,
                   .evidence = "cannot be used: " + grouped(ranks,
                                                            [&](const RankFacts& rank) {
                                                              return use.ranks[static_cast<size_t>(rank.rank)].error;
                                                            }),
                   .remedy = "see nvidia-smi, and dmesg for Xid messages; another device by CUDA_VISIBLE_DEVICES"});
  } else {
    std::vector<std::string> names;
    constexpr size_t kNamed = 8;
    for (const RankFacts& rank : ranks) {
      if (names.size() == kNamed) {
        names.emplace_back("…");
        break;
      }
      const std::string& bus_id = use.ranks[static_cast<size_t>(rank.rank)].pci_bus_id;
      const Gpu* const gpu = rank.host == host.host ? gpu_at(host.gpus.topology, bus_id) : nullptr;
      names.push_back(gpu == nullptr ? bus_id : fmt::format("GPU{}", gpu->index));
    }
    out.push_back({.check = "device per rank",
                   .verdict = Verdict::kOk,
                   .evidence = fmt::format("{} ({})", fmt::join(names, ", "), "by rank"),
                   .remedy = ""});
  }
  return out;
}

}  // namespace shardscope::launch
