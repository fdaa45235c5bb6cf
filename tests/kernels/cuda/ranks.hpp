// The ranks of a group within one process: a device, a stream, an inbox, a state and, if wished, a log for each.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cuda/peer_rank.hpp"
#include "tests/kernels/cuda/conditions.hpp"
#include "tests/kernels/cuda/device_array.hpp"

namespace shardscope::test {

struct RanksOptions {
  static constexpr uint64_t kLongWait = 20'000'000'000;

  uint64_t wait_ns = kLongWait;
  cuda::PeerCapacity capacity{.one_shot_bytes = 16384, .two_shot_bytes = 16384};
  uint32_t log_entries = 0;  // 0: no log
};

/// Makes peer access and what each rank holds; a stream for each.
class Ranks {
 public:
  explicit Ranks(int ranks, const RanksOptions& options = {}) {
    check_cuda(cudaHostAlloc(&words_, 2 * sizeof(uint32_t), cudaHostAllocDefault), "cudaHostAlloc");
    abort_word() = 0;
    failure_word() = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      use(rank);
      for (int peer = 0; peer < ranks; ++peer) {
        if (device_of_rank(peer) == device_of_rank(rank)) continue;
        const cudaError_t error = cudaDeviceEnablePeerAccess(device_of_rank(peer), 0);
        if (error != cudaErrorPeerAccessAlreadyEnabled) check_cuda(error, "cudaDeviceEnablePeerAccess");
      }
      inboxes_.push_back(DeviceArray<std::byte>::zeros(cuda::peer_inbox_bytes(ranks, options.capacity)));
      states_.push_back(DeviceArray<cuda::PeerState>::zeros(1));
      logs_.push_back(DeviceArray<cuda::CallTimes>::zeros(options.log_entries));
      streams_.emplace_back();
      check_cuda(cudaStreamCreateWithFlags(&streams_.back(), cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
      check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");  // the zeros are there for all streams
    }
    for (int rank = 0; rank < ranks; ++rank) {
      ranks_.push_back({.rank = rank,
                        .ranks = ranks,
                        .capacity = options.capacity,
                        .inboxes = {},
                        .state = states_[rank].data(),
                        .log = {.entries = logs_[rank].data(), .count = options.log_entries},
                        .abort_word = &abort_word(),
                        .wait_ns = options.wait_ns,
                        .failure_on_host = &failure_word()});
      for (int peer = 0; peer < ranks; ++peer) ranks_.back().inboxes[peer] = inboxes_[peer].data();
    }
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;
  ~Ranks() {
    for (cudaStream_t stream : streams_) static_cast<void>(cudaStreamDestroy(stream));
    static_cast<void>(cudaFreeHost(words_));
  }

  void use(int rank) const { check_cuda(cudaSetDevice(device_of_rank(rank)), "cudaSetDevice"); }
  const cuda::PeerRank& rank(int rank) const { return ranks_[rank]; }
  cudaStream_t stream(int rank) const { return streams_[rank]; }
  void abort() { abort_word() = 1; }
  cuda::PeerState state(int rank) const {
    use(rank);
    return states_[rank].download()[0];
  }
  std::vector<cuda::CallTimes> log(int rank) const {
    use(rank);
    return logs_[rank].download();
  }
  /// Of whichever rank failed last.
  uint32_t failure_on_host() const { return static_cast<const uint32_t*>(words_)[1]; }
  int count() const { return static_cast<int>(ranks_.size()); }

 private:
  uint32_t& abort_word() { return static_cast<uint32_t*>(words_)[0]; }
  uint32_t& failure_word() { return static_cast<uint32_t*>(words_)[1]; }

  void* words_ = nullptr;
  std::vector<DeviceArray<std::byte>> inboxes_;
  std::vector<DeviceArray<cuda::PeerState>> states_;
  std::vector<DeviceArray<cuda::CallTimes>> logs_;
  std::vector<cudaStream_t> streams_;
  std::vector<cuda::PeerRank> ranks_;
};

}  // namespace shardscope::test
