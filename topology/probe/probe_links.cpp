// How GPUs are joined: NVLinks by the far ends of their ports, else PCIe.
//
// A far end is a GPU of this machine, a switch, a CPU, a GPU that is not shown here (a container with some of a
// machine's GPUs), or hidden: virtual machines pass GPUs through without what joins them. NCCL takes a hidden end for
// an NVSwitch. We ask the driver which pairs reach each other by NVLink first: a pair that has nobody else is bridged,
// GPUs that all reach each other are taken as behind a switch, and anything else stays unknown.
#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "topology/probe/probe_parts.hpp"

namespace shardscope::topology {
namespace {

using Remote = NvLinkPort::Remote;

/// Where the NVLinks of one GPU lead that are up.
struct Ends {
  bool known = false;
  std::vector<int> direct;  // [gpu]
  int switches = 0;
  int hidden = 0;
  bool hidden_gpu = false;  // one of the hidden ends is known to be a GPU
  int elsewhere = 0;        // GPUs that are not shown here
};

Remote remote_by_class(const PciDevice& device) {
  constexpr uint32_t kPciBridge = 0x0604;  // POWER's NVLink bridges
  if (device.is_switch()) return Remote::kSwitch;
  if (device.is_nvidia_gpu()) return Remote::kGpu;
  return device.device_class >> 8 == kPciBridge ? Remote::kCpu : Remote::kUnknown;
}

/// Old drivers tell the address of a far end and not its kind.
void resolve_kind(NvLinkPort& port, const HostPci& pci) {
  if (port.remote != Remote::kUnknown || port.remote_bus_id.empty() || !pci.devices) return;
  if (const PciDevice* device = find_pci(*pci.devices, port.remote_bus_id)) port.remote = remote_by_class(*device);
}

Ends ends_of(Topology& topology, size_t self, const HostPci& pci) {
  Gpu& gpu = topology.gpus[self];
  Ends ends{.known = gpu.nvlinks.has_value(), .direct = std::vector<int>(topology.gpus.size())};
  const bool all_placed =
      std::none_of(topology.gpus.begin(), topology.gpus.end(), [](const Gpu& each) { return each.pci_bus_id.empty(); });
  for (NvLinkPort& port : gpu.ports) {
    if (port.active != true) continue;
    const auto other = std::find_if(topology.gpus.begin(), topology.gpus.end(), [&](const Gpu& each) {
      return !port.remote_bus_id.empty() && each.pci_bus_id == port.remote_bus_id;
    });
    const auto position = static_cast<size_t>(other - topology.gpus.begin());
    if (other != topology.gpus.end() && position != self) {
      port.remote = Remote::kGpu;
      ++ends.direct[position];
      continue;
    }
    resolve_kind(port, pci);
    switch (port.remote) {
      case Remote::kSwitch:
        ++ends.switches;
        break;
      case Remote::kGpu:
        if (port.remote_bus_id.empty() || !all_placed) {  // it may be one of ours
          ends.hidden_gpu = true;
          ++ends.hidden;
        } else {
          ++ends.elsewhere;
        }
        break;
      case Remote::kUnknown:
        ++ends.hidden;
        break;
      case Remote::kCpu:
        break;
    }
  }
  return ends;
}

/// What joins the GPUs whose NVLinks end where nobody sees.
class HiddenEnds {
 public:
  HiddenEnds(const std::vector<Ends>& ends, const NvmlAnswers& answers) : ends_(ends), answers_(answers) {
    for (size_t i = 0; i < ends.size(); ++i) {
      if (ends[i].hidden > 0) gpus_.push_back(i);
    }
    behind_switch_ = gpus_.size() > 2;
    for (const size_t i : gpus_) {
      if (ends[i].hidden_gpu) behind_switch_ = false;
      for (const size_t j : gpus_) {
        if (i != j && reached(i, j) != true) behind_switch_ = false;
      }
    }
  }

  const std::vector<size_t>& gpus() const { return gpus_; }
  bool taken_for_switch() const { return behind_switch_; }

  /// Links between two GPUs that both have hidden ends: 0 is none, nullopt unknown.
  std::optional<int> between(size_t i, size_t j) const {
    const std::optional<bool> joined = reached(i, j);
    if (joined == false) return 0;
    const bool only_each_other = joined == true && partners(i) == 1 && partners(j) == 1;
    if (!only_each_other && !behind_switch_) return std::nullopt;
    return std::min(ends_[i].hidden, ends_[j].hidden);
  }

 private:
  std::optional<bool> reached(size_t i, size_t j) const {
    const std::optional<bool> there = answers_.reached_by_nvlink[i][j];
    const std::optional<bool> back = answers_.reached_by_nvlink[j][i];
    if (there == false || back == false) return false;
    return there && back ? std::optional(true) : std::nullopt;
  }
  /// Those that may be reached, known or not.
  int64_t partners(size_t i) const {
    return std::count_if(gpus_.begin(), gpus_.end(), [&](size_t j) { return j != i && reached(i, j).value_or(true); });
  }

