// NCCL's XML: what nccl_xml.cpp finds in the tree, and nccl_links.cpp turns into distances.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topology/read/text_table.hpp"
#include "topology/topology.hpp"

namespace shardscope::topology {

/// Where a device stands in the tree.
struct NcclPlace {
  int cpu = -1;              // which <cpu>, in the order of the file; -1: none
  std::vector<int> bridges;  // PCIe bridges above, outermost first, numbered in the order of the file
  bool known = true;         // false: NCCL hangs what it cannot place below the first <cpu>
};

struct NcclGpu {
  Gpu gpu;
  NcclPlace place;
  std::optional<int> device;  // of <gpu dev>
  bool links_told = false;    // it has a whole <gpu>, and every <nvlink> in it could be read
  int line = 0;
};

struct NcclNic {
  Nic nic;
  NcclPlace place;
};

struct NcclSystem {
  std::vector<NcclGpu> gpus;
  std::vector<NcclNic> nics;
  bool nesting_trusted = true;  // false: tags are missing in the middle, so that PCIe distances may be wrong
};

/// By <gpu dev>; those without, or with another's, get the numbers that are left. Sorts them.
void number_gpus(NcclSystem& system, Faults& faults);

/// By NVLinks where both GPUs' are told, else by the PCIe tree; nullopt where neither can be known.
PathMatrix nccl_gpu_links(const NcclSystem& system, Faults& faults);
PathMatrix nccl_nic_links(const NcclSystem& system);

/// "0000ffff,ffffffff": the kernel's, most significant word first, as core numbers. nullopt: no such mask.
std::optional<std::vector<int>> nccl_mask(std::string_view mask);
/// "16 GT/s", "16.0 GT/s PCIe" as 16; nullopt for "", "Unknown speed".
std::optional<double> nccl_speed(std::string_view text);
std::optional<int> pcie_generation_of(double gt_per_s);
/// Compute capabilities whose GPUs have no NVLink at all: Pascal, Ada and Blackwell cards, and those on boards.
bool never_has_nvlink(const std::optional<std::string>& compute);
/// bounded_name(), in lower case.
std::string lower_name(std::string_view name);

}  // namespace shardscope::topology
