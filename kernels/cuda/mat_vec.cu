// Matrix times 1 to 8 vectors. A warp multiplies kRows rows at once, so that what it fetches of x serves all of them;
// its lanes take adjacent pieces of 16 bytes of a row (8 bf16, or one Q4_0 block of 32), and the pieces of the next
// step are loaded before those of this one are used. x is staged in shared memory as fp32, a chunk of columns at a
// time, for all warps of the block.
//
// Bytes: the weights once. A thread has 64 bytes of them in flight (32 with q4_0 and a batch above 4), and two or three
// blocks are on a multiprocessor of H100: 16 to 48 KiB. Little's law asks for 15 to 35 KiB there (3.35 TB/s, 132
// multiprocessors, 600 to 1,400 ns).
//
// Work: q4_0 costs 2 integer operations a weight beside `batch` multiply-adds. At batch 1 that is 60 % of what H100 can
// issue while the weights arrive (132 x 128 lanes, 1.75 GHz), at 2 it is 80 %; so it is, at any batch, of the integer
// operations (64 lanes). Beyond batch 2 it is more than H100 can issue: tensor cores would pay.
//
// Launch: blocks of 8 warps. `split` warps share the columns of the same rows (1, 2, 4 or 8): as few as still give four
// blocks to each multiprocessor, so that x is staged for as many rows as possible, and small shards fill the device
// too.
#include "kernels/cuda/mat_vec.hpp"

#include <algorithm>

#include "kernels/cuda/device_limits.hpp"
#include "kernels/cuda/numeric.cuh"
#include "kernels/cuda/q4_planes.hpp"

namespace shardscope::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarpSize;
constexpr int kWantedBlocks = 4;          // on each multiprocessor
constexpr int kStagedFloats = 16 * 1024;  // of x, all vectors together

/// A kernel's view of the arguments.
struct Product {
  const unsigned char* weights;
  const __half* scales;
  int64_t weight_row_bytes;
  int64_t scale_row_elements;
  int64_t rows;
  int64_t columns;
  const void* x;
  int64_t x_stride;
  const float* bias;
  void* y;
  int64_t y_stride;
  DType dtype;
  int batch;
  int split;         // warps that share the columns of the same rows
  int chunk_groups;  // groups of columns that are staged at once, a multiple of 32
  bool whole_x;      // x can be loaded four elements at a time
};

/// bf16 rows. A group is the columns of a lane's 16 bytes; a part is four columns of it.
struct Bf16Rows {
  static constexpr int kColumns = 8;
  static constexpr int kParts = kColumns / 4;
  static constexpr bool kScaled = false;
  struct Piece {
    uint4 bits;
  };
  /// A place in the weights: of one lane, in the first of its rows.
  struct Reader {
    const unsigned char* bits;
    __device__ Reader(const Product& product, int64_t row, int64_t group)
        : bits(product.weights + row * product.weight_row_bytes + group * 16) {}
    __device__ __forceinline__ Piece load(const Product& product, int row) const {
      return {load16_streaming(bits + row * product.weight_row_bytes)};
    }
    __device__ __forceinline__ void advance(int groups) { bits += groups * 16; }
  };
  static __device__ __forceinline__ Piece zero() { return {make_uint4(0, 0, 0, 0)}; }
  static __device__ __forceinline__ void decode(const Piece& piece, int part, float (&weights)[4]) {
    const float2 low = unpack2<__nv_bfloat16>(part == 0 ? piece.bits.x : piece.bits.z);
    const float2 high = unpack2<__nv_bfloat16>(part == 0 ? piece.bits.y : piece.bits.w);
    weights[0] = low.x, weights[1] = low.y, weights[2] = high.x, weights[3] = high.y;
  }
};

