// Times the ways in which a group can sum on its devices (parallel/sum_bench.hpp).
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kernels/cuda/backend.hpp"
#include "parallel/communicator.hpp"
#include "parallel/cuda/call_notes.hpp"
#include "parallel/cuda/device_ways.hpp"
#include "parallel/sum_bench.hpp"

namespace shardscope::parallel {

class DeviceSumBench final : public SumBench {
 public:
  /// Collective over the group of `host`. Opens these kinds; kAuto: all. Ends before the backend.
  DeviceSumBench(World& world, std::unique_ptr<Communicator> host, cuda::CudaBackend& backend,
                 std::span<const CommunicatorKind> kinds, bool shared_devices);

  std::span<const Way> ways() const override { return listed_; }
  bool on_devices() const override { return true; }
  SumTimes time(const SumTask& task) override;

 private:
  void take_single_calls(DeviceSum& way, const SumTarget& target, const SumTask& task, SumTimes& times);

  std::unique_ptr<Communicator> host_;
  DeviceStream stream_;
  std::unique_ptr<DeviceWays> ways_;  // ends before the host's communicator
  CallNotes notes_;
  std::vector<Way> listed_;
};

}  // namespace shardscope::parallel
