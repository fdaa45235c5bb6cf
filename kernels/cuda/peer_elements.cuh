// Elements as the data of words (peer_words.cuh).
#pragma once

#include "kernels/cuda/numeric.cuh"
#include "kernels/cuda/peer_words.cuh"

namespace shardscope::cuda {

/// Arrays of `count` elements as words of 4 bytes; the missing second element of the last word is 0, and not stored.
template <class Element>
struct Words {
  static constexpr int kElements = 4 / static_cast<int>(sizeof(Element));

  static __host__ __device__ constexpr int64_t count(int64_t elements) {
    return (elements + kElements - 1) / kElements;
  }
  static __device__ __forceinline__ uint32_t load(const Element* array, int64_t count, int64_t word) {
    if constexpr (kElements == 2) {
      if (2 * word + 1 == count) return reinterpret_cast<const uint16_t*>(array)[2 * word];
    }
    return reinterpret_cast<const uint32_t*>(array)[word];
  }
  static __device__ __forceinline__ void store(Element* array, int64_t count, int64_t word, uint32_t bits) {
    if constexpr (kElements == 2) {
      if (2 * word + 1 == count) {
        reinterpret_cast<uint16_t*>(array)[2 * word] = static_cast<uint16_t>(bits);
        return;
      }
    }
    reinterpret_cast<uint32_t*>(array)[word] = bits;
  }
  static __device__ __forceinline__ float2 values(uint32_t bits) {
    if constexpr (kElements == 1) {
      return make_float2(__uint_as_float(bits), 0.0f);
    } else {
      return unpack2<Element>(bits);
    }
  }
  static __device__ __forceinline__ uint32_t pack(float2 values) {
    if constexpr (kElements == 1) {
      return __float_as_uint(values.x);
    } else {
      return pack2<Element>(values.x, values.y);
    }
  }
};

/// Adds the ranks' words in the order of the ranks.
template <class Element>
__device__ __forceinline__ float2 add_ranks(const PeerCall& call, uint32_t own,
                                            const uint32_t (&received)[kMaxPeerRanks]) {
  float2 sum = Words<Element>::values(call.rank == 0 ? own : received[0]);
#pragma unroll
  for (int rank = 1; rank < kMaxPeerRanks; ++rank) {
    if (rank >= call.ranks) continue;
    const float2 values = Words<Element>::values(rank == call.rank ? own : received[rank]);
    sum.x += values.x;
    sum.y += values.y;
  }
  return sum;
}

}  // namespace shardscope::cuda
