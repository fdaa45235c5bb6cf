// Small operations on rows. Each reads and writes its elements once, so that all are bound by memory; a thread moves
// one piece (16 bytes of the widest type in it; one element where pointers or strides are no multiples of that), and
// the rows lie behind each other in the grid, in blocks of 256 threads that each belong to one row.
//
// Bytes: silu_gate 3 elements a result, add_bias 2 and the bias, select_rows 2, read_bytes its bytes.
// read_bytes: as many blocks of 256 threads as a multiprocessor holds, all at once: 8 where it has 2,048 threads, 6
// where it has 1,536. Each thread has four loads of 16 bytes in flight: 128 or 96 KiB, where Little's law asks for 15
// to 36 KiB (H100, 3.35 TB/s), so that the memory is never idle.
#include "kernels/cuda/rows.hpp"

#include <algorithm>

#include "kernels/cuda/device_limits.hpp"
#include "kernels/cuda/numeric.cuh"
#include "kernels/cuda/weight_rows.hpp"

namespace shardscope::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = 0x7FFFFFFF;  // of a grid, CUDA C++ Programming Guide, "Technical Specifications"

/// Where a thread of a kernel over rows stands.
struct Place {
  int64_t row;
  int64_t column;
};

/// Rows of `columns`, of which a thread takes kCount: `blocks` blocks to a row.
struct RowGrid {
  int64_t columns;
  unsigned blocks;

  __device__ __forceinline__ Place place(int count) const {
    const unsigned in_row = blockIdx.x % blocks;
    return {blockIdx.x / blocks, (static_cast<int64_t>(in_row) * kThreads + threadIdx.x) * count};
  }
};

struct Elements {
  void* data;
  int64_t stride;

  template <class Element>
  __device__ __forceinline__ Element* at(const Place& place) const {
    return static_cast<Element*>(data) + place.row * stride + place.column;
  }
};

template <class Element, bool kWhole>
__global__ void __launch_bounds__(kThreads) silu_gate_kernel(Elements gate_up, Elements out, RowGrid grid) {
  constexpr int kCount = kWhole ? kElementsOf16Bytes<Element> : 1;
  const Place place = grid.place(kCount);
  if (place.column >= grid.columns) return;
  const Element* const gates = gate_up.at<Element>(place);
  const Element* const ups = gates + grid.columns;
  Element* const target = out.at<Element>(place);
  if constexpr (kWhole) {
    float gate[kCount];
    float up[kCount];
    unpack16<Element>(load16(gates), gate);
    unpack16<Element>(load16(ups), up);
#pragma unroll
    for (int i = 0; i < kCount; ++i) gate[i] = silu(gate[i]) * up[i];
    store16(target, pack16<Element>(gate));
  } else {
    *target = from_float<Element>(silu(to_float(*gates)) * to_float(*ups));
  }
}

template <class Element, bool kWhole>
__global__ void __launch_bounds__(kThreads) add_bias_kernel(Elements x, const float* bias, RowGrid grid) {
  constexpr int kCount = kWhole ? kElementsOf16Bytes<float> : 1;
  const Place place = grid.place(kCount);
  if (place.column >= grid.columns) return;
  Element* const target = x.at<Element>(place);
  if constexpr (kWhole) {
    float values[kCount];
    Packed<Element, kCount>::load(target).unpack(values);
    const float4 added = as_float4(load16(bias + place.column));
    values[0] += added.x;
    values[1] += added.y;
    values[2] += added.z;
    values[3] += added.w;
    Packed<Element, kCount>::pack(values).store(target);
  } else {
    *target = from_float<Element>(to_float(*target) + bias[place.column]);
  }
}

/// Moves without looking at the values: Element is an integer of that size.
template <class Element, bool kWhole>
__global__ void __launch_bounds__(kThreads)
    select_rows_kernel(Elements x, const int32_t* rows, Elements out, RowGrid grid) {
  constexpr int kCount = kWhole ? kElementsOf16Bytes<Element> : 1;
  const Place place = grid.place(kCount);
  if (place.column >= grid.columns) return;
  const Element* const from = x.at<Element>({rows[place.row], place.column});
  Element* const target = out.at<Element>(place);
  if constexpr (kWhole) {
    store16(target, load16(from));
  } else {
    *target = *from;
  }
}

