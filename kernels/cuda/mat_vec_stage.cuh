// x in shared memory, as mat_vec.cpp's kernels read it: loaded from its dtype, added to, normed, and spread so that no
// bank is asked twice.
#pragma once

#include "kernels/cuda/mat_vec_product.hpp"
#include "kernels/cuda/numeric.cuh"

namespace shardscope::cuda {

inline constexpr int kMatVecWarps = 8;
inline constexpr int kMatVecThreads = kMatVecWarps * kWarpSize;

/// Where the staged x lies: for each vector kParts planes of [chunk_groups] quads of floats, so that the lanes of a
/// warp read adjacent quads; the planes are shifted against each other so that staging has no bank conflicts either.
/// Then, for formats that need them, the sums [chunk_groups] of each group.
template <class Format>
struct Stage {
  int plane_quads;
  int vector_quads;
  int chunk_groups;
  __host__ __device__ explicit Stage(int groups)
      : plane_quads(groups + 8 / Format::kParts), vector_quads(Format::kParts * plane_quads), chunk_groups(groups) {}
  __device__ float* quad(float* shared, int vector, int part, int group) const {
    return shared + 4 * (vector * vector_quads + part * plane_quads + group);
  }
  __device__ float* sum(float* shared, int vectors, int vector, int group) const {
    return shared + 4 * vectors * vector_quads + vector * chunk_groups + group;
  }
  size_t bytes(int vectors) const {
    return sizeof(float) * vectors * (4 * vector_quads + (Format::kSumsOfX ? chunk_groups : 0));
  }
};

/// Four adjacent elements of rows of Element that begin at whole quads and end with one. Several are fetched before the
/// first is used: a thread waits once for all of them: kMost of 16 bits, two of fp32.
template <class Element, int kMost>
struct WholeQuads {
  using Quad = Packed<Element, 4>;
  static constexpr int kAtOnce = sizeof(Element) == 4 ? 2 : kMost;
  static __device__ __forceinline__ Quad load(const Product&, const void* array, int64_t index, int64_t) {
    return Quad::load(static_cast<const Element*>(array) + index);
  }
  static __device__ __forceinline__ float4 spread(const Product&, const Quad& quad) {
    float values[4];
    quad.unpack(values);
    return make_float4(values[0], values[1], values[2], values[3]);
  }
  static __device__ __forceinline__ Quad pack(const Product&, float4 value) {
    return Quad::pack({value.x, value.y, value.z, value.w});
  }
  static __device__ __forceinline__ void store(const Product&, void* array, int64_t index, int64_t, const Quad& quad) {
    quad.store(static_cast<Element*>(array) + index);
  }
};

/// Elements index to index + 3, aligned to the size of the four, of values that `dtype` can hold.
__device__ __forceinline__ void store_four(void* array, DType dtype, int64_t index, float4 value) {
  if (dtype == DType::kF32) {
    store16(static_cast<float*>(array) + index, as_uint4(value));
  } else if (dtype == DType::kF16) {
    store8(static_cast<__half*>(array) + index,
           make_uint2(pack2<__half>(value.x, value.y), pack2<__half>(value.z, value.w)));
  } else {
    store8(static_cast<__nv_bfloat16*>(array) + index,
           make_uint2(pack2<__nv_bfloat16>(value.x, value.y), pack2<__nv_bfloat16>(value.z, value.w)));
  }
}

/// Elements index to index + 3 of any row, of which only the first `left` exist; zeros for the others.
struct AnyQuads {
  using Quad = float4;
  static constexpr int kAtOnce = 1;
  static __device__ __forceinline__ Quad load(DType dtype, const void* array, int64_t index, int64_t left, bool whole) {
    if (whole) return load_four(array, dtype, index);
    Quad quad = make_float4(load_element(array, dtype, index), 0, 0, 0);
    if (left > 1) quad.y = load_element(array, dtype, index + 1);
    if (left > 2) quad.z = load_element(array, dtype, index + 2);
    if (left > 3) quad.w = load_element(array, dtype, index + 3);
    return quad;
  }
  static __device__ __forceinline__ Quad load(const Product& product, const void* array, int64_t index, int64_t left) {
    return load(product.dtype, array, index, left, product.whole_x);
  }
  static __device__ __forceinline__ float4 spread(const Product&, const Quad& quad) { return quad; }
  static __device__ __forceinline__ Quad pack(const Product& product, float4 value) {
    return make_float4(rounded(product.dtype, value.x), rounded(product.dtype, value.y),
                       rounded(product.dtype, value.z), rounded(product.dtype, value.w));
  }
  static __device__ __forceinline__ void store(const Product& product, void* array, int64_t index, int64_t left,
                                               const Quad& quad) {
    if (product.whole_x) {
      store_four(array, product.dtype, index, quad);
      return;
    }
    store_element(array, product.dtype, index, quad.x);
    if (left > 1) store_element(array, product.dtype, index + 1, quad.y);
    if (left > 2) store_element(array, product.dtype, index + 2, quad.z);
    if (left > 3) store_element(array, product.dtype, index + 3, quad.w);
  }

