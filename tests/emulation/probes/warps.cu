// Probes of warp operations: shuffles, votes, reductions, and the tile product of the tensor cores.
#include "kernels/cuda/ptx.cuh"
#include "tests/emulation/probes/probes.hpp"

namespace shardscope::probes {
namespace {

using namespace cuda;

template <ShuffleKind kKind, class T>
__global__ void shuffle_kernel(uint32_t mask, int width, const T* values, const int* arguments, T* out) {
  const unsigned lane = threadIdx.x;
  if ((mask >> lane & 1u) == 0) return;
  const T value = values[lane];
  const int argument = arguments[lane];
  if constexpr (kKind == ShuffleKind::kIndex) {
    out[lane] = __shfl_sync(mask, value, argument, width);
  } else if constexpr (kKind == ShuffleKind::kUp) {
    out[lane] = __shfl_up_sync(mask, value, static_cast<unsigned>(argument), width);
  } else if constexpr (kKind == ShuffleKind::kDown) {
    out[lane] = __shfl_down_sync(mask, value, static_cast<unsigned>(argument), width);
  } else {
    out[lane] = __shfl_xor_sync(mask, value, argument, width);
  }
}

__global__ void vote_kernel(uint32_t mask, const int* predicates, VoteResults* results) {
  const unsigned lane = threadIdx.x;
  if ((mask >> lane & 1u) == 0) return;
  const uint32_t active = __activemask();
  const int predicate = predicates[lane];
  results[lane].active = active;
  results[lane].ballot = __ballot_sync(mask, predicate);
  results[lane].any = __any_sync(mask, predicate);
  results[lane].all = __all_sync(mask, predicate);
}

__global__ void reduce_kernel(const float* values, float* sums, float* maxima) {
  sums[threadIdx.x] = warp_sum(values[threadIdx.x]);
  maxima[threadIdx.x] = warp_max(values[threadIdx.x]);
}

template <class Element>
__device__ uint32_t packed(float low, float high);
template <>
__device__ uint32_t packed<__half>(float low, float high) {
  const uint32_t low_bits = __half_as_ushort(__float2half_rn(low));
  const uint32_t high_bits = __half_as_ushort(__float2half_rn(high));
  return low_bits | high_bits << 16;
}
template <>
__device__ uint32_t packed<__nv_bfloat16>(float low, float high) {
  const uint32_t low_bits = __bfloat16_as_ushort(__float2bfloat16_rn(low));
  const uint32_t high_bits = __bfloat16_as_ushort(__float2bfloat16_rn(high));
  return low_bits | high_bits << 16;
}

// PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type": lane = 4 * group + quarter.
template <class Element>
__global__ void multiply_tile_kernel(const float* a, const float* b, float* d) {
  const unsigned group = threadIdx.x / 4;
  const unsigned quarter = threadIdx.x % 4;
  uint32_t a_words[4];
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned row = group + (i % 2 == 1 ? 8 : 0);
    const unsigned column = 2 * quarter + (i >= 2 ? 8 : 0);
    a_words[i] = packed<Element>(a[16 * row + column], a[16 * row + column + 1]);
  }
  uint32_t b_words[2];
  for (unsigned i = 0; i < 2; ++i) {
    const unsigned row = 2 * quarter + 8 * i;
    b_words[i] = packed<Element>(b[8 * row + group], b[8 * (row + 1) + group]);
  }
  float sums[4];
  for (unsigned i = 0; i < 4; ++i) sums[i] = d[8 * (group + (i >= 2 ? 8 : 0)) + 2 * quarter + i % 2];
  mma_m16n8k16<Element>(sums, a_words, b_words);
  for (unsigned i = 0; i < 4; ++i) d[8 * (group + (i >= 2 ? 8 : 0)) + 2 * quarter + i % 2] = sums[i];
}

__global__ void reverse_lanes_kernel(unsigned* out) {
  out[threadIdx.x] = __shfl_sync(kFullMask, threadIdx.x, 31 - static_cast<int>(threadIdx.x));
}

__global__ void convert_kernel(const float* values, int* rounded, float* saturated) {
  rounded[threadIdx.x] = __float2int_rn(values[threadIdx.x]);
  saturated[threadIdx.x] = __saturatef(values[threadIdx.x]);
}

}  // namespace

template <class T>
cudaError_t shuffle(ShuffleKind kind, uint32_t mask, int width, const T* values, const int* arguments, T* out) {
  void (*kernel)(uint32_t, int, const T*, const int*, T*) = nullptr;
  switch (kind) {
    case ShuffleKind::kIndex:
      kernel = shuffle_kernel<ShuffleKind::kIndex, T>;
      break;
    case ShuffleKind::kUp:
      kernel = shuffle_kernel<ShuffleKind::kUp, T>;
      break;
    case ShuffleKind::kDown:
      kernel = shuffle_kernel<ShuffleKind::kDown, T>;
      break;
    case ShuffleKind::kXor:
      kernel = shuffle_kernel<ShuffleKind::kXor, T>;
      break;
  }
  return launch({1, 32}, kernel, mask, width, values, arguments, out);
}
template cudaError_t shuffle(ShuffleKind, uint32_t, int, const int*, const int*, int*);
template cudaError_t shuffle(ShuffleKind, uint32_t, int, const float*, const int*, float*);
template cudaError_t shuffle(ShuffleKind, uint32_t, int, const uint64_t*, const int*, uint64_t*);

cudaError_t vote(uint32_t mask, const int* predicates, VoteResults* results) {
  return launch({1, 32}, vote_kernel, mask, predicates, results);
}

cudaError_t reduce(const float* values, float* sums, float* maxima) {
  return launch({1, 32}, reduce_kernel, values, sums, maxima);
}

cudaError_t multiply_tile(bool bf16, const float* a, const float* b, float* d) {
  return launch({1, 32}, bf16 ? multiply_tile_kernel<__nv_bfloat16> : multiply_tile_kernel<__half>, a, b, d);
}

cudaError_t reverse_lanes(unsigned* out) {
  return launch({1, 32}, reverse_lanes_kernel, out);
}

cudaError_t convert(const float* values, unsigned count, int* rounded, float* saturated) {
  return launch({1, count}, convert_kernel, values, rounded, saturated);
}

}  // namespace shardscope::probes
