// Root-mean-square norm, one block a row: the row is read once and kept in registers (up to kKept pieces a thread;
// longer rows are read again, from the caches), its squares are summed over the block, and it is written once. The
// weights do not depend on the kernel before, so their loads start before the wait for it.
//
// Bytes a row: columns x (read x + write out [+ read addend + write sum]) + the weights, which stay in L2 for all rows.
// Launch: `rows` blocks of up to 1,024 threads; 512 where there are rows enough for two or more a multiprocessor.
#include "kernels/cuda/rms_norm.hpp"

#include "kernels/cuda/numeric.cuh"

namespace shardscope::cuda {
namespace {

constexpr int kKept = 2;
constexpr int kMaxThreads = 1024;
constexpr int kThreadsOfManyRows = 512;
constexpr int64_t kManyRows = 256;

/// A kernel's view of the arguments.
struct NormRows {
  const void* x;
  const void* addend;
  void* sum;
  const void* weight;
  void* out;
  int64_t x_stride;  // elements, as the next three
  int64_t addend_stride;
  int64_t sum_stride;
  int64_t out_stride;
  int columns;
  int pieces;  // that are moved whole; what follows them goes element by element
  float epsilon;
};

/// What a thread moves at once: as many elements as fit 16 bytes in the wider of the two types, so that the loads of
/// both are of adjacent bytes within a warp.
template <class Element, class Weight>
inline constexpr int kPiece = 16 /
                              static_cast<int>(sizeof(Weight) > sizeof(Element) ? sizeof(Weight) : sizeof(Element));

/// The row of one block.
template <class Element, class Weight, bool kAdd>
struct NormRow {
  static constexpr int kCount = kPiece<Element, Weight>;
  using Values = Packed<Element, kCount>;
  using Weights = Packed<Weight, kCount>;

  const Element* x;
  const Element* addend;
  Element* sum;
  const Weight* weight;
  Element* out;

  __device__ explicit NormRow(const NormRows& rows)
      : x(static_cast<const Element*>(rows.x) + static_cast<int64_t>(blockIdx.x) * rows.x_stride),
        addend(static_cast<const Element*>(rows.addend) + static_cast<int64_t>(blockIdx.x) * rows.addend_stride),
        sum(static_cast<Element*>(rows.sum) + static_cast<int64_t>(blockIdx.x) * rows.sum_stride),
        weight(static_cast<const Weight*>(rows.weight)),
        out(static_cast<Element*>(rows.out) + static_cast<int64_t>(blockIdx.x) * rows.out_stride) {}

  /// What the norm is of: for what does not stay in registers.
  __device__ __forceinline__ const Element* normed() const { return kAdd ? sum : x; }

  /// Reads a piece of x, adds and stores where there is an addend, and adds its squares.
  __device__ __forceinline__ Values take(int piece, float& squares) const {
    Values packed = Values::load(x + piece * kCount);
    float values[kCount];
    packed.unpack(values);
    if constexpr (kAdd) {
      float added[kCount];
      Values::load(addend + piece * kCount).unpack(added);
#pragma unroll
      for (int i = 0; i < kCount; ++i) values[i] += added[i];
      packed = Values::pack(values);
      packed.store(sum + piece * kCount);
      packed.unpack(values);  // the norm is that of the rounded sum, as it would be in two kernels
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) squares += values[i] * values[i];
    return packed;
  }

  __device__ __forceinline__ void give(int piece, const Values& packed, const Weights& packed_weights,
                                       float factor) const {
    float values[kCount];
    float weights[kCount];
    packed.unpack(values);
    packed_weights.unpack(weights);
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] *= factor * weights[i];
    Values::pack(values).store(out + piece * kCount);
  }
};

template <class Element, class Weight, bool kAdd>
__global__ void __launch_bounds__(kMaxThreads, 1) rms_norm_kernel(NormRows rows) {
  using Row = NormRow<Element, Weight, kAdd>;
  using Weights = typename Row::Weights;
  SHARDSCOPE_SHARED(float, partial, kWarpSize);
  const Row row(rows);
  const int threads = static_cast<int>(blockDim.x);
  const int thread = static_cast<int>(threadIdx.x);
  const int after_kept = thread + kKept * threads;
  const int first_single = rows.pieces * Row::kCount + thread;

  Weights weights[kKept];
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    if (thread + i * threads < rows.pieces)
      weights[i] = Weights::load(row.weight + (thread + i * threads) * Row::kCount);
  }
  grid_dependency_wait();
  grid_dependency_launch();

