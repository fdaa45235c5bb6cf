#include "topology/probe/pci.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iterator>
#include <tuple>

#include "topology/files.hpp"

namespace shardscope::topology {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t kNvidia = 0x10DE;
constexpr size_t kMostEntries = 16 * 1024;  // of a folder of devices

bool all_hex(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

/// "0000:1b:00.0"; domains of more digits exist (Hyper-V, VMD).
bool is_bus_id(std::string_view text) {
  constexpr size_t kTail = std::string_view(":1b:00.0").size();
  if (text.size() < 4 + kTail || text.size() > 8 + kTail) return false;
  const std::string_view tail = text.substr(text.size() - kTail);
  return all_hex(text.substr(0, text.size() - kTail)) && tail[0] == ':' && all_hex(tail.substr(1, 2)) &&
         tail[3] == ':' && all_hex(tail.substr(4, 2)) && tail[6] == '.' && all_hex(tail.substr(7));
}

/// "pci0000:16"
bool is_root_bus(std::string_view text) {
  const size_t colon = text.find(':');
  return text.starts_with("pci") && colon != std::string_view::npos && colon > 3 && colon + 3 == text.size() &&
         all_hex(text.substr(3, colon - 3)) && all_hex(text.substr(colon + 1));
}

/// Root bus, bridges and devices of a file's true path: what comes before and after is left out.
std::vector<std::string> pci_parts(const std::string& file) {
  std::error_code error;
  const fs::path real = fs::canonical(file, error);
  std::vector<std::string> parts;
  if (error) return parts;
  for (const fs::path& part : real) {
    const std::string text = part.string();
    if (is_root_bus(text)) {
      parts = {text};  // the last one: some bridges make a bus of their own (VMD)
    } else if (!parts.empty()) {
      if (!is_bus_id(text)) break;
      parts.push_back(text);
    }
  }
  return parts;
}

uint32_t hex_of(const std::string& file) {
  std::string text = first_line(file);
  if (text.starts_with("0x")) text.erase(0, 2);
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  return error == std::errc{} && end == text.data() + text.size() ? value : 0;
}

/// "16.0 GT/s PCIe", "8 GT/s"; "Unknown" is none.
std::optional<double> speed_of(const std::string& file) {
  const std::vector<std::string> words = words_of(first_line(file));
  if (words.size() < 2 || words[1] != "GT/s") return std::nullopt;
  const std::optional<double> speed = number_of(words[0]);
  return speed && *speed > 0 ? speed : std::nullopt;
}

/// 0 and 255 stand for a link that is down or no link at all.
std::optional<int> width_of(const std::string& file) {
  constexpr int64_t kMostLanes = 32;
  const std::optional<int64_t> lanes = count_of(first_line(file));
  return lanes && *lanes >= 1 && *lanes <= kMostLanes ? std::optional(static_cast<int>(*lanes)) : std::nullopt;
}

PciLink link_of(const std::string& folder, const std::string& which) {
  return {.gt_per_s = speed_of(folder + "/" + which + "_link_speed"),
          .width = width_of(folder + "/" + which + "_link_width")};
}

template <class T>
std::optional<T> least(const std::optional<T>& a, const std::optional<T>& b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

PciDevice device_of(const std::string& folder, const std::string& bus_id) {
  PciDevice device{.bus_id = bus_id, .path = pci_parts(folder)};
  if (device.path.empty() || device.path.back() != bus_id) device.path.clear();
  device.device_class = hex_of(folder + "/class");
  device.vendor = hex_of(folder + "/vendor");
  // Not bound to any node: -1, which is no count.
  const std::optional<int64_t> node = count_of(first_line(folder + "/numa_node"));
  constexpr int64_t kMostNodes = 4096;
  if (node && *node < kMostNodes) device.numa_node = static_cast<int>(*node);
  device.local_cpus = first_line(folder + "/local_cpulist");
  if (!core_list_of(device.local_cpus)) device.local_cpus.clear();
  device.now = link_of(folder, "current");
  device.most = link_of(folder, "max");
  device.virtual_function = path_exists(folder + "/physfn");
  return device;
}

/// The device's own best is of no use in a slot that has less.
void limit_by_slot(PciDevice& device, const std::string& folder) {
  if (device.path.size() < 3) return;  // no bridge above
  const PciLink slot = link_of(folder + "/" + device.path[device.path.size() - 2], "max");
  device.most = {.gt_per_s = least(device.most.gt_per_s, slot.gt_per_s), .width = least(device.most.width, slot.width)};
}

std::vector<std::string> entries_of(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (names.size() == kMostEntries) break;
    names.push_back(entry->path().filename().string());
  }
  return names;
}

/// "mlx5_10" as ("mlx5_", 10).
std::tuple<std::string, int64_t, std::string> natural_key(const std::string& name) {
  const size_t end = name.find_last_not_of("0123456789");
  const size_t begin = end == std::string::npos ? 0 : end + 1;
  return {name.substr(0, begin), count_of(std::string_view(name).substr(begin)).value_or(-1), name};
}

void append_names(std::vector<NetworkName>& names, const std::string& folder) {
  std::vector<std::string> entries = entries_of(folder);
  std::sort(entries.begin(), entries.end(),
            [](const std::string& a, const std::string& b) { return natural_key(a) < natural_key(b); });
  for (const std::string& entry : entries) {
    const std::vector<std::string> parts = pci_parts(folder + "/" + entry + "/device");
    if (parts.size() < 2) continue;  // virtual, or on another bus
    const bool known =
        std::any_of(names.begin(), names.end(), [&](const NetworkName& name) { return name.bus_id == parts.back(); });
    if (!known) names.push_back({.name = entry, .bus_id = parts.back()});
  }
}

}  // namespace

bool PciDevice::is_nvidia_gpu() const {
  constexpr uint32_t kDisplay = 0x0300;
  constexpr uint32_t k3d = 0x0302;
  return vendor == kNvidia && (device_class >> 8 == kDisplay || device_class >> 8 == k3d);
}

bool PciDevice::is_network() const {
  constexpr uint32_t kEthernet = 0x0200;
  constexpr uint32_t kInfiniband = 0x0207;
  return device_class >> 8 == kEthernet || device_class >> 8 == kInfiniband;
}

bool PciDevice::is_switch() const {
  constexpr uint32_t kOtherBridge = 0x0680;
  return vendor == kNvidia && device_class >> 8 == kOtherBridge;
}

std::optional<std::vector<PciDevice>> pci_devices(const std::string& root) {
  const std::string folder = root + "/sys/bus/pci/devices";
  if (!path_exists(folder)) return std::nullopt;
  std::vector<PciDevice> devices;
  for (const std::string& name : entries_of(folder)) {
    if (!is_bus_id(name)) continue;
    PciDevice& device = devices.emplace_back(device_of(folder + "/" + name, name));
    limit_by_slot(device, folder);
  }
  std::sort(devices.begin(), devices.end(), [](const PciDevice& a, const PciDevice& b) { return a.bus_id < b.bus_id; });
  return devices;
}

const PciDevice* find_pci(const std::vector<PciDevice>& devices, std::string_view bus_id) {
  const auto found =
      std::find_if(devices.begin(), devices.end(), [&](const PciDevice& device) { return device.bus_id == bus_id; });
  return found == devices.end() ? nullptr : &*found;
}

std::optional<PathKind> pci_path(const PciDevice& a, const PciDevice& b, size_t numa_nodes) {
  if (a.bus_id == b.bus_id) return PathKind::kSelf;
  if (a.path.empty() || b.path.empty()) return std::nullopt;
  const auto [end_a, end_b] = std::mismatch(a.path.begin(), a.path.end(), b.path.begin(), b.path.end());
  const auto common = end_a - a.path.begin();
  if (common == 0) {
    if (a.numa_node && b.numa_node) return *a.numa_node == *b.numa_node ? PathKind::kNode : PathKind::kSys;
    return numa_nodes == 1 ? std::optional(PathKind::kNode) : std::nullopt;
  }
  if (common == 1) return PathKind::kPhb;  // the root bus alone
  // Below the innermost bridge that both have: the device itself, and a port of that bridge's switch before it.
  const auto below = std::max(a.path.end() - end_a, b.path.end() - end_b);
  return below <= 2 ? PathKind::kPix : PathKind::kPxb;
}

std::optional<int> pci_generation_of(double gt_per_s) {
  constexpr double kSpeeds[] = {2.5, 5, 8, 16, 32, 64};  // of generations 1, 2, …
  const auto found = std::find(std::begin(kSpeeds), std::end(kSpeeds), gt_per_s);
  if (found == std::end(kSpeeds)) return std::nullopt;
  return static_cast<int>(found - std::begin(kSpeeds)) + 1;
}

std::vector<NetworkName> network_names(const std::string& root) {
  std::vector<NetworkName> names;
  append_names(names, root + "/sys/class/infiniband");
  append_names(names, root + "/sys/class/net");
  return names;
}

}  // namespace shardscope::topology
