// Distances in hwloc's tree. Its bridges are single ports: two GPUs of one PCIe switch have the switch's upstream port
// in common, and each a downstream port of its own between.
#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "topology/read/hwloc_xml.hpp"

namespace shardscope::topology {
namespace {

using Remote = NvLinkPort::Remote;

constexpr size_t kMostObjects = 1024;  // of a matrix: GPUs, and switches or packages that they lead to
constexpr int kMostLinks = 64;

// What hwloc counts for one NVLink, in MB/s: its topology-nvml.c, NVLink 1, and 2 to 4. It leaves out newer ones.
constexpr uint64_t kFirstGeneration = 20000, kLaterGenerations = 25000;

std::optional<Path> pcie_path(const HwlocPlace& a, const HwlocPlace& b) {
  if (a.host_bridge < 0 || b.host_bridge < 0) return std::nullopt;
  if (a.host_bridge == b.host_bridge) {
    const auto apart = std::mismatch(a.bridges.begin(), a.bridges.end(), b.bridges.begin(), b.bridges.end());
    if (apart.first == a.bridges.begin()) return Path{.kind = PathKind::kPhb};
    const bool one_switch = a.bridges.end() - apart.first <= 1 && b.bridges.end() - apart.second <= 1;
    return Path{.kind = one_switch ? PathKind::kPix : PathKind::kPxb};
  }
  if (a.nodes.empty() || b.nodes.empty()) return std::nullopt;
  return Path{.kind = a.nodes == b.nodes ? PathKind::kNode : PathKind::kSys};
}

/// The texts of all `name` children, as words.
std::vector<std::string> words_below(const pugi::xml_node& node, const char* name, size_t most) {
  std::vector<std::string> words;
  for (const pugi::xml_node& child : node.children(name)) {
    std::string text = child.child_value();
    std::replace_if(
        text.begin(), text.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
    for (const std::string_view word : split_words(text, most + 1)) words.emplace_back(word);
    if (words.size() > most) break;
  }
  return words;
}

std::optional<uint64_t> whole(std::string_view text) {
  uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

struct Bandwidths {
  std::vector<std::string> objects;  // "OSDev:332"
  std::vector<uint64_t> mb_per_s;    // [object][object]

  uint64_t at(size_t from, size_t to) const { return mb_per_s[from * objects.size() + to]; }
};

/// nullopt, with a fault, for a matrix that is not whole.
std::optional<Bandwidths> read_matrix(const XmlDocument& document, const pugi::xml_node& node, Faults& faults) {
  Bandwidths matrix{.objects = words_below(node, "indexes", kMostObjects), .mb_per_s = {}};
  const size_t count = matrix.objects.size();
  const std::vector<std::string> values = words_below(node, "u64values", kMostObjects * kMostObjects);
  bool good = !document.is_open(node) && count > 0 && count <= kMostObjects && values.size() == count * count &&
              whole(node.attribute("nbobjs").value()) == count;
  for (const std::string& value : values) {
    const std::optional<uint64_t> number = whole(value);
    good = good && number;
    matrix.mb_per_s.push_back(number.value_or(0));
  }
  if (!good) {
    faults.fault(fmt::format("line {}: the matrix NVLinkBandwidth is cut or damaged: NVLinks are unknown",
                             document.line_of(node)));
    return std::nullopt;
  }
  const std::string type = node.attribute("type").value();
  for (std::string& object : matrix.objects) {
    if (object.find(':') == std::string::npos) object = fmt::format("{}:{}", type, object);
  }
  return matrix;
}

/// Appends the ports for one cell. False, with a fault, where the figure is no whole number of links.
bool add_ports(Gpu& gpu, uint64_t mb_per_s, NvLinkPort port, Faults& faults) {
  // Only Pascal's P100 has the first generation.
  const uint64_t each = gpu.name.find("P100") != std::string::npos ? kFirstGeneration : kLaterGenerations;
  const uint64_t count = mb_per_s / each;
  if (mb_per_s % each != 0 || count + gpu.ports.size() > kMostLinks) {
    faults.fault(fmt::format("NVLinkBandwidth: {} MB/s of GPU{} is no whole number of NVLinks of {} MB/s", mb_per_s,
                             gpu.index, each));
    return false;
  }
  port.active = true;
  port.gb_per_s = static_cast<double>(each) / 1000;
  for (uint64_t i = 0; i < count; ++i) {
    port.link = static_cast<int>(gpu.ports.size());
    gpu.ports.push_back(port);
  }
  return true;
}

/// The ports of each GPU of the matrix. Result: which GPUs' ports are known.
std::vector<bool> fill_ports(const Bandwidths& matrix, HwlocMachine& machine, Faults& faults) {
  std::vector<bool> known(machine.gpus.size(), false);
  const auto gp_of = [&](size_t object) {
    const std::string& text = matrix.objects[object];
    return whole(std::string_view(text).substr(text.find(':') + 1)).value_or(UINT64_MAX);
  };
  for (size_t from = 0; from < matrix.objects.size(); ++from) {
    const auto found = machine.gpu_of.find(gp_of(from));
    if (found == machine.gpu_of.end() || known[found->second]) continue;
    Gpu& gpu = machine.gpus[found->second].gpu;
    bool good = true;
    for (size_t to = 0; to < matrix.objects.size(); ++to) {
      const uint64_t speed = matrix.at(from, to);
      if (from == to || speed == 0) continue;
      NvLinkPort port;
      if (const auto peer = machine.gpu_of.find(gp_of(to)); peer != machine.gpu_of.end()) {
        port.remote = Remote::kGpu;
        port.remote_bus_id = machine.gpus[peer->second].gpu.pci_bus_id;
        if (matrix.at(to, from) != speed) {
          faults.fault(fmt::format("NVLinkBandwidth: GPU{} to GPU{} is {} MB/s, back {} MB/s: unknown", gpu.index,
                                   machine.gpus[peer->second].gpu.index, speed, matrix.at(to, from)));
          good = false;
          continue;
        }
      } else if (const auto hub = machine.switch_of.find(gp_of(to)); hub != machine.switch_of.end()) {
        port.remote = Remote::kSwitch;
        port.remote_bus_id = hub->second;
      } else if (!matrix.objects[to].starts_with("OSDev") && !matrix.objects[to].starts_with("PCIDev")) {
        port.remote = Remote::kCpu;
      }
      good = add_ports(gpu, speed, port, faults) && good;
    }
    known[found->second] = good;
    if (good) {
      gpu.nvlinks = static_cast<int>(gpu.ports.size());
    } else {
      gpu.ports.clear();
    }
  }
  return known;
}

int links_to(const Gpu& gpu, Remote remote, const std::string& bus_id = "") {
  return static_cast<int>(std::count_if(gpu.ports.begin(), gpu.ports.end(), [&](const NvLinkPort& port) {
    return port.remote == remote && (bus_id.empty() || port.remote_bus_id == bus_id);
  }));
}

}  // namespace

void hwloc_links(const XmlDocument& document, HwlocMachine& machine, Topology& topology, Faults& faults) {
  std::vector<HwlocGpu>& gpus = machine.gpus;
  if (gpus.empty()) return;
  std::optional<Bandwidths> matrix;
  bool listed = false;
  for (const pugi::xml_node& node : document.root().children()) {
    const std::string_view tag = node.name();
    const std::string_view name = node.attribute("name").value();
    if (listed || (tag != "distances2" && tag != "distances2hetero") || name != "NVLinkBandwidth") continue;
    listed = true;
    matrix = read_matrix(document, node, faults);
  }
  if (!matrix) {
    if (!listed && !document.fault() && gpus.size() > 1) {
      faults.note(
          "The file has no matrix NVLinkBandwidth: hwloc found no NVLinks that it knows, or was built without NVML. "
          "Whether "
          "the GPUs are linked is unknown; nvidia-smi topo -m tells");
    }
    return;
  }
  const std::vector<bool> known = fill_ports(*matrix, machine, faults);
  topology.links.emplace(gpus.size(), std::vector<std::optional<Path>>(gpus.size()));
  for (size_t i = 0; i < gpus.size(); ++i) {
    const Gpu& a = gpus[i].gpu;
    (*topology.links)[i][i] = Path{.kind = PathKind::kSelf};
    if (!a.ports.empty()) topology.switched = topology.switched.value_or(false) || links_to(a, Remote::kSwitch) > 0;
    for (size_t j = 0; j < i; ++j) {
      const Gpu& b = gpus[j].gpu;
      if (!known[i] || !known[j]) continue;
      if (links_to(a, Remote::kUnknown) > 0 && links_to(b, Remote::kUnknown) > 0) continue;
      const int direct = b.pci_bus_id.empty() ? 0 : links_to(a, Remote::kGpu, b.pci_bus_id);
      const int links = direct > 0 ? direct : std::min(links_to(a, Remote::kSwitch), links_to(b, Remote::kSwitch));
      std::optional<Path>& cell = (*topology.links)[i][j];
      if (links > 0) {
        cell = Path{.kind = PathKind::kNvLink, .nvlinks = links};
      } else if (machine.nesting_trusted) {
        cell = pcie_path(gpus[i].place, gpus[j].place);
      }
      (*topology.links)[j][i] = cell;
    }
  }
}

PathMatrix hwloc_nic_links(const HwlocMachine& machine) {
  PathMatrix links(machine.gpus.size(), std::vector<std::optional<Path>>(machine.nics.size()));
  if (!machine.nesting_trusted) return links;
  for (size_t i = 0; i < machine.gpus.size(); ++i) {
    for (size_t j = 0; j < machine.nics.size(); ++j) {
      links[i][j] = pcie_path(machine.gpus[i].place, machine.nics[j].place);
    }
  }
  return links;
}

}  // namespace shardscope::topology
