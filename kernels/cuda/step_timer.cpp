#include "kernels/cuda/step_timer.hpp"

#include <algorithm>
#include <utility>

#include "kernels/base/error.hpp"

namespace shardscope::cuda {

using kernels::Operation;
using kernels::OperationTimes;

namespace {

constexpr size_t kMostOperations = 4096;  // of a step: seven a layer, so over 500 layers
constexpr auto kStampBytes = static_cast<int64_t>(sizeof(OperationStamps));
constexpr const char* kPurpose = "times of operations";

}  // namespace

void StepTimer::note(bool on) {
  if (on && memory_.bytes() == 0) {
    constexpr auto kBytes = static_cast<int64_t>(kMostOperations) * kStampBytes;
    on_host_ = PinnedBuffer(kBytes, kPurpose, device_.where());
    memory_ = DeviceBuffer(kBytes, kPurpose, device_.where());
    operations_.reserve(kMostOperations);
    times_.reserve(kMostOperations);
    device_.check(measure_clock_step(memory_.as<uint64_t>(), device_.lend_stream()), "measure_clock_step");
    device_.check(cudaMemcpyAsync(on_host_.data(), memory_.data(), sizeof(uint64_t), cudaMemcpyDeviceToHost,
                                  device_.lend_stream()),
                  "cudaMemcpyAsync", [] { return kPurpose; });
    const Event measured = make_event(device_.where());
    device_.check(cudaEventRecord(measured.get(), device_.stream()), "cudaEventRecord");
    device_.wait(measured.get(), "measuring the device's clock");
    clock_step_ns_ = std::max<int64_t>(1, static_cast<int64_t>(*on_host_.as<const uint64_t>()));
  }
  noting_ = on;
}

void StepTimer::begin_step() {
  operations_.clear();
  open_ = false;
  in_step_ = noting_;
  if (!noting_) return;
  // All places: how many the step will need is not known yet.
  device_.check(cudaMemsetAsync(memory_.data(), 0, static_cast<size_t>(memory_.bytes()), device_.lend_stream()),
                "cudaMemsetAsync", [] { return kPurpose; });
}

void StepTimer::end_step() {
  if (!in_step_) return;
  in_step_ = false;
  open_ = false;
  if (operations_.empty()) return;
  device_.check(cudaMemcpyAsync(on_host_.data(), memory_.data(), operations_.size() * sizeof(OperationStamps),
                                cudaMemcpyDeviceToHost, device_.lend_stream()),
                "cudaMemcpyAsync", [] { return kPurpose; });
}

void StepTimer::begin(Operation operation) {
  if (!in_step_) return;
  require(!open_, "times of operations: one begins within another");
  require(operations_.size() < kMostOperations, "times of operations: a step has too many");
  operations_.push_back(operation);
  open_ = true;
}

void StepTimer::divide(Operation first) {
  if (!open_) return;
  go_on_as(std::exchange(operations_.back(), first));
}

void StepTimer::go_on_as(Operation rest) {
  if (!open_) return;
  open_ = false;
  begin(rest);
}

void StepTimer::stamp(cudaError_t (*enqueue)(OperationStamps*, cudaStream_t)) {
  if (OperationStamps* const place = stamps()) device_.check(enqueue(place, device_.lend_stream()), "stamp");
}

std::span<const OperationTimes> StepTimer::times() {
  times_.clear();
  const auto* const stamps = on_host_.as<const OperationStamps>();
  for (size_t i = 0; i < operations_.size(); ++i) {
    const OperationStamps& of_operation = stamps[i];
    if (of_operation.begun == 0 || of_operation.end_ns == 0) continue;  // it launched nothing
    times_.push_back({.operation = operations_[i],
                      .begin_ns = static_cast<int64_t>(~of_operation.begun),
                      .end_ns = static_cast<int64_t>(of_operation.end_ns),
                      .arrived_ns = of_operation.arrived == 0 ? -1 : static_cast<int64_t>(~of_operation.arrived)});
  }
  return times_;
}

}  // namespace shardscope::cuda