/// Q4_0 planes. decode() puts a nibble q into the mantissa of 1.0, which takes one shift and one logical operation and
/// gives 1 + q / 16; (q - 8) is 16 (1 + q / 16) - 24, whose constant part is settled with the sum of x over the block.
struct Q4Rows {
  static constexpr int kColumns = 32;
  static constexpr int kParts = kColumns / 4;
  static constexpr bool kScaled = true;
  static constexpr float kStep = 16.0f;
  static constexpr float kMiddle = 1.5f;  // where q is 8
  struct Piece {
    uint4 bits;
    __half scale;
  };
  struct Reader {
    const unsigned char* bits;
    const __half* scale;
    __device__ Reader(const Product& product, int64_t row, int64_t group)
        : bits(product.weights + row * product.weight_row_bytes + group * kQ4NibbleBytes),
          scale(product.scales + row * product.scale_row_elements + group) {}
    __device__ __forceinline__ Piece load(const Product& product, int row) const {
      return {load16_streaming(bits + row * product.weight_row_bytes), scale[row * product.scale_row_elements]};
    }
    __device__ __forceinline__ void advance(int groups) {
      bits += groups * kQ4NibbleBytes;
      scale += groups;
    }
  };
  static __device__ __forceinline__ Piece zero() { return {make_uint4(0, 0, 0, 0), __ushort_as_half(0)}; }
  static __device__ __forceinline__ void decode(const Piece& piece, int part, float (&weights)[4]) {
    constexpr int kMantissaTop = 19;  // the lowest of the mantissa's upper four bits
    const int word_number = part % 4;
    const uint32_t word = word_number == 0   ? piece.bits.x
                          : word_number == 1 ? piece.bits.y
                          : word_number == 2 ? piece.bits.z
                                             : piece.bits.w;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int place = 8 * i + (part < 4 ? 0 : 4);
      const uint32_t moved = place <= kMantissaTop ? word << (kMantissaTop - place) : word >> (place - kMantissaTop);
      weights[i] = __uint_as_float((moved & (0xFu << kMantissaTop)) | 0x3F800000u);
    }
  }
};

/// Where the staged x lies: for each vector kParts planes of [chunk_groups] quads of floats, so that the lanes of a
/// warp read adjacent quads; the planes are shifted against each other so that staging has no bank conflicts either.
/// Then, for scaled formats, the sums [chunk_groups] of each group.
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
    return sizeof(float) * vectors * (4 * vector_quads + (Format::kScaled ? chunk_groups : 0));
  }
};

/// Columns column to column + 3 of vector `vector`; zeros beyond the last column and the last vector.
__device__ __forceinline__ float4 load_x(const Product& product, int vector, int64_t column) {
  float4 value = make_float4(0, 0, 0, 0);
  if (vector >= product.batch) return value;
  const int64_t index = vector * product.x_stride + column;
  const int64_t left = product.columns - column;
  if (left >= 4 && product.whole_x) return load_four(product.x, product.dtype, index);
  if (left > 0) value.x = load_element(product.x, product.dtype, index);
  if (left > 1) value.y = load_element(product.x, product.dtype, index + 1);
  if (left > 2) value.z = load_element(product.x, product.dtype, index + 2);
  if (left > 3) value.w = load_element(product.x, product.dtype, index + 3);
  return value;
}

/// Stages `groups` groups (a multiple of 32) from `first_group` on. All threads of the block call.
template <class Format, int kBatch>
__device__ __forceinline__ void stage_x(const Product& product, const Stage<Format>& stage, int64_t first_group,
                                        int groups, float* shared) {
#pragma unroll 1
  for (int vector = 0; vector < kBatch; ++vector) {
#pragma unroll 2
    for (int item = static_cast<int>(threadIdx.x); item < groups * Format::kParts; item += kThreads) {
      const int part = item % Format::kParts;
      const int group = item / Format::kParts;
      const float4 value = load_x(product, vector, (first_group + group) * Format::kColumns + 4 * part);
      store16(stage.quad(shared, vector, part, group), as_uint4(value));
      if constexpr (Format::kScaled) {
        float sum = value.x + value.y + value.z + value.w;
        for (int bit = 1; bit < Format::kParts; bit *= 2) sum += __shfl_xor_sync(kFullMask, sum, bit);
        if (part == 0) *stage.sum(shared, kBatch, vector, group) = sum;
      }
    }
  }
}

