// Sums by our own kernels, which write into the other devices' memory: one-shot and two-shot.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cuda/all_reduce.hpp"
#include "parallel/communicator.hpp"
#include "parallel/cuda/device_sum.hpp"
#include "parallel/cuda/peer_group.hpp"

namespace shardscope::parallel {

class PeerSum final : public DeviceSum {
 public:
  /// multiprocessors: of the group's smallest device.
  PeerSum(std::shared_ptr<PeerGroup> group, DeviceStream stream, cuda::Shots shots, int multiprocessors)
      : group_(std::move(group)), stream_(std::move(stream)), shots_(shots), multiprocessors_(multiprocessors) {}

  std::string_view name() const override { return shots_ == cuda::Shots::kOne ? "one-shot" : "two-shot"; }
  int64_t most_bytes() const override;

  /// data: aligned to 4 bytes, of at most most_bytes.
  void all_reduce(void* data, int64_t count, kernels::DType dtype) override;
  bool all_reduce_norm(const kernels::NormedInput& input) override;
  bool exchange_candidates(cuda::CandidateOut* best, int64_t rows) override;

  /// Of both ways: they are calls of one group.
  std::vector<cuda::CallTimes> times() override { return group_->times(); }
  void check() override { group_->check(); }
  void abort() noexcept override { group_->abort(); }

 private:
  std::shared_ptr<PeerGroup> group_;
  DeviceStream stream_;
  cuda::Shots shots_;
  int multiprocessors_;
};

struct PeerSumOptions {
  bool shared_devices = false;                      // ranks may have one device in common
  cuda::PeerCapacity capacity{256 << 10, 1 << 20};  // rounded up to what the kernels take
  std::chrono::milliseconds proof_wait{5000};       // for what peers write in the proof
  bool keep_times = true;                           // of calls, which costs each a little
};

struct PeerSums {
  std::unique_ptr<DeviceSum> one_shot;
  std::unique_ptr<DeviceSum> two_shot;
  std::string why_not;  // the group cannot use them: why, and what to do, the same on all ranks; both are null then
};

/// Collective over the group of `host`, which both sums share: the last of them ends it together with the other ranks.
/// `world` and `host` have to outlive them. Throws PeerFailure or SystemError within the world's timeout.
PeerSums make_peer_sums(World& world, Communicator& host, const DeviceStream& stream, const PeerSumOptions& options);

}  // namespace shardscope::parallel
