// What this host offers to CPU ranks: cores that we may use, caches, memory, and the masks that confine us.
// hwloc, sched_getaffinity and cgroup files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace shardscope::topology {

struct Cache {
  int64_t bytes = 0;
  std::vector<int> cores;  // those of allowed_cores that share it
};

struct HostCpu {
  std::string model;                     // "AMD EPYC …"
  std::vector<int> launcher_cores;       // affinity mask that we were started with (OS indices)
  std::vector<int> allowed_cores;        // what the cgroup's cpuset allows, whatever the launcher's mask
  std::vector<int> second_threads;       // those of allowed_cores whose core has an earlier one there (SMT siblings)
  std::optional<double> cpu_quota;       // cores' worth of time by the cgroup's quota; nullopt = no limit
  std::vector<Cache> last_level_caches;  // those that allowed_cores reach; empty = unknown
  int64_t memory_bytes = 0;              // of the host, or the cgroup's limit where that is less; 0 = unknown
  int numa_nodes = 0;
  int64_t usable_cores() const;  // allowed cores, limited by the quota (rounded down, at least 1)
};

/// Reads this host. Never throws for a missing file: the field stays unknown. Changes nothing.
HostCpu probe_host();

/// Cores for local rank `rank` of `ranks` with `threads` threads each: disjoint and contiguous where cores suffice,
/// else shared round robin. One core per thread (with more threads than cores, cores repeat). SMT siblings are used
/// only where whole cores do not suffice; with cores to spare the ranks stand apart. Both lists of `host` must be
/// ascending.
std::vector<int> cores_for_rank(const HostCpu& host, int rank, int ranks, int threads);

/// Bytes of the last-level caches that any of `cores` shares; 0 = unknown.
int64_t cache_bytes_of(const HostCpu& host, const std::vector<int>& cores);

/// Sets the affinity mask of the calling process. Throws SystemError.
void bind_process(const std::vector<int>& cores);

/// Memory that the calling thread touches first, and threads that it starts, comes from that NUMA node while there is
/// some; nullopt: from the node of whoever touches it. Where the kernel refuses, nothing changes: it is a wish.
void prefer_memory_of(std::optional<int> numa_node);

/// "0-3,8" for a list of cores, or of other numbers.
std::string core_list_text(const std::vector<int>& cores);

}  // namespace shardscope::topology
