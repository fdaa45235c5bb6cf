// What the driver says of each GPU's health, and what the topology's own conclusions warn of.
#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "launch/doctor_checks.hpp"
#include "topology/understanding.hpp"
#include "topology/warnings.hpp"

namespace shardscope::launch {
namespace {

using topology::Gpu;
using topology::Topology;

/// "GPU2 and GPU5: …" for each different text that a GPU has; empty texts are left out.
template <class Answer>
std::vector<std::string> by_gpu(const Topology& topology, const Answer& answer) {
  std::vector<std::pair<std::string, std::vector<int>>> groups;
  for (size_t i = 0; i < topology.gpus.size(); ++i) {
    const std::string text = answer(topology.gpus[i]);
    if (text.empty()) continue;
    auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& known) { return known.first == text; });
    if (group == groups.end()) group = groups.insert(group, {text, {}});
    group->second.push_back(static_cast<int>(i));
  }
  std::vector<std::string> lines;
  for (const auto& [text, who] : groups) {
    const bool all = who.size() == topology.gpus.size() && who.size() > 1;
    lines.push_back(fmt::format("{}: {}", all ? "all GPUs" : gpu_names(topology, who), text));
  }
  return lines;
}

std::string joined(const std::vector<std::string>& lines) {
  return fmt::format("{}", fmt::join(lines, "; "));
}

void check_links(const Topology& topology, Findings& out) {
  std::vector<std::string> up;
  const std::vector<std::string> down = by_gpu(topology, [](const Gpu& gpu) -> std::string {
    std::vector<int> inactive;
    for (const topology::NvLinkPort& port : gpu.ports) {
      if (port.active == false) inactive.push_back(port.link);
    }
    // None is up: a GPU without a bridge, or one that is not to have any.
    if (inactive.empty() || inactive.size() == gpu.ports.size()) return "";
    return fmt::format("{} of {} NVLinks are up, not {}", gpu.ports.size() - inactive.size(), gpu.ports.size(),
                       fmt::join(inactive, ", "));
  });
  if (!down.empty()) {
    out.push_back({.check = "NVLink",
                   .verdict = Verdict::kProblem,
                   .evidence = joined(down) + ": every group with it is slower",
                   .remedy = "nvidia-smi nvlink -s; reset the GPU (nvidia-smi -r) or reboot, reseat a bridge; until "
                             "then leave it out by CUDA_VISIBLE_DEVICES"});
    return;
  }
  const std::vector<std::string> linked = by_gpu(topology, [](const Gpu& gpu) {
    return gpu.nvlinks.value_or(0) > 0 ? fmt::format("{} NVLinks up", *gpu.nvlinks) : std::string();
  });
  if (linked.empty()) return;
  out.push_back({.check = "NVLink", .verdict = Verdict::kOk, .evidence = joined(linked), .remedy = ""});
}

void check_fabric(const Topology& topology, Findings& out) {
  const auto waits = [](const Gpu& gpu) { return gpu.fabric == "in progress" || gpu.fabric == "not started"; };
  const std::vector<std::string> waiting = by_gpu(topology, [&](const Gpu& gpu) {
    return waits(gpu) ? fmt::format("registration is {}", gpu.fabric) : std::string();
  });
  if (!waiting.empty()) {
    out.push_back(
        {.check = "NVLink fabric",
         .verdict = Verdict::kProblem,
         .evidence = fmt::format("{}: NVLinks look up and carry nothing until it is completed", joined(waiting)),
         .remedy = "start the fabric manager, of the driver's very version (systemctl status "
                   "nvidia-fabricmanager), then nvidia-smi -q -d FABRIC"});
    return;
  }
  const bool completed =
      std::any_of(topology.gpus.begin(), topology.gpus.end(), [](const Gpu& gpu) { return gpu.fabric == "completed"; });
  if (!completed) return;
  out.push_back({.check = "NVLink fabric", .verdict = Verdict::kOk, .evidence = "completed", .remedy = ""});
}

void check_mig(const Topology& topology, Findings& out) {
  const std::vector<std::string> on =
      by_gpu(topology, [](const Gpu& gpu) { return gpu.mig == true ? "MIG is on" : std::string(); });
  if (on.empty()) return;
  out.push_back({.check = "MIG",
                 .verdict = Verdict::kWarning,
                 .evidence = joined(on) + ": between instances there is neither peer access nor NVLink",
                 .remedy = "as root: nvidia-smi -mig 0, unless one instance is all that a run needs"});
}

