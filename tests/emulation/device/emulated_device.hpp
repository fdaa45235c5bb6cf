// CUDA's device language for g++: what a kernel may use beside plain C++. Included by kernels/cuda/portable.cuh when a
// .cu file is compiled for the CPU. Everything that touches memory or waits calls into the emulation (namespace
// `call`), which knows the CUDA thread that asks. What is not here does not compile in a kernel: adding it is a
// decision, since each new function needs its checks.
//
// Two modes. Plain: speed; loads and stores are the compiler's own. Checked (SHARDSCOPE_CHECKED, with
// -fsanitize=thread): every load and store calls a hook (tests/emulation/hooks.cpp).
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "emulated_calls.hpp"

// A raw __shared__ variable would be one for all blocks: it must not compile. Kernels are found by their address.
#undef __shared__
#define __shared__ shared_memory_is_declared_with_SHARDSCOPE_SHARED
#undef __constant__
#define __constant__ constants_are_passed_as_parameters
#undef __global__
#define __global__ __attribute__((noinline))
#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __align__
#define __align__(bytes) __attribute__((aligned(bytes)))

#define SHARDSCOPE_INLINE inline __attribute__((always_inline))
// A call, not Site{…}: as members of a braced list the two would give the place of this macro, the same for all
// callers.
#define SHARDSCOPE_HERE ::shardscope::emulation::call::site(__builtin_FILE(), __builtin_LINE())
namespace shardscope::emulation::call {
SHARDSCOPE_INLINE constexpr Site site(const char* file, int line) {
  return Site{file, line};
}
}  // namespace shardscope::emulation::call

// ---- the variables of a thread --------------------------------------------------------------------------------------

namespace shardscope::emulation::builtin {

/// One coordinate of a built-in variable: a number that is asked for when it is used.
template <auto kOf, unsigned uint3::*kMember>
struct Coordinate {
  SHARDSCOPE_INLINE operator unsigned() const {
    const auto index = kOf();
    return index.*kMember;
  }
};
template <auto kOf, unsigned dim3::*kMember>
struct Extent {
  SHARDSCOPE_INLINE operator unsigned() const {
    const dim3 size = kOf();
    return size.*kMember;
  }
};
template <auto kOf>
struct Index {
  [[no_unique_address]] Coordinate<kOf, &uint3::x> x;
  [[no_unique_address]] Coordinate<kOf, &uint3::y> y;
  [[no_unique_address]] Coordinate<kOf, &uint3::z> z;
};
template <auto kOf>
struct Size {
  [[no_unique_address]] Extent<kOf, &dim3::x> x;
  [[no_unique_address]] Extent<kOf, &dim3::y> y;
  [[no_unique_address]] Extent<kOf, &dim3::z> z;
};

}  // namespace shardscope::emulation::builtin

static constexpr shardscope::emulation::builtin::Index<&shardscope::emulation::call::thread_index> threadIdx;
static constexpr shardscope::emulation::builtin::Index<&shardscope::emulation::call::block_index> blockIdx;
static constexpr shardscope::emulation::builtin::Size<&shardscope::emulation::call::block_size> blockDim;
static constexpr shardscope::emulation::builtin::Size<&shardscope::emulation::call::grid_size> gridDim;

// ---- barriers and warps ---------------------------------------------------------------------------------------------

SHARDSCOPE_INLINE void __syncthreads(shardscope::emulation::call::Site site = SHARDSCOPE_HERE) {
  using namespace shardscope::emulation::call;
  barrier(BarrierVote::kNone, 0, site);
}
SHARDSCOPE_INLINE int __syncthreads_or(int predicate, shardscope::emulation::call::Site site = SHARDSCOPE_HERE) {
  using namespace shardscope::emulation::call;
  return barrier(BarrierVote::kOr, predicate, site);
}
SHARDSCOPE_INLINE int __syncthreads_and(int predicate, shardscope::emulation::call::Site site = SHARDSCOPE_HERE) {
  using namespace shardscope::emulation::call;
  return barrier(BarrierVote::kAnd, predicate, site);
}
SHARDSCOPE_INLINE int __syncthreads_count(int predicate, shardscope::emulation::call::Site site = SHARDSCOPE_HERE) {
  using namespace shardscope::emulation::call;
  return barrier(BarrierVote::kCount, predicate, site);
}
SHARDSCOPE_INLINE void __syncwarp(unsigned mask = 0xFFFFFFFFu,
                                  shardscope::emulation::call::Site site = SHARDSCOPE_HERE) {
  shardscope::emulation::call::sync_warp(mask, site);
}