 private:
  static __device__ __forceinline__ float rounded(DType dtype, float value) {
    if (dtype == DType::kF16) return to_float(from_float<__half>(value));
    if (dtype == DType::kBF16) return to_float(from_float<__nv_bfloat16>(value));
    return value;
  }
};

/// Puts the norm's weights of `groups` groups from `first_group` on where vector 0 will be staged: each thread those
/// that it will multiply with itself, so that there need be no barrier. They come from no kernel: the first ones are
/// fetched before the predecessor has ended.
template <class Format>
__device__ __forceinline__ void stage_norm_weight(const Product& product, const Stage<Format>& stage,
                                                  int64_t first_group, int groups, float* shared) {
  if (product.norm_weight == nullptr) return;
  const int64_t first_column = first_group * Format::kColumns;
#pragma unroll 4
  for (int item = static_cast<int>(threadIdx.x); item < groups * Format::kParts; item += kMatVecThreads) {
    const int64_t column = first_column + 4 * item;
    if (column >= product.columns) break;
    const float4 weight =
        AnyQuads::load(DType::kF32, product.norm_weight, column, product.columns - column, product.whole_x);
    store16(stage.quad(shared, 0, item % Format::kParts, item / Format::kParts), as_uint4(weight));
  }
}

/// Stages vectors first_vector to first_vector + kVectors - 1: what the product is of but for the factor of the norm,
/// which waits until all squares are known: x, or (x + addend) * weight. Zeros beyond the last column and the last
/// vector.
template <class Format, int kBatch, int kVectors, class Quads>
__device__ __forceinline__ void stage_vectors(const Product& product, const Stage<Format>& stage, int first_vector,
                                              int64_t first_group, int groups, float* shared, float* squares) {
  constexpr int kItems = Quads::kAtOnce / kVectors;  // that a thread takes at once, of each vector
  using Quad = typename Quads::Quad;
  const int items = groups * Format::kParts;
  const int64_t first_column = first_group * Format::kColumns;
  const bool norm = product.norm_weight != nullptr;
  const bool adds = product.addend != nullptr;
  float squared[kVectors] = {};
#pragma unroll 1
  for (int begin = static_cast<int>(threadIdx.x); begin < items; begin += kItems * kMatVecThreads) {
    Quad x[kItems][kVectors] = {};
    Quad addend[kItems][kVectors] = {};
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      const int64_t column = first_column + 4 * (begin + i * kMatVecThreads);
      const int64_t left = begin + i * kMatVecThreads < items ? product.columns - column : 0;
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        const int vector = first_vector + v;
        if (left <= 0 || vector >= product.batch) continue;
        x[i][v] = Quads::load(product, product.x, vector * product.x_stride + column, left);
        if (adds) addend[i][v] = Quads::load(product, product.addend, vector * product.addend_stride + column, left);
      }
    }
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      const int item = begin + i * kMatVecThreads;
      if (item >= items) break;  // so has the whole warp: items are a multiple of 32
      const int part = item % Format::kParts;
      const int group = item / Format::kParts;
      const int64_t column = first_column + 4 * item;
      const int64_t left = product.columns - column;
      float4 weight = make_float4(0, 0, 0, 0);
      if (norm && left > 0) weight = as_float4(load16(stage.quad(shared, 0, part, group)));
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        const int vector = first_vector + v;
        float4 s = Quads::spread(product, x[i][v]);
        if (adds) {
          const float4 more = Quads::spread(product, addend[i][v]);
          const Quad sum = Quads::pack(product, make_float4(s.x + more.x, s.y + more.y, s.z + more.z, s.w + more.w));
          s = Quads::spread(product, sum);
          if (blockIdx.x == 0 && left > 0 && vector < product.batch) {  // all blocks have the same s
            Quads::store(product, product.sum, vector * product.sum_stride + column, left, sum);
          }
        }
        if (norm) {
          squared[v] += s.x * s.x + s.y * s.y + s.z * s.z + s.w * s.w;
          s = make_float4(s.x * weight.x, s.y * weight.y, s.z * weight.z, s.w * weight.w);
        }
        store16(stage.quad(shared, vector, part, group), as_uint4(s));
        if constexpr (Format::kSumsOfX) {
          float sum = s.x + s.y + s.z + s.w;
          for (int bit = 1; bit < Format::kParts; bit *= 2) sum += __shfl_xor_sync(kFullMask, sum, bit);
          if (part == 0) *stage.sum(shared, kBatch, vector, group) = sum;
        }
      }
    }
  }
  if (!norm) return;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const float sum = warp_sum(squared[v]);
    if (threadIdx.x % kWarpSize == 0) {
      float& total = squares[threadIdx.x / kWarpSize * kBatch + first_vector + v];
      total = first_group == 0 ? sum : total + sum;
    }
  }
}

