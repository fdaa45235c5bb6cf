// Private to probe*.cpp and tests: what NVML answered, as a value, and how a topology is made of it and of sysfs.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "topology/nvml.hpp"
#include "topology/probe/pci.hpp"
#include "topology/topology.hpp"

namespace shardscope::topology {

/// All that a probe asks NVML. Matrices are [gpu][gpu]; their diagonals mean nothing.
struct NvmlAnswers {
  std::vector<Gpu> gpus;
  std::vector<std::string> troubles;              // of each GPU; empty: it answers
  Matrix<std::optional<PathKind>> pcie;           // what lies between them on PCIe
  Matrix<std::string> p2p;                        // [who][whose], read and write together
  Matrix<std::optional<bool>> reached_by_nvlink;  // [who][whose]
};
NvmlAnswers answers_of(const Nvml& nvml);

struct NvmlOutcome {
  std::optional<NvmlAnswers> answers;
  std::string why_not;
};
/// Asks in a thread of its own, which is left behind if the driver does not answer in time: nothing can end a call into
/// it. Never throws.
NvmlOutcome ask_nvml(std::chrono::milliseconds limit, const std::string& library = "libnvidia-ml.so.1");

/// PCI, as far as sysfs shows it.
struct HostPci {
  std::optional<std::vector<PciDevice>> devices;
  std::vector<NetworkName> network;
  size_t numa_nodes = 0;  // of the machine; 0: unknown
};
HostPci host_pci(const std::string& root);

/// A probe without its conclusions. answers: nullptr where NVML gave none; why_not says why.
Topology assemble_topology(const NvmlAnswers* answers, const std::string& why_not, const std::string& root);

/// Fills in what NVLinks' ports lead to, `links` and `switched`, and appends warnings.
void join_gpus(Topology& topology, const NvmlAnswers& answers, const HostPci& pci);

/// "GPU3 (0000:9d:00.0)"
std::string gpu_text(const Gpu& gpu);

}  // namespace shardscope::topology