namespace shardscope::emulation {

/// What a shuffle of a T gives: a T, or a number for a built-in variable's coordinate.
template <class T>
using Value = std::conditional_t<std::is_empty_v<T>, unsigned, T>;

template <class T>
SHARDSCOPE_INLINE T shuffled(call::Shuffle kind, unsigned mask, T value, int lane, int width, call::Site site) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 2, "shuffles move 2, 4 or 8 bytes");
  if constexpr (sizeof(T) == 8) {
    return std::bit_cast<T>(call::shuffle(kind, mask, std::bit_cast<uint64_t>(value), lane, width, site));
  } else if constexpr (sizeof(T) == 4) {
    return std::bit_cast<T>(
        static_cast<uint32_t>(call::shuffle(kind, mask, std::bit_cast<uint32_t>(value), lane, width, site)));
  } else {
    return std::bit_cast<T>(
        static_cast<uint16_t>(call::shuffle(kind, mask, std::bit_cast<uint16_t>(value), lane, width, site)));
  }
}

}  // namespace shardscope::emulation

template <class T>
SHARDSCOPE_INLINE shardscope::emulation::Value<T> __shfl_sync(
    unsigned mask, T value, int lane, int width = 32, shardscope::emulation::call::Site site = SHARDSCOPE_HERE) {
  return shardscope::emulation::shuffled<shardscope::emulation::Value<T>>(shardscope::emulation::call::Shuffle::kIndex,
                                                                          mask, value, lane, width, site);
}
template <class T>
SHARDSCOPE_INLINE shardscope::emulation::Value<T> __shfl_up_sync(
    unsigned mask, T value, unsigned delta, int width = 32, shardscope::emulation::call::Site site = SHARDSCOPE_HERE) {
  return shardscope::emulation::shuffled<shardscope::emulation::Value<T>>(
      shardscope::emulation::call::Shuffle::kUp, mask, value, static_cast<int>(delta), width, site);
}
template <class T>
SHARDSCOPE_INLINE shardscope::emulation::Value<T> __shfl_down_sync(
    unsigned mask, T value, unsigned delta, int width = 32, shardscope::emulation::call::Site site = SHARDSCOPE_HERE) {
  return shardscope::emulation::shuffled<shardscope::emulation::Value<T>>(
      shardscope::emulation::call::Shuffle::kDown, mask, value, static_cast<int>(delta), width, site);
}
template <class T>
SHARDSCOPE_INLINE shardscope::emulation::Value<T> __shfl_xor_sync(
    unsigned mask, T value, int lane_mask, int width = 32, shardscope::emulation::call::Site site = SHARDSCOPE_HERE) {
  return shardscope::emulation::shuffled<shardscope::emulation::Value<T>>(shardscope::emulation::call::Shuffle::kXor,
                                                                          mask, value, lane_mask, width, site);
}
SHARDSCOPE_INLINE unsigned __ballot_sync(unsigned mask, int predicate,
                                         shardscope::emulation::call::Site site = SHARDSCOPE_HERE) {
  return shardscope::emulation::call::vote(shardscope::emulation::call::Vote::kBallot, mask, predicate != 0, site);
}
SHARDSCOPE_INLINE int __any_sync(unsigned mask, int predicate,
                                 shardscope::emulation::call::Site site = SHARDSCOPE_HERE) {
  return static_cast<int>(
      shardscope::emulation::call::vote(shardscope::emulation::call::Vote::kAny, mask, predicate != 0, site));
}
SHARDSCOPE_INLINE int __all_sync(unsigned mask, int predicate,
                                 shardscope::emulation::call::Site site = SHARDSCOPE_HERE) {
  return static_cast<int>(
      shardscope::emulation::call::vote(shardscope::emulation::call::Vote::kAll, mask, predicate != 0, site));
}
SHARDSCOPE_INLINE unsigned __activemask() {
  return shardscope::emulation::call::active_mask();
}

