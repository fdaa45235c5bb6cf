// The largest logits of a row. Logit and token id become one number of 64 bits whose order is the wanted one: the
// logit's bits, turned so that they sort as an unsigned number, above the inverted id. 0 is less than any of them.
//
// A row is dealt to blocks of 2,048 columns, 8 a thread. For one candidate a block takes the maximum; for up to 64 each
// warp keeps a list of 64 in registers, two a lane, sorted by a bitonic network over shuffles: the next 64 numbers are
// sorted against its order and merged (the larger of each pair, then the last 6 steps), unless none of them reaches
// the list. Lists of a block are merged in pairs through shared memory. What a block found goes to the workspace; the
// block that finishes last in its row merges the row.
//
// Noise: -log(-log(u)) in fp64, from the counter that the sampler on the host uses. Two logarithms a logit, 10 million
// operations for a row of 128,256: a microsecond where fp64 has half the speed of fp32 (H100), 15 where it has 1 / 64.
//
// Bytes: 4 a logit, which mostly lie in L2; 8 a block and candidate, written and read.
// Launch: one block of 256 threads for 2,048 columns of a row: 63 for one row of 128,256, each with 2 loads of 16 bytes
// a thread in flight.
#include "kernels/cuda/candidates.hpp"

#include "kernels/base/keyed_random.hpp"
#include "kernels/cuda/operation_stamps.cuh"
#include "kernels/cuda/ptx.cuh"

namespace shardscope::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarpSize;
constexpr int kQuads = 2;  // of logits, of a thread
constexpr int kKeys = 4 * kQuads;
constexpr int64_t kPartColumns = int64_t{kThreads} * kKeys;
constexpr int kList = static_cast<int>(kMaxCandidates);
static_assert(kList == 2 * kWarpSize, "a list is two keys of each lane");
// The counters of all rows that there can be come first, so that they stay where they are, whatever a call's rows; then
// the keys [rows][parts][count].
constexpr int64_t kCounterBytes = kMaxCandidateRows * static_cast<int64_t>(sizeof(unsigned));

int64_t parts_of(int64_t columns) {
  const int64_t parts = (columns + kPartColumns - 1) / kPartColumns;
  return parts > 0 ? parts : 1;
}

/// A kernel's view of the arguments.
struct Search {
  const float* logits;
  const CandidateNoise* noise;
  CandidateOut* out;
  unsigned* finished;       // [rows] blocks that have found theirs
  uint64_t* found;          // [rows][parts][count]
  OperationStamps* stamps;  // or null
  int64_t columns;
  int64_t stride;
  int32_t first_id;
  int count;
  bool whole;  // logits can be loaded four at a time
};

// ---- keys -----------------------------------------------------------------------------------------------------------

__device__ __forceinline__ uint64_t larger(uint64_t a, uint64_t b) {
  return a > b ? a : b;
}

__device__ __forceinline__ uint64_t key_of(float score, int32_t id) {
  constexpr uint32_t kSign = 0x80000000u;
  constexpr uint32_t kInfinity = 0x7F800000u;
  uint32_t bits = __float_as_uint(score);
  if (score == 0.0f) bits = 0;  // of either sign: they tie
  if (!(score == score)) bits = kInfinity;
  const uint32_t ordered = (bits & kSign) != 0 ? ~bits : bits | kSign;
  return static_cast<uint64_t>(ordered) << 32 | ~static_cast<uint32_t>(id);
}

__device__ __forceinline__ void store_candidate(CandidateOut* out, uint64_t key) {
  constexpr uint32_t kSign = 0x80000000u;
  constexpr uint32_t kMinusInfinity = 0xFF800000u;
  const auto ordered = static_cast<uint32_t>(key >> 32);
  const uint32_t bits = (ordered & kSign) != 0 ? ordered & ~kSign : ~ordered;
  const bool none = key == 0;
  store8(out, make_uint2(none ? kMinusInfinity : bits, none ? 0xFFFFFFFFu : ~static_cast<uint32_t>(key)));
}