/// Stages all vectors; vector 0 last, where the norm's weights are.
template <class Format, int kBatch, class Quads>
__device__ __forceinline__ void stage_all(const Product& product, const Stage<Format>& stage, int64_t first_group,
                                          int groups, float* shared, float* squares) {
  constexpr int kVectors = kBatch < Quads::kAtOnce ? kBatch : Quads::kAtOnce;
#pragma unroll 1
  for (int first = kBatch - kVectors; first >= 0; first -= kVectors) {
    stage_vectors<Format, kBatch, kVectors, Quads>(product, stage, first, first_group, groups, shared, squares);
  }
}

/// Stages `groups` groups (a multiple of 32) from `first_group` on, whose norm's weights are staged, and adds to
/// squares [warps][kBatch] what each warp has squared. All threads of the block call.
template <class Format, int kBatch>
__device__ __forceinline__ void stage_x(const Product& product, const Stage<Format>& stage, int64_t first_group,
                                        int groups, float* shared, float* squares) {
  // What there are registers for beside the sums and the next weights.
  constexpr bool kFull = Format::kBlocks && kBatch > 1;
  constexpr int kMost = kBatch == 1 || kBatch > 2 ? 4 : 2;
  if (kFull || !product.whole_x) {
    stage_all<Format, kBatch, AnyQuads>(product, stage, first_group, groups, shared, squares);
  } else if (product.dtype == DType::kF32) {
    stage_all<Format, kBatch, WholeQuads<float, kMost>>(product, stage, first_group, groups, shared, squares);
  } else if (product.dtype == DType::kF16) {
    stage_all<Format, kBatch, WholeQuads<__half, kMost>>(product, stage, first_group, groups, shared, squares);
  } else {
    stage_all<Format, kBatch, WholeQuads<__nv_bfloat16, kMost>>(product, stage, first_group, groups, shared, squares);
  }
}

/// The factor of the norm of vector `vector`, when all warps have staged all of x.
template <int kBatch>
__device__ __forceinline__ float norm_factor(const Product& product, const float* squares, int vector) {
  if (product.norm_weight == nullptr) return 1;
  float total = 0;
#pragma unroll
  for (int warp = 0; warp < kMatVecWarps; ++warp) total += squares[warp * kBatch + vector];
  return rsqrtf(total / static_cast<float>(product.columns) + product.epsilon);
}

}  // namespace shardscope::cuda
