// NVIDIA's GPUs on the PCI bus, the bridges above them, and who translates their addresses: sysfs alone.
// Sources: Linux Documentation/ABI/testing/sysfs-bus-pci, sysfs-kernel-iommu_groups; PCI Express Base Specification,
// 7.6.3 (extended capabilities) and 7.7.11 (Access Control Services).
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <vector>

#include "launch/doctor_facts.hpp"
#include "topology/files.hpp"
#include "topology/probe/pci.hpp"

namespace shardscope::launch {
namespace {

namespace fs = std::filesystem;
using topology::first_line;

constexpr size_t kExtendedSpace = 0x100;
constexpr uint32_t kAcsCapability = 0x000d;
constexpr size_t kAcsControl = 6;  // bytes from the capability's begin

/// Name of what a link leads to; empty: there is no such link.
std::string target_name(const std::string& link) {
  std::error_code error;
  const fs::path target = fs::read_symlink(link, error);
  return error ? "" : target.filename().string();
}

uint32_t word_at(const std::vector<uint8_t>& bytes, size_t at, size_t width) {
  uint32_t value = 0;
  for (size_t i = 0; i < width; ++i) value |= static_cast<uint32_t>(bytes[at + i]) << (8 * i);
  return value;
}

void read_acs(const std::string& config, PciBridge& bridge) {
  std::ifstream file(config, std::ios::binary);
  const std::vector<uint8_t> bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  bridge.readable = bytes.size() > kExtendedSpace;
  // A damaged list could lead back to itself: no capability is met twice.
  std::set<size_t> seen;
  size_t at = kExtendedSpace;
  while (at >= kExtendedSpace && at + kAcsControl + 2 <= bytes.size() && seen.insert(at).second) {
    const uint32_t header = word_at(bytes, at, 4);
    if ((header & 0xffffU) == kAcsCapability) {
      bridge.acs_control = static_cast<int>(word_at(bytes, at + kAcsControl, 2));
      return;
    }
    at = header >> 20U;
  }
}

}  // namespace

PciFacts read_pci(const std::string& root) {
  const std::string folder = root + "/sys/bus/pci/devices/";
  const std::optional<std::vector<topology::PciDevice>> devices = topology::pci_devices(root);
  PciFacts facts{.known = devices.has_value()};
  std::set<std::string> bridges;
  for (const topology::PciDevice& device : devices.value_or(std::vector<topology::PciDevice>{})) {
    if (!device.is_nvidia_gpu()) continue;
    facts.gpus.push_back({.bus_id = device.bus_id,
                          .driver = target_name(folder + device.bus_id + "/driver"),
                          .iommu = first_line(folder + device.bus_id + "/iommu_group/type")});
    // The way to it begins with the root bus and ends with itself.
    for (size_t i = 1; i + 1 < device.path.size(); ++i) {
      if (!bridges.insert(device.path[i]).second) continue;
      PciBridge bridge{.bus_id = device.path[i], .acs_control = std::nullopt};
      read_acs(folder + bridge.bus_id + "/config", bridge);
      facts.bridges.push_back(std::move(bridge));
    }
  }
  std::error_code error;
  const std::string iommus = root + "/sys/class/iommu";
  if (topology::path_exists(iommus)) {
    int count = 0;
    for (fs::directory_iterator entry(iommus, error), end; !error && entry != end; entry.increment(error)) ++count;
    facts.iommus = count;
  }
  for (const std::string& word : topology::words_of(first_line(root + "/proc/cmdline"))) {
    if (word.starts_with("intel_iommu") || word.starts_with("amd_iommu") || word.starts_with("iommu") ||
        word.starts_with("pcie_acs_override") || word.starts_with("pci=")) {
      facts.iommu_parameters.push_back(word);
    }
  }
  return facts;
}

}  // namespace shardscope::launch
