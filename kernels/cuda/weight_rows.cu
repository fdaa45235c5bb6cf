// Rows of a weight matrix, converted. A thread takes one piece of a row: as many adjacent columns as fit 16 bytes in
// the wider of the two types, so that what a warp loads and stores is of adjacent bytes. Of Q4 blocks, whose byte j
// holds columns j and j + 16, it takes two pieces, 16 columns apart.
//
// Bytes: each stored byte once (a block's scale by each thread of the block, from L1), each element of out once.
// Launch: a thread a piece, in blocks of 256 threads that each belong to one row: a row's id is read once a block, and
// small lookups (one token's 8,192 columns: 4 to 8 blocks) are spread over several multiprocessors.
#include "kernels/cuda/weight_rows.hpp"

#include "kernels/cuda/block_planes.hpp"
#include "kernels/cuda/numeric.cuh"
#include "kernels/cuda/operation_stamps.cuh"

namespace shardscope::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kNibbleBytes = 16;         // of a block of Q4_0 and Q4_1
constexpr int64_t kMostBlocks = 0x7FFFFFFF;  // of a grid, CUDA C++ Programming Guide, "Technical Specifications"

/// A kernel's view of the arguments.
struct Conversion {
  const unsigned char* values;
  const __half* scales;
  const int32_t* ids;
  void* out;
  OperationStamps* stamps;  // or null
  int64_t row_bytes;        // of values
  int64_t row_blocks;       // of the block formats
  int64_t first;
  int64_t matrix_rows;
  int64_t columns;
  int64_t out_stride;
  unsigned row_grid;  // blocks of threads that share a row
  bool whole_out;     // out can be stored in pieces
};

/// The formats. unpack<kCount>() gives the kCount columns from `column` on of a row, and in `upper`, where kRuns is 2,
/// those 16 further on.
template <class Element>
struct PlainRows {
  static constexpr int kStoredBytes = sizeof(Element);
  static constexpr int kRuns = 1;
  template <int kCount>
  static __device__ __forceinline__ void unpack(const Conversion& from, int64_t row, int64_t column,
                                                float (&values)[kCount], float (&)[kCount]) {
    const auto* elements = reinterpret_cast<const Element*>(from.values + row * from.row_bytes);
    Packed<Element, kCount>::load(elements + column).unpack(values);
  }
};

/// kCount bytes, four to a word.
template <int kCount>
__device__ __forceinline__ void load_bytes(const unsigned char* from, uint32_t (&words)[kCount / 4]) {
  static_assert(kCount == 4 || kCount == 8);
  if constexpr (kCount == 4) {
    words[0] = *reinterpret_cast<const uint32_t*>(from);
  } else {
    const uint2 both = load8(from);
    words[0] = both.x;
    words[1] = both.y;
  }
}

template <bool kMinimum>
struct Q4Rows {
  static constexpr int kStoredBytes = 1;
  static constexpr int kRuns = 2;
  template <int kCount>
  static __device__ __forceinline__ void unpack(const Conversion& from, int64_t row, int64_t column,
                                                float (&values)[kCount], float (&upper)[kCount]) {
    const int64_t block = row * from.row_blocks + column / kBlockColumns;
    uint32_t words[kCount / 4];
    load_bytes<kCount>(from.values + block * kNibbleBytes + column % kBlockColumns, words);
    float scale = 0;
    float middle = 8;
    float minimum = 0;
    if constexpr (kMinimum) {
      const float2 both = unpack2<__half>(reinterpret_cast<const uint32_t*>(from.scales)[block]);
      scale = both.x;
      minimum = both.y;
      middle = 0;
    } else {
      scale = __half2float(from.scales[block]);
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const uint32_t byte = words[i / 4] >> (8 * (i % 4));
      values[i] = scale * (static_cast<float>(byte & 0xFu) - middle) + minimum;
      upper[i] = scale * (static_cast<float>(byte >> 4 & 0xFu) - middle) + minimum;
    }
  }
};

struct Q8Rows {
  static constexpr int kStoredBytes = 1;
  static constexpr int kRuns = 1;
  template <int kCount>
  static __device__ __forceinline__ void unpack(const Conversion& from, int64_t row, int64_t column,
                                                float (&values)[kCount], float (&)[kCount]) {
    const int64_t block = row * from.row_blocks + column / kBlockColumns;
    uint32_t words[kCount / 4];
    load_bytes<kCount>(from.values + block * kBlockColumns + column % kBlockColumns, words);
    const float scale = __half2float(from.scales[block]);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      values[i] = scale * static_cast<float>(static_cast<int8_t>(words[i / 4] >> (8 * (i % 4))));
    }
  }
};

/// Columns of a thread's piece.
template <class Format, class Out>
inline constexpr int kPiece = 16 / (Format::kStoredBytes > static_cast<int>(sizeof(Out))
                                        ? Format::kStoredBytes
                                        : static_cast<int>(sizeof(Out)));

template <class Out, int kCount>
__device__ __forceinline__ void give(const Conversion& to, Out* row, int64_t column, const float (&values)[kCount]) {
  if (to.whole_out && column + kCount <= to.columns) {
    Packed<Out, kCount>::pack(values).store(row + column);
    return;
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if (column + i < to.columns) row[column + i] = from_float<Out>(values[i]);
  }
}

