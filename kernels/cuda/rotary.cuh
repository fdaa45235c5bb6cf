// Rotary embedding of one pair of a head's dims (arXiv:2104.09864, in the order of the published weights: dim i with
// dim i + rotary_dims / 2), for the kernels that turn queries and keys.
#pragma once

#include "kernels/cuda/numeric.cuh"

namespace shardscope::cuda {

/// Dims i and i + rotary_dims / 2 after the turn. angle: cosine and sine.
__device__ __forceinline__ float2 rotated(float2 pair, float2 angle) {
  return make_float2(pair.x * angle.x - pair.y * angle.y, pair.y * angle.x + pair.x * angle.y);
}

__device__ __forceinline__ float2 load_angle(const float2* angle) {
  const uint2 words = load8(angle);
  return make_float2(__uint_as_float(words.x), __uint_as_float(words.y));
}

/// kCount adjacent elements from each of two places; both loads before either is converted.
template <class Element, int kCount>
__device__ __forceinline__ void load_elements(const Element* first, const Element* second,
                                              float (&first_values)[kCount], float (&second_values)[kCount]) {
  if constexpr (kCount == 1) {
    const Element one = *first;
    const Element other = *second;
    first_values[0] = to_float(one);
    second_values[0] = to_float(other);
  } else {
    const auto some = Packed<Element, kCount>::load(first);
    const auto others = Packed<Element, kCount>::load(second);
    some.unpack(first_values);
    others.unpack(second_values);
  }
}
/// kCount adjacent elements from each of two places, which may be the same. kCount is 1, 4, or, for types of 16 bits,
/// 8; more than one are aligned.
template <int kCount>
__device__ __forceinline__ void load_elements(const void* array, DType dtype, int64_t first, int64_t second,
                                              float (&first_values)[kCount], float (&second_values)[kCount]) {
  if (dtype == DType::kF16) {
    load_elements(static_cast<const __half*>(array) + first, static_cast<const __half*>(array) + second, first_values,
                  second_values);
  } else if (dtype == DType::kBF16) {
    load_elements(static_cast<const __nv_bfloat16*>(array) + first, static_cast<const __nv_bfloat16*>(array) + second,
                  first_values, second_values);
  } else if constexpr (kCount <= 4) {
    load_elements(static_cast<const float*>(array) + first, static_cast<const float*>(array) + second, first_values,
                  second_values);
  }
}
template <int kCount>
__device__ __forceinline__ void store_elements(void* array, DType dtype, int64_t index, const float (&values)[kCount]) {
  if constexpr (kCount == 1) {
    store_element(array, dtype, index, values[0]);
  } else if (dtype == DType::kF16) {
    Packed<__half, kCount>::pack(values).store(static_cast<__half*>(array) + index);
  } else if (dtype == DType::kBF16) {
    Packed<__nv_bfloat16, kCount>::pack(values).store(static_cast<__nv_bfloat16*>(array) + index);
  } else if constexpr (kCount == 4) {
    Packed<float, kCount>::pack(values).store(static_cast<float*>(array) + index);
  }
}

/// kCount angles, two at a time where there are several.
template <int kCount>
__device__ __forceinline__ void load_angles(const float2* from, float2 (&angles)[kCount]) {
  if constexpr (kCount == 1) {
    angles[0] = load_angle(from);
  } else {
#pragma unroll
    for (int i = 0; i < kCount; i += 2) {
      const float4 two = as_float4(load16(from + i));
      angles[i] = make_float2(two.x, two.y);
      angles[i + 1] = make_float2(two.z, two.w);
    }
  }
}

/// Which dims of a head one thread has: kCount from `dim` on and, of rotated dims, the kCount that they are turned
/// with.
template <int kCount>
struct HeadItem {
  bool paired;
  int dim;
  int partner;  // `dim` where it has none: loaded twice rather than in a branch of its own

  __device__ __forceinline__ HeadItem(int item, int pairs)
      : paired(item < pairs / kCount), dim(item * kCount + (paired ? 0 : pairs)), partner(paired ? dim + pairs : dim) {}
  /// Items of a head.
  __host__ __device__ static constexpr int count(int head_dim, int pairs) { return (head_dim - pairs) / kCount; }
};

/// The item's dims of the head that begins at element `head`, after the turn by this token's `angles`; null: as they
/// are. All loads are on their way before anything of them is used: one latency, not three.
template <int kCount>
__device__ __forceinline__ void load_item(const void* array, DType dtype, int64_t head, const HeadItem<kCount>& item,
                                          const float2* angles, float (&dims)[kCount], float (&partners)[kCount]) {
  float2 turns[kCount] = {};
  const bool turned = angles != nullptr && item.paired;
  if (turned) load_angles(angles + item.dim, turns);
  load_elements(array, dtype, head + item.dim, head + item.partner, dims, partners);
  if (!turned) return;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const float2 both = rotated(make_float2(dims[i], partners[i]), turns[i]);
    dims[i] = both.x;
    partners[i] = both.y;
  }
}

}  // namespace shardscope::cuda
