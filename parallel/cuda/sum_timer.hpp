// Sums of one message, checked and timed on the device: for the choice among ways, and for `comm`.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <functional>

#include "kernels/cuda/owners.hpp"
#include "parallel/communicator.hpp"
#include "parallel/cuda/device_sum.hpp"

namespace shardscope::parallel {

/// The message: elements in device memory.
struct SumTarget {
  void* data = nullptr;
  int64_t count = 0;
  kernels::DType dtype = kernels::DType::kF32;

  int64_t bytes() const { return count * kernels::facts(dtype).block_bytes; }
};

/// Waits for an event as a backend does: with an eye on the ranks and on what can end a sum.
using WaitForEvent = std::function<void(cudaEvent_t event, const char* what)>;

/// Enqueues the sum, in pieces where it is larger than the way takes at once.
void enqueue_sum(DeviceSum& way, const SumTarget& target);

/// Sums small whole numbers three times, in a captured graph from the second time on where `graph` says so, and returns
/// how many elements of the results are wrong on this rank. Overwrites the message.
int64_t wrong_elements(DeviceSum& way, const SumTarget& target, int rank, int ranks, bool graph,
                       const DeviceStream& stream, const WaitForEvent& wait);

/// Times rows of calls, back to back on the stream.
class SumTimer {
 public:
  /// graph: the row is captured once and replayed. The way has been used before with this message.
  SumTimer(DeviceSum& way, const SumTarget& target, int calls, bool graph, const DeviceStream& stream,
           WaitForEvent wait);

  /// Runs the row once; us per call by this device's clock.
  double run();

 private:
  void enqueue();

  DeviceSum& way_;
  SumTarget target_;
  int calls_;
  const DeviceStream& stream_;
  WaitForEvent wait_;
  cuda::Event begin_;
  cuda::Event end_;
  cuda::GraphExec graph_;  // none: calls are enqueued one by one
};

}  // namespace shardscope::parallel
