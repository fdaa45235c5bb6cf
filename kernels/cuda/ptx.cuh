// What only PTX can say, each function in three branches: device code (asm), nvcc's pass over host code (which parses
// the bodies too: empty), and the emulation (emulated_device.hpp). Source of the instructions: the PTX ISA 9.0.
#pragma once

#include "kernels/cuda/portable.cuh"

#ifndef SHARDSCOPE_EMULATED

#ifdef __CUDA_ARCH__
#define SHARDSCOPE_PTX(...) asm volatile(__VA_ARGS__)
#else
#define SHARDSCOPE_PTX(...) static_cast<void>(0)
#endif

namespace shardscope::cuda {

// ---- asynchronous copies to shared memory (sm_80) -------------------------------------------------------------------

/// Starts to copy 16 bytes from global to shared memory; both addresses are aligned to 16. With `valid` false the
/// source is not read and 16 zero bytes are written. The bytes are there after cp_async_wait, for other threads after a
/// barrier that follows it.
__device__ __forceinline__ void cp_async16(void* shared, const void* global, bool valid = true) {
  [[maybe_unused]] const unsigned target = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  [[maybe_unused]] const int source_bytes = valid ? 16 : 0;
  SHARDSCOPE_PTX("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(target), "l"(global), "r"(source_bytes)
                 : "memory");
}

/// Closes this thread's group of copies.
__device__ __forceinline__ void cp_async_commit() {
  SHARDSCOPE_PTX("cp.async.commit_group;" ::: "memory");
}

/// Waits until at most `kPending` of this thread's latest groups are unfinished.
template <int kPending>
__device__ __forceinline__ void cp_async_wait() {
  SHARDSCOPE_PTX("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// ---- tensor cores (sm_80) -------------------------------------------------------------------------------------------

/// d += a b for a 16 x 16 tile a, a 16 x 8 tile b and a 16 x 8 tile d, spread over the 32 lanes of a warp in the layout
/// of mma.m16n8k16 (PTX ISA, "Matrix Fragments for mma.m16n8k16"). Element: __half or __nv_bfloat16; two to a word.
template <class Element>
__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);

template <>
__device__ __forceinline__ void mma_m16n8k16<__nv_bfloat16>(float (&d)[4], const uint32_t (&a)[4],
                                                            const uint32_t (&b)[2]) {
  SHARDSCOPE_PTX(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
template <>
__device__ __forceinline__ void mma_m16n8k16<__half>(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  SHARDSCOPE_PTX(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// ---- flags between blocks and devices -------------------------------------------------------------------------------
// Of one word, and never torn. "device": between blocks of one GPU; "system": also between GPUs and with the host.
// A release makes visible all that this thread wrote or observed before (through barriers also what its block did), to
// whoever acquires the value. Relaxed accesses carry nothing but their own bytes.

__device__ __forceinline__ uint32_t load_acquire_system(const uint32_t* address) {
  uint32_t value = 0;
  SHARDSCOPE_PTX("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
  return value;
}
__device__ __forceinline__ void store_release_system(uint32_t* address, uint32_t value) {
  SHARDSCOPE_PTX("st.release.sys.global.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}
__device__ __forceinline__ uint32_t load_acquire_device(const uint32_t* address) {
  uint32_t value = 0;
  SHARDSCOPE_PTX("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
  return value;
}
__device__ __forceinline__ void store_release_device(uint32_t* address, uint32_t value) {
  SHARDSCOPE_PTX("st.release.gpu.global.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}
__device__ __forceinline__ uint32_t load_relaxed_system(const uint32_t* address) {
  uint32_t value = 0;
  SHARDSCOPE_PTX("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
  return value;
}
__device__ __forceinline__ void store_relaxed_system(uint32_t* address, uint32_t value) {
  SHARDSCOPE_PTX("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}
/// 8 bytes at once: a flag beside 4 bytes of data arrives with them, over PCIe too.
__device__ __forceinline__ uint64_t load_relaxed_system(const uint64_t* address) {
  uint64_t value = 0;
  SHARDSCOPE_PTX("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(address) : "memory");
  return value;
}
__device__ __forceinline__ void store_relaxed_system(uint64_t* address, uint64_t value) {
  SHARDSCOPE_PTX("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(address), "l"(value) : "memory");
}

/// Nanoseconds of a clock that only goes forward; its resolution is about a microsecond.
__device__ __forceinline__ uint64_t nanoseconds() {
  uint64_t value = 0;
  SHARDSCOPE_PTX("mov.u64 %0, %%globaltimer;" : "=l"(value));
  return value;
}

/// To be called once in each turn of a loop that polls `address`.
__device__ __forceinline__ void poll_pause([[maybe_unused]] const void* address) {}

// ---- programmatic dependent launch (sm_90; nothing to do before) ----------------------------------------------------

/// Waits until the kernels that this one depends on have ended and their writes are visible. Does not wait for kernels
/// further back that those did not wait for.
__device__ __forceinline__ void grid_dependency_wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// Lets the dependent kernel start, once every block of this grid has said so or ended.
__device__ __forceinline__ void grid_dependency_launch() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace shardscope::cuda

#undef SHARDSCOPE_PTX
#endif

namespace shardscope::cuda {

/// When a kernel that waits gives up.
struct WaitLimit {
  const uint32_t* abort_word = nullptr;  // in pinned host memory, or null; not 0: give up
  uint64_t nanoseconds = 0;              // from the first poll in vain
};

/// What one wait has had so far; begins anew with each wait.
class Patience {
 public:
  /// To be called after each poll in vain: whether it is time to give up. The abort word lies across the bus, so that
  /// it and the clock are looked at only now and then; a wait that ends soon never does.
  __device__ __forceinline__ bool exhausted(const WaitLimit& limit) {
    if (polls_ == 0) began_ = nanoseconds();
    if (++polls_ % kPollsALook != 0) return false;
    if (limit.abort_word != nullptr && load_relaxed_system(limit.abort_word) != 0) return true;
    return nanoseconds() - began_ > limit.nanoseconds;
  }

 private:
  static constexpr unsigned kPollsALook = 32;
  unsigned polls_ = 0;
  uint64_t began_ = 0;
};

/// Polls `flag` until it has reached `value` (32-bit counters may wrap around), with acquire semantics at system scope.
/// Returns false when the limit is reached first.
__device__ __forceinline__ bool wait_at_least(const uint32_t* flag, uint32_t value, const WaitLimit& limit) {
  Patience patience;
  while (static_cast<int32_t>(load_acquire_system(flag) - value) < 0) {
    if (patience.exhausted(limit)) return false;
    poll_pause(flag);
  }
  return true;
}

}  // namespace shardscope::cuda
