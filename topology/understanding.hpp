// What a topology means for tensor parallelism: its class, degraded links, the best and worst groups of each degree,
// the NICs that are near, and warnings in words that a buyer of machines understands.
#pragma once

#include "topology/topology.hpp"

namespace shardscope::topology {

/// Fills topology_class, nearest_nics, nearest_nic_links, link_gb_per_s and groups, and appends warnings, from what
/// sources filled in. Classes and thresholds: the comments in understanding.cpp. A second call changes nothing more.
void understand(Topology& topology);

/// Takes back the warnings that understand() added: before what they rest on is changed, and understood anew.
void forget_conclusions(Topology& topology);

/// GPUs' full NVLink count by name, e.g. 12 for "NVIDIA A100-SXM4-80GB"; nullopt: not known.
std::optional<int> full_link_count(std::string_view gpu_name);

/// GB/s of one NVLink in one direction, by name or compute capability; nullopt: not known.
std::optional<double> nvlink_gb_per_s(const Gpu& gpu);

/// GB/s of a PCIe link in one direction by its data sheet, after encoding.
std::optional<double> pcie_gb_per_s(int generation, int width);

/// One sentence of what the class means for tensor parallelism on this machine.
std::string meaning_of(const Topology& topology);

}  // namespace shardscope::topology
