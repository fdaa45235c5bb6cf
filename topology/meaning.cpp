#include <fmt/format.h>

#include "topology/understanding.hpp"
#include "topology/warnings.hpp"

namespace shardscope::topology {
namespace {

std::string text_or_unknown(const std::optional<Path>& path) {
  return path ? text_of(*path) : "unknown";
}

/// The largest degree whose best group has NVLinks between all of its pairs; 1: none.
int largest_linked_degree(const Topology& topology) {
  int largest = 1;
  for (const auto& [degree, group] : topology.groups) {
    if (group.best_narrowest && group.best_narrowest->kind == PathKind::kNvLink) largest = degree;
  }
  return largest;
}

std::string of_partly_linked(const Topology& topology) {
  const int linked = largest_linked_degree(topology);
  const int gpus = static_cast<int>(topology.gpus.size());
  const Group& all = topology.groups.at(gpus);
  const Group& best = topology.groups.at(linked);
  std::string text = fmt::format("TP={} on {} stays on NVLink ({})", linked, gpu_names(topology, best.best),
                                 text_or_unknown(best.best_narrowest));
  if (linked < gpus) {
    text += fmt::format("; TP={} crosses {}", gpus, text_or_unknown(all.best_narrowest));
    if (linked >= 2 && gpus >= 2 * linked) {
      text += fmt::format(": consider TP={} with replicas", linked);
    }
  }
  return fmt::format("{}.", text);
}

/// GPUs behind switches of which some have dropped out, or are unknown.
std::string of_partly_switched(const Topology& topology) {
  const int linked = largest_linked_degree(topology);
  const int gpus = static_cast<int>(topology.gpus.size());
  if (linked < 2) return "As far as it is known, every pair of GPUs talks over all of its NVLinks at once.";
  const std::optional<Path>& narrowest = topology.groups.at(gpus).best_narrowest;
  return fmt::format(
      "TP={} on {} stays on NVLink; {}.", linked, gpu_names(topology, topology.groups.at(linked).best),
      narrowest ? fmt::format("TP={} crosses {}: not all GPUs are on the NVLink fabric", gpus, text_of(*narrowest))
                : std::string("of the others it is unknown"));
}

}  // namespace

std::string meaning_of(const Topology& topology) {
  const int gpus = static_cast<int>(topology.gpus.size());
  switch (topology.topology_class) {
    case TopologyClass::kNvSwitch:
      if (largest_linked_degree(topology) < gpus) return of_partly_switched(topology);
      return fmt::format(
          "Every pair of the {} GPUs talks over all of its NVLinks at once: any group of a degree is as "
          "good as any other.",
          gpus);
    case TopologyClass::kNvLinkMesh:
      return fmt::format(
          "Every pair of the {} GPUs is linked directly, with a part of a GPU's NVLinks: a smaller group "
          "leaves the links to the others unused.",
          gpus);
    case TopologyClass::kCubeMesh:
    case TopologyClass::kPairs:
    case TopologyClass::kMixed:
      return of_partly_linked(topology);
    case TopologyClass::kPcie: {
      if (topology.groups.empty()) return "No NVLink: all-reduces cross PCIe.";
      const Group& two = topology.groups.begin()->second;
      const Group& all = topology.groups.rbegin()->second;
      std::string text =
          fmt::format("No NVLink: all-reduces cross PCIe; the nearest pair is {}", text_or_unknown(two.best_narrowest));
      if (gpus > 2) text += fmt::format(", all {} meet over {}", gpus, text_or_unknown(all.best_narrowest));
      return fmt::format("{}.", text);
    }
    case TopologyClass::kSingle:
      return "One GPU: nothing to exchange.";
    case TopologyClass::kNone:
      return "No GPU.";
    case TopologyClass::kUnknown:
      break;
  }
  return "This source does not tell how the GPUs are joined.";
}

}  // namespace shardscope::topology
