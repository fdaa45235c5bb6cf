// Source of the formats: Linux Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/cpuacct, scheduler/sched-bwc.rst,
// filesystems/proc.rst (mountinfo).
#include "topology/cgroup.hpp"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string_view>
#include <vector>

namespace shardscope::topology {
namespace {

struct Mount {
  bool v2 = false;
  std::string group_root;  // the group that is mounted
  std::string point;
};

bool lists(const std::string& comma_separated, std::string_view word) {
  std::istringstream words(comma_separated);
  for (std::string each; std::getline(words, each, ',');) {
    if (each == word) return true;
  }
  return false;
}

/// Mounts of cgroup v2 and of v1's `controller`.
std::vector<Mount> cgroup_mounts(const std::string& root, const std::string& controller) {
  std::vector<Mount> mounts;
  std::ifstream file(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    // 36 35 98:0 /group_root /point options [optional…] - type source super_options
    std::istringstream fields(line);
    std::string skip;
    std::string type;
    std::string super_options;
    Mount mount;
    fields >> skip >> skip >> skip >> mount.group_root >> mount.point;
    while (fields >> skip && skip != "-") {
    }
    fields >> type >> skip >> super_options;
    mount.v2 = type == "cgroup2";
    if (mount.v2 || (type == "cgroup" && lists(super_options, controller))) mounts.push_back(mount);
  }
  if (mounts.empty()) mounts = {{true, "/", "/sys/fs/cgroup"}, {false, "/", "/sys/fs/cgroup/" + controller}};
  return mounts;
}

/// This process's group in version 2, or in the hierarchy of version 1's `controller`.
std::optional<std::string> own_group(const std::string& root, bool v2, const std::string& controller) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // id:controllers:path
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (v2 ? controllers.empty() && line.starts_with("0:") : lists(controllers, controller))
      return line.substr(second + 1);
  }
  return std::nullopt;
}

/// The group's path below the mount point; "" where it lies outside of what is mounted (a container's view).
std::string path_below(const Mount& mount, const std::string& group) {
  if (group.find("/..") != std::string::npos) return "";
  if (mount.group_root == "/") return group == "/" ? "" : group;
  if (group == mount.group_root || group.starts_with(mount.group_root + "/")) {
    return group.substr(mount.group_root.size());
  }
  return "";
}

std::optional<double> read_quota(const std::string& directory, bool v2) {
  double quota = 0;
  double period = 0;
  if (v2) {
    std::ifstream file(directory + "/cpu.max");  // "max 100000" fails to parse: no limit
    if (!(file >> quota >> period)) return std::nullopt;
  } else {
    std::ifstream quota_file(directory + "/cpu.cfs_quota_us");  // -1: no limit
    std::ifstream period_file(directory + "/cpu.cfs_period_us");
    if (!(quota_file >> quota) || !(period_file >> period)) return std::nullopt;
  }
  if (quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

std::optional<double> read_memory_limit(const std::string& directory, bool v2) {
  double bytes = 0;
  std::ifstream file(directory + (v2 ? "/memory.max" : "/memory.limit_in_bytes"));  // "max" fails to parse: no limit
  constexpr double kNoLimit = 9e18;  // v1 says "none" as the largest multiple of a page below 2^63
  if (!(file >> bytes) || bytes <= 0 || bytes >= kNoLimit) return std::nullopt;
  return bytes;
}

using ReadLimit = std::optional<double> (*)(const std::string& directory, bool v2);

/// The tightest limit from this process's group up to the mount's root.
std::optional<double> tightest_limit(const std::string& root, const std::string& controller, ReadLimit read) {
  std::optional<double> tightest;
  for (const Mount& mount : cgroup_mounts(root, controller)) {
    std::string below = path_below(mount, own_group(root, mount.v2, controller).value_or("/"));
    for (;;) {
      std::string directory = root;
      directory.append(mount.point).append(below);
      const std::optional<double> limit = read(directory, mount.v2);
      if (limit && (!tightest || *limit < *tightest)) tightest = limit;
      if (below.empty()) break;
      below.erase(below.rfind('/') == std::string::npos ? 0 : below.rfind('/'));
    }
  }
  return tightest;
}

}  // namespace

std::optional<double> cgroup_cpu_quota(const std::string& root) {
  return tightest_limit(root, "cpu", read_quota);
}

std::optional<int64_t> cgroup_memory_limit(const std::string& root) {
  const std::optional<double> bytes = tightest_limit(root, "memory", read_memory_limit);
  if (!bytes) return std::nullopt;
  return static_cast<int64_t>(*bytes);
}

}  // namespace shardscope::topology