__device__ __forceinline__ uint64_t folded(uint4 bits) {
  return static_cast<uint64_t>(bits.y ^ bits.w) << 32 | (bits.x ^ bits.z);
}

__global__ void __launch_bounds__(kThreads)
    read_bytes_kernel(const unsigned char* data, int64_t rows, int64_t stride_bytes, int64_t pieces,
                      unsigned long long* checksum) {
  constexpr int kWarps = kThreads / kWarpSize;
  constexpr int kLoads = 4;  // in flight
  SHARDSCOPE_SHARED(uint64_t, partial, kWarps);
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  uint64_t sum = 0;
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    const unsigned char* const from = data + row * stride_bytes;
    int64_t piece = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    for (; piece + (kLoads - 1) * step < pieces; piece += kLoads * step) {
      uint4 bits[kLoads];
#pragma unroll
      for (int i = 0; i < kLoads; ++i) bits[i] = load16_streaming(from + 16 * (piece + i * step));
#pragma unroll
      for (int i = 0; i < kLoads; ++i) sum ^= folded(bits[i]);
    }
    for (; piece < pieces; piece += step) sum ^= folded(load16_streaming(from + 16 * piece));
  }
#pragma unroll
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) sum ^= __shfl_xor_sync(kFullMask, sum, offset);
  if (threadIdx.x % kWarpSize == 0) partial[threadIdx.x / kWarpSize] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int warp = 1; warp < kWarps; ++warp) sum ^= partial[warp];
    atomicXor(checksum, static_cast<unsigned long long>(sum));
  }
}

// ---- launches -------------------------------------------------------------------------------------------------------

bool aligned(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
}

int64_t element_bytes(DType dtype) {
  return dtype == DType::kF32 ? 4 : 2;
}

bool valid(const Rows& rows) {
  return (rows.dtype == DType::kF32 || rows.dtype == DType::kF16 || rows.dtype == DType::kBF16) && rows.rows >= 0 &&
         rows.columns >= 0 && rows.stride >= rows.columns;
}

/// Whether rows and pieces of `count` elements begin at multiples of the pieces' size.
bool whole(const Rows& rows, int64_t count) {
  return aligned(rows.data) && (rows.rows <= 1 || rows.stride % count == 0);
}

/// Calls launch_one(grid's description, where) for rows of `columns` in pieces of `count`.
template <class LaunchOne>
cudaError_t over_rows(int64_t rows, int64_t columns, int64_t count, cudaStream_t stream, const LaunchOne& launch_one) {
  const int64_t pieces = columns / count;
  const int64_t blocks = (pieces + kThreads - 1) / kThreads;
  if (rows > kMostBlocks / blocks) return cudaErrorInvalidValue;
  const Launch where{
      .grid = dim3(static_cast<unsigned>(rows * blocks)), .block = dim3(kThreads), .shared_bytes = 0, .stream = stream};
  return launch_one(where, RowGrid{columns, static_cast<unsigned>(blocks)});
}

Elements elements(const Rows& rows) {
  return {rows.data, rows.stride};
}

/// Calls work(an element of the type) for the type of the rows, which are valid.
template <class Work>
cudaError_t with_element(DType dtype, const Work& work) {
  if (dtype == DType::kF32) return work(float{});
  if (dtype == DType::kF16) return work(__half{});
  return work(__nv_bfloat16{});
}

}  // namespace

cudaError_t silu_gate(const Rows& gate_up, const Rows& out, cudaStream_t stream) {
  if (!valid(gate_up) || !valid(out) || gate_up.dtype != out.dtype || gate_up.rows != out.rows ||
      gate_up.columns != 2 * out.columns) {
    return cudaErrorInvalidValue;
  }
  if (out.rows == 0 || out.columns == 0) return cudaSuccess;
  const int64_t count = 16 / element_bytes(out.dtype);
  const bool in_pieces = out.columns % count == 0 && whole(gate_up, count) && whole(out, count);
  return with_element(out.dtype, [&](auto element) {
    using Element = decltype(element);
    return over_rows(out.rows, out.columns, in_pieces ? count : 1, stream, [&](const Launch& where, RowGrid grid) {
      return launch(where, in_pieces ? silu_gate_kernel<Element, true> : silu_gate_kernel<Element, false>,
                    elements(gate_up), elements(out), grid);
    });
  });
}

