#include "topology/compare/compare_parts.hpp"

#include <fmt/format.h>

#include "topology/draw/plain_text.hpp"

namespace shardscope::topology {

bool has_group(const Topology& topology, int degree) {
  return topology.groups.count(degree) > 0;
}

std::optional<Path> narrowest_of(const Topology& topology, int degree) {
  if (!has_group(topology, degree)) return std::nullopt;
  std::optional<Path> path = topology.groups.at(degree).best_narrowest;
  if (path && path->kind == PathKind::kSoc) path->kind = PathKind::kSys;
  return path;
}

std::optional<int> largest_linked_degree(const Topology& topology) {
  if (!topology.links) return std::nullopt;
  int largest = 1;
  for (const auto& [degree, group] : topology.groups) {
    if (group.best_narrowest && group.best_narrowest->kind == PathKind::kNvLink) largest = degree;
  }
  return largest;
}

std::string crossing_in_words(const Path& path) {
  switch (path.kind) {
    case PathKind::kNvLink:
      return counted(path.nvlinks, "NVLink");
    case PathKind::kPix:
      return "one PCIe switch (PIX)";
    case PathKind::kPxb:
      return "PCIe switches (PXB)";
    case PathKind::kPhb:
      return "PCIe through a CPU's host bridge (PHB)";
    case PathKind::kNode:
      return "PCIe and several host bridges of a CPU (NODE)";
    case PathKind::kSys:
    case PathKind::kSoc:
      return "PCIe and the link between CPU sockets (SYS)";
    case PathKind::kSelf:
      break;
  }
  return "nothing";
}

std::string each_in_words(const std::vector<std::string>& names,
                          const std::vector<std::optional<std::string>>& values) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < names.size() && i < values.size(); ++i) {
    parts.push_back(fmt::format("{}: {}", names[i], values[i].value_or("unknown")));
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

}  // namespace shardscope::topology
