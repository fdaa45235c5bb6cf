// Device memory that all ranks of a group on one host can write to: each allocates its own and opens the others' by
// CUDA IPC, and what is written is proved to arrive, between all pairs at once, before anybody relies on it. Where that
// is not so, all ranks learn the same reason. Nothing here waits without an end.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cuda/owners.hpp"
#include "kernels/cuda/peer_rank.hpp"
#include "parallel/communicator.hpp"
#include "parallel/cuda/peer_facts.hpp"
#include "parallel/world.hpp"

namespace shardscope::parallel {

/// Two words of pinned memory between the host and its kernels: the host's order to give up, and what a kernel found.
class PeerFlags {
 public:
  explicit PeerFlags(cuda::CallContext where);

  void order_abort() const noexcept;
  bool aborted() const noexcept;
  uint32_t failure() const noexcept;  // as PeerState's

  const uint32_t* abort_word() const { return memory_.as<uint32_t>(); }
  uint32_t* failure_word() const { return memory_.as<uint32_t>() + 1; }

 private:
  cuda::PinnedBuffer memory_;
};

class PeerMemory {
 public:
  struct Options {
    int device = 0;               // this rank's; current in this thread
    int64_t bytes = 0;            // of each rank
    bool shared_devices = false;  // ranks may have one device in common
    std::chrono::milliseconds proof_wait{5000};
  };

  /// Collective over the group of `host`. The world and `host` have to outlive this, as have flags and stream, on which
  /// nothing else runs meanwhile. Throws PeerFailure or SystemError within the world's timeout; that this group cannot
  /// share memory is no error: see why_not.
  PeerMemory(World& world, Communicator& host, const PeerFlags& flags, cudaStream_t stream, const Options& options);
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;
  /// Ends together with the others: nobody's memory is freed while another has it open. Kernels that use it should be
  /// done. After an abort, or while an exception unwinds the stack, waits for nobody, and leaves this rank's memory to
  /// the end of the process, which is near then.
  ~PeerMemory();

  /// "", or why there is no memory: one line, the same on all ranks.
  const std::string& why_not() const { return why_not_; }

  /// Of each rank, as this device addresses it: `bytes`, zero on all ranks when the constructor returns.
  const std::array<void*, cuda::kMaxPeerRanks>& addresses() const { return addresses_; }

  /// Ranks of the group, of whom the world may be asked.
  std::span<const int> members() const { return members_; }

  /// Waits for the device to come so far in the stream.
  void finish(std::string_view what) const;

 private:
  PeerMemory(World& world, Communicator& host, const PeerFlags& flags, cudaStream_t stream);

  std::string establish(const Options& options);
  std::vector<PeerReach> gather_reach(int device) const;
  std::string allocate_and_open(const Options& options);
  std::string prove(const Options& options);
  void clear(int64_t bytes) const;
  void close_all() noexcept;
  void end_together() noexcept;
  cuda::CallContext where(std::string_view detail = {}) const;

  World& world_;
  Communicator& host_;
  const PeerFlags& flags_;
  cudaStream_t stream_;
  int device_ = 0;
  std::vector<int> members_;
  std::vector<PeerDevice> devices_;  // of each rank
  std::vector<PeerReach> reach_;     // [rank][peer]
  std::array<void*, cuda::kMaxPeerRanks> addresses_{};
  std::string why_not_;
  int exceptions_at_start_ = std::uncaught_exceptions();
};

}  // namespace shardscope::parallel
