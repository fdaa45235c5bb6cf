// Machines that can be rented, and a few that many sites have, by name: what a prediction takes where nobody has been
// on the machine. Their GPUs and links; prices, CPUs and disks are left to their vendors' pages. The table itself:
// machines.cpp.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "topology/device_peaks.hpp"
#include "topology/topology.hpp"

namespace shardscope::topology {

struct Machine {
  std::string_view name;      // as --topology takes it: "aws-p4d"
  std::string_view instance;  // as its vendor calls it: "p4d.24xlarge"
  std::string_view what;      // "AWS p4d.24xlarge: 8 x A100 SXM 40 GB, NVSwitch"
  std::string_view gpu;       // a row of device_peaks()
  int gpus = 0;
  TopologyClass fabric = TopologyClass::kPcie;
  int nvlinks = 0;          // behind switches of each GPU, else of each pair that is linked; cube mesh: see wiring
  int pcie_generation = 0;  // of the GPUs' links, 16 lanes; 0: they have none (Grace)
  std::string_view numa;    // [gpus] node of each GPU, a digit each; '?': not known
  PathKind near = PathKind::kNode;  // between GPUs of one node without NVLink; of two nodes it is SYS
  std::string_view wiring = {};     // of a cube mesh: NVLinks between each two GPUs, a digit each, by rows
  std::string_view network;
  std::string_view source;
  bool recorded = false;  // a recorded matrix, or tree of PCIe, of such a machine agrees; else see source
};

std::span<const Machine> machines();

/// The machine of that name, ours or its vendor's, in capitals or not; nullptr if there is none.
const Machine* find_machine(std::string_view name);

/// Its GPUs by their drivers' names, links and NUMA nodes, understood. Where it was not recorded, a warning says so.
Topology topology_of(const Machine& machine);

/// The board that a GPU is most often found on, for whoever names the GPU alone; a warning says what was assumed.
Topology usual_topology(const DevicePeaks& peaks);

}  // namespace shardscope::topology
