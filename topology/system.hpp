// Facts of this host that change what a measurement means: one field per fact, empty or nullopt where unknown. Reads
// files; changes nothing, never throws for a missing or strange one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace shardscope::topology {

struct NumaNode {
  int id = 0;
  std::vector<int> cores;  // empty: memory alone, or unknown
  std::optional<int64_t> memory_bytes;

  bool operator==(const NumaNode&) const = default;
};

struct SystemFacts {
  std::string kernel;        // "Linux 6.1.0-18-amd64": /proc/sys/kernel/ostype and osrelease
  std::string distribution;  // PRETTY_NAME of /etc/os-release, else /usr/lib/os-release
  std::string machine;       // "Amazon EC2 p4d.24xlarge": sys_vendor + product_name of /sys/class/dmi/id, else the
                             // device tree's model
  std::optional<bool> virtual_machine;  // flag `hypervisor` of /proc/cpuinfo (x86); nullopt elsewhere
  std::string container;                // "docker", "podman", "lxc", …; empty: none seen
  // CPU
  std::vector<std::string> cpu_flags;  // those of /proc/cpuinfo that choose kernels: avx2, avx512*, amx*, f16c, fma, …
  std::optional<int> sockets;
  std::optional<bool> smt_active;                 // /sys/devices/system/cpu/smt/active
  std::string governor;                           // cpufreq of the first core that has it, e.g. "performance"
  std::string frequency_driver;                   // "intel_pstate"
  std::optional<double> lowest_mhz, highest_mhz;  // that cpufreq may choose there
  std::optional<bool> turbo;                      // intel_pstate/no_turbo inverted, or cpufreq/boost
  std::optional<double> load_average;             // of the last minute
  // Memory
  std::optional<int64_t> memory_bytes, memory_available_bytes, swap_bytes;  // /proc/meminfo
  std::string transparent_hugepages;   // the chosen word of /sys/kernel/mm/transparent_hugepage/enabled
  std::optional<bool> numa_balancing;  // /proc/sys/kernel/numa_balancing
  std::vector<NumaNode> numa_nodes;    // /sys/devices/system/node, by id
};

/// `root` stands before every path that is read: a test's directory.
SystemFacts probe_system(const std::string& root = "");

}  // namespace shardscope::topology
