// The topology of this machine: GPUs, NVLinks and health by NVML; NICs, NUMA nodes and PCIe by sysfs.
#pragma once

#include <string>

#include "topology/topology.hpp"

namespace shardscope::topology {

/// Never throws for what it does not find. Without GPUs gpus is empty and gpu_count 0. GPUs that PCI shows and whose
/// driver does not answer are listed with what PCI tells, and a warning says so; what joins them is unknown. A driver
/// that hangs is left alone after two minutes. `root` stands before every path of /sys and /proc that is read: a test's
/// directory. understand() has been called.
Topology probe_topology(const std::string& root = "");

/// Reads each GPU's PCIe generation and width again and keeps the greater: an idle link runs slower, so the caller puts
/// load on it meanwhile.
void reread_pcie(Topology& topology, const std::string& root = "");

}  // namespace shardscope::topology
