// What several kernels share beside portable.cuh: conversions between fp32 and the stored element types, sums over
// lanes and blocks. Registers only, but for the block's sum; memory is accessed by elements or by 16-byte pieces.
#pragma once

#include "kernels/cuda/ptx.cuh"
#include "kernels/dtype.hpp"

namespace shardscope::cuda {

using kernels::DType;

// ---- one element ----------------------------------------------------------------------------------------------------

__device__ __forceinline__ float to_float(float value) {
  return value;
}
__device__ __forceinline__ float to_float(__half value) {
  return __half2float(value);
}
__device__ __forceinline__ float to_float(__nv_bfloat16 value) {
  return __bfloat162float(value);
}

/// Rounds to nearest even.
template <class Element>
__device__ __forceinline__ Element from_float(float value);
template <>
__device__ __forceinline__ float from_float<float>(float value) {
  return value;
}
template <>
__device__ __forceinline__ __half from_float<__half>(float value) {
  return __float2half_rn(value);
}
template <>
__device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}

// ---- pieces of 16 bytes ---------------------------------------------------------------------------------------------

/// Two elements of 2 bytes in one word, the first in the low half.
template <class Element>
__device__ __forceinline__ float2 unpack2(uint32_t word);
template <>
__device__ __forceinline__ float2 unpack2<__half>(uint32_t word) {
  return make_float2(__half2float(__ushort_as_half(static_cast<unsigned short>(word))),
                     __half2float(__ushort_as_half(static_cast<unsigned short>(word >> 16))));
}
template <>
__device__ __forceinline__ float2 unpack2<__nv_bfloat16>(uint32_t word) {
  return make_float2(__uint_as_float(word << 16), __uint_as_float(word & 0xFFFF0000u));
}

template <class Element>
__device__ __forceinline__ uint32_t pack2(float first, float second);
template <>
__device__ __forceinline__ uint32_t pack2<__half>(float first, float second) {
  return static_cast<uint32_t>(__half_as_ushort(__float2half_rn(first))) |
         static_cast<uint32_t>(__half_as_ushort(__float2half_rn(second))) << 16;
}
template <>
__device__ __forceinline__ uint32_t pack2<__nv_bfloat16>(float first, float second) {
  return static_cast<uint32_t>(__bfloat16_as_ushort(__float2bfloat16_rn(first))) |
         static_cast<uint32_t>(__bfloat16_as_ushort(__float2bfloat16_rn(second))) << 16;
}

/// Elements in 16 bytes.
template <class Element>
inline constexpr int kElementsOf16Bytes = 16 / static_cast<int>(sizeof(Element));

template <class Element>
__device__ __forceinline__ void unpack16(uint4 bits, float (&values)[kElementsOf16Bytes<Element>]) {
  if constexpr (sizeof(Element) == 4) {
    values[0] = __uint_as_float(bits.x);
    values[1] = __uint_as_float(bits.y);
    values[2] = __uint_as_float(bits.z);
    values[3] = __uint_as_float(bits.w);
  } else {
    const float2 a = unpack2<Element>(bits.x);
    const float2 b = unpack2<Element>(bits.y);
    const float2 c = unpack2<Element>(bits.z);
    const float2 d = unpack2<Element>(bits.w);
    values[0] = a.x, values[1] = a.y, values[2] = b.x, values[3] = b.y;
    values[4] = c.x, values[5] = c.y, values[6] = d.x, values[7] = d.y;
  }
}

template <class Element>
__device__ __forceinline__ uint4 pack16(const float (&values)[kElementsOf16Bytes<Element>]) {
  if constexpr (sizeof(Element) == 4) {
    return make_uint4(__float_as_uint(values[0]), __float_as_uint(values[1]), __float_as_uint(values[2]),
                      __float_as_uint(values[3]));
  } else {
    return make_uint4(pack2<Element>(values[0], values[1]), pack2<Element>(values[2], values[3]),
                      pack2<Element>(values[4], values[5]), pack2<Element>(values[6], values[7]));
  }
}

/// kCount adjacent elements as they are stored, 8 or 16 bytes of them.
template <class Element, int kCount>
struct Packed {
  static constexpr int kBytes = kCount * static_cast<int>(sizeof(Element));
  static_assert(kBytes == 8 || kBytes == 16);
  uint4 bits;  // of 8 bytes: x and y

  /// At an address that is a multiple of kBytes.
  static __device__ __forceinline__ Packed load(const Element* from) {
    if constexpr (kBytes == 16) {
      return {load16(from)};
    } else {
      const uint2 half = load8(from);
      return {make_uint4(half.x, half.y, 0, 0)};
    }
  }
  __device__ __forceinline__ void store(Element* to) const {
    if constexpr (kBytes == 16) {
      store16(to, bits);
    } else {
      store8(to, make_uint2(bits.x, bits.y));
    }
  }
  __device__ __forceinline__ void unpack(float (&values)[kCount]) const {
    float all[kElementsOf16Bytes<Element>];
    unpack16<Element>(bits, all);
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] = all[i];
  }
  static __device__ __forceinline__ Packed pack(const float (&values)[kCount]) {
    float all[kElementsOf16Bytes<Element>] = {};
#pragma unroll
    for (int i = 0; i < kCount; ++i) all[i] = values[i];
    return {pack16<Element>(all)};
  }
};

