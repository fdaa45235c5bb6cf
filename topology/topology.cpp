#include "topology/topology.hpp"

#include <charconv>

#include <fmt/format.h>

namespace shardscope::topology {

std::string_view name_of(SourceKind kind) {
  switch (kind) {
    case SourceKind::kProbe:
      return "probe";
    case SourceKind::kNvidiaSmiTopo:
      return "nvidia-smi-topo";
    case SourceKind::kNvidiaSmiP2p:
      return "nvidia-smi-p2p";
    case SourceKind::kNvlinkStatus:
      return "nvlink-status";
    case SourceKind::kNcclXml:
      return "nccl-xml";
    case SourceKind::kHwlocXml:
      return "hwloc-xml";
    case SourceKind::kP2pBandwidthTest:
      return "p2p-bandwidth-test";
    case SourceKind::kP2pmark:
      return "p2pmark";
    case SourceKind::kNvbandwidth:
      return "nvbandwidth";
    case SourceKind::kNcclTests:
      return "nccl-tests";
    case SourceKind::kCollectiveTable:
      return "collective-table";
    case SourceKind::kShardscope:
      return "shardscope";
    case SourceKind::kCatalogue:
      return "catalogue";
  }
  return "";
}

std::string_view name_of(Measurement::Kind kind) {
  switch (kind) {
    case Measurement::Kind::kP2pBandwidth:
      return "p2p_bandwidth";
    case Measurement::Kind::kP2pLatency:
      return "p2p_latency";
    case Measurement::Kind::kAllReduce:
      return "allreduce";
  }
  return "";
}

std::string_view name_of(TopologyClass topology_class) {
  switch (topology_class) {
    case TopologyClass::kNvSwitch:
      return "nvswitch";
    case TopologyClass::kNvLinkMesh:
      return "nvlink-mesh";
    case TopologyClass::kCubeMesh:
      return "nvlink-cube-mesh";
    case TopologyClass::kPairs:
      return "nvlink-pairs";
    case TopologyClass::kPcie:
      return "pcie";
    case TopologyClass::kMixed:
      return "mixed";
    case TopologyClass::kSingle:
      return "single";
    case TopologyClass::kNone:
      return "none";
    case TopologyClass::kUnknown:
      return "unknown";
  }
  return "";
}

std::string text_of(const Path& path) {
  switch (path.kind) {
    case PathKind::kSelf:
      return "X";
    case PathKind::kNvLink:
      return fmt::format("NV{}", path.nvlinks);
    case PathKind::kPix:
      return "PIX";
    case PathKind::kPxb:
      return "PXB";
    case PathKind::kPhb:
      return "PHB";
    case PathKind::kNode:
      return "NODE";
    case PathKind::kSys:
      return "SYS";
    case PathKind::kSoc:
      return "SOC";
  }
  return "";
}

std::optional<Path> path_of(std::string_view text) {
  for (const PathKind kind : {PathKind::kSelf, PathKind::kPix, PathKind::kPxb, PathKind::kPhb, PathKind::kNode,
                              PathKind::kSys, PathKind::kSoc}) {
    if (text == text_of({.kind = kind})) return Path{.kind = kind};
  }
  if (!text.starts_with("NV") || text.size() < 3 || text.size() > 4 || text[2] == '0') return std::nullopt;
  int links = 0;
  const char* const end = text.data() + text.size();
  const std::from_chars_result result = std::from_chars(text.data() + 2, end, links);
  if (result.ec != std::errc{} || result.ptr != end || links < 1) return std::nullopt;
  return Path{.kind = PathKind::kNvLink, .nvlinks = links};
}

bool nearer(const Path& a, const Path& b) {
  const auto rank = [](PathKind kind) { return kind == PathKind::kSoc ? PathKind::kSys : kind; };
  if (rank(a.kind) != rank(b.kind)) return rank(a.kind) < rank(b.kind);
  return a.nvlinks > b.nvlinks;
}

}  // namespace shardscope::topology