/// sums [kRows][kBatch] += weights * the staged x of one group.
template <class Format, int kBatch, int kRows>
__device__ __forceinline__ void multiply_add(const typename Format::Piece (&pieces)[kRows], const Stage<Format>& stage,
                                             int group, float* shared, float (&sums)[kRows * kBatch]) {
#pragma unroll
  for (int part = 0; part < Format::kParts; ++part) {
    float4 x[kBatch];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) x[b] = as_float4(load16(stage.quad(shared, b, part, group)));
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float weights[4];
      Format::decode(pieces[r], part, weights);
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

template <class Format, int kBatch, int kRows>
__device__ __forceinline__ void take_group(const typename Format::Piece (&pieces)[kRows], const Stage<Format>& stage,
                                           int group, float* shared, float (&sums)[kRows * kBatch]) {
  if constexpr (Format::kScaled) {
    float of_block[kRows * kBatch] = {};
    multiply_add<Format, kBatch, kRows>(pieces, stage, group, shared, of_block);
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const float middle = Format::kMiddle * *stage.sum(shared, kBatch, b, group);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const float scale = Format::kStep * __half2float(pieces[r].scale);
        sums[r * kBatch + b] += scale * (of_block[r * kBatch + b] - middle);
      }
    }
  } else {
    multiply_add<Format, kBatch, kRows>(pieces, stage, group, shared, sums);
  }
}

template <class Format, int kBatch, int kRows>
__global__ void __launch_bounds__(kThreads, kBatch == 1 || (kBatch == 2 && !Format::kScaled) ? 3 : 2)
    mat_vec_kernel(Product product) {
  constexpr int kSums = kRows * kBatch;
  using Place = SumPlace<kSums>;
  SHARDSCOPE_DYNAMIC_SHARED(float, shared);
  SHARDSCOPE_SHARED(float, partial, kWarps* kSums);
  const Stage<Format> stage(product.chunk_groups);
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int rows_of_block = kWarps / product.split * kRows;
  const int64_t block_row = static_cast<int64_t>(blockIdx.x) * rows_of_block;
  const int64_t first_row = block_row + warp / product.split * kRows;
  const int groups = static_cast<int>((product.columns + Format::kColumns - 1) / Format::kColumns);
  const int steps = (groups + kWarpSize - 1) / kWarpSize;
  const int64_t rows_left = product.rows - first_row;

  // The lane's pieces of the step before which `group` stands, if there are any.
  int group = warp % product.split * kWarpSize + lane;
  typename Format::Reader reader(product, first_row, group);
  typename Format::Piece next[kRows];
  const auto load_next = [&] {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      next[r] = group < groups && r < rows_left ? reader.load(product, r) : Format::zero();
    }
    group += product.split * kWarpSize;
    reader.advance(product.split * kWarpSize);
  };

  float sums[kSums] = {};
  load_next();
  grid_dependency_wait();
  const int chunk_steps = product.chunk_groups / kWarpSize;
  int step = warp % product.split;
  for (int begin = 0; begin < steps; begin += chunk_steps) {
    const int end = min(begin + chunk_steps, steps);
    if (begin > 0) __syncthreads();  // all warps have read the chunk before
    stage_x<Format, kBatch>(product, stage, int64_t{begin} * kWarpSize, (end - begin) * kWarpSize, shared);
    __syncthreads();
#pragma unroll 1
    for (; step < end; step += product.split) {
      typename Format::Piece current[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r) current[r] = next[r];
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
  const int row = static_cast<int>(threadIdx.x) % rows_of_block;
  const int vector = static_cast<int>(threadIdx.x) / rows_of_block;
  if (vector < product.batch && vector < kBatch && block_row + row < product.rows) {
    const float* sum = partial + row / kRows * product.split * kSums + row % kRows * kBatch + vector;
    float total = product.bias == nullptr ? 0.0f : product.bias[block_row + row];
    for (int i = 0; i < product.split; ++i) total += sum[i * kSums];
    store_element(product.y, product.dtype, vector * product.y_stride + block_row + row, total);
  }
}

template <class Format, int kBatch>
cudaError_t launch_product(Product product, int multiprocessors, bool programmatic, cudaStream_t stream) {
  constexpr int kRows = Format::kScaled && kBatch == 8 ? 2 : 4;  // more would not fit the registers
  constexpr int kMostChunk = kStagedFloats / std::max(kBatch, 2) / Format::kColumns;
  const int64_t groups = (product.columns + Format::kColumns - 1) / Format::kColumns;
  const int64_t steps = (groups + kWarpSize - 1) / kWarpSize;
  product.chunk_groups = steps * kWarpSize < kMostChunk ? static_cast<int>(steps) * kWarpSize : kMostChunk;
  product.split = 1;
  const auto blocks = [&] {
    const int64_t rows_of_block = kWarps / product.split * kRows;
    return (product.rows + rows_of_block - 1) / rows_of_block;
  };
  while (product.split < kWarps && 2 * product.split <= product.chunk_groups / kWarpSize &&
         blocks() < int64_t{kWantedBlocks} * multiprocessors) {
    product.split *= 2;
  }
  const auto kernel = mat_vec_kernel<Format, kBatch, kRows>;
  const size_t shared_bytes = Stage<Format>(product.chunk_groups).bytes(kBatch);
  if (shared_bytes > kSharedWithoutAsking) {
    if (const cudaError_t error = allow_shared_bytes(kernel, shared_bytes); error != cudaSuccess) return error;
  }
  return launch(Launch{.grid = dim3(static_cast<unsigned>(blocks())),
                       .block = dim3(kThreads),
                       .shared_bytes = shared_bytes,
                       .stream = stream,
                       .programmatic = programmatic},
                kernel, product);
}

template <class Format>
cudaError_t launch_for_batch(const Product& product, bool programmatic, cudaStream_t stream) {
  int multiprocessors = 0;
  if (const cudaError_t error = count_multiprocessors(multiprocessors); error != cudaSuccess) return error;
  if (product.batch == 1) return launch_product<Format, 1>(product, multiprocessors, programmatic, stream);
  if (product.batch == 2) return launch_product<Format, 2>(product, multiprocessors, programmatic, stream);
  if (product.batch <= 4) return launch_product<Format, 4>(product, multiprocessors, programmatic, stream);
  return launch_product<Format, 8>(product, multiprocessors, programmatic, stream);
}

bool multiple_of_16(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
}

bool valid(const MatVec& a) {
  constexpr int64_t kMost = 0x7FFFFFFF;
  const bool plain = a.dtype == DType::kF32 || a.dtype == DType::kF16 || a.dtype == DType::kBF16;
  const bool shapes = a.rows >= 0 && a.rows <= kMost && a.columns > 0 && a.columns <= kMost && a.batch >= 1 &&
                      a.batch <= kMaxMatVecBatch && a.x_stride >= a.columns && a.y_stride >= a.rows;
  const bool weights = a.weight_dtype == DType::kBF16
                           ? a.weight_row_bytes % 16 == 0 && a.weight_row_bytes >= 2 * a.columns
                           : a.weight_dtype == DType::kQ4_0 && a.columns % kQ4BlockColumns == 0;
  return plain && shapes && weights && multiple_of_16(a.weights) && multiple_of_16(a.scales);
}

}  // namespace

