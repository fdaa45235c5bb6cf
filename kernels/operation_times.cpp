#include "kernels/operation_times.hpp"

#include <chrono>

#include "kernels/base/error.hpp"

namespace shardscope::kernels {
namespace {

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

void HostOperationTimes::begin(Operation operation) {
  if (!on_) return;
  require(!open_, "operation times: one begins within another");
  open_ = true;
  times_.push_back({.operation = operation});
  times_.back().begin_ns = now_ns();
}

void HostOperationTimes::divide(Operation first) {
  if (!open_) return;
  const Operation rest = times_.back().operation;
  times_.back().operation = first;
  times_.back().end_ns = now_ns();
  times_.push_back({.operation = rest, .begin_ns = times_.back().end_ns});
}

void HostOperationTimes::end() {
  if (!open_) return;
  times_.back().end_ns = now_ns();
  open_ = false;
}

}  // namespace shardscope::kernels
