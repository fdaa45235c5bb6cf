#include "parallel/cuda/peer_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>

#include "kernels/base/error.hpp"
#include "kernels/cuda/check.hpp"
#include "kernels/cuda/device_probe.hpp"
#include "kernels/cuda/peer_proof.hpp"

namespace shardscope::parallel {
namespace {

using cuda::check_cuda;

constexpr uint32_t kProofRounds = 3;

std::span<std::byte> bytes_of(auto& values) {
  return std::as_writable_bytes(std::span(values));
}

/// Every rank's `mine`, which are equally many on all ranks, rank by rank.
template <class T>
std::vector<T> gather(Communicator& host, std::span<const T> mine) {
  std::vector<T> all(mine.size() * static_cast<size_t>(host.size()));
  host.all_gather(std::as_bytes(mine), bytes_of(all));
  return all;
}

std::vector<std::string> gather_text(Communicator& host, const std::string& mine) {
  const auto size = static_cast<uint32_t>(mine.size());
  const std::vector<uint32_t> sizes = gather(host, std::span(&size, 1));
  const size_t longest = *std::max_element(sizes.begin(), sizes.end());
  std::string padded = mine;
  padded.resize(longest);
  const std::vector<char> all = gather(host, std::span<const char>(padded));
  std::vector<std::string> texts;
  for (size_t rank = 0; rank < sizes.size(); ++rank) texts.emplace_back(all.data() + rank * longest, sizes[rank]);
  return texts;
}

/// Instances say so by their names: "NVIDIA A100 80GB PCIe MIG 1g.10gb".
bool is_mig(const cuda::DeviceFacts& facts) {
  return facts.name.find(" MIG ") != std::string::npos;
}

std::vector<PeerDevice> visible_devices(const std::string& host) {
  std::vector<PeerDevice> devices;
  for (const cuda::DeviceFacts& facts : cuda::probe_devices(std::nullopt).devices) {
    devices.push_back(
        {.host = host, .name = facts.name, .uuid = facts.uuid, .pci_bus_id = facts.pci_bus_id, .mig = is_mig(facts)});
  }
  return devices;
}

/// The error's number; nobody is to find the error itself later.
int noted(cudaError_t error) {
  if (error != cudaSuccess) cudaGetLastError();
  return static_cast<int>(error);
}

std::atomic_ref<uint32_t> atomic(const uint32_t* word) {
  return std::atomic_ref<uint32_t>(*const_cast<uint32_t*>(word));
}

}  // namespace

PeerFlags::PeerFlags(cuda::CallContext where) : memory_(2 * sizeof(uint32_t), "flags of collectives", where) {
  std::memset(memory_.data(), 0, 2 * sizeof(uint32_t));
}

void PeerFlags::order_abort() const noexcept {
  atomic(abort_word()).store(1, std::memory_order_release);
}
bool PeerFlags::aborted() const noexcept {
  return atomic(abort_word()).load(std::memory_order_acquire) != 0;
}
uint32_t PeerFlags::failure() const noexcept {
  return atomic(failure_word()).load(std::memory_order_acquire);
}

PeerMemory::PeerMemory(World& world, Communicator& host, const PeerFlags& flags, cudaStream_t stream)
    : world_(world), host_(host), flags_(flags), stream_(stream) {
  // A world without MPI knows only this rank, whatever the group.
  members_.resize(static_cast<size_t>(std::min(host.size(), world.size())));
  std::iota(members_.begin(), members_.end(), 0);
}

PeerMemory::PeerMemory(World& world, Communicator& host, const PeerFlags& flags, cudaStream_t stream,
                       const Options& options)
    : PeerMemory(world, host, flags, stream) {
  device_ = options.device;
  Options enough = options;
  enough.bytes = std::max(options.bytes, cuda::peer_proof_bytes(host.size()));
  why_not_ = establish(enough);
  if (!why_not_.empty()) end_together();
}

PeerMemory::~PeerMemory() {
  const bool unwinding = std::uncaught_exceptions() > exceptions_at_start_;
  if (!unwinding && !flags_.aborted()) {
    end_together();
    return;
  }
  // A kernel of the proof that still waits for a peer ends by the order; it must not lose the memory under it before.
  // Those of sums have ended: PeerGroup has freed its state, for which CUDA waits for the device.
  flags_.order_abort();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (cudaStreamQuery(stream_) == cudaErrorNotReady && std::chrono::steady_clock::now() < end) {
  }
  close_all();
}

std::string PeerMemory::establish(const Options& options) {
  const int ranks = host_.size();
  if (ranks > cuda::kMaxPeerRanks) {
    return fmt::format("a group of {} ranks, of at most {}, what to do: use another --allreduce", ranks,
                       cuda::kMaxPeerRanks);
  }
  const std::vector<PeerDevice> visible = visible_devices(world_.host());
  require(options.device >= 0 && options.device < std::ssize(visible), "the rank's device is none that it sees");
  const std::vector<std::string> texts = gather_text(host_, encode(visible[static_cast<size_t>(options.device)]));
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    const std::string& its_host = rank < world_.hosts().size() ? world_.hosts()[rank] : world_.host();
    devices_.push_back(decode_peer_device(texts[rank], its_host));
  }
  std::string why = why_not_together(devices_, options.shared_devices);
  if (!why.empty()) return why;
  reach_ = gather_reach(options.device);
  why = why_not_reached(devices_, reach_);
  if (why.empty()) why = allocate_and_open(options);
  if (why.empty()) why = prove(options);
  return why;
}

