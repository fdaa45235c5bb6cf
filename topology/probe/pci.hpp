// PCI devices as sysfs shows them: GPUs, network interfaces, and what lies between two of them. Reads files, changes
// nothing, throws for nothing that it finds. Formats: Linux Documentation/ABI/testing/sysfs-bus-pci, sysfs-class-net.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topology/topology.hpp"

namespace shardscope::topology {

struct PciLink {
  std::optional<double> gt_per_s;  // a lane
  std::optional<int> width;        // lanes
};

struct PciDevice {
  std::string bus_id;             // "0000:1b:00.0"
  std::vector<std::string> path;  // from the root bus, "pci0000:16", over bridges to bus_id itself; empty: unknown
  uint32_t device_class = 0;      // "0x030200"
  uint32_t vendor = 0;
  std::optional<int> numa_node;
  std::string local_cpus;  // "0-23,48-71"
  PciLink now, most;       // most: of the device and the bridge above it together
  bool virtual_function = false;

  bool is_nvidia_gpu() const;
  bool is_network() const;  // Ethernet, InfiniBand
  bool is_switch() const;   // of NVLinks: a bridge of other kind
};

/// All devices, by bus id. nullopt: sysfs shows no PCI (no such bus, or it is hidden).
std::optional<std::vector<PciDevice>> pci_devices(const std::string& root);

/// nullptr: none of that bus id.
const PciDevice* find_pci(const std::vector<PciDevice>& devices, std::string_view bus_id);

/// As `nvidia-smi topo -m` calls it; nullopt: not to be told, as with host bridges whose NUMA node is unknown on a
/// machine of several. numa_nodes: those of the machine.
std::optional<PathKind> pci_path(const PciDevice& a, const PciDevice& b, size_t numa_nodes);

/// 16 GT/s is generation 4; nullopt: no speed of PCIe.
std::optional<int> pci_generation_of(double gt_per_s);

/// A network interface on PCI, by the name that programs use: "mlx5_0" of RDMA, else "eth0".
struct NetworkName {
  std::string name;
  std::string bus_id;
};
/// RDMA devices first, each kind in the order of names with numbers by value; one name per PCI device.
std::vector<NetworkName> network_names(const std::string& root);

}  // namespace shardscope::topology
