// mat_vec.cpp's kernels for block formats, in planes (block_planes.hpp). A lane takes 16 bytes of codes: a block of
// Q4_0 or Q4_1, half a block of Q8_0, so that a warp's loads are adjacent whatever the format.
//
// A nibble q goes into the mantissa of 1.0, which takes one shift and one logical operation and gives 1 + q / 16; what
// that adds is settled once a block, with the sum of x. A byte of Q8_0 becomes the lowest byte of 2^23's mantissa by
// one permutation, and loses the 2^23 (and the 128 that makes codes unsigned) by one subtraction, exactly. No
// conversion instruction: of those a multiprocessor starts only 16 to 64 a cycle, fewer than weights that arrive.
#include "kernels/cuda/mat_vec_kernel.cuh"

namespace shardscope::cuda {
namespace {

__device__ __forceinline__ uint32_t word_of(const uint4& codes, int number) {
  return number == 0 ? codes.x : number == 1 ? codes.y : number == 2 ? codes.z : codes.w;
}

__device__ __forceinline__ float low_half(uint32_t word) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(word)));
}
__device__ __forceinline__ float high_half(uint32_t word) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(word >> 16)));
}

/// Blocks of 16 bytes of nibbles and scales of type Stored.
template <class Stored>
struct NibbleBlocks {
  static constexpr int kColumns = 32;
  static constexpr int kParts = kColumns / 4;
  static constexpr int kMostBatchOfThree = 1;
  static constexpr bool kBlocks = true;
  static constexpr bool kSumsOfX = true;
  template <int kRows>
  struct Scales {
    Stored of_row[kRows];
  };
  template <int kRows>
  struct ScaleReader {
    const unsigned char* from;
    __device__ ScaleReader(const Product& product, int64_t row, int64_t group)
        : from(product.scales + row * product.scale_row_bytes + group * static_cast<int>(sizeof(Stored))) {}
    __device__ __forceinline__ void load(const Product& product, unsigned exist, Scales<kRows>& scales) const {
      constexpr int kHalf = kRows / 2;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const int64_t row = r < kHalf ? r : product.second_rows + r - kHalf;
        scales.of_row[r] =
            (exist >> r & 1) != 0 ? *reinterpret_cast<const Stored*>(from + row * product.scale_row_bytes) : Stored{0};
      }
    }
    __device__ __forceinline__ void advance(int groups) {
      from += groups * static_cast<int>(sizeof(Stored));
    }
  };
  /// 1 + q / 16.
  static __device__ __forceinline__ void decode(const uint4& codes, int part, float (&weights)[4]) {
    constexpr int kMantissaTop = 19;  // the lowest of the mantissa's upper four bits
    const uint32_t word = word_of(codes, part % 4);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int place = 8 * i + (part < 4 ? 0 : 4);
      const uint32_t moved = place <= kMantissaTop ? word << (kMantissaTop - place) : word >> (place - kMantissaTop);
      weights[i] = __uint_as_float((moved & (0xFu << kMantissaTop)) | 0x3F800000u);
    }
  }
};

/// d (q - 8) = 16 d ((1 + q / 16) - 1.5)
struct Q4_0 : NibbleBlocks<uint16_t> {
  using Scale = float;
  template <int kRows>
  static __device__ __forceinline__ void spread(const Scales<kRows>& stored, Scale (&scales)[kRows]) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) scales[r] = 16.0f * low_half(stored.of_row[r]);
  }
  static __device__ __forceinline__ float combine(float sum, Scale scale, float of_block, float sum_of_x) {
    return sum + scale * (of_block - 1.5f * sum_of_x);
  }
};

/// d q + m = 16 d ((1 + q / 16) - 1) + m
struct Q4_1 : NibbleBlocks<uint32_t> {
  struct Scale {
    float step;
    float least;
  };
  template <int kRows>
  static __device__ __forceinline__ void spread(const Scales<kRows>& stored, Scale (&scales)[kRows]) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) scales[r] = {16.0f * low_half(stored.of_row[r]), high_half(stored.of_row[r])};
  }
  static __device__ __forceinline__ float combine(float sum, const Scale& scale, float of_block, float sum_of_x) {
    sum += scale.step * (of_block - sum_of_x);
    return sum + scale.least * sum_of_x;
  }
};

struct Q8_0 {
  static constexpr int kColumns = 16;
  static constexpr int kParts = kColumns / 4;
  static constexpr int kMostBatchOfThree = 1;
  static constexpr bool kBlocks = true;
  static constexpr bool kSumsOfX = false;
  using Scale = float;
  /// Two lanes share a block. The even one has the scales of the first half of the rows, the odd one of the second
  /// half.
  template <int kRows>
  struct Scales {
    uint32_t of_half;  // one or two
  };
  template <int kRows>
  struct ScaleReader {
    static constexpr int kHalf = kRows / 2;
    static_assert(kHalf <= 2);
    const unsigned char* from;
    __device__ ScaleReader(const Product& product, int64_t row, int64_t group)
        : from(product.scales + (row + (group % 2 == 0 ? 0 : product.second_rows)) * product.scale_row_bytes +
               group / 2 * 2) {}
    __device__ __forceinline__ void load(const Product& product, unsigned exist, Scales<kRows>& scales) const {
      if (threadIdx.x % 2 != 0) exist >>= kHalf;
      scales.of_half = 0;
#pragma unroll
      for (int r = 0; r < kHalf; ++r) {
        if ((exist >> r & 1) == 0) continue;
        const uint32_t scale = *reinterpret_cast<const uint16_t*>(from + r * product.scale_row_bytes);
        scales.of_half |= scale << (16 * r);
      }
    }
    __device__ __forceinline__ void advance(int groups) {
      from += groups;
    }
  };
  template <int kRows>
  static __device__ __forceinline__ void spread(const Scales<kRows>& stored, Scale (&scales)[kRows]) {
    const uint32_t other = __shfl_xor_sync(kFullMask, stored.of_half, 1);
    const bool even = threadIdx.x % 2 == 0;
    const uint32_t halves[2] = {even ? stored.of_half : other, even ? other : stored.of_half};
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const uint32_t half = halves[r / (kRows / 2)];
      scales[r] = r % (kRows / 2) == 0 ? low_half(half) : high_half(half);
    }
  }
  static __device__ __forceinline__ void decode(const uint4& codes, int part, float (&weights)[4]) {
    constexpr uint32_t kTwoTo23 = 0x4B000000u;
    const uint32_t word = word_of(codes, part) ^ 0x80808080u;  // each code + 128
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      weights[i] = __uint_as_float(__byte_perm(word, kTwoTo23, 0x7650u + i)) - (8388608.0f + 128.0f);
    }
  }
  static __device__ __forceinline__ float combine(float sum, Scale scale, float of_block, float) {
    return sum + scale * of_block;
  }
};

}  // namespace

cudaError_t mat_vec_blocks(DType weight_dtype, const Product& product, const ProductLaunch& launch) {
  if (weight_dtype == DType::kQ4_0) return launch_for_batch<Q4_0>(product, launch);
  if (weight_dtype == DType::kQ4_1) return launch_for_batch<Q4_1>(product, launch);
  return launch_for_batch<Q8_0>(product, launch);
}

}  // namespace shardscope::cuda