std::vector<PeerReach> PeerMemory::gather_reach(int device) const {
  const std::vector<PeerDevice> visible = visible_devices(world_.host());
  std::vector<PeerReach> mine;
  for (const PeerDevice& peer : devices_) {
    if (same_device(peer, visible[static_cast<size_t>(device)])) {
      mine.push_back(PeerReach::kSame);
      continue;
    }
    const auto its = std::find_if(visible.begin(), visible.end(),
                                  [&](const PeerDevice& candidate) { return same_device(candidate, peer); });
    if (its == visible.end()) {
      mine.push_back(PeerReach::kHidden);
      continue;
    }
    int can = 0;
    check_cuda(cudaDeviceCanAccessPeer(&can, device, static_cast<int>(its - visible.begin())),
               "cudaDeviceCanAccessPeer", where());
    mine.push_back(can != 0 ? PeerReach::kOffered : PeerReach::kRefused);
  }
  return gather(host_, std::span<const PeerReach>(mine));
}

std::string PeerMemory::allocate_and_open(const Options& options) {
  const auto rank = static_cast<size_t>(host_.rank());
  const auto ranks = static_cast<size_t>(host_.size());
  const std::string detail = fmt::format("{} for what peers send", cuda::memory_text(options.bytes));
  check_cuda(cudaMalloc(&addresses_[rank], static_cast<size_t>(options.bytes)), "cudaMalloc", where(detail));
  clear(options.bytes);
  if (ranks == 1) return "";

  struct Shared {
    cudaIpcMemHandle_t handle;
    int error;
  };
  Shared mine{};
  mine.error = noted(cudaIpcGetMemHandle(&mine.handle, addresses_[rank]));
  const std::vector<Shared> all = gather(host_, std::span<const Shared>(&mine, 1));
  const bool shared = std::all_of(all.begin(), all.end(), [](const Shared& its) { return its.error == 0; });

  std::vector<int> errors(ranks);
  errors[rank] = mine.error;
  for (size_t peer = 0; shared && peer < ranks; ++peer) {
    if (peer == rank) continue;
    errors[peer] = noted(cudaIpcOpenMemHandle(&addresses_[peer], all[peer].handle, cudaIpcMemLazyEnablePeerAccess));
    if (errors[peer] != 0) addresses_[peer] = nullptr;
  }
  return why_not_opened(devices_, reach_, gather(host_, std::span<const int>(errors)));
}

