// The CPU time that control groups leave us: cgroup v2's cpu.max and v1's cfs quota. Reads files only.
#pragma once

#include <optional>
#include <string>

namespace shardscope::topology {

/// Cores' worth of CPU time, the tightest limit from this process's group up to the mount's root; nullopt = no limit,
/// or none that can be read. Groups come from /proc/self/cgroup, mounts from /proc/self/mountinfo. Both versions count,
/// where both are mounted. `root` stands before every path that is read: a test's directory.
std::optional<double> cgroup_cpu_quota(const std::string& root = "");

}  // namespace shardscope::topology
