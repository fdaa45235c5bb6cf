// What kernels are written with, beside plain CUDA C++: shared memory, warp reductions, wide loads and stores, flags
// between blocks and devices. The same .cu files are compiled by nvcc for GPUs and by g++ against the emulation of
// tests/emulation, which checks every access. Include this last: what follows may not name memcpy, memset or memmove,
// which compilers expand to moves that no checker sees.
//
// Rules of a kernel file (why: tests/emulation/README.md):
//   * shared memory by SHARDSCOPE_SHARED and SHARDSCOPE_DYNAMIC_SHARED, never by a raw __shared__;
//   * 8- and 16-byte accesses through load8, load16, store8, store16 and their streaming kinds;
//   * flags that other blocks or devices poll: only through the functions of ptx.cuh and the atomics;
//   * __syncwarp orders memory between lanes, a shuffle or warp_sum does not;
//   * whoever publishes runs the fence itself, after the barrier; whoever observes runs the fence itself, before it.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/launch.hpp"

#ifdef SHARDSCOPE_EMULATED
#include <emulated_device.hpp>  // defines everything of the other branch for the CPU
#else

namespace shardscope::cuda {

/// `name` is a pointer to `count` elements of shared memory of this block. `count` is a constant.
#define SHARDSCOPE_SHARED(type, name, count) __shared__ __align__(16) type name[count]

/// `name` is a pointer to the launch's dynamic shared memory (Launch::shared_bytes), aligned to 16 bytes.
#define SHARDSCOPE_DYNAMIC_SHARED(type, name)                                      \
  extern __shared__ __align__(16) unsigned char shardscope_dynamic_shared_bytes[]; \
  type* const name = reinterpret_cast<type*>(shardscope_dynamic_shared_bytes)

inline constexpr int kWarpSize = 32;
inline constexpr unsigned kFullMask = 0xFFFFFFFFu;

/// Sum, and maximum, of `value` over the 32 lanes of a warp, in every lane, by a butterfly: all lanes get the same
/// bits. All 32 lanes must call. Does not order memory.
__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(kFullMask, value, offset);
  return value;
}
__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kFullMask, value, offset));
  }
  return value;
}

/// 16 and 8 bytes at an address aligned to that: one access of global or shared memory.
__device__ __forceinline__ uint4 load16(const void* address) {
  return *static_cast<const uint4*>(address);
}
__device__ __forceinline__ uint2 load8(const void* address) {
  return *static_cast<const uint2*>(address);
}
__device__ __forceinline__ void store16(void* address, uint4 value) {
  *static_cast<uint4*>(address) = value;
}
__device__ __forceinline__ void store8(void* address, uint2 value) {
  *static_cast<uint2*>(address) = value;
}

/// The same from global memory that no kernel writes meanwhile and that is read once (weights): leaves the caches to
/// what is read again.
__device__ __forceinline__ uint4 load16_streaming(const void* address) {
  return __ldcs(static_cast<const uint4*>(address));
}
__device__ __forceinline__ uint2 load8_streaming(const void* address) {
  return __ldcs(static_cast<const uint2*>(address));
}

}  // namespace shardscope::cuda

#endif
