// Notes of when operations ran whose kernels note nothing themselves, and the step of the clock: one thread each.
#include "kernels/cuda/operation_stamps.cuh"

namespace shardscope::cuda {
namespace {

constexpr int kSteps = 64;
// Reads take nanoseconds and the clock goes on every microsecond or earlier: far more than all steps need.
constexpr int kMostReads = 1 << 20;

__global__ void __launch_bounds__(1) stamp_begin_kernel(OperationStamps* stamps) {
  grid_dependency_wait();
  mark_begin(stamps);
}

__global__ void __launch_bounds__(1) stamp_end_kernel(OperationStamps* stamps) {
  grid_dependency_wait();
  mark_end(stamps);
}

__global__ void __launch_bounds__(1) clock_step_kernel(uint64_t* step_ns) {
  grid_dependency_wait();
  uint64_t least = 0;
  uint64_t last = nanoseconds();
  int steps = 0;
  for (int reads = 0; steps < kSteps && reads < kMostReads; ++reads) {
    const uint64_t now = nanoseconds();
    if (now == last) continue;
    if (least == 0 || now - last < least) least = now - last;
    last = now;
    ++steps;
  }
  *step_ns = least;
}

Launch one_thread(cudaStream_t stream) {
  return {.grid = dim3(1), .block = dim3(1), .shared_bytes = 0, .stream = stream};
}

bool usable(const void* stamps) {
  return stamps != nullptr && reinterpret_cast<uintptr_t>(stamps) % alignof(uint64_t) == 0;
}

}  // namespace

cudaError_t stamp_begin(OperationStamps* stamps, cudaStream_t stream) {
  if (!usable(stamps)) return cudaErrorInvalidValue;
  return launch(one_thread(stream), stamp_begin_kernel, stamps);
}

cudaError_t stamp_end(OperationStamps* stamps, cudaStream_t stream) {
  if (!usable(stamps)) return cudaErrorInvalidValue;
  return launch(one_thread(stream), stamp_end_kernel, stamps);
}

cudaError_t measure_clock_step(uint64_t* step_ns, cudaStream_t stream) {
  if (!usable(step_ns)) return cudaErrorInvalidValue;
  return launch(one_thread(stream), clock_step_kernel, step_ns);
}

}  // namespace shardscope::cuda
