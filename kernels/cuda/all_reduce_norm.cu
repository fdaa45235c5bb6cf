// All-reduce, residual and norm in one kernel, by the words of peer_words.cuh, one-shot or two-shot as all_reduce.cu.
//
// A row is spread over `parts` blocks, so many threads that each holds up to kKept words of it in registers; parts and
// threads follow from the columns alone, so that all ranks add squares in the same order. Groups of `parts` blocks take
// rows in turn: they first send their words of all rows, then finish row by row: sum, squares, norm. The blocks of a
// row tell each other their sums of squares by words in this device's memory, behind the inbox; there is one for each
// part of each row, so that none is written twice in a call; between calls kernels end. A thread treats the same words
// of sum, residual, x and normed in all phases, so that they may share memory.
//
// Two-shot: the rank that adds a word adds the residual too, and rounds once; all ranks hold the same residual.
//
// Bytes: those of all_reduce between ranks; in device memory each of x, residual, sum and normed once (two-shot: of the
// rank's own chunk x and sum twice, of the other chunks no residual). Launch: `parts` blocks of up to 480 threads a
// row and a doorkeeper each, one block a multiprocessor at most, so that the grid is resident at once.
#include "kernels/cuda/all_reduce.hpp"
#include "kernels/cuda/peer_doorkeeper.cuh"
#include "kernels/cuda/peer_elements.cuh"
#include "kernels/cuda/peer_launch.cuh"