// ---- atomics and fences ---------------------------------------------------------------------------------------------

#define SHARDSCOPE_ATOMIC(name, type, kind)                              \
  SHARDSCOPE_INLINE type name(type* address, type value) {               \
    using namespace shardscope::emulation::call;                         \
    return update(Update::kind, address, value, type{}, Scope::kDevice); \
  }                                                                      \
  SHARDSCOPE_INLINE type name##_system(type* address, type value) {      \
    using namespace shardscope::emulation::call;                         \
    return update(Update::kind, address, value, type{}, Scope::kSystem); \
  }
SHARDSCOPE_ATOMIC(atomicAdd, unsigned, kAdd)
SHARDSCOPE_ATOMIC(atomicAdd, int, kAdd)
SHARDSCOPE_ATOMIC(atomicAdd, float, kAdd)
SHARDSCOPE_ATOMIC(atomicExch, unsigned, kExchange)
SHARDSCOPE_ATOMIC(atomicExch, int, kExchange)
SHARDSCOPE_ATOMIC(atomicMax, unsigned, kMax)
SHARDSCOPE_ATOMIC(atomicMax, int, kMax)
SHARDSCOPE_ATOMIC(atomicMin, unsigned, kMin)
SHARDSCOPE_ATOMIC(atomicMin, int, kMin)
#undef SHARDSCOPE_ATOMIC
SHARDSCOPE_INLINE unsigned long long atomicMax(unsigned long long* address, unsigned long long value) {
  using namespace shardscope::emulation::call;
  return update(Update::kMax, reinterpret_cast<uint64_t*>(address), value, 0, Scope::kDevice);
}
SHARDSCOPE_INLINE unsigned long long atomicXor(unsigned long long* address, unsigned long long value) {
  using namespace shardscope::emulation::call;
  return update(Update::kXor, reinterpret_cast<uint64_t*>(address), value, 0, Scope::kDevice);
}
SHARDSCOPE_INLINE unsigned atomicCAS(unsigned* address, unsigned compare, unsigned value) {
  using namespace shardscope::emulation::call;
  return update(Update::kCompareExchange, address, value, compare, Scope::kDevice);
}
SHARDSCOPE_INLINE void __threadfence() {
  shardscope::emulation::call::fence(shardscope::emulation::call::Scope::kDevice);
}
SHARDSCOPE_INLINE void __threadfence_system() {
  shardscope::emulation::call::fence(shardscope::emulation::call::Scope::kSystem);
}
SHARDSCOPE_INLINE void __nanosleep(unsigned) {
  shardscope::emulation::call::poll_pause(nullptr);
}
[[noreturn]] SHARDSCOPE_INLINE void __trap() {
  shardscope::emulation::call::trap();
}

// ---- numbers --------------------------------------------------------------------------------------------------------
// glibc declares __expf and __logf; a kernel that named them would compile here and not link.

#define __expf(x) (std::exp(static_cast<float>(x)))
#define __logf(x) (std::log(static_cast<float>(x)))
#define __sinf(x) (std::sin(static_cast<float>(x)))
#define __cosf(x) (std::cos(static_cast<float>(x)))
SHARDSCOPE_INLINE float rsqrtf(float x) {
  return 1.0f / std::sqrt(x);
}
SHARDSCOPE_INLINE float __frsqrt_rn(float x) {
  return 1.0f / std::sqrt(x);
}
SHARDSCOPE_INLINE float __fdividef(float x, float y) {
  return x / y;
}
SHARDSCOPE_INLINE float __fmaf_rn(float x, float y, float z) {
  return std::fma(x, y, z);
}
SHARDSCOPE_INLINE float __frcp_rn(float x) {
  return 1.0f / x;
}
SHARDSCOPE_INLINE float __saturatef(float x) {
  return x > 0.0f ? std::min(x, 1.0f) : 0.0f;  // NaN: 0
}

