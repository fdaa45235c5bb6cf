// Distances in NCCL's tree. NCCL keeps one <pci> for a whole PCIe switch, so that two devices right below the same one
// are PIX. It knows no NODE: all of one <cpu> that share no bridge are PHB.
#include <algorithm>

#include <fmt/format.h>

#include "topology/read/nccl_xml.hpp"

namespace shardscope::topology {
namespace {

using Remote = NvLinkPort::Remote;

std::optional<Path> pcie_path(const NcclPlace& a, const NcclPlace& b) {
  if (!a.known || !b.known || a.cpu < 0 || b.cpu < 0) return std::nullopt;
  if (a.cpu != b.cpu) return Path{.kind = PathKind::kSys};
  if (a.bridges.empty() || b.bridges.empty() || a.bridges.front() != b.bridges.front()) {
    return Path{.kind = PathKind::kPhb};
  }
  return Path{.kind = a.bridges.back() == b.bridges.back() ? PathKind::kPix : PathKind::kPxb};
}

int links_to(const Gpu& gpu, Remote remote) {
  return static_cast<int>(
      std::count_if(gpu.ports.begin(), gpu.ports.end(), [&](const NvLinkPort& port) { return port.remote == remote; }));
}

int links_to(const Gpu& gpu, const Gpu& peer) {
  return static_cast<int>(std::count_if(gpu.ports.begin(), gpu.ports.end(), [&](const NvLinkPort& port) {
    return port.remote == Remote::kGpu && port.remote_bus_id == peer.pci_bus_id;
  }));
}

}  // namespace

PathMatrix nccl_gpu_links(const NcclSystem& system, Faults& faults) {
  const size_t gpus = system.gpus.size();
  PathMatrix links(gpus, std::vector<std::optional<Path>>(gpus));
  for (size_t i = 0; i < gpus; ++i) {
    const NcclGpu& a = system.gpus[i];
    links[i][i] = Path{.kind = PathKind::kSelf};
    for (size_t j = i + 1; j < gpus; ++j) {
      const NcclGpu& b = system.gpus[j];
      if (!a.links_told || !b.links_told) continue;
      const int there = links_to(a.gpu, b.gpu), back = links_to(b.gpu, a.gpu);
      if (there != back) {
        faults.fault(fmt::format("line {}: GPU{} lists {} NVLinks to GPU{}, which lists {} back: their link is unknown",
                                 a.line, a.gpu.index, there, b.gpu.index, back));
        continue;
      }
      // Links to something that the file does not name could lead to the other GPU.
      if (links_to(a.gpu, Remote::kUnknown) > 0 && links_to(b.gpu, Remote::kUnknown) > 0) continue;
      const int by_switch = std::min(links_to(a.gpu, Remote::kSwitch), links_to(b.gpu, Remote::kSwitch));
      if (there > 0 || by_switch > 0) {
        links[i][j] = Path{.kind = PathKind::kNvLink, .nvlinks = there > 0 ? there : by_switch};
      } else if (system.nesting_trusted) {
        links[i][j] = pcie_path(a.place, b.place);
      }
      links[j][i] = links[i][j];
    }
  }
  return links;
}

PathMatrix nccl_nic_links(const NcclSystem& system) {
  PathMatrix links(system.gpus.size(), std::vector<std::optional<Path>>(system.nics.size()));
  if (!system.nesting_trusted) return links;
  for (size_t i = 0; i < system.gpus.size(); ++i) {
    for (size_t j = 0; j < system.nics.size(); ++j) {
      links[i][j] = pcie_path(system.gpus[i].place, system.nics[j].place);
    }
  }
  return links;
}

}  // namespace shardscope::topology
