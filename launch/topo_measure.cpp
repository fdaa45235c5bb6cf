#include "launch/topo_measure.hpp"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <map>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "launch/launcher.hpp"
#include "parallel/cuda_library.hpp"
#include "topology/probe.hpp"
#include "topology/understanding.hpp"

namespace shardscope::launch {
namespace {

using parallel::PeerCopies;
using parallel::PeerCopyFigure;
using topology::Measurement;
using topology::Topology;

constexpr double kBytesPerUsToGb = 1e-3;
constexpr const char* kTogether = "all at once";
constexpr int64_t kEmulatedBytes = 4096;
constexpr int64_t kTinyBytes = 64;  // copies up to this size are timed for their latency

std::string lower_case(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

/// Index of the topology's GPU with that bus id; -1: there is none.
int index_of(const Topology& topology, const std::string& pci_bus_id) {
  for (const topology::Gpu& gpu : topology.gpus) {
    if (!pci_bus_id.empty() && lower_case(gpu.pci_bus_id) == lower_case(pci_bus_id)) return gpu.index;
  }
  return -1;
}

double gb_per_s(const PeerCopyFigure& figure) {
  return static_cast<double>(figure.bytes) / figure.us * kBytesPerUsToGb;
}

/// rate: GB/s; both ways: of both flows together, as other tools count.
Measurement measurement_of(const PeerCopyFigure& figure, int from, int to, double rate) {
  const bool tiny = figure.bytes <= kTinyBytes;
  Measurement result{.kind = tiny ? Measurement::Kind::kP2pLatency : Measurement::Kind::kP2pBandwidth,
                     .from = from,
                     .to = to,
                     .p2p = figure.peer_access,
                     .both_ways = figure.both_ways,
                     .bytes = figure.bytes,
                     .time_us = figure.us,
                     .algorithm = figure.together ? kTogether : ""};
  if (!tiny) result.gb_per_s = rate;
  return result;
}

/// Of the flow the other way, at the same time.
double rate_back(const PeerCopies& copies, const PeerCopyFigure& figure) {
  for (const PeerCopyFigure& other : copies.figures) {
    if (other.both_ways && other.from == figure.to && other.to == figure.from) return gb_per_s(other);
  }
  return 0;
}

/// "GPU3", or what CUDA calls a device that the topology does not have.
std::string device_name(const PeerCopies& copies, const std::vector<int>& indices, int position) {
  const int index = indices[static_cast<size_t>(position)];
  if (index >= 0) return fmt::format("GPU{}", index);
  return fmt::format("CUDA device {}", copies.devices[static_cast<size_t>(position)].ordinal);
}

/// Copies that did not arrive, in the words of their GPUs.
std::string losses(const PeerCopies& copies, const std::vector<int>& indices, bool peer_access) {
  std::vector<std::string> pairs;
  for (const PeerCopyFigure& figure : copies.figures) {
    if (figure.right || figure.peer_access != peer_access) continue;
    const std::string pair =
        fmt::format("{} to {}", device_name(copies, indices, figure.from), device_name(copies, indices, figure.to));
    if (std::find(pairs.begin(), pairs.end(), pair) == pairs.end()) pairs.push_back(pair);
  }
  return fmt::format("{}", fmt::join(pairs, ", "));
}

void warn_of_losses(Topology& topology, const PeerCopies& copies, const std::vector<int>& indices) {
  if (const std::string pairs = losses(copies, indices, /*peer_access=*/true); !pairs.empty()) {
    topology.warnings.push_back(fmt::format(
        "Data sent by peer access did not arrive ({}), although the driver offers it: ACS or an IOMMU between the "
        "GPUs, mostly. Do not use peer access there (NCCL_P2P_DISABLE=1), and see shardscope doctor.",
        pairs));
  }
  if (const std::string pairs = losses(copies, indices, /*peer_access=*/false); !pairs.empty()) {
    topology.warnings.push_back(fmt::format(
        "Data sent through host memory did not arrive ({}): this node computes wrong results. Look for Xid errors in "
        "the kernel's log.",
        pairs));
  }
}

/// A switch or host bridge that carries one flow, but not all of them.
void warn_of_collapse(Topology& topology, const PeerCopies& copies, const std::vector<int>& indices) {
  constexpr double kCollapsed = 0.25;
  std::map<std::pair<int, int>, double> alone;
  for (const PeerCopyFigure& figure : copies.figures) {
    if (figure.bytes <= kTinyBytes || figure.together || figure.both_ways || !figure.peer_access) continue;
    alone[{figure.from, figure.to}] = gb_per_s(figure);
  }
  const PeerCopyFigure* worst = nullptr;
  double least = 1;
  for (const PeerCopyFigure& figure : copies.figures) {
    const auto found = alone.find({figure.from, figure.to});
    if (!figure.together || found == alone.end()) continue;
    const double share = gb_per_s(figure) / found->second;
    if (share >= least) continue;
    least = share;
    worst = &figure;
  }
  if (worst == nullptr || least > kCollapsed) return;
  topology.warnings.push_back(
      fmt::format("With all GPUs sending at once, {} to {} carries {:.1f} GB/s of {:.1f} GB/s alone: what lies between "
                  "is shared, and an all-reduce meets it like that.",
                  device_name(copies, indices, worst->from), device_name(copies, indices, worst->to), gb_per_s(*worst),
                  alone.at({worst->from, worst->to})));
}

}  // namespace

void add_copies(Topology& topology, const PeerCopies& copies, bool emulated) {
  std::vector<int> indices;
  for (const cuda::DeviceFacts& device : copies.devices) indices.push_back(index_of(topology, device.pci_bus_id));
  for (const PeerCopyFigure& figure : copies.figures) {
    const int from = indices[static_cast<size_t>(figure.from)];
    const int to = indices[static_cast<size_t>(figure.to)];
    if (from < 0 || to < 0 || !figure.right) continue;  // what did not arrive has no rate
    const double back = figure.both_ways ? rate_back(copies, figure) : 0;
    topology.measurements.push_back(measurement_of(figure, from, to, gb_per_s(figure) + back));
  }
  warn_of_losses(topology, copies, indices);
  if (emulated) {
    topology.warnings.push_back("The devices are emulated: measured times say nothing.");
  } else {
    warn_of_collapse(topology, copies, indices);
  }
  understand(topology);
}

void measure_topology(Topology& topology, Session& session) {
  const parallel::CudaLibraryResult opened = parallel::cuda_library();
  if (opened.library == nullptr) throw UserError(opened.why_none, "--measure", "leave it out to see what is known");
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kBetweenLooks{50};
  constexpr int kPauses = 20;
  Clock::time_point next_look = Clock::now();
  parallel::PeerCopiesWanted wanted;
  wanted.tell = [&](const std::string& doing) { session.note(fmt::format("measuring: {}", doing)); };
  wanted.look = [&] {
    session.world.progress("copies between GPUs");
    session.world.look();
    if (Clock::now() < next_look) return;
    const Clock::time_point begin = Clock::now();
    reread_pcie(topology);
    const Clock::duration taken = Clock::now() - begin;  // where that is slow it is done seldom
    next_look = Clock::now() + std::max<Clock::duration>(kBetweenLooks, kPauses * taken);
  };
  if (opened.library->emulated) wanted.bytes = kEmulatedBytes;
  forget_conclusions(topology);  // PCIe links under load may be others
  const PeerCopies copies = opened.library->measure_copies(read_environment("CUDA_VISIBLE_DEVICES"), wanted);
  if (copies.devices.size() < 2) {
    throw UserError(fmt::format("copies between GPUs need two that CUDA can use, and there {} {}",
                                copies.devices.size() == 1 ? "is" : "are", copies.devices.size()),
                    "--measure", "leave it out to see what is known");
  }
  add_copies(topology, copies, opened.library->emulated);
}

}  // namespace shardscope::launch
