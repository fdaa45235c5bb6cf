// Probes of what lies between kernels: streams, devices, programmatic dependent launch, waits with a limit, traps.
#include "kernels/cuda/ptx.cuh"
#include "tests/emulation/probes/probes.hpp"

namespace shardscope::probes {
namespace {

using namespace cuda;

__global__ void add_kernel(const int* in, int increment, int* out) {
  *out = *in + increment;
}

__global__ void converse_kernel(unsigned turns, uint32_t* own, const uint32_t* peer, uint32_t* out) {
  for (unsigned turn = 1; turn <= turns; ++turn) {
    store_release_system(own, turn);
    while (load_acquire_system(peer) < turn) poll_pause(peer);
  }
  *out = turns;
}

__global__ void wait_with_limit_kernel(const uint32_t* flag, uint32_t value, WaitLimit limit, int* out) {
  *out = wait_at_least(flag, value, limit) ? 1 : 0;
}

__global__ void wait_for_dependent_kernel(const uint32_t* flag, int* out) {
  grid_dependency_launch();
  while (load_acquire_device(flag) == 0) poll_pause(flag);
  *out = 1;
}

__global__ void raise_before_wait_kernel(uint32_t* flag, const int* in, int* out) {
  store_release_device(flag, 1);
  grid_dependency_wait();
  *out = *in;
}

__global__ void spin_kernel(const uint32_t* flag) {
  volatile unsigned turns = 0;  // may wrap around
  const uint32_t seen = *flag;
  while (seen == 0) turns = turns + 1;
}

__global__ void trap_kernel() {
  __trap();
}

}  // namespace

cudaError_t add(const int* in, int increment, int* out, cudaStream_t stream) {
  return launch({1, 1, 0, stream}, add_kernel, in, increment, out);
}

cudaError_t converse(unsigned turns, uint32_t* own, const uint32_t* peer, uint32_t* out, cudaStream_t stream) {
  return launch({1, 1, 0, stream}, converse_kernel, turns, own, peer, out);
}

cudaError_t wait_with_limit(const uint32_t* flag, uint32_t value, const uint32_t* abort_word, uint64_t nanoseconds,
                            int* out, cudaStream_t stream) {
  return launch({1, 1, 0, stream}, wait_with_limit_kernel, flag, value, WaitLimit{abort_word, nanoseconds}, out);
}

cudaError_t wait_for_dependent(const uint32_t* flag, int* out, cudaStream_t stream) {
  return launch({1, 1, 0, stream}, wait_for_dependent_kernel, flag, out);
}

cudaError_t raise_before_wait(bool programmatic, uint32_t* flag, const int* in, int* out, cudaStream_t stream) {
  return launch({1, 1, 0, stream, programmatic}, raise_before_wait_kernel, flag, in, out);
}

cudaError_t spin(const uint32_t* flag) {
  return launch({1, 1}, spin_kernel, flag);
}

cudaError_t trap(cudaStream_t stream) {
  return launch({1, 1, 0, stream}, trap_kernel);
}

}  // namespace shardscope::probes