void check_persistence(const Topology& topology, Findings& out) {
  const std::vector<std::string> off =
      by_gpu(topology, [](const Gpu& gpu) { return gpu.persistence == false ? "off" : std::string(); });
  const bool known = std::any_of(topology.gpus.begin(), topology.gpus.end(),
                                 [](const Gpu& gpu) { return gpu.persistence.has_value(); });
  if (!known) return;
  out.push_back({.check = "persistence",
                 .verdict = off.empty() ? Verdict::kOk : Verdict::kWarning,
                 .evidence = off.empty() ? "on"
                                         : joined(off) + ": the driver starts anew with each program, and forgets "
                                                         "clocks and limits",
                 .remedy = off.empty() ? "" : "as root: nvidia-smi -pm 1, or the service nvidia-persistenced"});
}

void check_clocks(const Topology& topology, Findings& out) {
  bool hard = false;  // not what an operator has chosen
  const std::vector<std::string> slowed = by_gpu(topology, [&](const Gpu& gpu) -> std::string {
    std::vector<std::string> reasons;
    for (const std::string& reason : gpu.slowed_by) {
      if (reason == "gpu-idle") continue;
      hard = hard || reason.starts_with("hw-") || reason == "sw-thermal-slowdown";
      reasons.push_back(reason);
    }
    if (reasons.empty()) return "";
    std::string text = fmt::format("{}", fmt::join(reasons, ", "));
    if (gpu.clock_mhz && gpu.clock_mhz_most) {
      text += fmt::format(", {:.0f} of {:.0f} MHz", *gpu.clock_mhz, *gpu.clock_mhz_most);
    }
    if (gpu.temperature_celsius) text += fmt::format(", {} °C", *gpu.temperature_celsius);
    return text;
  });
  if (!slowed.empty()) {
    out.push_back({.check = "clocks",
                   .verdict = hard ? Verdict::kProblem : Verdict::kWarning,
                   .evidence = fmt::format("held down; {}: the slowest GPU sets the pace of all", joined(slowed)),
                   .remedy = hard ? "look at cooling and power supply (nvidia-smi -q -d PERFORMANCE,TEMPERATURE)"
                                  : "nvidia-smi -q -d PERFORMANCE says more; nvidia-smi -rgc and -rac take settings "
                                    "back"});
    return;
  }
  const bool known = std::any_of(topology.gpus.begin(), topology.gpus.end(),
                                 [](const Gpu& gpu) { return gpu.clock_mhz_most.has_value(); });
  if (known) out.push_back({.check = "clocks", .verdict = Verdict::kOk, .evidence = "not held down", .remedy = ""});
}

void check_power(const Topology& topology, Findings& out) {
  std::map<std::string, std::vector<double>> limits;  // of each model
  for (const Gpu& gpu : topology.gpus) {
    if (gpu.power_limit_watts) limits[gpu.name].push_back(*gpu.power_limit_watts);
  }
  for (const auto& [model, watts] : limits) {
    const auto [least, most] = std::minmax_element(watts.begin(), watts.end());
    const bool same = *most - *least < 1;
    out.push_back({.check = "power limit",
                   .verdict = same ? Verdict::kOk : Verdict::kWarning,
                   .evidence = same ? fmt::format("{:.0f} W", *most)
                                    : fmt::format("{:.0f} to {:.0f} W among GPUs of one model ({}): the lowest sets "
                                                  "the pace of all",
                                                  *least, *most, model),
                   .remedy = same ? "" : "as root: nvidia-smi -pl, the same for all"});
  }
}

void check_pcie(const Topology& topology, Findings& out) {
  const std::vector<std::string> narrow = by_gpu(topology, [](const Gpu& gpu) {
    return gpu.pcie_width && gpu.pcie_width_most && *gpu.pcie_width < *gpu.pcie_width_most
               ? fmt::format("{} of {} lanes", *gpu.pcie_width, *gpu.pcie_width_most)
               : std::string();
  });
  const std::vector<std::string> slow = by_gpu(topology, [](const Gpu& gpu) {
    return gpu.pcie_generation && gpu.pcie_generation_most && *gpu.pcie_generation < *gpu.pcie_generation_most
               ? fmt::format("generation {} of {} now", *gpu.pcie_generation, *gpu.pcie_generation_most)
               : std::string();
  });
  const std::string idle = slow.empty() ? "" : joined(slow) + ", as idle links are";
  if (!narrow.empty()) {
    out.push_back({.check = "PCIe",
                   .verdict = Verdict::kWarning,
                   .evidence = joined(narrow) + (idle.empty() ? "" : "; " + idle),
                   .remedy = "reseat the GPU or its riser, and see whether the slot has all lanes"});
    return;
  }
  const std::vector<std::string> now = by_gpu(topology, [](const Gpu& gpu) {
    return gpu.pcie_generation_most && gpu.pcie_width_most
               ? fmt::format("generation {} x {}", *gpu.pcie_generation_most, *gpu.pcie_width_most)
               : std::string();
  });
  if (now.empty()) return;
  out.push_back({.check = "PCIe",
                 .verdict = Verdict::kOk,
                 .evidence = joined(now) + (idle.empty() ? "" : "; " + idle),
                 .remedy = ""});
}