cudaError_t add_bias(const Rows& x, const float* bias, cudaStream_t stream) {
  if (!valid(x)) return cudaErrorInvalidValue;
  if (x.rows == 0 || x.columns == 0) return cudaSuccess;
  constexpr int64_t kCount = 4;
  const bool in_pieces = x.columns % kCount == 0 && whole(x, kCount) && aligned(bias);
  return with_element(x.dtype, [&](auto element) {
    using Element = decltype(element);
    return over_rows(x.rows, x.columns, in_pieces ? kCount : 1, stream, [&](const Launch& where, RowGrid grid) {
      return launch(where, in_pieces ? add_bias_kernel<Element, true> : add_bias_kernel<Element, false>, elements(x),
                    bias, grid);
    });
  });
}

cudaError_t select_rows(const Rows& x, const int32_t* rows, const Rows& out, cudaStream_t stream) {
  if (!valid(x) || !valid(out) || x.dtype != out.dtype || x.columns != out.columns) return cudaErrorInvalidValue;
  if (out.rows == 0 || out.columns == 0) return cudaSuccess;
  const int64_t count = 16 / element_bytes(out.dtype);
  const bool in_pieces = out.columns % count == 0 && whole(x, count) && whole(out, count);
  return over_rows(out.rows, out.columns, in_pieces ? count : 1, stream, [&](const Launch& where, RowGrid grid) {
    if (element_bytes(out.dtype) == 4) {
      return launch(where, in_pieces ? select_rows_kernel<uint32_t, true> : select_rows_kernel<uint32_t, false>,
                    elements(x), rows, elements(out), grid);
    }
    return launch(where, in_pieces ? select_rows_kernel<uint16_t, true> : select_rows_kernel<uint16_t, false>,
                  elements(x), rows, elements(out), grid);
  });
}

cudaError_t dequantise(const DeviceMatrix& matrix, int64_t first_row, const Rows& out, cudaStream_t stream) {
  if (!valid(out) || out.columns != matrix.columns || first_row < 0 || out.rows > matrix.rows - first_row) {
    return cudaErrorInvalidValue;
  }
  return weight_rows({.matrix = matrix,
                      .first = first_row,
                      .rows = out.rows,
                      .dtype = out.dtype,
                      .out = out.data,
                      .out_stride = out.stride},
                     stream);
}

cudaError_t read_bytes(const ReadBytes& arguments, unsigned long long* checksum, cudaStream_t stream) {
  constexpr int64_t kMostRowBlocks = 65535;  // in y, CUDA C++ Programming Guide, "Technical Specifications"
  const ReadBytes& a = arguments;
  if (a.rows < 0 || a.row_bytes < 0 || a.row_bytes % 16 != 0 || a.stride_bytes < a.row_bytes ||
      a.stride_bytes % 16 != 0 || !aligned(a.data)) {
    return cudaErrorInvalidValue;
  }
  if (a.rows == 0 || a.row_bytes == 0) return cudaSuccess;
  int blocks = 0;
  if (const cudaError_t error = count_resident_blocks(kThreads, blocks); error != cudaSuccess) return error;
  const int64_t pieces = a.row_bytes / 16;
  const int64_t wanted = (pieces + kThreads - 1) / kThreads;
  const int64_t most = blocks;
  const int64_t row_blocks = std::min(a.rows, std::min(most, kMostRowBlocks));
  const Launch where{.grid = dim3(static_cast<unsigned>(std::min(wanted, std::max<int64_t>(1, most / row_blocks))),
                                  static_cast<unsigned>(row_blocks)),
                     .block = dim3(kThreads),
                     .shared_bytes = 0,
                     .stream = stream};
  return launch(where, read_bytes_kernel, static_cast<const unsigned char*>(a.data), a.rows, a.stride_bytes, pieces,
                checksum);
}

}  // namespace shardscope::cuda