  float squares = 0;
  typename Row::Values kept[kKept];
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    if (thread + i * threads < rows.pieces) kept[i] = row.take(thread + i * threads, squares);
  }
  for (int piece = after_kept; piece < rows.pieces; piece += threads) row.take(piece, squares);
  for (int column = first_single; column < rows.columns; column += threads) {
    if constexpr (kAdd) row.sum[column] = from_float<Element>(to_float(row.x[column]) + to_float(row.addend[column]));
    const float value = to_float(row.normed()[column]);
    squares += value * value;
  }

  const float mean = block_sum(squares, partial) / static_cast<float>(rows.columns);
  const float factor = rsqrtf(mean + rows.epsilon);

  // Every thread writes the places that it has read, so that out may be x or addend, and sum either.
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    if (thread + i * threads < rows.pieces) row.give(thread + i * threads, kept[i], weights[i], factor);
  }
  for (int piece = after_kept; piece < rows.pieces; piece += threads) {
    row.give(piece, Row::Values::load(row.normed() + piece * Row::kCount),
             Weights::load(row.weight + piece * Row::kCount), factor);
  }
  for (int column = first_single; column < rows.columns; column += threads) {
    row.out[column] = from_float<Element>(to_float(row.normed()[column]) * (factor * to_float(row.weight[column])));
  }
}

/// How many pieces of `piece` elements of a row can be moved whole: all or, where something is not aligned, none.
int64_t whole_pieces(const RmsNorm& norm, int64_t element_bytes, int64_t piece) {
  const auto aligned = [](const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; };
  const auto even = [&](int64_t stride) { return norm.rows == 1 || stride * element_bytes % 16 == 0; };
  const bool whole =
      aligned(norm.x) && aligned(norm.addend) && aligned(norm.weight) && aligned(norm.out) && even(norm.x_stride) &&
      even(norm.out_stride) &&
      (norm.addend == nullptr || (aligned(norm.sum) && even(norm.addend_stride) && even(norm.sum_stride)));
  return whole ? norm.columns / piece : 0;
}

template <class Element, class Weight>
cudaError_t launch_norm(const RmsNorm& norm, cudaStream_t stream) {
  const NormRows rows{.x = norm.x,
                      .addend = norm.addend,
                      .sum = norm.sum,
                      .weight = norm.weight,
                      .out = norm.out,
                      .x_stride = norm.x_stride,
                      .addend_stride = norm.addend == nullptr ? 0 : norm.addend_stride,
                      .sum_stride = norm.addend == nullptr ? 0 : norm.sum_stride,
                      .out_stride = norm.out_stride,
                      .columns = static_cast<int>(norm.columns),
                      .pieces = static_cast<int>(whole_pieces(norm, sizeof(Element), kPiece<Element, Weight>)),
                      .epsilon = norm.epsilon};
  const int singles = rows.columns - rows.pieces * kPiece<Element, Weight>;
  const int64_t wanted = rows.pieces > singles ? rows.pieces : singles;
  const int64_t most = norm.rows > kManyRows ? kThreadsOfManyRows : kMaxThreads;
  const int64_t whole_warps = (wanted + kWarpSize - 1) / kWarpSize * kWarpSize;
  const Launch where{.grid = dim3(static_cast<unsigned>(norm.rows)),
                     .block = dim3(static_cast<unsigned>(whole_warps < most ? whole_warps : most)),
                     .shared_bytes = 0,
                     .stream = stream,
                     .programmatic = norm.programmatic};
  if (norm.addend != nullptr) return launch(where, rms_norm_kernel<Element, Weight, true>, rows);
  return launch(where, rms_norm_kernel<Element, Weight, false>, rows);
}

bool valid(const RmsNorm& norm) {
  constexpr int64_t kMostBlocks = 0x7FFFFFFF;  // of a grid, CUDA C++ Programming Guide, "Technical Specifications"
  constexpr int64_t kMostColumns = 1 << 30;    // with the threads that follow the last piece still an int
  return norm.columns > 0 && norm.columns <= kMostColumns && norm.rows >= 0 && norm.rows <= kMostBlocks &&
         norm.x_stride >= norm.columns && norm.out_stride >= norm.columns &&
         (norm.addend == nullptr ||
          (norm.sum != nullptr && norm.addend_stride >= norm.columns && norm.sum_stride >= norm.columns)) &&
         (norm.weight_dtype == DType::kF32 || norm.weight_dtype == norm.dtype);
}

}  // namespace

cudaError_t rms_norm(const RmsNorm& arguments, cudaStream_t stream) {
  if (!valid(arguments)) return cudaErrorInvalidValue;
  if (arguments.rows == 0) return cudaSuccess;
  const bool wide_weight = arguments.weight_dtype == DType::kF32;
  switch (arguments.dtype) {
    case DType::kF32:
      return launch_norm<float, float>(arguments, stream);
    case DType::kF16:
      return wide_weight ? launch_norm<__half, float>(arguments, stream)
                         : launch_norm<__half, __half>(arguments, stream);
    case DType::kBF16:
      return wide_weight ? launch_norm<__nv_bfloat16, float>(arguments, stream)
                         : launch_norm<__nv_bfloat16, __nv_bfloat16>(arguments, stream);
    case DType::kQ4_0:
    case DType::kQ4_1:
    case DType::kQ8_0:
      break;
  }
  return cudaErrorInvalidValue;
}

}  // namespace shardscope::cuda
