// The ways in which a group can sum on its devices, opened and proved; and why the others are not among them.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cuda/backend.hpp"
#include "parallel/communicator.hpp"
#include "parallel/cuda/device_sum.hpp"
#include "parallel/cuda/sum_timer.hpp"

namespace shardscope::parallel {

struct WaysWanted {
  bool nccl = true;
  bool nccl_symmetric = true;
  bool peers = true;            // one-shot and two-shot
  bool shared_devices = false;  // ranks may share a device, which NCCL refuses
  bool times = false;           // of calls are kept, where a way can: an instrument
};

/// For these kinds; kAuto: all.
WaysWanted ways_wanted(std::span<const CommunicatorKind> kinds, bool shared_devices);

/// Where a backend computes.
DeviceStream stream_of(cuda::CudaBackend& backend);

class DeviceWays {
 public:
  /// Collective over the group of `host`, which has to live longer, as the stream. Proves that sums arrive before it
  /// returns. What was wanted and cannot be is left out, with the reason; but an NCCL that does not start throws.
  DeviceWays(World& world, Communicator& host, const DeviceStream& stream, const WaysWanted& wanted);
  DeviceWays(const DeviceWays&) = delete;
  DeviceWays& operator=(const DeviceWays&) = delete;

  const std::vector<std::unique_ptr<DeviceSum>>& ways() const { return ways_; }
  DeviceSum* named(std::string_view name) const;  // null: not there

  struct Absent {
    std::string name;
    std::string why_not;
  };
  const std::vector<Absent>& absent() const { return absent_; }

  /// Throws what ends the sums of any of them; all are aborted then.
  void check();
  void abort() noexcept;
  /// World::wait for the event, with `check` between polls. Says that this rank is doing `what`, of static lifetime.
  void wait(cudaEvent_t event, const char* what);

 private:
  void prove(DeviceSum& way);

  World& world_;
  Communicator& host_;
  DeviceStream stream_;
  std::vector<int> everyone_;
  std::vector<std::unique_ptr<DeviceSum>> ways_;
  std::vector<Absent> absent_;
};

}  // namespace shardscope::parallel
