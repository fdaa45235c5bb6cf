// Probing this host with hwloc and sched_getaffinity, and dealing its cores.
#include "topology/host.hpp"

#include <hwloc.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <memory>
#include <type_traits>

#include "kernels/base/error.hpp"
#include "topology/cgroup.hpp"

namespace shardscope::topology {
namespace {

constexpr int kMostCpus = 64 * 1024;

struct CpuSetFree {
  void operator()(cpu_set_t* set) const { CPU_FREE(set); }
};
using CpuSet = std::unique_ptr<cpu_set_t, CpuSetFree>;

/// The calling thread's affinity mask, of any size; empty if it cannot be read.
std::vector<int> affinity_mask() {
  for (int cpus = CPU_SETSIZE; cpus <= kMostCpus; cpus *= 2) {
    const CpuSet set(CPU_ALLOC(cpus));
    const size_t bytes = CPU_ALLOC_SIZE(cpus);
    if (sched_getaffinity(0, bytes, set.get()) != 0) continue;  // EINVAL: the kernel has more
    std::vector<int> cores;
    for (int core = 0; core < cpus; ++core) {
      if (CPU_ISSET_S(core, bytes, set.get())) cores.push_back(core);
    }
    return cores;
  }
  return {};
}

struct TopologyDestroy {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using HwlocTopology = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, TopologyDestroy>;

/// nullptr if hwloc cannot read this host.
HwlocTopology load_hwloc() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return nullptr;
  HwlocTopology topology(raw);
  if (hwloc_topology_load(raw) != 0) return nullptr;
  return topology;
}

std::string cpu_model(hwloc_topology_t topology) {
  for (hwloc_obj_t object : {hwloc_get_obj_by_type(topology, HWLOC_OBJ_PACKAGE, 0), hwloc_get_root_obj(topology)}) {
    const char* model = object == nullptr ? nullptr : hwloc_obj_get_info_by_name(object, "CPUModel");
    if (model != nullptr) return model;
  }
  return "";
}

std::string cpu_model_from_proc() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(std::min(line.find(':') + 2, line.size()));
  }
  return "";
}

std::vector<int> cores_of(hwloc_const_cpuset_t set, hwloc_const_cpuset_t allowed) {
  std::vector<int> cores;
  for (int core = hwloc_bitmap_first(set); core >= 0; core = hwloc_bitmap_next(set, core)) {
    if (hwloc_bitmap_isset(allowed, static_cast<unsigned>(core)) != 0) cores.push_back(core);
  }
  return cores;
}

/// The largest-level data caches whose cores we may use.
std::vector<Cache> last_level_caches(hwloc_topology_t topology, hwloc_const_cpuset_t allowed) {
  std::vector<Cache> caches;
  for (hwloc_obj_type_t level : {HWLOC_OBJ_L5CACHE, HWLOC_OBJ_L4CACHE, HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L2CACHE}) {
    for (hwloc_obj_t cache = nullptr; (cache = hwloc_get_next_obj_by_type(topology, level, cache)) != nullptr;) {
      const Cache found{static_cast<int64_t>(cache->attr->cache.size), cores_of(cache->cpuset, allowed)};
      if (found.bytes > 0 && !found.cores.empty()) caches.push_back(found);
    }
    if (!caches.empty()) break;
  }
  return caches;
}

/// OS indices of allowed hardware threads whose core has an earlier allowed one.
std::vector<int> second_threads(hwloc_topology_t topology, hwloc_const_cpuset_t allowed) {
  std::vector<int> seconds;
  for (hwloc_obj_t core = nullptr; (core = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, core)) != nullptr;) {
    bool first = true;
    for (int thread = hwloc_bitmap_first(core->cpuset); thread >= 0; thread = hwloc_bitmap_next(core->cpuset, thread)) {
      if (hwloc_bitmap_isset(allowed, static_cast<unsigned>(thread)) == 0) continue;
      if (!first) seconds.push_back(thread);
      first = false;
    }
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds;
}

void read_hwloc(HostCpu& host, hwloc_topology_t topology) {
  // Confined by the cgroup's cpuset, not by our own mask: the load above leaves RESTRICT_TO_CPUBINDING off.
  const hwloc_const_cpuset_t allowed = hwloc_topology_get_allowed_cpuset(topology);
  host.allowed_cores = cores_of(allowed, allowed);
  host.second_threads = second_threads(topology, allowed);
  host.model = cpu_model(topology);
  host.last_level_caches = last_level_caches(topology, allowed);
  host.numa_nodes = std::max(0, hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE));
}

}  // namespace

