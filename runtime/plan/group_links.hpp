// What joins the GPUs of a group, as far as an all-reduce feels it: its narrowest link.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "topology/topology.hpp"

namespace shardscope::runtime {

/// kNvLink: all pairs by NVLinks, or a ring of them. kPciePeer: some pairs only below one PCIe root, where NCCL uses
/// peer access. kHostMemory: some pairs through a host bridge or between sockets, where NCCL goes through the host's
/// memory.
enum class GroupPath : uint8_t { kNvLink, kPciePeer, kHostMemory };
std::string_view name_of(GroupPath path);  // "nvlink", "pcie-peer", "host-memory": as in constants.json

struct GroupLinks {
  GroupPath path = GroupPath::kHostMemory;
  double gb_per_s = 0;  // of one direction, of one GPU, of the narrowest link
  topology::TopologyClass topology_class = topology::TopologyClass::kUnknown;  // kNvSwitch where all pairs are switched
  bool all_pairs = true;  // false: of NVLinks there is a ring, but some pairs have none
  bool known = true;      // false: the topology does not tell, and the worst is taken
  std::string narrowest;  // "NV12", "SYS"; empty: unknown
};

/// gpus: positions in topology.gpus, at least two. gpu: the row of device_peaks() that they are, for what the topology
/// does not tell of their links.
GroupLinks links_of_group(const topology::Topology& topology, std::span<const int> gpus, std::string_view gpu);

/// GB/s of one direction of a GPU's PCIe slot, x16, by its generation.
double slot_gb_per_s(std::string_view gpu);

}  // namespace shardscope::runtime
