// The kernel of mat_vec.cpp and its launch, for any format of weights. A Format says:
//
//   kColumns      columns of a group: what a lane's 16 bytes of codes hold
//   kParts        a part is four columns of a group, so kColumns / 4
//   kMostBatchOfThree  up to which batch three blocks share the registers of a multiprocessor; beyond it, two
//   kBlocks       whether sums are scaled, block by block
//   kSumsOfX      whether scaling needs the sum of x over the block too (then a group is a block)
//   Scales<kRows> the scales of a lane's kRows pieces of 16 bytes
//   ScaleReader   where a lane reads them:  (product, first row, group)  load(product, exist, out)  advance(groups)
//                 bit r of exist: the lane's piece of row r exists; what does not is zero
//   decode        four columns of a piece as floats
//   spread        scales as fetched -> the scale of each row, by all lanes of the warp
//   combine       what a block adds to its row's sum
#pragma once

#include <algorithm>

#include "kernels/cuda/device_limits.hpp"
#include "kernels/cuda/mat_vec_stage.cuh"
#include "kernels/cuda/operation_stamps.cuh"

namespace shardscope::cuda {

inline constexpr int kStagedFloats = 16 * 1024;  // of x, all vectors together

/// One lane's 16 bytes of each of a warp's rows.
template <class Format, int kRows>
struct Pieces {
  uint4 codes[kRows];
  typename Format::template Scales<kRows> scales;
};

/// A place in the weights: of one lane, in the first of its rows.
template <class Format, int kRows>
struct Reader {
  static constexpr int kHalf = kRows / 2;
  const unsigned char* codes;
  typename Format::template ScaleReader<kRows> scales;

  __device__ Reader(const Product& product, int64_t row, int64_t group)
      : codes(product.codes + row * product.code_row_bytes + group * 16), scales(product, row, group) {}
  __device__ __forceinline__ void load(const Product& product, unsigned exist, Pieces<Format, kRows>& pieces) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int64_t row = r < kHalf ? r : product.second_rows + r - kHalf;
      const unsigned char* from = codes + row * product.code_row_bytes;
      pieces.codes[r] = (exist >> r & 1) == 0 ? make_uint4(0, 0, 0, 0)
                        : product.read_again  ? load16(from)
                                              : load16_streaming(from);
    }
    scales.load(product, exist, pieces.scales);
  }
  __device__ __forceinline__ void advance(int groups) {
    codes += groups * 16;
    scales.advance(groups);
  }
};

/// sums [kRows][kBatch] += weights * the staged x of one group.
template <class Format, int kBatch, int kRows>
__device__ __forceinline__ void multiply_add(const uint4 (&codes)[kRows], const Stage<Format>& stage, int group,
                                             float* shared, float (&sums)[kRows * kBatch]) {
#pragma unroll
  for (int part = 0; part < Format::kParts; ++part) {
    float4 x[kBatch];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) x[b] = as_float4(load16(stage.quad(shared, b, part, group)));
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float weights[4];
      Format::decode(codes[r], part, weights);
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        float sum = sums[r * kBatch + b];
        sum += weights[0] * x[b].x;
        sum += weights[1] * x[b].y;
        sum += weights[2] * x[b].z;
        sum += weights[3] * x[b].w;
        sums[r * kBatch + b] = sum;
      }
    }
  }
}

/// The same, scaled where the format is.
template <class Format, int kBatch, int kRows>
__device__ __forceinline__ void take_group(const Pieces<Format, kRows>& pieces, const Stage<Format>& stage, int group,
                                           float* shared, float (&sums)[kRows * kBatch]) {
  if constexpr (Format::kBlocks) {
    float of_block[kRows * kBatch] = {};
    multiply_add<Format, kBatch, kRows>(pieces.codes, stage, group, shared, of_block);
    typename Format::Scale scales[kRows];
    Format::spread(pieces.scales, scales);
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      float sum_of_x = 0;
      if constexpr (Format::kSumsOfX) sum_of_x = *stage.sum(shared, kBatch, b, group);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        float& sum = sums[r * kBatch + b];
        sum = Format::combine(sum, scales[r], of_block[r * kBatch + b], sum_of_x);
      }
    }
  } else {
    multiply_add<Format, kBatch, kRows>(pieces.codes, stage, group, shared, sums);
  }
}