template <class Format, class Out>
__global__ void __launch_bounds__(kThreads) weight_rows_kernel(Conversion conversion) {
  constexpr int kCount = kPiece<Format, Out>;
  constexpr int kPiecesOfBlock = static_cast<int>(kBlockColumns) / kCount / 2;  // with two runs
  mark_begin(conversion.stamps);
  grid_dependency_wait();
  grid_dependency_launch();
  const int64_t i = blockIdx.x / conversion.row_grid;
  const int64_t piece = static_cast<int64_t>(blockIdx.x % conversion.row_grid) * kThreads + threadIdx.x;
  const int64_t column =
      Format::kRuns == 1 ? piece * kCount : piece / kPiecesOfBlock * kBlockColumns + piece % kPiecesOfBlock * kCount;
  if (column < conversion.columns) {
    const int64_t row = conversion.ids != nullptr ? conversion.ids[i] - conversion.first : conversion.first + i;
    float values[kCount] = {};
    float upper[kCount] = {};
    if (row >= 0 && row < conversion.matrix_rows) {
      Format::template unpack<kCount>(conversion, row, column, values, upper);
    }
    Out* const out = static_cast<Out*>(conversion.out) + i * conversion.out_stride;
    give(conversion, out, column, values);
    if constexpr (Format::kRuns == 2) give(conversion, out, column + kBlockColumns / 2, upper);
  }
  mark_end(conversion.stamps);
}

template <class Format, class Out>
cudaError_t launch_conversion(const WeightRows& arguments, cudaStream_t stream) {
  constexpr int64_t kCount = kPiece<Format, Out>;
  const DeviceMatrix& matrix = arguments.matrix;
  const int64_t pieces = (matrix.columns + kCount * Format::kRuns - 1) / (kCount * Format::kRuns);
  const int64_t row_grid = (pieces + kThreads - 1) / kThreads;
  if (arguments.rows > kMostBlocks / row_grid) return cudaErrorInvalidValue;
  const bool whole_out = reinterpret_cast<uintptr_t>(arguments.out) % 16 == 0 &&
                         (arguments.rows == 1 || arguments.out_stride % kCount == 0);
  const Conversion conversion{.values = static_cast<const unsigned char*>(matrix.values),
                              .scales = static_cast<const __half*>(matrix.scales),
                              .ids = arguments.ids,
                              .out = arguments.out,
                              .stamps = arguments.stamps,
                              .row_bytes = matrix.row_bytes,
                              .row_blocks = matrix.columns / kBlockColumns,
                              .first = arguments.first,
                              .matrix_rows = matrix.rows,
                              .columns = matrix.columns,
                              .out_stride = arguments.out_stride,
                              .row_grid = static_cast<unsigned>(row_grid),
                              .whole_out = whole_out};
  const Launch where{.grid = dim3(static_cast<unsigned>(row_grid * arguments.rows)),
                     .block = dim3(kThreads),
                     .shared_bytes = 0,
                     .stream = stream,
                     .programmatic = arguments.programmatic};
  return launch(where, weight_rows_kernel<Format, Out>, conversion);
}

template <class Format>
cudaError_t launch_format(const WeightRows& arguments, cudaStream_t stream) {
  switch (arguments.dtype) {
    case DType::kF32:
      return launch_conversion<Format, float>(arguments, stream);
    case DType::kF16:
      return launch_conversion<Format, __half>(arguments, stream);
    case DType::kBF16:
      return launch_conversion<Format, __nv_bfloat16>(arguments, stream);
    case DType::kQ4_0:
    case DType::kQ4_1:
    case DType::kQ8_0:
      break;
  }
  return cudaErrorInvalidValue;
}

bool valid(const WeightRows& arguments) {
  const DeviceMatrix& matrix = arguments.matrix;
  const auto aligned = [](const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; };
  if (arguments.rows < 0 || matrix.rows < 0 || matrix.columns < 0) return false;
  if (arguments.out_stride < matrix.columns || !aligned(matrix.values)) return false;
  if (matrix.dtype == DType::kQ4_0 || matrix.dtype == DType::kQ4_1 || matrix.dtype == DType::kQ8_0) {
    const auto scale_bytes = static_cast<uintptr_t>(block_planes(matrix.dtype).scale_bytes);
    return matrix.columns % kBlockColumns == 0 && (matrix.scales != nullptr || matrix.rows == 0) &&
           reinterpret_cast<uintptr_t>(matrix.scales) % scale_bytes == 0;
  }
  const int64_t element_bytes = matrix.dtype == DType::kF32 ? 4 : 2;
  return matrix.row_bytes % 16 == 0 && matrix.row_bytes >= matrix.columns * element_bytes;
}

}  // namespace

cudaError_t weight_rows(const WeightRows& arguments, cudaStream_t stream) {
  if (!valid(arguments)) return cudaErrorInvalidValue;
  if (arguments.rows == 0 || arguments.matrix.columns == 0) return cudaSuccess;
  switch (arguments.matrix.dtype) {
    case DType::kF32:
      return launch_format<PlainRows<float>>(arguments, stream);
    case DType::kF16:
      return launch_format<PlainRows<__half>>(arguments, stream);
    case DType::kBF16:
      return launch_format<PlainRows<__nv_bfloat16>>(arguments, stream);
    case DType::kQ4_0:
      return launch_format<Q4Rows<false>>(arguments, stream);
    case DType::kQ4_1:
      return launch_format<Q4Rows<true>>(arguments, stream);
    case DType::kQ8_0:
      return launch_format<Q8Rows>(arguments, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace shardscope::cuda
