// The interpreter of program.hpp. One line for each kind of access, so that a report names it.
#include "tests/emulation/probes/program.hpp"

#include "kernels/cuda/ptx.cuh"

namespace shardscope::probes {
namespace {

using namespace cuda;

__device__ int actor_of_thread(unsigned thread) {
  if (thread < 2) return static_cast<int>(thread);
  return thread == kWarpSize ? 2 : -1;
}

__global__ void program_kernel(const Program* program, uint32_t* variables, uint32_t* flags, uint32_t* records) {
  SHARDSCOPE_SHARED(uint32_t, shared_variables, kSharedVariables);
  if (threadIdx.x < kSharedVariables) shared_variables[threadIdx.x] = 0;
  __syncthreads();
  const int actor = actor_of_thread(threadIdx.x);
  for (int i = 0; i < kProgramSteps; ++i) {
    const Step* const step = &program->steps[blockIdx.x][actor < 0 ? 0 : actor][i];
    const Act act = step->act;
    const unsigned target = step->target;
    const uint32_t value = step->value;
    if (act == Act::kBarrier) __syncthreads();
    if (act == Act::kSyncWarp && threadIdx.x < kWarpSize) __syncwarp();
    if (actor < 0) continue;
    uint32_t* const variable =
        target < kGlobalVariables ? &variables[target] : &shared_variables[target - kGlobalVariables];
    uint32_t seen = 0;
    if (act == Act::kRead) static_cast<void>(*const_cast<const volatile uint32_t*>(variable));
    if (act == Act::kWrite) *variable = value;
    if (act == Act::kReleaseStore) store_release_device(&flags[target], value);
    if (act == Act::kAcquireLoad) seen = load_acquire_device(&flags[target]);
    if (act == Act::kRelaxedLoad) seen = load_relaxed_system(&flags[target]);
    if (act == Act::kExchange) seen = atomicExch(&flags[target], value);
    if (act == Act::kFence) __threadfence();
    records[(static_cast<int>(blockIdx.x) * kActors + actor) * kProgramSteps + i] = 1 + seen;
  }
}

}  // namespace

cudaError_t run_program(const Program* program, uint32_t* variables, uint32_t* flags, uint32_t* records) {
  return launch({kProgramBlocks, kProgramThreads}, program_kernel, program, variables, flags, records);
}

}  // namespace shardscope::probes
