// The ranks of a one-shot all-reduce within one process: a device, a stream, an inbox and a state for each.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cuda/all_reduce.hpp"
#include "tests/kernels/cuda/conditions.hpp"
#include "tests/kernels/cuda/device_array.hpp"

namespace shardscope::test {

/// Makes peer access and what each rank holds; a stream for each.
class Ranks {
 public:
  static constexpr uint64_t kLongWait = 20'000'000'000;
  static constexpr int64_t kCapacityBytes = 16384;

  explicit Ranks(int ranks, uint64_t wait_ns = kLongWait) {
    check_cuda(cudaHostAlloc(&abort_word_, sizeof(uint32_t), cudaHostAllocDefault), "cudaHostAlloc");
    *static_cast<uint32_t*>(abort_word_) = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      use(rank);
      for (int peer = 0; peer < ranks; ++peer) {
        if (device_of_rank(peer) == device_of_rank(rank)) continue;
        const cudaError_t error = cudaDeviceEnablePeerAccess(device_of_rank(peer), 0);
        if (error != cudaErrorPeerAccessAlreadyEnabled) check_cuda(error, "cudaDeviceEnablePeerAccess");
      }
      inboxes_.push_back(DeviceArray<std::byte>::zeros(cuda::one_shot_inbox_bytes(ranks, kCapacityBytes)));
      states_.push_back(DeviceArray<cuda::OneShotState>::zeros(1));
      streams_.emplace_back();
      check_cuda(cudaStreamCreateWithFlags(&streams_.back(), cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
      check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");  // the zeros are there for all streams
    }
    for (int rank = 0; rank < ranks; ++rank) {
      ranks_.push_back({.rank = rank,
                        .ranks = ranks,
                        .capacity_bytes = kCapacityBytes,
                        .inboxes = {},
                        .state = states_[rank].data(),
                        .abort_word = static_cast<const uint32_t*>(abort_word_),
                        .wait_ns = wait_ns});
      for (int peer = 0; peer < ranks; ++peer) ranks_.back().inboxes[peer] = inboxes_[peer].data();
    }
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;
  ~Ranks() {
    for (cudaStream_t stream : streams_) static_cast<void>(cudaStreamDestroy(stream));
    static_cast<void>(cudaFreeHost(abort_word_));
  }

  void use(int rank) const { check_cuda(cudaSetDevice(device_of_rank(rank)), "cudaSetDevice"); }
  const cuda::OneShotRank& rank(int rank) const { return ranks_[rank]; }
  cudaStream_t stream(int rank) const { return streams_[rank]; }
  void abort() { *static_cast<uint32_t*>(abort_word_) = 1; }
  cuda::OneShotState state(int rank) const {
    use(rank);
    return states_[rank].download()[0];
  }
  int count() const { return static_cast<int>(ranks_.size()); }

 private:
  void* abort_word_ = nullptr;
  std::vector<DeviceArray<std::byte>> inboxes_;
  std::vector<DeviceArray<cuda::OneShotState>> states_;
  std::vector<cudaStream_t> streams_;
  std::vector<cuda::OneShotRank> ranks_;
};

}  // namespace shardscope::test