/// What is added to a row's logits.
struct RowNoise {
  uint64_t key = 0;
  float inverse_temperature = 0;
  float reference = 0;

  __device__ __forceinline__ float score(float logit, int32_t id) const {
    if (inverse_temperature == 0.0f) return logit;
    const double gumbel = -log(-log(keyed_uniform(key, id)));
    const double distance = static_cast<double>(logit) - static_cast<double>(reference);
    return static_cast<float>(distance * static_cast<double>(inverse_temperature) + gumbel);
  }
};

__device__ __forceinline__ RowNoise noise_of(const Search& search, int64_t row) {
  if (search.noise == nullptr) return {};
  const CandidateNoise& noise = search.noise[row];
  return {noise.key, noise.inverse_temperature, noise.reference};
}

/// The thread's keys of its block's part of the row; 0 beyond the last column.
__device__ __forceinline__ void load_keys(const Search& search, int64_t row, uint64_t (&keys)[kKeys]) {
  const float* const logits = search.logits + row * search.stride;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kPartColumns + 4 * static_cast<int64_t>(threadIdx.x);
  float values[kKeys] = {};
#pragma unroll
  for (int quad = 0; quad < kQuads; ++quad) {
    const int64_t column = first + quad * 4 * kThreads;
    if (search.whole && column + 4 <= search.columns) {
      const uint4 bits = load16(logits + column);
      values[4 * quad] = __uint_as_float(bits.x);
      values[4 * quad + 1] = __uint_as_float(bits.y);
      values[4 * quad + 2] = __uint_as_float(bits.z);
      values[4 * quad + 3] = __uint_as_float(bits.w);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (column + i < search.columns) values[4 * quad + i] = logits[column + i];
      }
    }
  }
  const RowNoise noise = noise_of(search, row);
#pragma unroll
  for (int i = 0; i < kKeys; ++i) {
    const int64_t column = first + i / 4 * 4 * kThreads + i % 4;
    const auto id = static_cast<int32_t>(search.first_id + column);
    keys[i] = column < search.columns ? key_of(noise.score(values[i], id), id) : 0;
  }
}

// ---- rows -----------------------------------------------------------------------------------------------------------

__device__ __forceinline__ uint64_t* found_by(const Search& search, int64_t row, int64_t part) {
  return search.found + (row * gridDim.x + part) * search.count;
}

/// Publishes what thread 0 alone wrote, or the block before a barrier; true in the block that is the last of its row to
/// do so, which then sees what the others published. All threads call.
__device__ __forceinline__ bool last_of_row(const Search& search, int64_t row, int* last) {
  if (threadIdx.x == 0) {
    __threadfence();
    *last = atomicAdd(&search.finished[row], 1u) + 1 == gridDim.x ? 1 : 0;
    __threadfence();
    if (*last != 0) atomicExch(&search.finished[row], 0u);  // for the next call
  }
  __syncthreads();
  return *last != 0;
}

/// Maximum over the block, in thread 0. `partial` [kWarps] is shared memory.
__device__ __forceinline__ uint64_t block_largest(uint64_t key, uint64_t* partial) {
#pragma unroll
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) {
    key = larger(key, __shfl_xor_sync(kFullMask, key, offset));
  }
  if (threadIdx.x % kWarpSize == 0) partial[threadIdx.x / kWarpSize] = key;
  __syncthreads();
  if (threadIdx.x == 0) {
#pragma unroll
    for (int warp = 1; warp < kWarps; ++warp) key = larger(key, partial[warp]);
  }
  return key;
}