namespace shardscope::cuda {
namespace {

// That have data. With the doorkeeper 16 warps, which a multiprocessor's four parts share evenly, so that a thread may
// have 128 registers; one warp more would leave it 96.
constexpr int kMaxThreads = 480;
constexpr int kKept = 2;
constexpr int64_t kMostRows = int64_t{1} << 30;  // more than a capacity holds
constexpr int64_t kMaxRowWords = int64_t{kMaxParts} * kMaxThreads * kKept;

/// A kernel's view of the arguments.
template <class Element>
struct NormCall {
  PeerCall peers;
  uint64_t* partials;  // [rows][parts] sums of squares, with the call's number
  const Element* x;
  const Element* residual;
  const float* weight;
  Element* sum;
  Element* normed;
  int64_t x_stride;  // elements, as the next three
  int64_t residual_stride;
  int64_t sum_stride;
  int64_t normed_stride;
  int64_t rows;
  float epsilon;
  int columns;
  int row_words;  // the last may be half a word
  int parts;
};

/// Which words of a row a thread has: number k = 0 to kKept - 1 of them, maybe beyond the row, as all of a doorkeeper
/// are. Adjacent warps' words are in different blocks, so that a chunk of two-shot is not one block's work.
template <class Element>
__device__ __forceinline__ int word_of(const NormCall<Element>& call, int k) {
  if (is_doorkeeper()) return call.row_words;
  const int warps = static_cast<int>(data_threads()) / kWarpSize;
  const int thread = static_cast<int>(threadIdx.x);
  const int part = static_cast<int>(blockIdx.x) % call.parts;
  return ((k * warps + thread / kWarpSize) * call.parts + part) * kWarpSize + thread % kWarpSize;
}

template <class Element>
__device__ __forceinline__ uint32_t load_x(const NormCall<Element>& call, int64_t row, int word) {
  return Words<Element>::load(call.x + row * call.x_stride, call.columns, word);
}

/// residual + the ranks' sum, rounded.
template <class Element>
__device__ __forceinline__ uint32_t add_residual(uint32_t residual, float2 sum) {
  const float2 added = Words<Element>::values(residual);
  return Words<Element>::pack(make_float2(added.x + sum.x, added.y + sum.y));
}

/// Sums a word of all ranks, when it has come; `at` is its place among what a sender sends. False when it gave up.
template <class Element>
__device__ __forceinline__ bool sum_word(const NormCall<Element>& call, const Begun& begun, int64_t row, int word,
                                         int64_t at, uint32_t own, uint32_t& sum) {
  const uint32_t residual = Words<Element>::load(call.residual + row * call.residual_stride, call.columns, word);
  uint32_t received[kMaxPeerRanks] = {};
  if (!receive_all(call.peers, begun, at, received)) return false;
  sum = add_residual<Element>(residual, add_ranks<Element>(call.peers, own, received));
  Words<Element>::store(call.sum + row * call.sum_stride, call.columns, word, sum);
  return true;
}

/// Two-shot: sums this rank's chunk and stores it into all inboxes. False when it gave up.
template <class Element>
__device__ __forceinline__ bool sum_chunk(const NormCall<Element>& call, const Begun& begun) {
  const PeerCall& peers = call.peers;
  const int64_t chunk = peers.rank * peers.chunk_words;
  for (int64_t row = blockIdx.x / call.parts; row < call.rows; row += gridDim.x / call.parts) {
#pragma unroll 1
    for (int k = 0; k < kKept; ++k) {
      const int word = word_of(call, k);
      if (word >= call.row_words) break;
      const int64_t at = row * call.row_words + word;
      if (at < chunk || at >= chunk + peers.chunk_words) continue;
      uint32_t sum = 0;
      if (!sum_word(call, begun, row, word, at - chunk, load_x(call, row, word), sum)) return false;
      push_to_all(peers, begun.buffer + peers.result_place + at, marked(begun.number, sum));
    }
  }
  return true;
}

/// Two-shot: a word of the sum, from the rank that added it or, if that is this one, from memory. False when it gave
/// up.
template <class Element>
__device__ __forceinline__ bool take_sum(const NormCall<Element>& call, const Begun& begun, int64_t row, int word,
                                         uint32_t& sum) {
  Element* const sums = call.sum + row * call.sum_stride;
  const int64_t at = row * call.row_words + word;
  const int owner = owner_of(call.peers, at);
  if (owner == call.peers.rank) {
    sum = Words<Element>::load(sums, call.columns, word);
    return true;
  }
  if (!receive_result(call.peers, begun, at, owner, sum)) return false;
  Words<Element>::store(sums, call.columns, word, sum);
  return true;
}

/// The row's sum of squares in all threads of its blocks, the same bits in all. All threads call. of_warps [32] and
/// of_parts [kMaxParts] are shared memory that nobody else uses.
template <class Element>
__device__ __forceinline__ float row_sum(const NormCall<Element>& call, const Begun& begun, int64_t row, float squares,
                                         float* of_warps, float* of_parts) {
  const float of_block = block_sum(squares, of_warps);
  const int thread = static_cast<int>(threadIdx.x);
  if (call.parts > 1) {
    uint64_t* const partials = call.partials + row * call.parts;
    if (thread == 0) {
      store_relaxed_system(partials + blockIdx.x % call.parts, marked(begun.number, __float_as_uint(of_block)));
    }
    if (thread < call.parts) {
      uint32_t part = 0;
      receive_one(call.peers, begun, partials + thread, call.peers.rank, part);
      of_parts[thread] = __uint_as_float(part);
    }
  }
  __syncthreads();  // also before the next row's use of of_warps
  if (call.parts == 1) return of_block;
  float sum = of_parts[0];
  for (int part = 1; part < call.parts; ++part) sum += of_parts[part];
  return sum;
}

template <class Element, bool kTwoShot>
__global__ void __launch_bounds__(kMaxThreads + kWarpSize, 1) all_reduce_norm_kernel(NormCall<Element> call) {
  mark_begin(call.peers.stamps);
  SHARDSCOPE_SHARED(float, of_warps, kWarpSize);
  SHARDSCOPE_SHARED(float, of_parts, kMaxParts);
  const int64_t first_row = blockIdx.x / call.parts;
  const int64_t groups = gridDim.x / call.parts;
  float2 weights[kKept];
#pragma unroll
  for (int k = 0; k < kKept; ++k) {
    const int column = word_of(call, k) * Words<Element>::kElements;
    weights[k].x = column < call.columns ? call.weight[column] : 0.0f;
    weights[k].y = Words<Element>::kElements == 2 && column + 1 < call.columns ? call.weight[column + 1] : 0.0f;
  }
  grid_dependency_wait();
  grid_dependency_launch();
  uint32_t kept[kKept];  // of the first row, before the call's number is known, which takes as long
#pragma unroll
  for (int k = 0; k < kKept; ++k) {
    kept[k] = word_of(call, k) < call.row_words ? load_x(call, first_row, word_of(call, k)) : 0;
  }
  const Begun begun = begin_call(call.peers);
  if (is_doorkeeper()) keep_door(call.peers, begun);
  for (int64_t row = first_row; row < call.rows && !begun.failed; row += groups) {
#pragma unroll
    for (int k = 0; k < kKept; ++k) {
      const int word = word_of(call, k);
      if (word >= call.row_words) continue;
      push<kTwoShot>(call.peers, begun, row * call.row_words + word,
                     row == first_row ? kept[k] : load_x(call, row, word));
    }
  }

  bool arrived = !begun.failed;
  if constexpr (kTwoShot) arrived = arrived && sum_chunk(call, begun);
  for (int64_t row = first_row; row < call.rows && !begun.failed; row += groups) {
    float squares = 0;
#pragma unroll
    for (int k = 0; k < kKept; ++k) {
      const int word = word_of(call, k);
      if (word >= call.row_words || !arrived) continue;
      if constexpr (kTwoShot) {
        arrived = take_sum(call, begun, row, word, kept[k]);
      } else {
        const uint32_t own = row == first_row ? kept[k] : load_x(call, row, word);
        arrived = sum_word(call, begun, row, word, row * call.row_words + word, own, kept[k]);
      }
      const float2 values = Words<Element>::values(kept[k]);
      squares += values.x * values.x + values.y * values.y;
    }
    const float mean = row_sum(call, begun, row, squares, of_warps, of_parts) / static_cast<float>(call.columns);
    const float factor = rsqrtf(mean + call.epsilon);
#pragma unroll
    for (int k = 0; k < kKept; ++k) {
      const int word = word_of(call, k);
      if (word >= call.row_words || !arrived) continue;
      const float2 values = Words<Element>::values(kept[k]);
      Words<Element>::store(
          call.normed + row * call.normed_stride, call.columns, word,
          Words<Element>::pack(make_float2(values.x * (factor * weights[k].x), values.y * (factor * weights[k].y))));
    }
  }
  end_call(call.peers, begun);
}

int64_t divide_up(int64_t value, int64_t by) {
  return (value + by - 1) / by;
}

template <class Element>
cudaError_t launch_norm(const PeerRank& rank, Shots shots, const AllReduceNorm& a, cudaStream_t stream) {
  const int64_t row_words = Words<Element>::count(a.columns);
  if (row_words > kMaxRowWords || a.rows > kMostRows) return cudaErrorInvalidValue;
  PeerCall peers;
  if (const cudaError_t error = make_call(
          rank, {.kind = CallKind::kNorm, .shots = shots, .dtype = a.dtype, .rows = a.rows, .columns = a.columns},
          a.rows * row_words, peers);
      error != cudaSuccess) {
    return error;
  }
  peers.stamps = a.stamps;
  const int64_t wanted = divide_up(row_words, kPartWords);
  const int64_t parts = wanted < kMaxParts ? wanted : kMaxParts;
  const int64_t threads = round_to_warps(divide_up(row_words, parts));

  int multiprocessors = 0;
  if (const cudaError_t error = count_multiprocessors(multiprocessors); error != cudaSuccess) return error;
  if (parts > multiprocessors) return cudaErrorInvalidValue;
  const int64_t most_groups = multiprocessors / parts;
  const int64_t groups = a.rows < most_groups ? a.rows : most_groups;
  const NormCall<Element> call{.peers = peers,
                               .partials = peers.inboxes[peers.rank] + 2 * peers.buffer_words,
                               .x = static_cast<const Element*>(a.x),
                               .residual = static_cast<const Element*>(a.residual),
                               .weight = a.weight,
                               .sum = static_cast<Element*>(a.sum),
                               .normed = static_cast<Element*>(a.normed),
                               .x_stride = a.x_stride,
                               .residual_stride = a.residual_stride,
                               .sum_stride = a.sum_stride,
                               .normed_stride = a.normed_stride,
                               .rows = a.rows,
                               .epsilon = a.epsilon,
                               .columns = static_cast<int>(a.columns),
                               .row_words = static_cast<int>(row_words),
                               .parts = static_cast<int>(parts)};
  const Launch where{.grid = dim3(static_cast<unsigned>(groups * parts)),
                     .block = dim3(static_cast<unsigned>((threads < kMaxThreads ? threads : kMaxThreads) + kWarpSize)),
                     .shared_bytes = 0,
                     .stream = stream,
                     .programmatic = a.programmatic};
  if (shots == Shots::kTwo) return launch(where, all_reduce_norm_kernel<Element, true>, call);
  return launch(where, all_reduce_norm_kernel<Element, false>, call);
}

bool valid(const AllReduceNorm& a) {
  const int64_t bytes = a.dtype == DType::kF32 ? 4 : 2;
  const auto rows = [&](const void* data, int64_t stride) {
    return data != nullptr && aligned(data, kWordDataBytes) && stride >= a.columns &&
           (a.rows == 1 || stride * bytes % kWordDataBytes == 0);
  };
  return a.rows >= 0 && a.columns >= 1 &&
         (a.rows == 0 || (rows(a.x, a.x_stride) && rows(a.residual, a.residual_stride) && rows(a.sum, a.sum_stride) &&
                          rows(a.normed, a.normed_stride) && a.normed != a.sum && a.weight != nullptr &&
                          aligned(a.weight, alignof(float))));
}

}  // namespace

int64_t all_reduce_norm_columns(DType dtype, int multiprocessors) {
  const int64_t words = multiprocessors < kMaxParts ? multiprocessors * kPartWords : kMaxRowWords;
  return dtype == DType::kF32 ? words : words * 2;
}

cudaError_t all_reduce_norm(const PeerRank& rank, Shots shots, const AllReduceNorm& arguments, cudaStream_t stream) {
  if (!valid(rank) || !valid(arguments)) return cudaErrorInvalidValue;
  switch (arguments.dtype) {
    case DType::kF32:
      return arguments.rows == 0 ? cudaSuccess : launch_norm<float>(rank, shots, arguments, stream);
    case DType::kF16:
      return arguments.rows == 0 ? cudaSuccess : launch_norm<__half>(rank, shots, arguments, stream);
    case DType::kBF16:
      return arguments.rows == 0 ? cudaSuccess : launch_norm<__nv_bfloat16>(rank, shots, arguments, stream);
    case DType::kQ4_0:
    case DType::kQ4_1:
    case DType::kQ8_0:
      break;
  }
  return cudaErrorInvalidValue;
}

}  // namespace shardscope::cuda
