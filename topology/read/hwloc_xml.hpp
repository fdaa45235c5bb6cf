// hwloc's XML (lstopo --of xml): what hwloc_xml.cpp finds in the tree, and hwloc_links.cpp turns into distances.
// Read here and not by hwloc, which takes only its own version's format or older, writes to stderr, and aborts on some
// damaged files.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "topology/read/text_table.hpp"
#include "topology/read/xml_document.hpp"
#include "topology/topology.hpp"

namespace shardscope::topology {

/// Where a PCI device hangs.
struct HwlocPlace {
  int host_bridge = -1;      // in the order of the file; -1: bridges were left out of the file
  std::vector<int> bridges;  // between PCI and PCI, outermost first
  pugi::xml_node locality;   // the nearest object above that has cores
  std::vector<int> nodes;    // NUMA nodes there; empty: unknown
};

struct HwlocGpu {
  Gpu gpu;
  HwlocPlace place;
  std::optional<int> number;  // of nvmlN, or else of cudaN
};

struct HwlocNic {
  Nic nic;
  HwlocPlace place;
};

struct HwlocMachine {
  std::vector<HwlocGpu> gpus;
  std::vector<HwlocNic> nics;
  std::map<uint64_t, size_t> gpu_of;          // gp_index of a GPU's objects, its place in `gpus`
  std::map<uint64_t, std::string> switch_of;  // gp_index of an NVSwitch, its bus id
  bool nesting_trusted = true;
};

/// Fills ports and links from hwloc's "NVLinkBandwidth" matrix. links stays nullopt where there is none, with a note.
void hwloc_links(const XmlDocument& document, HwlocMachine& machine, Topology& topology, Faults& faults);
PathMatrix hwloc_nic_links(const HwlocMachine& machine);

}  // namespace shardscope::topology