/// y of one output and vector from the sums of all warps: partial [warps][kRows][kBatch].
template <int kBatch, int kRows>
__device__ __forceinline__ void store_output(const Product& product, const float* partial, const float* squares,
                                             int64_t first_output, int output, int vector) {
  constexpr int kSums = kRows * kBatch;
  constexpr int kHalf = kRows / 2;
  const float factor = norm_factor<kBatch>(product, squares, vector);
  const auto total = [&](int team, int row, int64_t bias_row) {
    float sum = 0;
    for (int i = 0; i < 1 << product.split_bits; ++i) {
      sum += partial[((team << product.split_bits) + i) * kSums + row * kBatch + vector];
    }
    return sum * factor + (product.bias == nullptr ? 0.0f : product.bias[bias_row]);
  };
  const int64_t column = first_output + output;
  float value = 0;
  if (product.gated) {
    const int row = output % kHalf;
    const float gate = total(output / kHalf, row, column);
    value = silu(gate) * total(output / kHalf, kHalf + row, product.outputs + column);
  } else {
    value = total(output / kRows, output % kRows, column);
  }
  store_element(product.y, product.y_dtype, vector * product.y_stride + column, value);
}

/// Blocks that a multiprocessor of H100 holds at once.
template <class Format, int kBatch>
inline constexpr int kResidentBlocks = kBatch <= Format::kMostBatchOfThree ? 3 : 2;

template <class Format, int kBatch, int kRows>
__global__ void __launch_bounds__(kMatVecThreads, kResidentBlocks<Format, kBatch>) mat_vec_kernel(Product product) {
  mark_begin(product.stamps);
  constexpr int kSums = kRows * kBatch;
  using Place = SumPlace<kSums>;
  SHARDSCOPE_DYNAMIC_SHARED(float, shared);
  SHARDSCOPE_SHARED(float, partial, kMatVecWarps* kSums);
  SHARDSCOPE_SHARED(float, squares, kMatVecWarps* kBatch);
  const Stage<Format> stage(product.chunk_groups);
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int split = 1 << product.split_bits;
  const int warp_of_split = warp & (split - 1);
  const int outputs_of_warp = product.gated ? kRows / 2 : kRows;
  const int outputs_of_block = (kMatVecWarps >> product.split_bits) * outputs_of_warp;
  const int64_t block_output = static_cast<int64_t>(blockIdx.x) * outputs_of_block;
  const int64_t first_output = block_output + (warp >> product.split_bits) * outputs_of_warp;
  const int groups = static_cast<int>((product.columns + Format::kColumns - 1) / Format::kColumns);
  const int steps = (groups + kWarpSize - 1) / kWarpSize;
  const int64_t outputs_left = product.outputs - first_output;
  unsigned exist = 0;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if ((product.gated ? r % (kRows / 2) : r) < outputs_left) exist |= 1u << r;
  }

  // The lane's pieces of the step before which `group` stands, if there are any.
  int group = warp_of_split * kWarpSize + lane;
  Reader<Format, kRows> reader(product, first_output, group);
  Pieces<Format, kRows> next;
  const auto load_next = [&] {
    reader.load(product, group < groups ? exist : 0, next);
    group += kWarpSize << product.split_bits;
    reader.advance(kWarpSize << product.split_bits);
  };

  float sums[kSums] = {};
  load_next();
  const int chunk_steps = product.chunk_groups / kWarpSize;
  stage_norm_weight<Format>(product, stage, 0, min(chunk_steps, steps) * kWarpSize, shared);
  grid_dependency_wait();
  int step = warp_of_split;
  for (int begin = 0; begin < steps; begin += chunk_steps) {
    const int end = min(begin + chunk_steps, steps);
    const int64_t first_group = int64_t{begin} * kWarpSize;
    const int chunk = (end - begin) * kWarpSize;
    if (begin > 0) {
      __syncthreads();  // all warps have read the chunk before
      stage_norm_weight<Format>(product, stage, first_group, chunk, shared);
    }
    stage_x<Format, kBatch>(product, stage, first_group, chunk, shared, squares);
    __syncthreads();
#pragma unroll 1
    for (; step < end; step += split) {
      const Pieces<Format, kRows> current = next;
      load_next();
      take_group<Format, kBatch, kRows>(current, stage, (step - begin) * kWarpSize + lane, shared, sums);
    }
  }
  grid_dependency_launch();

  sum_lanes<kSums>(sums);
  if (Place::stores(lane)) {
#pragma unroll
    for (int i = 0; i < Place::kLeft; ++i) partial[warp * kSums + Place::first(lane) + i] = sums[i];
  }
  __syncthreads();
  const int output = static_cast<int>(threadIdx.x) % outputs_of_block;
  const int vector = static_cast<int>(threadIdx.x) / outputs_of_block;
  if (vector < product.batch && vector < kBatch && block_output + output < product.outputs) {
    store_output<kBatch, kRows>(product, partial, squares, block_output, output, vector);
  }
  mark_end(product.stamps);
}

