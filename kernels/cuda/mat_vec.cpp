// Matrix times 1 to 8 vectors. A warp multiplies kRows rows at once, so that what it fetches of x serves all of them;
// its lanes take adjacent pieces of 16 bytes of a row (4 fp32, 8 of 16 bits, 32 nibbles or 16 int8), and the pieces of
// the next step are loaded before those of this one are used. x is staged in shared memory as fp32, a chunk of columns
// at a time, for all warps of the block. Here are the checks; mat_vec_kernel.cuh has the kernel, mat_vec_stage.cuh what
// becomes of x, mat_vec_plain.cu and mat_vec_blocks.cu the formats.
//
// Norm: 1 / sqrt(mean(s^2) + epsilon) is a factor of the whole sum, so the product is of s * weight; squares are added
// up while x is staged, and the finished sums are multiplied. Every block does that for itself, from the L2 cache; the
// first one stores s. Gate: half of a warp's rows are of gate, the other half the same ones of up.
//
// Bytes: the weights once. A thread has 64 bytes of them in flight (32 of block formats with a batch above 4), and two
// or three blocks are on a multiprocessor of H100: 16 to 48 KiB. Little's law asks for 15 to 35 KiB there (3.35 TB/s,
// 132 multiprocessors, 600 to 1,400 ns). x, addend and the norm's weight once a block, from the L2 cache: with 4096
// columns and 8 vectors of 16 bits, 64 KiB beside the 32 KiB of weights of a block that 8 warps share.
//
// Work, computed for H100 (132 multiprocessors, 128 lanes, 1.75 GHz), in parts of the time in which the weights arrive.
// Instructions: nibbles cost 2 integer operations a weight beside `batch` multiply-adds: 0.6 at batch 1, 0.8 at 2, 1.2
// at 4. Q8_0 costs 2.25, of a weight twice as large: 0.35 at batch 1, 0.67 at 4. Shared memory: every lane reads
// `batch` x columns x 4 bytes for kRows pieces of 16 bytes, 128 bytes a cycle. With kRows 4 that is, at batch 4, 0.8
// for nibbles, 0.43 for Q8_0 and 0.23 for 16 bits. Above batch 4 block formats have registers for kRows 2 only: 3.2
// and 1.7. Two launches of half the batch, 2.4 and 2, are better or as good, as the second may find weights in L2:
// products.cpp does that. Tensor cores would do better.
//
// Launch: blocks of 8 warps. 1, 2, 4 or 8 warps share the columns of the same rows: as few as still give each
// multiprocessor the blocks that it holds at once, so that x is staged for as many rows as possible, and small shards
// fill the device too.
#include "kernels/cuda/mat_vec.hpp"

#include <initializer_list>

#include "kernels/cuda/block_planes.hpp"
#include "kernels/cuda/device_limits.hpp"
#include "kernels/cuda/mat_vec_product.hpp"

namespace shardscope::cuda {
namespace {

using kernels::DType;

bool multiple_of(const void* pointer, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % static_cast<uintptr_t>(bytes) == 0;
}

bool plain(DType dtype) {
  return !kernels::facts(dtype).block_quantised;
}

bool valid(const DeviceMatrix& w) {
  constexpr int64_t kMost = 0x7FFFFFFF;
  if (w.rows < 0 || w.rows > kMost || w.columns < 0 || w.columns > kMost) return false;
  if (!multiple_of(w.values, 16)) return false;
  if (plain(w.dtype)) return w.row_bytes % 16 == 0 && w.row_bytes >= kernels::row_bytes(w.dtype, w.columns);
  return w.columns % kBlockColumns == 0 && multiple_of(w.scales, block_planes(w.dtype).scale_bytes);
}

bool valid(const InputNorm& norm, int64_t columns) {
  if (norm.addend == nullptr) return norm.sum == nullptr;
  return norm.weight != nullptr && norm.sum != nullptr && norm.addend_stride >= columns && norm.sum_stride >= columns;
}

int64_t outputs(const MatVec& a) {
  return a.gated ? a.weights.rows / 2 : a.weights.rows;
}

bool valid(const MatVec& a) {
  return valid(a.weights) && valid(a.norm, a.weights.columns) && plain(a.dtype) &&
         (a.y_dtype == DType::kF32 || a.y_dtype == a.dtype) && !(a.gated && a.weights.rows % 2 != 0) && a.batch >= 1 &&
         a.batch <= kMaxMatVecBatch && a.x_stride >= a.weights.columns && a.y_stride >= outputs(a);
}

/// Whether x and all that goes with it can be moved four elements at a time, to the end of each row.
bool whole_quads(const MatVec& a) {
  if (a.weights.columns % 4 != 0) return false;
  const int64_t four_bytes = 4 * kernels::facts(a.dtype).block_bytes;
  for (const void* pointer : std::initializer_list<const void*>{a.x, a.norm.addend, a.norm.sum}) {
    if (!multiple_of(pointer, four_bytes)) return false;
  }
  const bool strides = a.x_stride % 4 == 0 && a.norm.addend_stride % 4 == 0 && a.norm.sum_stride % 4 == 0;
  return multiple_of(a.norm.weight, 16) && (a.batch == 1 || strides);
}

}  // namespace

cudaError_t mat_vec(const MatVec& arguments, cudaStream_t stream) {
  if (!valid(arguments)) return cudaErrorInvalidValue;
  const DeviceMatrix& weights = arguments.weights;
  if (weights.rows == 0) return cudaSuccess;
  ProductLaunch launch{.multiprocessors = 0, .programmatic = arguments.programmatic, .stream = stream};
  if (const cudaError_t error = count_multiprocessors(launch.multiprocessors); error != cudaSuccess) return error;
  const bool blocks = !plain(weights.dtype);
  const BlockPlanes planes = blocks ? block_planes(weights.dtype) : BlockPlanes{};
  const int64_t row_blocks = weights.columns / kBlockColumns;
  const Product product{
      .codes = static_cast<const unsigned char*>(weights.values),
      .scales = static_cast<const unsigned char*>(weights.scales),
      .code_row_bytes = blocks ? row_blocks * planes.code_bytes : weights.row_bytes,
      .scale_row_bytes = row_blocks * planes.scale_bytes,
      .outputs = outputs(arguments),
      .columns = weights.columns,
      .second_rows = 0,
      .x = arguments.x,
      .x_stride = arguments.x_stride,
      .norm_weight = weights.columns == 0 ? nullptr : arguments.norm.weight,  // there is no mean of nothing
      .addend = arguments.norm.addend,
      .addend_stride = arguments.norm.addend_stride,
      .sum = arguments.norm.sum,
      .sum_stride = arguments.norm.sum_stride,
      .bias = arguments.bias,
      .y = arguments.y,
      .y_stride = arguments.y_stride,
      .stamps = arguments.stamps,
      .epsilon = arguments.norm.epsilon,
      .dtype = arguments.dtype,
      .y_dtype = arguments.y_dtype,
      .gated = arguments.gated,
      .whole_x = whole_quads(arguments),
      .read_again = arguments.read_again,
      .batch = static_cast<int>(arguments.batch),
      .split_bits = 0,
      .chunk_groups = 0,
  };
  return blocks ? mat_vec_blocks(weights.dtype, product, launch) : mat_vec_plain(weights.dtype, product, launch);
}

}  // namespace shardscope::cuda
