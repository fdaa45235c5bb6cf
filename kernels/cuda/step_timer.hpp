// When the operations of a step ran, on the device's clock, for an instrument. Owns a place in device memory for each
// operation (operation_stamps.hpp), the same in every step, so that a recorded graph notes anew each time it is
// replayed; the graph empties the places first and copies them to the host last. Nothing is enqueued while nothing is
// to be noted.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/device.hpp"
#include "kernels/cuda/operation_stamps.hpp"
#include "kernels/operation_times.hpp"

namespace shardscope::cuda {

class StepTimer {
 public:
  explicit StepTimer(Device& device) : device_(device) {}

  /// Whether steps note from now on. The first true allocates, measures the clock's step, and waits for that.
  void note(bool on);
  bool noting() const { return noting_; }
  /// Nanoseconds, as measured; 1 before note(true).
  int64_t clock_step_ns() const { return clock_step_ns_; }

  // Around what a step enqueues.
  void begin_step();
  void end_step();

  // Within a step; elsewhere they do nothing. Operations do not nest.
  void begin(kernels::Operation operation);
  void end() { open_ = false; }
  /// What the open operation has enqueued so far was `first`; the rest is what it was opened as.
  void divide(kernels::Operation first);
  /// What the open operation has enqueued so far was what it was opened as; the rest is `rest`.
  void go_on_as(kernels::Operation rest);

  /// For kernels of the open operation that note themselves; null where nothing is to be noted.
  OperationStamps* stamps() const { return open_ ? stamps_at(operations_.size() - 1) : nullptr; }
  /// Enqueues what does not note itself, between two kernels that do. None of the three is launched programmatically,
  /// nor is what follows.
  template <class Enqueue>
  void around(const Enqueue& enqueue) {
    stamp(stamp_begin);
    enqueue();
    stamp(stamp_end);
  }

  /// Operations of the step that was enqueued last, in order: what a recording of it keeps.
  const std::vector<kernels::Operation>& operations() const { return operations_; }
  /// A step that noted these is replayed.
  void replayed(const std::vector<kernels::Operation>& operations) { operations_ = operations; }

  /// Of the latest step, which the device must have done; without operations that launched nothing. Valid until the
  /// next call.
  std::span<const kernels::OperationTimes> times();

 private:
  OperationStamps* stamps_at(size_t index) const { return memory_.as<OperationStamps>() + index; }
  void stamp(cudaError_t (*enqueue)(OperationStamps*, cudaStream_t));

  Device& device_;
  bool noting_ = false;
  bool in_step_ = false;
  bool open_ = false;
  int64_t clock_step_ns_ = 1;
  DeviceBuffer memory_;
  PinnedBuffer on_host_;
  std::vector<kernels::Operation> operations_;
  std::vector<kernels::OperationTimes> times_;
};

}  // namespace shardscope::cuda