__global__ void __launch_bounds__(kThreads) largest_kernel(Search search) {
  SHARDSCOPE_SHARED(uint64_t, of_warps, kWarps);
  SHARDSCOPE_SHARED(uint64_t, of_last, kWarps);
  SHARDSCOPE_SHARED(int, last, 1);
  mark_begin(search.stamps);
  grid_dependency_wait();
  grid_dependency_launch();
  const int64_t row = blockIdx.y;
  uint64_t keys[kKeys];
  load_keys(search, row, keys);
  uint64_t best = keys[0];
#pragma unroll
  for (int i = 1; i < kKeys; ++i) best = larger(best, keys[i]);
  best = block_largest(best, of_warps);
  if (threadIdx.x == 0) *found_by(search, row, blockIdx.x) = best;
  if (!last_of_row(search, row, last)) return;
  best = 0;
  for (unsigned part = threadIdx.x; part < gridDim.x; part += kThreads) {
    best = larger(best, *found_by(search, row, part));
  }
  best = block_largest(best, of_last);
  if (threadIdx.x == 0) store_candidate(search.out + row, best);
  mark_end(search.stamps);
}

// ---- lists of a warp ------------------------------------------------------------------------------------------------

/// 64 keys of a warp: lane l holds numbers l and l + 32.
using Keys = uint64_t[2];

/// One step of a bitonic network: numbers whose places differ in `stride` are put in order, which is descending where
/// the place has no bit of `size`, else ascending; kAscending turns all that around.
template <bool kAscending>
__device__ __forceinline__ void exchange(Keys& keys, int size, int stride) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  if (stride == kWarpSize) {  // both numbers of a lane; then size is 64, more than any place
    const uint64_t high = larger(keys[0], keys[1]);
    const uint64_t low = keys[0] ^ keys[1] ^ high;
    keys[0] = kAscending ? low : high;
    keys[1] = kAscending ? high : low;
    return;
  }
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const uint64_t other = __shfl_xor_sync(kFullMask, keys[j], stride);
    const bool descending = (((lane + j * kWarpSize) & size) == 0) != kAscending;
    const bool takes_larger = ((lane & stride) == 0) == descending;
    keys[j] = (keys[j] > other) == takes_larger ? keys[j] : other;
  }
}

/// Sorts a bitonic sequence, as the larger (or smaller) halves of two sorted lists are.
template <bool kAscending>
__device__ __forceinline__ void sort_bitonic(Keys& keys, int size) {
#pragma unroll
  for (int stride = size / 2; stride > 0; stride /= 2) exchange<kAscending>(keys, size, stride);
}

__device__ __forceinline__ void sort_ascending(Keys& keys) {
#pragma unroll
  for (int size = 2; size <= kList; size *= 2) sort_bitonic<true>(keys, size);
}

/// list, descending, becomes the 64 largest of itself and of `ascending`.
__device__ __forceinline__ void merge(Keys& list, const Keys& ascending) {
  list[0] = larger(list[0], ascending[0]);
  list[1] = larger(list[1], ascending[1]);
  sort_bitonic<false>(list, kList);
}

/// The first `count` of a list are kept right: keys that would come behind them may be dropped.
__device__ __forceinline__ void offer(Keys& list, Keys& keys, int count) {
  const uint64_t low = __shfl_sync(kFullMask, list[0], (count - 1) % kWarpSize);
  const uint64_t high = __shfl_sync(kFullMask, list[1], (count - 1) % kWarpSize);
  const uint64_t least = count > kWarpSize ? high : low;
  if (__any_sync(kFullMask, (keys[0] > least || keys[1] > least) ? 1 : 0) == 0) return;
  sort_ascending(keys);
  merge(list, keys);
}

/// Merges the lists of the warps; the result is in warp 0. `lists` [kWarps / 2][64] is shared memory.
__device__ __forceinline__ void merge_warps(Keys& list, uint64_t* lists) {
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
#pragma unroll
  for (int half = kWarps / 2; half > 0; half /= 2) {
    if (warp >= half && warp < 2 * half) {
      uint64_t* const own = lists + (warp - half) * kList;
      own[lane] = list[0];
      own[lane + kWarpSize] = list[1];
    }
    __syncthreads();
    if (warp < half) {
      const uint64_t* const other = lists + warp * kList;
      const Keys ascending = {other[kList - 1 - lane], other[kWarpSize - 1 - lane]};
      merge(list, ascending);
    }
    __syncthreads();
  }
}