template <class Format, int kBatch>
cudaError_t launch_product(Product product, const ProductLaunch& where) {
  constexpr int kRows = Format::kBlocks && kBatch == 8 ? 2 : 4;  // more would not fit the registers
  constexpr int kMostChunk = kStagedFloats / std::max(kBatch, 2) / Format::kColumns;
  const int64_t groups = (product.columns + Format::kColumns - 1) / Format::kColumns;
  const int64_t steps = (groups + kWarpSize - 1) / kWarpSize;
  product.chunk_groups = steps * kWarpSize < kMostChunk ? static_cast<int>(steps) * kWarpSize : kMostChunk;
  product.second_rows = product.gated ? product.outputs : kRows / 2;
  product.split_bits = 0;
  const auto blocks = [&] {
    const int64_t outputs_of_block = (kMatVecWarps >> product.split_bits) * (product.gated ? kRows / 2 : kRows);
    return (product.outputs + outputs_of_block - 1) / outputs_of_block;
  };
  while (1 << product.split_bits < kMatVecWarps && 2 << product.split_bits <= product.chunk_groups / kWarpSize &&
         blocks() < int64_t{kResidentBlocks<Format, kBatch>} * where.multiprocessors) {
    ++product.split_bits;
  }
  const auto kernel = mat_vec_kernel<Format, kBatch, kRows>;
  const size_t shared_bytes = Stage<Format>(product.chunk_groups).bytes(kBatch);
  if (shared_bytes > kSharedWithoutAsking) {
    const size_t most = Stage<Format>(kMostChunk).bytes(kBatch);  // always the same: see allow_shared_bytes
    if (const cudaError_t error = allow_shared_bytes(kernel, most); error != cudaSuccess) return error;
  }
  return launch(Launch{.grid = dim3(static_cast<unsigned>(blocks())),
                       .block = dim3(kMatVecThreads),
                       .shared_bytes = shared_bytes,
                       .stream = where.stream,
                       .programmatic = where.programmatic},
                kernel, product);
}

template <class Format>
cudaError_t launch_for_batch(const Product& product, const ProductLaunch& where) {
  if (product.batch == 1) return launch_product<Format, 1>(product, where);
  if (product.batch == 2) return launch_product<Format, 2>(product, where);
  if (product.batch <= 4) return launch_product<Format, 4>(product, where);
  return launch_product<Format, 8>(product, where);
}

}  // namespace shardscope::cuda