#define SHARDSCOPE_MIN_MAX(type)               \
  SHARDSCOPE_INLINE type min(type a, type b) { \
    return b < a ? b : a;                      \
  }                                            \
  SHARDSCOPE_INLINE type max(type a, type b) { \
    return a < b ? b : a;                      \
  }
SHARDSCOPE_MIN_MAX(int)
SHARDSCOPE_MIN_MAX(unsigned)
SHARDSCOPE_MIN_MAX(long)
SHARDSCOPE_MIN_MAX(unsigned long)
SHARDSCOPE_MIN_MAX(long long)
#undef SHARDSCOPE_MIN_MAX
SHARDSCOPE_INLINE float min(float a, float b) {
  return std::fmin(a, b);
}
SHARDSCOPE_INLINE float max(float a, float b) {
  return std::fmax(a, b);
}

SHARDSCOPE_INLINE unsigned __float_as_uint(float x) {
  return std::bit_cast<unsigned>(x);
}
SHARDSCOPE_INLINE int __float_as_int(float x) {
  return std::bit_cast<int>(x);
}
SHARDSCOPE_INLINE float __uint_as_float(unsigned x) {
  return std::bit_cast<float>(x);
}
SHARDSCOPE_INLINE float __int_as_float(int x) {
  return std::bit_cast<float>(x);
}
SHARDSCOPE_INLINE int __float2int_rn(float x) {
  if (!(std::fabs(x) < 2147483648.0f)) return x > 0.0f ? 2147483647 : x < 0.0f ? -2147483647 - 1 : 0;  // NaN: 0
  return static_cast<int>(std::nearbyint(x));
}
SHARDSCOPE_INLINE int __popc(unsigned x) {
  return std::popcount(x);
}
SHARDSCOPE_INLINE int __clz(int x) {
  return std::countl_zero(static_cast<unsigned>(x));
}
SHARDSCOPE_INLINE int __ffs(int x) {
  return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1;
}
SHARDSCOPE_INLINE unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const uint64_t bytes = (static_cast<uint64_t>(y) << 32) | x;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned nibble = (selector >> (4 * i)) & 0xFu;
    unsigned byte = static_cast<unsigned>(bytes >> (8 * (nibble & 7u))) & 0xFFu;
    if ((nibble & 8u) != 0) byte = (byte & 0x80u) != 0 ? 0xFFu : 0u;
    result |= byte << (8 * i);
  }
  return result;
}
SHARDSCOPE_INLINE int __dp4a(int a, int b, int sum) {
  for (int i = 0; i < 4; ++i) sum += static_cast<int8_t>(a >> (8 * i)) * static_cast<int8_t>(b >> (8 * i));
  return sum;
}

// ---- kernels/cuda/portable.cuh and ptx.cuh, for the CPU -------------------------------------------------------------