__global__ void __launch_bounds__(kThreads) candidates_kernel(Search search) {
  SHARDSCOPE_SHARED(uint64_t, lists, kWarps / 2 * kList);
  SHARDSCOPE_SHARED(int, last, 1);
  mark_begin(search.stamps);
  grid_dependency_wait();
  grid_dependency_launch();
  const int64_t row = blockIdx.y;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  Keys list = {};
  uint64_t keys[kKeys];
  load_keys(search, row, keys);
#pragma unroll
  for (int i = 0; i < kKeys; i += 2) {
    Keys pair = {keys[i], keys[i + 1]};
    offer(list, pair, search.count);
  }
  merge_warps(list, lists);
  if (warp == 0) {
    uint64_t* const found = found_by(search, row, blockIdx.x);
    if (lane < search.count) found[lane] = list[0];
    if (lane + kWarpSize < search.count) found[lane + kWarpSize] = list[1];
  }
  __syncthreads();
  if (!last_of_row(search, row, last)) return;
  list[0] = list[1] = 0;
  for (unsigned part = static_cast<unsigned>(warp); part < gridDim.x; part += kWarps) {
    const uint64_t* const found = found_by(search, row, part);
    Keys ascending;  // found is sorted, so that reading it backwards is enough
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int place = kList - 1 - lane - j * kWarpSize;
      ascending[j] = place < search.count ? found[place] : 0;
    }
    merge(list, ascending);
  }
  merge_warps(list, lists);
  if (warp == 0) {
    CandidateOut* const out = search.out + row * search.count;
    if (lane < search.count) store_candidate(out + lane, list[0]);
    if (lane + kWarpSize < search.count) store_candidate(out + lane + kWarpSize, list[1]);
  }
  mark_end(search.stamps);
}

bool valid(const Candidates& arguments) {
  constexpr int64_t kMostColumns = 0x7FFFFFFF;
  return arguments.rows >= 0 && arguments.rows <= kMaxCandidateRows && arguments.columns >= 0 &&
         arguments.first_id >= 0 && arguments.columns <= kMostColumns - arguments.first_id &&
         arguments.stride >= arguments.columns && arguments.count >= 1 && arguments.count <= kMaxCandidates &&
         arguments.workspace != nullptr && reinterpret_cast<uintptr_t>(arguments.workspace) % 16 == 0;
}

}  // namespace

int64_t candidates_workspace_bytes(int64_t rows, int64_t columns, int64_t count) {
  return kCounterBytes + rows * parts_of(columns) * count * static_cast<int64_t>(sizeof(uint64_t));
}

cudaError_t candidates(const Candidates& arguments, cudaStream_t stream) {
  if (arguments.rows == 0) return cudaSuccess;
  if (!valid(arguments)) return cudaErrorInvalidValue;
  auto* const workspace = static_cast<unsigned char*>(arguments.workspace);
  const bool whole =
      reinterpret_cast<uintptr_t>(arguments.logits) % 16 == 0 && (arguments.rows == 1 || arguments.stride % 4 == 0);
  const Search search{.logits = arguments.logits,
                      .noise = arguments.noise,
                      .out = arguments.out,
                      .finished = reinterpret_cast<unsigned*>(workspace),
                      .found = reinterpret_cast<uint64_t*>(workspace + kCounterBytes),
                      .stamps = arguments.stamps,
                      .columns = arguments.columns,
                      .stride = arguments.stride,
                      .first_id = arguments.first_id,
                      .count = static_cast<int>(arguments.count),
                      .whole = whole};
  const Launch where{
      .grid = dim3(static_cast<unsigned>(parts_of(arguments.columns)), static_cast<unsigned>(arguments.rows)),
      .block = dim3(kThreads),
      .shared_bytes = 0,
      .stream = stream,
      .programmatic = arguments.programmatic};
  return launch(where, arguments.count == 1 ? largest_kernel : candidates_kernel, search);
}

}  // namespace shardscope::cuda