cudaError_t mat_vec(const MatVec& arguments, cudaStream_t stream) {
  if (!valid(arguments)) return cudaErrorInvalidValue;
  if (arguments.rows == 0) return cudaSuccess;
  const bool quantised = arguments.weight_dtype == DType::kQ4_0;
  const int64_t four_bytes = arguments.dtype == DType::kF32 ? 16 : 8;
  const Product product{
      .weights = static_cast<const unsigned char*>(arguments.weights),
      .scales = static_cast<const __half*>(arguments.scales),
      .weight_row_bytes = quantised ? q4_nibble_row_bytes(arguments.columns) : arguments.weight_row_bytes,
      .scale_row_elements = quantised ? q4_scale_row_bytes(arguments.columns) / kQ4ScaleBytes : 0,
      .rows = arguments.rows,
      .columns = arguments.columns,
      .x = arguments.x,
      .x_stride = arguments.x_stride,
      .bias = arguments.bias,
      .y = arguments.y,
      .y_stride = arguments.y_stride,
      .dtype = arguments.dtype,
      .batch = static_cast<int>(arguments.batch),
      .split = 1,
      .chunk_groups = 0,
      .whole_x = reinterpret_cast<uintptr_t>(arguments.x) % four_bytes == 0 &&
                 (arguments.batch == 1 || arguments.x_stride % 4 == 0),
  };
  return quantised ? launch_for_batch<Q4Rows>(product, arguments.programmatic, stream)
                   : launch_for_batch<Bf16Rows>(product, arguments.programmatic, stream);
}

}  // namespace shardscope::cuda
