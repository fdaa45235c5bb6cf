#include "topology/draw/source_words.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "topology/draw/plain_text.hpp"

namespace shardscope::topology {

std::string source_in_words(SourceKind kind) {
  switch (kind) {
    case SourceKind::kProbe:
      return "this machine";
    case SourceKind::kNvidiaSmiTopo:
      return "nvidia-smi topo -m";
    case SourceKind::kNvidiaSmiP2p:
      return "nvidia-smi topo -p2p";
    case SourceKind::kNvlinkStatus:
      return "nvidia-smi nvlink -s";
    case SourceKind::kNcclXml:
      return "NCCL topology XML";
    case SourceKind::kHwlocXml:
      return "hwloc XML";
    case SourceKind::kP2pBandwidthTest:
      return "p2pBandwidthLatencyTest";
    case SourceKind::kP2pmark:
      return "p2pmark";
    case SourceKind::kNvbandwidth:
      return "nvbandwidth";
    case SourceKind::kNcclTests:
      return "nccl-tests";
    case SourceKind::kCollectiveTable:
      return "a table of all-reduce figures";
    case SourceKind::kShardscope:
      return "a shardscope report";
    case SourceKind::kCatalogue:
      return "catalogue of machines";
  }
  return "";
}

std::string gpus_in_words(const Topology& topology) {
  if (!topology.gpu_count) return "an untold number of GPUs";
  if (*topology.gpu_count == 0) return "no GPU";
  std::vector<std::pair<std::string, int>> models;  // in the order of the first of each
  for (const Gpu& gpu : topology.gpus) {
    const std::string name = printable(gpu.name);
    const auto same =
        std::find_if(models.begin(), models.end(), [&](const auto& model) { return model.first == name; });
    if (same == models.end()) {
      models.emplace_back(name, 1);
    } else {
      ++same->second;
    }
  }
  if (models.empty() || (models.size() == 1 && models.front().first.empty())) {
    return counted(*topology.gpu_count, "GPU");
  }
  std::string text;
  for (const auto& [name, count] : models) {
    text += fmt::format("{}{} x {}", text.empty() ? "" : ", ", count, name.empty() ? "unnamed GPU" : name);
  }
  return text;
}

std::string class_in_words(TopologyClass topology_class) {
  switch (topology_class) {
    case TopologyClass::kNvSwitch:
      return "all-to-all NVLink through NVSwitches";
    case TopologyClass::kNvLinkMesh:
      return "all-to-all direct NVLink";
    case TopologyClass::kCubeMesh:
      return "a cube mesh of direct NVLinks";
    case TopologyClass::kPairs:
      return "NVLink pairs";
    case TopologyClass::kPcie:
      return "PCIe only";
    case TopologyClass::kMixed:
      return "a mixture of links";
    case TopologyClass::kSingle:
    case TopologyClass::kNone:
      return "nothing to connect";
    case TopologyClass::kUnknown:
      return "links not known";
  }
  return "";
}

std::string origin_in_words(const Topology& topology) {
  std::vector<std::string> parts;
  if (!topology.host.empty()) parts.push_back(printable(topology.host));
  if (!topology.platform.empty()) parts.push_back(printable(topology.platform));
  if (topology.virtual_machine == true) parts.emplace_back("virtual machine");
  parts.push_back(source_in_words(topology.source));
  if (!topology.file.empty()) {
    const size_t slash = topology.file.find_last_of('/');
    parts.push_back(printable(slash == std::string::npos ? topology.file : topology.file.substr(slash + 1)));
  }
  return fmt::format("{}", fmt::join(parts, " · "));
}

}  // namespace shardscope::topology
