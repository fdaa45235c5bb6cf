// What control groups leave us of CPU time (v2 cpu.max, v1 cfs quota) and memory (v2 memory.max, v1
// memory.limit_in_bytes). Reads files only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace shardscope::topology {

/// Cores' worth of CPU time, the tightest limit from this process's group up to the mount's root; nullopt = no limit,
/// or none that can be read. Groups come from /proc/self/cgroup, mounts from /proc/self/mountinfo. Both versions count,
/// where both are mounted. `root` stands before every path that is read: a test's directory.
std::optional<double> cgroup_cpu_quota(const std::string& root = "");

/// Bytes of memory, found in the same way; nullopt = no limit.
std::optional<int64_t> cgroup_memory_limit(const std::string& root = "");

}  // namespace shardscope::topology
