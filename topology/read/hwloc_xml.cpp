#include "topology/read/hwloc_xml.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <set>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "topology/files.hpp"
#include "topology/host.hpp"
#include "topology/read/limits.hpp"

namespace shardscope::topology {
namespace {

/// "0x00000303,,0x1": words of 32 bits, most significant first, an empty one is 0. Empty: no such set, or an endless.
std::vector<int> bits_of(std::string_view text) {
  std::vector<std::string_view> words;
  for (size_t at = 0; at <= text.size() && words.size() < 2048;) {
    const size_t end = std::min(text.find(',', at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  std::vector<int> bits;
  for (size_t word = 0; word < words.size(); ++word) {
    std::string_view digits = words[words.size() - 1 - word];
    if (digits.starts_with("0x")) digits.remove_prefix(2);
    uint32_t value = 0;
    const char* const end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, value, 16);
    if (!digits.empty() && (error != std::errc() || stop != end)) return {};
    for (int bit = 0; bit < 32; ++bit) {
      if ((value >> bit & 1) != 0) bits.push_back(static_cast<int>(word) * 32 + bit);
    }
  }
  return bits;
}

std::string_view info(const pugi::xml_node& node, const char* name) {
  return node.find_child_by_attribute("info", "name", name).attribute("value").value();
}

std::string_view type_of(const pugi::xml_node& node) {
  return std::strcmp(node.name(), "object") == 0 ? node.attribute("type").value() : "";
}

class HwlocReader {
 public:
  HwlocReader(const XmlDocument& document, const std::string& file) : document_(document), file_(file) {
    topology_.source = SourceKind::kHwlocXml;
    topology_.file = file;
  }

  Topology read() {
    walk(document_.root(), {}, 0);
    const std::optional<XmlFault>& fault = document_.fault();
    if (fault) {
      machine_.nesting_trusted = fault->cut;
      topology_.nics_known = false;
      faults_.fault(fmt::format("line {}: {}: what the XML holds from there on is unknown; {} GPUs stand before it",
                                fault->line, fault->what, machine_.gpus.size()));
    }
    for (HwlocGpu& each : machine_.gpus) place(each.place, each.gpu.numa_nodes, &each.gpu.cpu_affinity);
    for (HwlocNic& each : machine_.nics) {
      std::vector<int> nodes;
      place(each.place, nodes, nullptr);
      if (nodes.size() == 1) each.nic.numa_node = nodes.front();
    }
    number_gpus();
    name_platform();
    hwloc_links(document_, machine_, topology_, faults_);
    if (!machine_.gpus.empty() && !machine_.nics.empty()) topology_.nic_links = hwloc_nic_links(machine_);
    for (HwlocGpu& each : machine_.gpus) topology_.gpus.push_back(std::move(each.gpu));
    for (HwlocNic& each : machine_.nics) topology_.nics.push_back(std::move(each.nic));
    count_gpus();
    std::move(faults_).move_to(topology_);
    return std::move(topology_);
  }

 private:
  /// Nesting is limited to 64 by XmlDocument. depth: of objects.
  void walk(const pugi::xml_node& parent, const HwlocPlace& above, int depth) {
    for (const pugi::xml_node& node : parent.children("object")) {
      HwlocPlace place = above;
      const std::string_view type = type_of(node);
      if (!node.attribute("cpuset").empty() && type != "NUMANode") {
        // Devices right below the machine have no known place among several NUMA nodes.
        place.locality = depth == 0 ? pugi::xml_node() : node;
        if (depth == 0) machine_node_ = node;
      }
      if (type == "NUMANode") {
        const std::optional<int64_t> index = count_of(node.attribute("os_index").value());
        // Memory of GPUs that is a node of its own (Grace) has no cores.
        const bool with_cores = std::strcmp(node.attribute("subtype").value(), "GPUMemory") != 0;
        if (index && *index < 65536) (with_cores ? nodes_ : memory_nodes_).insert(static_cast<int>(*index));
        if (!node.attribute("cpuset").empty()) place.locality = node;  // hwloc 1: nodes stand above their cores
      } else if (type == "Bridge") {
        has_devices_ = true;
        if (std::string_view(node.attribute("bridge_type").value()).starts_with("0-")) {
          place.host_bridge = next_bridge_++;
          place.bridges.clear();
        } else {
          place.bridges.push_back(next_bridge_++);
        }
      } else if (type == "PCIDev") {
        has_devices_ = true;
        read_device(node, place);
      } else if (type == "OSDev") {
        has_devices_ = true;
      }
      walk(node, place, depth + 1);
    }
  }

  /// pci_type: "0302 [10de:15f9] [10de:116b] a1 00". pci_link_speed gives GB/s of all lanes: neither generation nor
  /// width follow from it.
  void read_device(const pugi::xml_node& node, const HwlocPlace& place) {
    const std::string_view kind = node.attribute("pci_type").value();
    const bool nvidia = kind.find(" [10de:") == 4;
    const std::string bus_id = bounded_name(node.attribute("pci_busid").value());
    if (nvidia && (kind.starts_with("0302") || kind.starts_with("0300"))) {
      add_gpu(node, place, bus_id);
    } else if (nvidia && kind.starts_with("0680")) {
      machine_.switch_of.emplace(gp_index(node), bus_id);
    } else if (kind.starts_with("0200") || kind.starts_with("0207")) {
      add_nic(node, place, bus_id);
    }
  }

  void add_gpu(const pugi::xml_node& node, const HwlocPlace& place, const std::string& bus_id) {
    if (machine_.gpus.size() == kMostGpus) {
      throw UserError(fmt::format("more than {} GPUs", kMostGpus),
                      fmt::format("{}, line {}", file_, document_.line_of(node)), "give the topology of one machine");
    }
    HwlocGpu each{.gpu = {.pci_bus_id = bus_id}, .place = place, .number = std::nullopt};
    machine_.gpu_of.emplace(gp_index(node), machine_.gpus.size());
    bool by_nvml = false;
    for (const pugi::xml_node& child : node.children("object")) {
      const std::string_view name = child.attribute("name").value();
      const std::optional<int> nvml = number_after(name, "nvml"), cuda = number_after(name, "cuda");
      if (nvml || (cuda && !by_nvml)) each.number = nvml ? nvml : cuda;
      by_nvml = by_nvml || nvml;
      if (nvml || cuda) machine_.gpu_of.emplace(gp_index(child), machine_.gpus.size());
      if (each.gpu.name.empty()) each.gpu.name = bounded_name(info(child, "GPUModel"));
      if (each.gpu.uuid.empty()) each.gpu.uuid = bounded_name(info(child, "NVIDIAUUID"));
    }
    if (each.gpu.name.empty()) each.gpu.name = bounded_name(info(node, "PCIDevice"));
    machine_.gpus.push_back(std::move(each));
  }

  /// Named as the fabric's device ("mlx5_0") where there is one, else as the network's, else by its bus id.
  void add_nic(const pugi::xml_node& node, const HwlocPlace& place, const std::string& bus_id) {
    if (machine_.nics.size() == kMostNics) {
      throw UserError(fmt::format("more than {} NICs", kMostNics), file_, "give the topology of one machine");
    }
    std::string name;
    for (const pugi::xml_node& child : node.children("object")) {
      if (type_of(child) != "OSDev") continue;
      const bool fabric = !info(child, "NodeGUID").empty() || !info(child, "Port1LID").empty();
      if (name.empty() || fabric) name = bounded_name(child.attribute("name").value());
      if (fabric) break;
    }
    machine_.nics.push_back({.nic = {.name = name.empty() ? bus_id : name, .device = name}, .place = place});
  }

  /// A key that no other object has; files without gp_index have no matrix that could use it.
  uint64_t gp_index(const pugi::xml_node& node) {
    const std::optional<int64_t> index = count_of(node.attribute("gp_index").value());
    return index ? static_cast<uint64_t>(*index) : UINT64_MAX - ++unnumbered_;
  }

  void place(HwlocPlace& place, std::vector<int>& nodes, std::string* cores) const {
    // On a machine of one node, to hang below the machine is to hang below that node.
    const pugi::xml_node at = place.locality.empty() && nodes_.size() == 1 ? machine_node_ : place.locality;
    for (const int node : bits_of(at.attribute("nodeset").value())) {
      if (memory_nodes_.count(node) == 0) place.nodes.push_back(node);
    }
    nodes = place.nodes;
    if (cores != nullptr) *cores = core_list_text(bits_of(at.attribute("cpuset").value()));
  }

  /// By nvmlN or cudaN, if each GPU has one of its own; else in the order of the file.
  void number_gpus() {
    std::vector<HwlocGpu>& gpus = machine_.gpus;
    std::set<int> numbers;
    for (const HwlocGpu& each : gpus) {
      if (each.number) numbers.insert(*each.number);
    }
    const bool numbered = numbers.size() == gpus.size();
    for (size_t i = 0; i < gpus.size(); ++i) gpus[i].gpu.index = numbered ? *gpus[i].number : static_cast<int>(i);
    std::vector<size_t> order(gpus.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return gpus[a].gpu.index < gpus[b].gpu.index; });
    std::vector<HwlocGpu> sorted;
    std::vector<size_t> moved(gpus.size());
    for (const size_t from : order) {
      moved[from] = sorted.size();
      sorted.push_back(std::move(gpus[from]));
    }
    gpus = std::move(sorted);
    for (auto& [object, gpu] : machine_.gpu_of) gpu = moved[gpu];
  }

  void name_platform() {
    for (const char* const name : {"DMIProductName", "PlatformModel", "CPUModel"}) {
      std::string_view value = info(machine_node_, name);
      if (value.empty()) value = info(machine_node_.child("object"), name);
      if (topology_.platform.empty()) topology_.platform = bounded_name(value);
    }
  }

  void count_gpus() {
    if (!topology_.gpus.empty() || (has_devices_ && !document_.fault())) {
      topology_.gpu_count = static_cast<int>(topology_.gpus.size());
      return;
    }
    topology_.nics_known = false;
    // https://www.nvidia.com/en-us/products/workstations/dgx-spark/: one GB10, which is CPU and GPU in one package.
    if (topology_.platform == "NVIDIA_DGX_Spark") {
      topology_.gpus.push_back({.name = "NVIDIA GB10"});
      topology_.gpu_count = 1;
      faults_.note(
          "The file lists no PCI devices. That the machine has one GPU, GB10, is known by its product name, "
          "NVIDIA_DGX_Spark");
    } else if (!has_devices_) {
      faults_.note("The file lists no PCI devices: it does not tell whether there are GPUs");
    }
  }

  const XmlDocument& document_;
  const std::string& file_;
  Topology topology_;
  Faults faults_;
  HwlocMachine machine_;
  pugi::xml_node machine_node_;
  std::set<int> nodes_, memory_nodes_;
  int next_bridge_ = 0;
  uint64_t unnumbered_ = 0;
  bool has_devices_ = false;
};

}  // namespace

Topology read_hwloc_topology(const XmlDocument& document, const std::string& file) {
  return HwlocReader(document, file).read();
}

}  // namespace shardscope::topology