namespace shardscope::cuda {

inline constexpr int kWarpSize = 32;
inline constexpr unsigned kFullMask = 0xFFFFFFFFu;

#define SHARDSCOPE_SHARED(type, name, count) \
  static constexpr char name##_key = 0;      \
  type* const name =                         \
      static_cast<type*>(::shardscope::emulation::call::shared_variable(&name##_key, sizeof(type) * (count), #name))
#define SHARDSCOPE_DYNAMIC_SHARED(type, name) \
  type* const name = static_cast<type*>(::shardscope::emulation::call::dynamic_shared())

SHARDSCOPE_INLINE float warp_sum(float value, emulation::call::Site site = SHARDSCOPE_HERE) {
  return emulation::call::reduce(emulation::call::Reduction::kSum, value, site);
}
SHARDSCOPE_INLINE float warp_max(float value, emulation::call::Site site = SHARDSCOPE_HERE) {
  return emulation::call::reduce(emulation::call::Reduction::kMax, value, site);
}

#ifdef SHARDSCOPE_CHECKED
SHARDSCOPE_INLINE uint4 load16(const void* address) {
  return emulation::call::load16(address);
}
SHARDSCOPE_INLINE uint2 load8(const void* address) {
  return emulation::call::load8(address);
}
SHARDSCOPE_INLINE void store16(void* address, uint4 value) {
  emulation::call::store16(address, value);
}
SHARDSCOPE_INLINE void store8(void* address, uint2 value) {
  emulation::call::store8(address, value);
}
#else
SHARDSCOPE_INLINE uint4 load16(const void* address) {
  return *static_cast<const uint4*>(address);
}
SHARDSCOPE_INLINE uint2 load8(const void* address) {
  return *static_cast<const uint2*>(address);
}
SHARDSCOPE_INLINE void store16(void* address, uint4 value) {
  *static_cast<uint4*>(address) = value;
}
SHARDSCOPE_INLINE void store8(void* address, uint2 value) {
  *static_cast<uint2*>(address) = value;
}
#endif
SHARDSCOPE_INLINE uint4 load16_streaming(const void* address) {
  return load16(address);
}
SHARDSCOPE_INLINE uint2 load8_streaming(const void* address) {
  return load8(address);
}

SHARDSCOPE_INLINE void cp_async16(void* shared, const void* global, bool valid = true) {
  emulation::call::cp_async(shared, global, 16, valid);
}
SHARDSCOPE_INLINE void cp_async_commit() {
  emulation::call::cp_async_commit();
}
template <int kPending>
SHARDSCOPE_INLINE void cp_async_wait() {
  emulation::call::cp_async_wait(kPending);
}

template <class Element>
SHARDSCOPE_INLINE void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                                    emulation::call::Site site = SHARDSCOPE_HERE) {
  static_assert(std::is_same_v<Element, __half> || std::is_same_v<Element, __nv_bfloat16>);
  emulation::call::matrix_multiply(std::is_same_v<Element, __nv_bfloat16>, d, a, b, site);
}

SHARDSCOPE_INLINE uint32_t load_acquire_system(const uint32_t* address) {
  return emulation::call::load_flag(address, emulation::call::Order::kAcquire, emulation::call::Scope::kSystem);
}
SHARDSCOPE_INLINE void store_release_system(uint32_t* address, uint32_t value) {
  emulation::call::store_flag(address, value, emulation::call::Order::kRelease, emulation::call::Scope::kSystem);
}
SHARDSCOPE_INLINE uint32_t load_acquire_device(const uint32_t* address) {
  return emulation::call::load_flag(address, emulation::call::Order::kAcquire, emulation::call::Scope::kDevice);
}
SHARDSCOPE_INLINE void store_release_device(uint32_t* address, uint32_t value) {
  emulation::call::store_flag(address, value, emulation::call::Order::kRelease, emulation::call::Scope::kDevice);
}
SHARDSCOPE_INLINE uint32_t load_relaxed_system(const uint32_t* address) {
  return emulation::call::load_flag(address, emulation::call::Order::kRelaxed, emulation::call::Scope::kSystem);
}
SHARDSCOPE_INLINE void store_relaxed_system(uint32_t* address, uint32_t value) {
  emulation::call::store_flag(address, value, emulation::call::Order::kRelaxed, emulation::call::Scope::kSystem);
}
SHARDSCOPE_INLINE uint64_t load_relaxed_system(const uint64_t* address) {
  return emulation::call::load_flag(address, emulation::call::Order::kRelaxed, emulation::call::Scope::kSystem);
}
SHARDSCOPE_INLINE void store_relaxed_system(uint64_t* address, uint64_t value) {
  emulation::call::store_flag(address, value, emulation::call::Order::kRelaxed, emulation::call::Scope::kSystem);
}
SHARDSCOPE_INLINE uint64_t nanoseconds() {
  return emulation::call::nanoseconds();
}
SHARDSCOPE_INLINE void poll_pause(const void* address) {
  emulation::call::poll_pause(address);
}
SHARDSCOPE_INLINE void grid_dependency_wait() {
  emulation::call::grid_dependency_wait();
}
SHARDSCOPE_INLINE void grid_dependency_launch() {
  emulation::call::grid_dependency_launch();
}

}  // namespace shardscope::cuda

// Compilers expand these to moves that call no hook, and a library call has none.
#pragma GCC poison memcpy memmove memset
