// What NVML and sysfs tell, put together.
#include "topology/probe/probe_parts.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "topology/files.hpp"
#include "topology/system.hpp"

namespace shardscope::topology {
namespace {

constexpr size_t kMostGpus = 64;
constexpr size_t kMostNics = 256;

/// One word for both directions of a copy: "OK" where both are, else what stands in the way.
std::string both_words(const std::string& read, const std::string& write) {
  if (read.empty() || read == "OK") return write.empty() ? read : write;
  return read;
}

// ---- GPUs ----

/// Of sysfs what NVML did not say.
void complete_gpu(Gpu& gpu, const PciDevice& device) {
  if (gpu.numa_nodes.empty() && device.numa_node) gpu.numa_nodes = {*device.numa_node};
  if (gpu.cpu_affinity.empty()) gpu.cpu_affinity = device.local_cpus;
  const auto generation = [](const PciLink& link) {
    return link.gt_per_s ? pci_generation_of(*link.gt_per_s) : std::nullopt;
  };
  if (!gpu.pcie_generation) gpu.pcie_generation = generation(device.now);
  if (!gpu.pcie_generation) gpu.pcie_gt_per_s = device.now.gt_per_s;
  if (!gpu.pcie_width) gpu.pcie_width = device.now.width;
  if (!gpu.pcie_generation_most) gpu.pcie_generation_most = generation(device.most);
  if (!gpu.pcie_width_most) gpu.pcie_width_most = device.most.width;
}

std::vector<const PciDevice*> nvidia_gpus(const HostPci& pci) {
  std::vector<const PciDevice*> gpus;
  if (!pci.devices) return gpus;
  for (const PciDevice& device : *pci.devices) {
    if (device.is_nvidia_gpu() && !device.virtual_function && gpus.size() < kMostGpus) gpus.push_back(&device);
  }
  return gpus;
}

/// A GPU that does not answer does not tell its address either. Both lists are in the order of addresses: where they
/// are of one length and agree elsewhere, its place says which it is.
void place_silent_gpus(std::vector<Gpu>& gpus, const std::vector<const PciDevice*>& seen) {
  if (gpus.size() != seen.size()) return;
  for (size_t i = 0; i < gpus.size(); ++i) {
    if (!gpus[i].pci_bus_id.empty() && gpus[i].pci_bus_id != seen[i]->bus_id) return;
  }
  for (size_t i = 0; i < gpus.size(); ++i) gpus[i].pci_bus_id = seen[i]->bus_id;
}

void take_answers(Topology& topology, const NvmlAnswers& answers, const HostPci& pci) {
  topology.gpus = answers.gpus;
  place_silent_gpus(topology.gpus, nvidia_gpus(pci));
  for (size_t i = 0; i < topology.gpus.size(); ++i) {
    Gpu& gpu = topology.gpus[i];
    const PciDevice* const device = pci.devices ? find_pci(*pci.devices, gpu.pci_bus_id) : nullptr;
    if (device != nullptr) complete_gpu(gpu, *device);
    if (gpu.fabric == "completed with an error") {
      topology.warnings.push_back(
          fmt::format("{}: its registration with the NVLink fabric ended with an error: NVLinks may not work. Restart "
                      "the fabric manager, of the driver's very version.",
                      gpu_text(gpu)));
    }
    if (answers.troubles[i].empty()) continue;
    topology.complete = false;
    topology.warnings.push_back(
        fmt::format("{} does not answer as it should: {}. See dmesg for Xid messages; use the others, or reset the GPU "
                    "(nvidia-smi -r) or reboot.",
                    gpu_text(gpu), answers.troubles[i]));
  }
  join_gpus(topology, answers, pci);
  Matrix<std::string> p2p = answers.p2p;
  bool told = false;
  for (size_t i = 0; i < p2p.size(); ++i) {
    for (const std::string& word : p2p[i]) told = told || !word.empty();
    p2p[i][i] = std::string("X");  // g++ 12 warns of the plain text
  }
  if (told) topology.p2p = std::move(p2p);
}

/// GPUs that are there and of which nobody tells more: what joins them is not known.
void take_silent_gpus(Topology& topology, const HostPci& pci, const std::string& why_not, const std::string& root) {
  for (const PciDevice* device : nvidia_gpus(pci)) {
    Gpu& gpu =
        topology.gpus.emplace_back(Gpu{.index = static_cast<int>(topology.gpus.size()), .pci_bus_id = device->bus_id});
    complete_gpu(gpu, *device);
  }
  if (topology.gpus.size() == 1) topology.links = PathMatrix{{Path{}}};
  const bool driver_loaded = path_exists(root + "/proc/driver/nvidia/version");
  if (topology.gpus.empty() && !driver_loaded) return;  // a machine without GPUs
  topology.complete = false;
  std::string text =
      topology.gpus.empty()
          ? std::string("This host's NVIDIA driver is loaded, but no GPU is visible here")
          : fmt::format(
                "{} NVIDIA GPU{} on PCIe, but the driver does not answer, so that names and NVLinks are unknown",
                topology.gpus.size(), topology.gpus.size() == 1 ? " is" : "s are");
  text += fmt::format(": {}.", why_not);
  if (driver_loaded) text += " In a container, start it with the NVIDIA runtime (--gpus all, --nv).";
  topology.warnings.push_back(text);
}

// ---- NICs ----

void take_nics(Topology& topology, const HostPci& pci) {
  topology.nics_known = pci.devices.has_value();
  if (!pci.devices) return;
  std::vector<const PciDevice*> places;
  size_t left_out = 0;
  for (const NetworkName& network : pci.network) {
    const PciDevice* const device = find_pci(*pci.devices, network.bus_id);
    if (device == nullptr || !device->is_network() || device->virtual_function) continue;
    if (places.size() == kMostNics) {
      ++left_out;
      continue;
    }
    topology.nics.push_back(
        {.name = fmt::format("NIC{}", places.size()), .device = network.name, .numa_node = device->numa_node});
    places.push_back(device);
  }
  if (left_out > 0) {
    topology.warnings.push_back(fmt::format("{} network interfaces are left out: {} are shown.", left_out, kMostNics));
  }
  if (topology.gpus.empty() || places.empty()) return;
  PathMatrix links(topology.gpus.size(), std::vector<std::optional<Path>>(places.size()));
  for (size_t i = 0; i < topology.gpus.size(); ++i) {
    const PciDevice* const gpu = find_pci(*pci.devices, topology.gpus[i].pci_bus_id);
    if (gpu == nullptr) continue;
    for (size_t j = 0; j < places.size(); ++j) {
      if (const std::optional<PathKind> kind = pci_path(*gpu, *places[j], pci.numa_nodes)) {
        links[i][j] = Path{.kind = *kind};
      }
    }
  }
  topology.nic_links = std::move(links);
}

}  // namespace

std::string gpu_text(const Gpu& gpu) {
  return gpu.pci_bus_id.empty() ? fmt::format("GPU{}", gpu.index)
                                : fmt::format("GPU{} ({})", gpu.index, gpu.pci_bus_id);
}

NvmlAnswers answers_of(const Nvml& nvml) {
  NvmlAnswers answers;
  const int count = nvml.gpu_count();
  for (int i = 0; i < count; ++i) {
    answers.gpus.push_back(nvml.gpu(i));
    answers.troubles.push_back(nvml.trouble(i));
    auto& pcie = answers.pcie.emplace_back();
    auto& p2p = answers.p2p.emplace_back();
    auto& reached = answers.reached_by_nvlink.emplace_back();
    for (int j = 0; j < count; ++j) {
      pcie.push_back(nvml.pcie_path(i, j));
      p2p.push_back(i == j ? "" : both_words(nvml.p2p_read(i, j), nvml.p2p_write(i, j)));
      reached.push_back(nvml.reached_by_nvlink(i, j));
    }
  }
  return answers;
}

HostPci host_pci(const std::string& root) {
  return {.devices = pci_devices(root),
          .network = network_names(root),
          .numa_nodes = numbered_entries(root + "/sys/devices/system/node", "node").size()};
}

Topology assemble_topology(const NvmlAnswers* answers, const std::string& why_not, const std::string& root) {
  Topology topology{.source = SourceKind::kProbe, .host = first_line(root + "/proc/sys/kernel/hostname")};
  const SystemFacts system = probe_system(root);
  topology.platform = system.machine;
  topology.virtual_machine = system.virtual_machine;
  const HostPci pci = host_pci(root);
  if (answers != nullptr) {
    take_answers(topology, *answers, pci);
  } else {
    take_silent_gpus(topology, pci, why_not, root);
  }
  topology.gpu_count = static_cast<int>(topology.gpus.size());
  take_nics(topology, pci);
  return topology;
}

}  // namespace shardscope::topology
