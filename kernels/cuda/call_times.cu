// Notes of the times of calls that are not ours: one thread each, one store or two.
#include "kernels/cuda/call_times.hpp"

#include "kernels/cuda/peer_launch.cuh"

namespace shardscope::cuda {
namespace {

/// A kernel's view of the log.
struct Entries {
  CallTimes* entries;
  uint32_t mask;
};

__global__ void __launch_bounds__(1) note_begin_kernel(Entries log, const uint32_t* calls) {
  grid_dependency_wait();
  const uint32_t number = *calls + 1;
  CallTimes* const entry = log.entries + (number & log.mask);
  entry->number = number;
  entry->arrived_ns = 0;
  entry->begin_ns = nanoseconds();
}

__global__ void __launch_bounds__(1) note_end_kernel(Entries log, uint32_t* calls) {
  grid_dependency_wait();
  const uint64_t now = nanoseconds();
  const uint32_t number = *calls + 1;
  log.entries[number & log.mask].end_ns = now;
  *calls = number;
}

bool usable(const CallLog& log, const uint32_t* calls) {
  return log.entries != nullptr && valid(log) && calls != nullptr && aligned(calls, alignof(uint32_t));
}

}  // namespace

cudaError_t note_begin(const CallLog& log, const uint32_t* calls, cudaStream_t stream) {
  if (!usable(log, calls)) return cudaErrorInvalidValue;
  const Launch where{.grid = dim3(1), .block = dim3(1), .shared_bytes = 0, .stream = stream};
  return launch(where, note_begin_kernel, Entries{log.entries, log.count - 1}, calls);
}

cudaError_t note_end(const CallLog& log, uint32_t* calls, cudaStream_t stream) {
  if (!usable(log, calls)) return cudaErrorInvalidValue;
  const Launch where{.grid = dim3(1), .block = dim3(1), .shared_bytes = 0, .stream = stream};
  return launch(where, note_end_kernel, Entries{log.entries, log.count - 1}, calls);
}

}  // namespace shardscope::cuda