std::string PeerMemory::prove(const Options& options) {
  const auto ranks = static_cast<size_t>(host_.size());
  const cuda::CallContext context = where("proof of peer access");
  const cuda::DeviceBuffer result(sizeof(cuda::PeerProofResult), context.detail, context);
  const cuda::PinnedBuffer seen(sizeof(cuda::PeerProofResult), context.detail, context);
  cuda::PeerProof proof{.rank = 0,
                        .ranks = 1,
                        .areas = {addresses_[static_cast<size_t>(host_.rank())]},
                        .round = 1,
                        .result = result.as<cuda::PeerProofResult>(),
                        .abort_word = flags_.abort_word(),
                        .wait_ns = static_cast<uint64_t>(
                            std::chrono::duration_cast<std::chrono::nanoseconds>(options.proof_wait).count())};
  const auto round = [&] {
    check_cuda(cudaMemsetAsync(result.data(), 0, sizeof(cuda::PeerProofResult), stream_), "cudaMemsetAsync", context);
    check_cuda(cuda::prove_peers(proof, stream_), "prove_peers", context);
    check_cuda(
        cudaMemcpyAsync(seen.data(), result.data(), sizeof(cuda::PeerProofResult), cudaMemcpyDeviceToHost, stream_),
        "cudaMemcpyAsync", context);
    finish("proof of peer access");
  };
  // Alone: what a first launch takes (the driver loads the code) is not to be taken out of the others' patience.
  round();
  host_.barrier();

  proof.rank = host_.rank();
  proof.ranks = host_.size();
  proof.areas = addresses_;
  std::string why;
  while (why.empty() && proof.round <= kProofRounds) {
    ++proof.round;
    round();
    const auto* found = seen.as<cuda::PeerProofResult>();
    std::vector<PeerWords> mine;
    for (size_t peer = 0; peer < ranks; ++peer) mine.push_back({found->received[peer], found->read_back[peer]});
    why = why_not_proved(devices_, gather(host_, std::span<const PeerWords>(mine)), cuda::kProofWords);
  }
  if (!why.empty()) return why;
  // All have left the last round, so that nobody writes to this any more; and nobody is to begin before all are clear.
  clear(options.bytes);
  host_.barrier();
  return "";
}

void PeerMemory::clear(int64_t bytes) const {
  check_cuda(cudaMemsetAsync(addresses_[static_cast<size_t>(host_.rank())], 0, static_cast<size_t>(bytes), stream_),
             "cudaMemsetAsync", where());
  finish("clearing of inboxes");
}

void PeerMemory::finish(std::string_view what) const {
  const cuda::Event done = cuda::make_event(where());
  check_cuda(cudaEventRecord(done.get(), stream_), "cudaEventRecord", where());
  cudaError_t state = cudaErrorNotReady;
  world_.wait(
      [&] {
        state = cudaEventQuery(done.get());
        return state != cudaErrorNotReady;
      },
      what, members_);
  check_cuda(state, what, where());
}

void PeerMemory::close_all() noexcept {
  for (int peer = 0; peer < cuda::kMaxPeerRanks; ++peer) {
    if (peer == host_.rank()) continue;
    void* const address = std::exchange(addresses_[static_cast<size_t>(peer)], nullptr);
    if (address != nullptr) noted(cudaIpcCloseMemHandle(address));
  }
}

void PeerMemory::end_together() noexcept {
  void*& own = addresses_[static_cast<size_t>(host_.rank())];
  if (own == nullptr) return;
  close_all();
  try {
    host_.barrier();
  } catch (...) {
    return;  // another rank has failed, of which the world's own end tells; it may still have this open
  }
  noted(cudaFree(std::exchange(own, nullptr)));
}

cuda::CallContext PeerMemory::where(std::string_view detail) const {
  return {.detail = detail, .device = device_, .rank = host_.rank()};
}

}  // namespace shardscope::parallel