  const std::vector<Ends>& ends_;
  const NvmlAnswers& answers_;
  std::vector<size_t> gpus_;
  bool behind_switch_ = false;
};

std::optional<Path> nvlink_path(int links) {
  return Path{.kind = PathKind::kNvLink, .nvlinks = links};
}

std::optional<Path> over_pcie(const Topology& topology, size_t i, size_t j, const NvmlAnswers& answers,
                              const HostPci& pci) {
  if (const std::optional<PathKind> told = answers.pcie[i][j]) return Path{.kind = *told};
  if (!pci.devices) return std::nullopt;
  const PciDevice* const a = find_pci(*pci.devices, topology.gpus[i].pci_bus_id);
  const PciDevice* const b = find_pci(*pci.devices, topology.gpus[j].pci_bus_id);
  if (a == nullptr || b == nullptr) return std::nullopt;
  const std::optional<PathKind> seen = pci_path(*a, *b, pci.numa_nodes);
  return seen ? std::optional(Path{.kind = *seen}) : std::nullopt;
}

std::vector<int> indices_of(const Topology& topology, const std::vector<size_t>& positions) {
  std::vector<int> indices;
  for (const size_t position : positions) indices.push_back(topology.gpus[position].index);
  return indices;
}

void warn_of_hidden(Topology& topology, const HiddenEnds& hidden, bool unknown_pairs) {
  if (hidden.gpus().empty()) return;
  std::string text = fmt::format(
      "The far ends of the NVLinks of GPUs {} are hidden, as in virtual machines that are given GPUs alone.",
      fmt::join(indices_of(topology, hidden.gpus()), ", "));
  if (hidden.taken_for_switch()) {
    text +=
        " They are taken for an NVSwitch, since the driver says that all these GPUs reach each other by NVLink;"
        " compare the count of links between two GPUs with a measurement.";
  } else if (unknown_pairs) {
    text +=
        " What joins some of these GPUs is unknown: the driver does not tell which of them reach each other by"
        " NVLink, or their links would fit several wirings.";
  } else {
    text += " Pairs are told by the driver's word on which GPUs reach each other by NVLink.";
  }
  topology.warnings.push_back(text);
}

void warn_of_elsewhere(Topology& topology, const std::vector<Ends>& ends) {
  std::vector<size_t> gpus;
  for (size_t i = 0; i < ends.size(); ++i) {
    if (ends[i].elsewhere > 0) gpus.push_back(i);
  }
  if (gpus.empty()) return;
  topology.warnings.push_back(
      fmt::format("NVLinks of GPUs {} lead to GPUs that this machine or container does not show: those links are of no "
                  "use here. Ask for GPUs that are linked to each other.",
                  fmt::join(indices_of(topology, gpus), ", ")));
}

std::optional<bool> leads_to_switches(const std::vector<Ends>& ends, const std::vector<Gpu>& gpus) {
  const auto any = [&](const auto& is) { return std::any_of(ends.begin(), ends.end(), is); };
  if (any([](const Ends& each) { return each.switches > 0; })) return true;
  if (any([](const Ends& each) { return each.hidden > 0 || !each.known; })) return std::nullopt;
  const bool linked = std::any_of(gpus.begin(), gpus.end(), [](const Gpu& gpu) { return gpu.nvlinks.value_or(0) > 0; });
  return linked ? std::optional(false) : std::nullopt;
}

}  // namespace

void join_gpus(Topology& topology, const NvmlAnswers& answers, const HostPci& pci) {
  const size_t count = topology.gpus.size();
  if (count == 0) return;
  std::vector<Ends> ends;
  for (size_t i = 0; i < count; ++i) ends.push_back(ends_of(topology, i, pci));
  const HiddenEnds hidden(ends, answers);
  bool unknown_pairs = false;
  const auto between = [&](size_t i, size_t j) -> std::optional<Path> {
    if (i == j) return Path{};
    if (!ends[i].known || !ends[j].known) return std::nullopt;
    const int direct = std::min(ends[i].direct[j], ends[j].direct[i]);
    if (i < j && ends[i].direct[j] != ends[j].direct[i]) {
      topology.warnings.push_back(fmt::format("{} has {} NVLinks up to {}, which has {} back: the lower number counts.",
                                              gpu_text(topology.gpus[i]), ends[i].direct[j], gpu_text(topology.gpus[j]),
                                              ends[j].direct[i]));
    }
    if (direct > 0) return nvlink_path(direct);
    const int switched = std::min(ends[i].switches, ends[j].switches);
    if (switched > 0) return nvlink_path(switched);
    if (ends[i].hidden > 0 && ends[j].hidden > 0) {
      const std::optional<int> links = hidden.between(i, j);
      if (!links) {
        unknown_pairs = true;
        return std::nullopt;
      }
      if (*links > 0) return nvlink_path(*links);
    }
    return over_pcie(topology, i, j, answers, pci);
  };
  PathMatrix links(count, std::vector<std::optional<Path>>(count));
  for (size_t i = 0; i < count; ++i) {
    for (size_t j = 0; j < count; ++j) links[i][j] = between(i, j);
  }
  topology.links = std::move(links);
  topology.switched = leads_to_switches(ends, topology.gpus);
  warn_of_hidden(topology, hidden, unknown_pairs);
  warn_of_elsewhere(topology, ends);
}

}  // namespace shardscope::topology
