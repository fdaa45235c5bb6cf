#include "parallel/cuda/peer_facts.hpp"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <string_view>

#include "kernels/base/error.hpp"
#include "kernels/cuda/check.hpp"

namespace shardscope::parallel {
namespace {

/// "rank 2 (0000:1b:00.0)"
std::string place(std::span<const PeerDevice> devices, size_t rank) {
  return fmt::format("rank {} ({})", rank, devices[rank].pci_bus_id);
}

/// "CUDA error 400 (cudaErrorInvalidResourceHandle)"
std::string error_text(int error) {
  return fmt::format("CUDA error {} ({})", error, cudaGetErrorName(static_cast<cudaError_t>(error)));
}

/// Where `wrong` holds: the first pair's sentence, with how many more there are.
std::string first_pair(size_t ranks, const std::function<bool(size_t, size_t)>& wrong,
                       const std::function<std::string(size_t, size_t, const std::string&)>& sentence) {
  std::vector<std::array<size_t, 2>> pairs;
  for (size_t rank = 0; rank < ranks; ++rank) {
    for (size_t peer = 0; peer < ranks; ++peer) {
      if (wrong(rank, peer)) pairs.push_back({rank, peer});
    }
  }
  if (pairs.empty()) return "";
  const std::string more = pairs.size() == 1 ? "" : fmt::format(" (and so for {} more)", pairs.size() - 1);
  return sentence(pairs[0][0], pairs[0][1], more);
}

constexpr std::string_view kOtherWay = "use another --allreduce (nccl needs no peer access)";

}  // namespace

std::string encode(const PeerDevice& device) {
  return fmt::format("{}\n{}\n{}\n{}", device.mig ? "mig" : "gpu", device.uuid, device.pci_bus_id, device.name);
}

PeerDevice decode_peer_device(std::string_view text, const std::string& host) {
  std::array<std::string, 4> fields;
  for (size_t i = 0; i < fields.size(); ++i) {
    const size_t end = i + 1 == fields.size() ? text.size() : text.find('\n');
    require(end != std::string_view::npos, "the facts of a device have fewer fields");
    fields[i] = text.substr(0, end);
    text.remove_prefix(std::min(text.size(), end + 1));
  }
  require(fields[0] == "mig" || fields[0] == "gpu", "the facts of a device begin otherwise");
  return {.host = host, .name = fields[3], .uuid = fields[1], .pci_bus_id = fields[2], .mig = fields[0] == "mig"};
}

bool same_device(const PeerDevice& a, const PeerDevice& b) {
  if (a.host != b.host) return false;
  return a.uuid.empty() || b.uuid.empty() ? a.pci_bus_id == b.pci_bus_id : a.uuid == b.uuid;
}

std::string why_not_together(std::span<const PeerDevice> devices, bool shared_devices) {
  const auto pair = [&](const auto& wrong, const auto& sentence) {
    return first_pair(
        devices.size(), [&](size_t a, size_t b) { return a < b && wrong(devices[a], devices[b]); }, sentence);
  };
  std::string why = pair([](const PeerDevice& a, const PeerDevice& b) { return a.host != b.host; },
                         [&](size_t a, size_t b, const std::string&) {
                           return fmt::format(
                               "rank {} is on {} and rank {} on {}: devices reach each other's memory within one host "
                               "only, what to do: a --tp that one host has devices for, or --allreduce nccl",
                               a, devices[a].host, b, devices[b].host);
                         });
  if (!why.empty()) return why;
  // Instances of one GPU have its address and UUIDs of their own.
  why =
      pair([](const PeerDevice& a,
              const PeerDevice& b) { return !same_device(a, b) && (a.mig || b.mig || a.pci_bus_id == b.pci_bus_id); },
           [&](size_t a, size_t b, const std::string& more) {
             return fmt::format(
                 "{} and {} on {} have MIG instances{}, between which CUDA has no peer access, what to do: whole GPUs "
                 "(MIG off: nvidia-smi -mig 0), or an --allreduce by way of the hosts",
                 place(devices, a), place(devices, b), devices[a].host, more);
           });
  if (!why.empty() || shared_devices) return why;
  return pair(same_device, [&](size_t a, size_t b, const std::string& more) {
    return fmt::format(
        "{} and {} on {} have the same device{}, what to do: a device for each rank, or --oversubscribe-devices to "
        "share one",
        place(devices, a), place(devices, b), devices[a].host, more);
  });
}

std::string why_not_reached(std::span<const PeerDevice> devices, std::span<const PeerReach> reach) {
  const size_t ranks = devices.size();
  return first_pair(
      ranks, [&](size_t a, size_t b) { return a != b && reach[a * ranks + b] == PeerReach::kRefused; },
      [&](size_t a, size_t b, const std::string& more) {
        if (devices[a].name != devices[b].name) {
          return fmt::format(
              "{} has {} and {} has {}, on {}: between these models the driver offers no peer access{}, what to "
              "do: devices of one model (CUDA_VISIBLE_DEVICES), or {}",
              place(devices, a), devices[a].name, place(devices, b), devices[b].name, devices[a].host, more, kOtherWay);
        }
        return fmt::format(
            "the driver offers no peer access from {} to {} on {}{}, both {}, what to do: see nvidia-smi topo -p2p w "
            "(NS: not supported, as on GeForce; CNS: by the chipset; TNS: by the topology), or {}",
            place(devices, a), place(devices, b), devices[a].host, more, devices[a].name, kOtherWay);
      });
}

std::string why_not_opened(std::span<const PeerDevice> devices, std::span<const PeerReach> reach,
                           std::span<const int> errors) {
  const size_t ranks = devices.size();
  const auto error = [&](size_t a, size_t b) { return errors[a * ranks + b]; };
  return first_pair(
      ranks, [&](size_t a, size_t b) { return error(a, b) != 0; },
      [&](size_t a, size_t b, const std::string& more) {
        if (a == b) {
          return fmt::format(
              "{} on {} cannot share its memory: cudaIpcGetMemHandle gives {}{}, what to do: a driver and platform "
              "with CUDA IPC (Linux, no vGPU), or {}",
              place(devices, a), devices[a].host, error_text(error(a, b)), more, kOtherWay);
        }
        if (reach[a * ranks + b] == PeerReach::kHidden) {
          return fmt::format(
              "{} does not see the device of {} on {}, and cannot open its memory ({}){}, what to do: let every rank "
              "see all devices of its host (srun --gpus-per-node=N --gpu-bind=none instead of --gpus-per-task, no "
              "CUDA_VISIBLE_DEVICES of a rank's own), or {}",
              place(devices, a), place(devices, b), devices[a].host, error_text(error(a, b)), more, kOtherWay);
        }
        return fmt::format(
            "{} cannot open the memory of {} on {}: cudaIpcOpenMemHandle gives {}{}, what to do: in containers, all "
            "ranks in one, or with the host's namespaces (docker --ipc=host --pid=host); or {}",
            place(devices, a), place(devices, b), devices[a].host, error_text(error(a, b)), more, kOtherWay);
      });
}

std::string why_not_proved(std::span<const PeerDevice> devices, std::span<const PeerWords> proof, int64_t words) {
  constexpr std::string_view kAdvice =
      "switch off ACS on the PCIe bridges between them (lspci -vvv: ACSCtl) or the IOMMU's translation (kernel "
      "parameter iommu=pt), see nvidia-smi topo -p2p w";
  const size_t ranks = devices.size();
  const auto all = static_cast<uint32_t>(words);
  std::string why = first_pair(
      ranks, [&](size_t to, size_t from) { return proof[to * ranks + from].received != all; },
      [&](size_t to, size_t from, const std::string& more) {
        const uint32_t received = proof[to * ranks + from].received;
        if (to == from) {
          return fmt::format(
              "{} on {} does not keep what it writes to its own memory{}, what to do: see nvidia-smi -q "
              "for errors of its memory",
              place(devices, to), devices[to].host, more);
        }
        return fmt::format(
            "writes of {} do not arrive at {} on {} ({} of {} words){}, though the driver offers peer access, what to "
            "do: {}; until then {}",
            place(devices, from), place(devices, to), devices[to].host, received, words, more, kAdvice, kOtherWay);
      });
  if (!why.empty()) return why;
  return first_pair(
      ranks, [&](size_t by, size_t at) { return proof[by * ranks + at].read_back != all; },
      [&](size_t by, size_t at, const std::string& more) {
        return fmt::format(
            "{} does not read back from {} on {} what it wrote there ({} of {} words){}, what to do: {}; until then {}",
            place(devices, by), place(devices, at), devices[by].host, proof[by * ranks + at].read_back, words, more,
            kAdvice, kOtherWay);
      });
}

}  // namespace shardscope::parallel
