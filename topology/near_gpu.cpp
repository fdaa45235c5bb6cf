#include "topology/near_gpu.hpp"

#include <algorithm>
#include <cctype>

#include "kernels/base/error.hpp"
#include "topology/files.hpp"

namespace shardscope::topology {
namespace {

/// "00000000:1B:00.0", "0000:1b:00.0" and "0:1B:00.0" alike.
std::string plain_bus_id(const std::string& bus_id) {
  std::string plain;
  for (const char c : bus_id) plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const size_t colon = plain.find(':');
  const size_t first = std::min(plain.find_first_not_of('0'), colon);
  return colon == std::string::npos ? plain : plain.substr(first);
}

std::vector<int> both(const std::vector<int>& a, const std::vector<int>& b) {
  std::vector<int> common;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(common));
  return common;
}

}  // namespace

std::optional<size_t> position_of(const Topology& machine, const std::string& bus_id) {
  for (size_t position = 0; position < machine.gpus.size(); ++position) {
    const std::string& own = machine.gpus[position].pci_bus_id;
    if (!own.empty() && plain_bus_id(own) == plain_bus_id(bus_id)) return position;
  }
  return std::nullopt;
}

NearGpu near_gpu(const Topology& machine, const std::string& bus_id) {
  NearGpu near{.bus_id = bus_id, .cores = {}, .numa_node = std::nullopt};
  const std::optional<size_t> position = position_of(machine, bus_id);
  if (!position) return near;
  const Gpu& gpu = machine.gpus[*position];
  if (!gpu.numa_nodes.empty() && gpu.numa_nodes.front() >= 0) near.numa_node = gpu.numa_nodes.front();
  near.cores = core_list_of(gpu.cpu_affinity).value_or(std::vector<int>{});
  if (!near.cores.empty() || !near.numa_node) return near;
  for (const NumaNode& node : machine.numa_nodes) {
    if (node.id == *near.numa_node) near.cores = node.cores;
  }
  std::sort(near.cores.begin(), near.cores.end());
  return near;
}

std::vector<int> cores_near_gpu(const HostCpu& host, std::span<const NearGpu> gpus, int rank, int threads) {
  require(rank >= 0 && rank < std::ssize(gpus), "cores_near_gpu: no such rank");
  HostCpu node = host;
  node.allowed_cores = both(host.allowed_cores, gpus[static_cast<size_t>(rank)].cores);
  node.second_threads = both(host.second_threads, node.allowed_cores);
  if (node.allowed_cores.empty()) return {};
  // Ranks whose GPUs are near some of the same cores share those; a rank among them is told by its number.
  int sharing = 0;
  int before = 0;
  for (int other = 0; other < std::ssize(gpus); ++other) {
    const NearGpu& gpu = gpus[static_cast<size_t>(other)];
    if (both(host.allowed_cores, gpu.cores) != node.allowed_cores) continue;
    if (other < rank) ++before;
    ++sharing;
  }
  // Whole cores as far as they go: a rank on a GPU has few busy threads.
  const auto whole = static_cast<int>(std::ssize(node.allowed_cores) - std::ssize(node.second_threads));
  const int share = whole / sharing;
  return cores_for_rank(node, before, sharing, std::clamp(share, 1, std::max(threads, 1)));
}

}  // namespace shardscope::topology
