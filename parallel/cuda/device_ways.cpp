#include "parallel/cuda/device_ways.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <numeric>

#include "kernels/base/error.hpp"
#include "kernels/cuda/check.hpp"
#include "parallel/cuda/nccl_sum.hpp"
#include "parallel/cuda/peer_sum.hpp"
#include "parallel/cuda/proof.hpp"

namespace shardscope::parallel {
namespace {

/// Whether two ranks of the group have the same device.
bool share_devices(Communicator& host, const DeviceStream& stream) {
  cudaDeviceProp properties{};
  cuda::check_cuda(cudaGetDeviceProperties(&properties, stream.device), "cudaGetDeviceProperties",
                   {.device = stream.device, .rank = host.rank()});
  using Id = std::array<char, sizeof(properties.uuid.bytes)>;
  Id mine{};
  std::copy(std::begin(properties.uuid.bytes), std::end(properties.uuid.bytes), mine.begin());
  std::vector<Id> all(static_cast<size_t>(host.size()));
  host.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  std::sort(all.begin(), all.end());
  return std::adjacent_find(all.begin(), all.end()) != all.end();
}

}  // namespace

WaysWanted ways_wanted(std::span<const CommunicatorKind> kinds, bool shared_devices) {
  const auto any_of = [&](std::initializer_list<CommunicatorKind> these) {
    return std::any_of(kinds.begin(), kinds.end(), [&](CommunicatorKind kind) {
      return kind == CommunicatorKind::kAuto || std::find(these.begin(), these.end(), kind) != these.end();
    });
  };
  return {.nccl = any_of({CommunicatorKind::kNccl}),
          .nccl_symmetric = any_of({CommunicatorKind::kNcclSymmetric}),
          .peers = any_of({CommunicatorKind::kOneShot, CommunicatorKind::kTwoShot}),
          .shared_devices = shared_devices};
}

DeviceStream stream_of(cuda::CudaBackend& backend) {
  return {.lend = [&backend] { return backend.lend_stream(); },
          .own = [&backend] { return backend.stream(); },
          .programmatic = [&backend] { return backend.programmatic(); },
          .stamps = [&backend] { return backend.stamps(); },
          .device = backend.device()};
}

DeviceWays::DeviceWays(World& world, Communicator& host, const DeviceStream& stream, const WaysWanted& wanted)
    : world_(world), host_(host), stream_(stream), everyone_(static_cast<size_t>(std::min(host.size(), world.size()))) {
  // Groups are runs of ranks; a rank that stands for another, alone, watches itself.
  std::iota(everyone_.begin(), everyone_.end(), std::max(0, world.rank() - host.rank()));
  const auto leave_out = [&](bool asked, const char* name, const std::string& why) {
    if (asked) absent_.push_back({name, why});
  };
  if (wanted.nccl || wanted.nccl_symmetric) {
    if (wanted.shared_devices && share_devices(host, stream)) {
      const std::string why =
          "NCCL refuses ranks that share a device, what to do: a device for each rank, or --allreduce one-shot";
      leave_out(wanted.nccl, "nccl", why);
      leave_out(wanted.nccl_symmetric, "nccl-symmetric", why);
    } else {
      world.progress("starting NCCL");
      const std::shared_ptr<NcclSession> session = start_nccl(world, host, stream.device);
      if (wanted.nccl) ways_.push_back(std::make_unique<NcclSum>(session, stream, false));
      if (wanted.nccl_symmetric) {
        const std::string why = why_not_symmetric(*session, host);
        if (why.empty()) {
          ways_.push_back(std::make_unique<NcclSum>(session, stream, true));
        } else {
          leave_out(true, "nccl-symmetric", why);
        }
      }
    }
  }
  if (wanted.peers) {
    world.progress("opening the other devices' memory");
    PeerSums peers =
        make_peer_sums(world, host, stream, {.shared_devices = wanted.shared_devices, .keep_times = wanted.times});
    for (auto* way : {&peers.one_shot, &peers.two_shot}) {
      if (*way) ways_.push_back(std::move(*way));
    }
    if (!peers.why_not.empty()) {
      leave_out(true, "one-shot", peers.why_not);
      leave_out(true, "two-shot", peers.why_not);
    }
  }
  for (const std::unique_ptr<DeviceSum>& way : ways_) prove(*way);
}

DeviceSum* DeviceWays::named(std::string_view name) const {
  for (const std::unique_ptr<DeviceSum>& way : ways_) {
    if (way->name() == name) return way.get();
  }
  return nullptr;
}

void DeviceWays::check() {
  try {
    for (const std::unique_ptr<DeviceSum>& way : ways_) way->check();
  } catch (...) {
    abort();  // the others' calls behind it in the stream, too
    throw;
  }
}

void DeviceWays::abort() noexcept {
  for (const std::unique_ptr<DeviceSum>& way : ways_) way->abort();
}

void DeviceWays::wait(cudaEvent_t event, const char* what) {
  world_.progress(what);
  cudaError_t state = cudaErrorNotReady;
  try {
    world_.wait(
        [&] {
          check();
          state = cudaEventQuery(event);
          return state != cudaErrorNotReady;
        },
        what, everyone_);
  } catch (...) {
    abort();
    throw;
  }
  cuda::check_cuda(state, "cudaEventQuery", {.detail = what, .device = stream_.device, .rank = host_.rank()});
  check();
}

/// Peer access that claims to work and loses or corrupts what is written has been seen on real machines; better here
/// than as wrong tokens. Also makes NCCL's connections before anything is captured or measured.
void DeviceWays::prove(DeviceSum& way) {
  const std::string detail = fmt::format("proof of {}'s sums", way.name());
  const cuda::CallContext context{.detail = detail, .device = stream_.device, .rank = host_.rank()};
  const cudaStream_t stream = stream_.lend();
  constexpr size_t kBytes = kProofElements * sizeof(float);
  const std::unique_ptr<kernels::ActivationBuffer> summed = way.make_summed(1, kProofElements, kernels::DType::kF32);
  const cuda::DeviceBuffer plain(summed ? 0 : kBytes, context.detail, context);
  void* const device = summed ? summed->view().data : plain.data();
  const cuda::PinnedBuffer pinned(kBytes, context.detail, context);
  const cuda::Event done = cuda::make_event(context);

  const std::span<float> values(pinned.as<float>(), kProofElements);
  fill_proof(values, host_.rank());
  cuda::check_cuda(cudaMemcpyAsync(device, pinned.data(), kBytes, cudaMemcpyHostToDevice, stream), "cudaMemcpyAsync",
                   context);
  enqueue_sum(way, {device, kProofElements, kernels::DType::kF32});
  cuda::check_cuda(cudaMemcpyAsync(pinned.data(), device, kBytes, cudaMemcpyDeviceToHost, stream_.lend()),
                   "cudaMemcpyAsync", context);
  cuda::check_cuda(cudaEventRecord(done.get(), stream), "cudaEventRecord", context);
  wait(done.get(), "proof of sums");
  const std::string difference = wrong_sum(values, host_.size());
  if (difference.empty()) return;
  throw SystemError(fmt::format("{} gives wrong sums: {}", way.name(), difference), cuda::place_of(context),
                    "peer access between these devices may lose data: try NCCL_P2P_DISABLE=1 and --allreduce nccl, and "
                    "see nvidia-smi topo -p2p r");
}

}  // namespace shardscope::parallel
