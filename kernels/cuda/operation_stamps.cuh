// How a kernel notes when it ran as part of an operation. With stamps null, as in steps that nobody looks into, each is
// one test of a parameter.
//
// A mark costs a block one atomic whose result nobody waits for. Marks need no order among themselves: the stamps were
// emptied before the step's first kernel, which is launched behind that, and are read behind its last.
#pragma once

#include "kernels/cuda/operation_stamps.hpp"
#include "kernels/cuda/ptx.cuh"

namespace shardscope::cuda {

__device__ __forceinline__ void raise_stamp(uint64_t* stamp, uint64_t value) {
  static_assert(sizeof(unsigned long long) == sizeof(uint64_t));
  atomicMax(reinterpret_cast<unsigned long long*>(stamp), static_cast<unsigned long long>(value));
}

/// The first that a kernel does, also before grid_dependency_wait. Blocks have threads in x alone.
__device__ __forceinline__ void mark_begin(OperationStamps* stamps) {
  if (stamps != nullptr && threadIdx.x == 0) raise_stamp(&stamps->begun, ~nanoseconds());
}

/// The last that a kernel does; all threads of the block call. Blocks that have long been done may leave it out.
__device__ __forceinline__ void mark_end(OperationStamps* stamps) {
  if (stamps == nullptr) return;
  __syncthreads();
  if (threadIdx.x == 0) raise_stamp(&stamps->end_ns, nanoseconds());
}

/// That all ranks have come; by one thread.
__device__ __forceinline__ void mark_arrived(OperationStamps* stamps) {
  if (stamps != nullptr) raise_stamp(&stamps->arrived, ~nanoseconds());
}

}  // namespace shardscope::cuda