__device__ __forceinline__ float4 as_float4(uint4 bits) {
  return make_float4(__uint_as_float(bits.x), __uint_as_float(bits.y), __uint_as_float(bits.z),
                     __uint_as_float(bits.w));
}
__device__ __forceinline__ uint4 as_uint4(float4 value) {
  return make_uint4(__float_as_uint(value.x), __float_as_uint(value.y), __float_as_uint(value.z),
                    __float_as_uint(value.w));
}

// ---- activations ----------------------------------------------------------------------------------------------------
// Their dtype is known at run time only: the same for all threads, so that no warp diverges.

/// Element `index` of an array of `dtype`: fp32, fp16 or bf16.
__device__ __forceinline__ float load_element(const void* array, DType dtype, int64_t index) {
  if (dtype == DType::kF32) return static_cast<const float*>(array)[index];
  if (dtype == DType::kF16) return to_float(static_cast<const __half*>(array)[index]);
  return to_float(static_cast<const __nv_bfloat16*>(array)[index]);
}
__device__ __forceinline__ void store_element(void* array, DType dtype, int64_t index, float value) {
  if (dtype == DType::kF32) {
    static_cast<float*>(array)[index] = value;
  } else if (dtype == DType::kF16) {
    static_cast<__half*>(array)[index] = from_float<__half>(value);
  } else {
    static_cast<__nv_bfloat16*>(array)[index] = from_float<__nv_bfloat16>(value);
  }
}

/// Elements index to index + 3; aligned to the size of the four.
__device__ __forceinline__ float4 load_four(const void* array, DType dtype, int64_t index) {
  if (dtype == DType::kF32) return as_float4(load16(static_cast<const float*>(array) + index));
  const uint2 words = load8(static_cast<const uint16_t*>(array) + index);
  const float2 low = dtype == DType::kF16 ? unpack2<__half>(words.x) : unpack2<__nv_bfloat16>(words.x);
  const float2 high = dtype == DType::kF16 ? unpack2<__half>(words.y) : unpack2<__nv_bfloat16>(words.y);
  return make_float4(low.x, low.y, high.x, high.y);
}

/// value * sigmoid(value). exp(-value) may be infinite: the quotient is then zero, as it should be.
__device__ __forceinline__ float silu(float value) {
  return value / (1.0f + expf(-value));
}

// ---- sums -----------------------------------------------------------------------------------------------------------

/// Sums each of kCount values (a power of two) over the lanes that differ in the bits kFirst, kFirst / 2, ... kLast of
/// their number. While there are several values, a lane hands half of them to its partner and keeps the other half, so
/// that 32 values over 32 lanes take 31 shuffles instead of 160. What is left, values[0] to values[kLeft - 1], are the
/// sums with the numbers kLeft * i + 0 to kLeft - 1, where i is the lane's number within those bits, shifted down
/// until there are no more different i than places: see SumPlace. All 32 lanes must call.
template <int kCount, int kFirst = 16, int kLast = 1>
__device__ __forceinline__ void sum_lanes(float (&values)[kCount]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  int left = kCount;
#pragma unroll
  for (int bit = kFirst; bit >= kLast; bit /= 2) {
    if (left > 1) {
      left /= 2;
      const bool upper = (lane & bit) != 0;
#pragma unroll
      for (int i = 0; i < kCount / 2; ++i) {
        if (i >= left) break;
        const float given = upper ? values[i] : values[i + left];
        const float kept = upper ? values[i + left] : values[i];
        values[i] = kept + __shfl_xor_sync(kFullMask, given, bit);
      }
    } else {
      values[0] += __shfl_xor_sync(kFullMask, values[0], bit);
    }
  }
}

/// Which of the sums a lane holds after sum_lanes<kCount, kFirst, kLast>.
template <int kCount, int kFirst = 16, int kLast = 1>
struct SumPlace {
  static constexpr int kLanes = 2 * kFirst / kLast;                       // that each value is summed over
  static constexpr int kLeft = kCount > kLanes ? kCount / kLanes : 1;     // sums that a lane holds
  static constexpr int kSharers = kCount < kLanes ? kLanes / kCount : 1;  // lanes that hold the same one
  /// The number of the first sum that `lane` holds.
  static __device__ __forceinline__ int first(int lane) { return lane % (2 * kFirst) / kLast / kSharers * kLeft; }
  /// Of the lanes that hold the same sums, the one that is to store them.
  static __device__ __forceinline__ bool stores(int lane) { return lane % (2 * kFirst) / kLast % kSharers == 0; }
};

/// Sum over the block in every thread, the same bits in all. The block is whole warps, at most 32; all threads call.
/// `partial` [32] is shared memory that nobody else uses; before a second use of it there must be a barrier.
__device__ __forceinline__ float block_sum(float value, float* partial) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warps = static_cast<int>(blockDim.x) / kWarpSize;
  const float of_warp = warp_sum(value);
  if (lane == 0) partial[threadIdx.x / kWarpSize] = of_warp;
  __syncthreads();
  return warp_sum(lane < warps ? partial[lane] : 0.0f);
}

}  // namespace shardscope::cuda