int64_t HostCpu::usable_cores() const {
  const auto cores = std::max<int64_t>(1, static_cast<int64_t>(allowed_cores.size()));
  if (!cpu_quota || *cpu_quota >= static_cast<double>(cores)) return cores;
  return std::max<int64_t>(1, static_cast<int64_t>(std::floor(*cpu_quota)));
}

HostCpu probe_host() {
  HostCpu host;
  host.launcher_cores = affinity_mask();
  if (const HwlocTopology topology = load_hwloc()) read_hwloc(host, topology.get());
  if (host.allowed_cores.empty()) host.allowed_cores = host.launcher_cores;
  if (host.model.empty()) host.model = cpu_model_from_proc();
  // Not hwloc's sum over NUMA nodes: where a virtual machine's memory is plugged in later, that lags behind.
  host.memory_bytes = std::max(0L, sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
  host.cpu_quota = cgroup_cpu_quota();
  if (const std::optional<int64_t> limit = cgroup_memory_limit()) {
    host.memory_bytes = host.memory_bytes == 0 ? *limit : std::min(host.memory_bytes, *limit);
  }
  return host;
}

std::vector<int> cores_for_rank(const HostCpu& host, int rank, int ranks, int threads) {
  require(rank >= 0 && rank < ranks && threads >= 1, "cores_for_rank: rank outside the ranks, or no thread");
  require(!host.allowed_cores.empty(), "cores_for_rank: no core allowed");
  // Whole cores first; their second hardware threads only where those do not suffice.
  std::vector<int> cores;
  std::set_difference(host.allowed_cores.begin(), host.allowed_cores.end(), host.second_threads.begin(),
                      host.second_threads.end(), std::back_inserter(cores));
  const int64_t wanted = int64_t{ranks} * threads;
  if (wanted > static_cast<int64_t>(cores.size())) cores = host.allowed_cores;
  const auto count = static_cast<int64_t>(cores.size());
  // Where there are more cores than needed, the ranks stand apart: each with its part of the caches.
  const int64_t first = wanted <= count ? rank * count / ranks : int64_t{rank} * threads;
  std::vector<int> own;
  for (int64_t thread = 0; thread < threads; ++thread) own.push_back(cores[(first + thread) % count]);
  return own;
}

int64_t cache_bytes_of(const HostCpu& host, const std::vector<int>& cores) {
  int64_t bytes = 0;
  for (const Cache& cache : host.last_level_caches) {
    const bool shared = std::any_of(cores.begin(), cores.end(), [&](int core) {
      return std::find(cache.cores.begin(), cache.cores.end(), core) != cache.cores.end();
    });
    if (shared) bytes += cache.bytes;
  }
  return bytes;
}

void bind_process(const std::vector<int>& cores) {
  require(!cores.empty(), "bind_process: no core");
  const int cpus = *std::max_element(cores.begin(), cores.end()) + 1;
  require(*std::min_element(cores.begin(), cores.end()) >= 0 && cpus <= kMostCpus, "bind_process: no such core");
  const CpuSet set(CPU_ALLOC(cpus));
  const size_t bytes = CPU_ALLOC_SIZE(cpus);
  CPU_ZERO_S(bytes, set.get());
  for (int core : cores) CPU_SET_S(core, bytes, set.get());
  check_os(sched_setaffinity(0, bytes, set.get()), "sched_setaffinity", "cores " + core_list_text(cores));
}

void prefer_memory_of(std::optional<int> numa_node) {
  const HwlocTopology topology = load_hwloc();
  if (!topology) return;
  hwloc_bitmap_t nodes = hwloc_bitmap_alloc();
  if (nodes == nullptr) return;
  if (numa_node) hwloc_bitmap_only(nodes, static_cast<unsigned>(*numa_node));
  // Not strict: hwloc then asks Linux to prefer the node, not to stay there.
  static_cast<void>(numa_node ? hwloc_set_membind(topology.get(), nodes, HWLOC_MEMBIND_BIND, HWLOC_MEMBIND_BYNODESET)
                              : hwloc_set_membind(topology.get(), hwloc_topology_get_topology_nodeset(topology.get()),
                                                  HWLOC_MEMBIND_DEFAULT, HWLOC_MEMBIND_BYNODESET));
  hwloc_bitmap_free(nodes);
}

std::string core_list_text(const std::vector<int>& cores) {
  std::vector<int> sorted = cores;
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  std::string text;
  for (size_t begin = 0; begin < sorted.size();) {
    size_t end = begin + 1;
    while (end < sorted.size() && sorted[end] == sorted[end - 1] + 1) ++end;
    if (!text.empty()) text += ',';
    text += std::to_string(sorted[begin]);
    if (end - begin > 1) text += '-' + std::to_string(sorted[end - 1]);
    begin = end;
  }
  return text;
}

}  // namespace shardscope::topology
