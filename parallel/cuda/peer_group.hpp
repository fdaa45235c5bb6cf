// What a rank needs to call our own collectives: the group's inboxes, its state, its log, and how the host learns that
// a call has failed, at no cost while none has.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cuda/owners.hpp"
#include "kernels/cuda/peer_rank.hpp"
#include "kernels/dtype.hpp"
#include "parallel/cuda/peer_memory.hpp"
#include "parallel/world.hpp"

namespace shardscope::parallel {

class PeerGroup {
 public:
  struct Options {
    int device = 0;  // this rank's; current in this thread
    cuda::PeerCapacity capacity;
    bool shared_devices = false;
    std::chrono::milliseconds proof_wait{5000};
    bool keep_times = true;
  };

  /// Collective, as PeerMemory's. A call waits for its peers as long as the world does.
  PeerGroup(World& world, Communicator& host, const Options& options);
  PeerGroup(const PeerGroup&) = delete;
  PeerGroup& operator=(const PeerGroup&) = delete;
  /// As PeerMemory's.
  ~PeerGroup();

  /// "", or why there can be no calls, the same on all ranks.
  const std::string& why_not() const { return memory_->why_not(); }

  const cuda::PeerRank& rank() const { return rank_; }

  /// What an error is about.
  struct Call {
    std::string_view operation;  // of static lifetime
    int64_t count = 0;           // elements
    kernels::DType dtype = kernels::DType::kF32;
  };
  /// Before a call is enqueued. Throws BugError after the end.
  void begin(const Call& call);
  /// Throws SystemError unless the call that began last could be enqueued.
  void enqueued(cudaError_t result) const;

  /// When the latest calls ran, oldest first; the stream must have done them.
  std::vector<cuda::CallTimes> times() const;

  /// Throws if a call has ended without a result: BugError where a rank makes another call than this one; PeerFailure
  /// where another rank's failure explains it, else SystemError. Everything has been aborted before.
  void check();
  /// Ends what is in streams without a result.
  void abort() noexcept { flags_.order_abort(); }

 private:
  [[noreturn]] void fail_for_another_call(int other);
  [[noreturn]] void fail_for_missing(int missing);
  const std::string& host_of(int rank) const;
  std::string latest() const;
  cuda::CallContext where(std::string_view detail = {}) const;

  World& world_;
  int device_;
  int own_rank_;
  std::chrono::milliseconds wait_;
  PeerFlags flags_;
  cuda::Stream stream_;  // for memory's start
  std::optional<PeerMemory> memory_;
  cuda::DeviceBuffer state_;
  cuda::DeviceBuffer log_;
  cuda::PeerRank rank_;
  Call last_{.operation = "a sum by peer access"};
  int64_t at_failure_ = 0;  // World's number
  int exceptions_at_start_ = std::uncaught_exceptions();
};

}  // namespace shardscope::parallel