void check_processes(const Topology& topology, Findings& out) {
  const std::vector<std::string> used = by_gpu(topology, [](const Gpu& gpu) {
    return gpu.processes.value_or(0) > 0
               ? fmt::format("{} other process{}", *gpu.processes, *gpu.processes == 1 ? "" : "es")
               : std::string();
  });
  const bool known =
      std::any_of(topology.gpus.begin(), topology.gpus.end(), [](const Gpu& gpu) { return gpu.processes.has_value(); });
  if (!known) return;
  out.push_back({.check = "other processes",
                 .verdict = used.empty() ? Verdict::kOk : Verdict::kWarning,
                 .evidence = used.empty() ? "none on the GPUs"
                                          : joined(used) + ": they take memory and time while a run is measured",
                 .remedy = used.empty() ? "" : "see who (nvidia-smi), or leave the GPU out by CUDA_VISIBLE_DEVICES"});
}

/// Without what the checks above say already, so that the topology's warnings say the rest.
Topology without_health(const Topology& whole) {
  Topology rest = whole;
  int most = 0;
  if (rest.links) {
    for (const auto& row : *rest.links) {
      for (const std::optional<topology::Path>& path : row) most = std::max(most, path ? path->nvlinks : 0);
    }
  }
  for (size_t i = 0; i < rest.gpus.size(); ++i) {
    Gpu& gpu = rest.gpus[i];
    const bool down = std::any_of(gpu.ports.begin(), gpu.ports.end(),
                                  [](const topology::NvLinkPort& port) { return port.active == false; });
    // Behind switches each inactive link lowers the count of every pair; of direct links the pair is worth a word.
    for (size_t j = 0;
         down && rest.links && rest.topology_class == topology::TopologyClass::kNvSwitch && j < rest.gpus.size(); ++j) {
      for (std::optional<topology::Path>* path : {&(*rest.links)[i][j], &(*rest.links)[j][i]}) {
        if (*path && (*path)->kind == topology::PathKind::kNvLink) (*path)->nvlinks = most;
      }
    }
    gpu.ports.clear();
    gpu.fabric.clear();
    gpu.mig.reset();
    gpu.slowed_by.clear();
    gpu.pcie_width.reset();
    gpu.processes.reset();
  }
  rest.p2p.reset();  // peer_findings has it
  return rest;
}

void check_topology(const Topology& topology, Findings& out) {
  const std::vector<std::string> all = warnings_about(topology);
  std::vector<std::string> sentences;
  for (const std::string& warning : topology.warnings) {  // of the probe itself
    if (std::find(all.begin(), all.end(), warning) == all.end()) sentences.push_back(warning);
  }
  for (const std::string& warning : warnings_about(without_health(topology))) sentences.push_back(warning);
  for (const std::string& sentence : sentences) {
    out.push_back({.check = "topology", .verdict = Verdict::kWarning, .evidence = sentence, .remedy = ""});
  }
  // What a check above complains of may be a warning, too: then this is no sentence to end with.
  if (all.empty() && sentences.empty() && topology.gpus.size() > 1) {
    out.push_back({.check = "topology", .verdict = Verdict::kOk, .evidence = meaning_of(topology), .remedy = ""});
  }
}

}  // namespace

Findings health_findings(const Topology& topology) {
  Findings out;
  if (topology.gpus.empty()) return out;
  check_topology(topology, out);
  check_fabric(topology, out);
  check_links(topology, out);
  check_mig(topology, out);
  check_persistence(topology, out);
  check_clocks(topology, out);
  check_power(topology, out);
  check_pcie(topology, out);
  check_processes(topology, out);
  return out;
}

}  // namespace shardscope::launch
