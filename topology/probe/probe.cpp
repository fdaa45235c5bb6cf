#include "topology/probe.hpp"

#include <algorithm>
#include <chrono>
#include <future>
#include <optional>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "topology/host.hpp"
#include "topology/probe/probe_parts.hpp"
#include "topology/system.hpp"
#include "topology/understanding.hpp"

namespace shardscope::topology {
namespace {

// Drivers that start with each question (no persistence) take seconds for every GPU, and a badly seated bridge has been
// seen to take 112 s. After this we go on without.
constexpr std::chrono::seconds kNvmlLimit{120};

Topology probe_without_conclusions(const std::string& root) {
  const NvmlOutcome asked = ask_nvml(kNvmlLimit);
  return assemble_topology(asked.answers ? &*asked.answers : nullptr, asked.why_not, root);
}

/// The faster of two readings: what a link does under load.
void take_pcie(Gpu& gpu, const Gpu& now) {
  gpu.pcie_generation = std::max(gpu.pcie_generation, now.pcie_generation);  // nullopt is less than all
  gpu.pcie_width = std::max(gpu.pcie_width, now.pcie_width);
}

}  // namespace

NvmlOutcome ask_nvml(std::chrono::milliseconds limit, const std::string& library) {
  try {
    std::packaged_task<NvmlOutcome()> task([library] {
      NvmlOutcome outcome;
      if (const std::unique_ptr<Nvml> nvml = Nvml::open(outcome.why_not, library)) outcome.answers = answers_of(*nvml);
      return outcome;
    });
    std::future<NvmlOutcome> future = task.get_future();
    std::thread thread(std::move(task));
    if (future.wait_for(limit) == std::future_status::ready) {
      thread.join();
      return future.get();
    }
    thread.detach();
    return {.why_not = fmt::format("NVML has not answered within {} s; see whether nvidia-smi does, and dmesg",
                                   std::chrono::duration<double>(limit).count())};
  } catch (const std::exception& error) {
    return {.why_not = fmt::format("asking NVML failed: {}", error.what())};
  }
}

Topology probe_topology(const std::string& root) {
  Topology topology = probe_without_conclusions(root);
  topology.cpu = probe_host().model;
  topology.numa_nodes = probe_system(root).numa_nodes;
  understand(topology);
  return topology;
}

void reread_pcie(Topology& topology, const std::string& root) {
  const Topology now = probe_without_conclusions(root);
  for (Gpu& gpu : topology.gpus) {
    for (const Gpu& other : now.gpus) {
      if (!gpu.pci_bus_id.empty() && gpu.pci_bus_id == other.pci_bus_id) take_pcie(gpu, other);
    }
  }
}

}  // namespace shardscope::topology
