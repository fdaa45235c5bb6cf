// Times of collectives that keep none themselves (NCCL's): each between two kernels that note the time.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/cuda/owners.hpp"
#include "kernels/cuda/peer_rank.hpp"
#include "parallel/cuda/device_sum.hpp"

namespace shardscope::parallel {

class CallNotes {
 public:
  explicit CallNotes(const DeviceStream& stream);

  /// Enqueues begin, what `enqueue` enqueues, and end; capturable.
  void around(const std::function<void()>& enqueue);
  /// Of the latest calls, oldest first; the stream must have done them.
  std::vector<cuda::CallTimes> times() const;

 private:
  DeviceStream stream_;
  cuda::DeviceBuffer entries_;
  cuda::DeviceBuffer calls_;
};

/// Entries of a log in device memory, oldest first. Not while a stream is captured; the stream must have done its
/// calls.
std::vector<cuda::CallTimes> read_log(const cuda::CallLog& log, int device);

}  // namespace shardscope::parallel
