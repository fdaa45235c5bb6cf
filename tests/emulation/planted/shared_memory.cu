// Planted bugs of shared memory and barriers within one block: what is read too early, overwritten too early, past its
// end or never written, and barriers that not all threads reach. Sound twins are the same kernels with kPlanted false.
#include "kernels/cuda/ptx.cuh"
#include "tests/emulation/planted/planted.hpp"

namespace shardscope::planted {
namespace {

using namespace cuda;
using emulation::Fault;

constexpr unsigned kThreads = 128;
constexpr unsigned kWarps = kThreads / kWarpSize;

// ---- read before the others have written ----

template <bool kPlanted>
__global__ void missing_barrier(const float* values, float* sum) {
  SHARDSCOPE_SHARED(float, partial, kWarps);
  const unsigned warp = threadIdx.x / kWarpSize;
  if (threadIdx.x < kWarps) partial[threadIdx.x] = 0;
  __syncthreads();
  const float of_warp = warp_sum(values[threadIdx.x]);
  if (threadIdx.x % kWarpSize == 0) partial[warp] = of_warp;  // planted: missing_barrier
  if constexpr (!kPlanted) __syncthreads();
  if (threadIdx.x == 0) {
    float total = 0;
    for (unsigned i = 0; i < kWarps; ++i) total += partial[i];  // planted: missing_barrier
    *sum = total;
  }
}

bool run_missing_barrier(Stand& stand) {
  const float* const values = stand.counting<float>(kThreads);
  float* const sum = stand.unwritten<float>(1);
  stand.start({1, kThreads}, stand.planted() ? missing_barrier<true> : missing_barrier<false>, values, sum);
  return stand.first(sum) == sum_of_counting<float>(kThreads);
}

// ---- overwritten before the others have read ----

constexpr int kTiles = 3;

template <bool kPlanted>
__global__ void missing_barrier_before_reuse(const int* values, int* sums) {
  SHARDSCOPE_SHARED(int, tile, kThreads);
  int sum = 0;
  for (int i = 0; i < kTiles; ++i) {
    tile[threadIdx.x] = values[i * kThreads + threadIdx.x];  // planted: missing_barrier_before_reuse
    __syncthreads();
    sum += tile[kThreads - 1 - threadIdx.x];  // planted: missing_barrier_before_reuse
    if constexpr (!kPlanted) __syncthreads();
  }
  sums[threadIdx.x] = sum;
}

bool run_missing_barrier_before_reuse(Stand& stand) {
  const int* const values = stand.counting<int>(kTiles * kThreads);
  int* const sums = stand.unwritten<int>(kThreads);
  stand.start({1, kThreads}, stand.planted() ? missing_barrier_before_reuse<true> : missing_barrier_before_reuse<false>,
              values, sums);
  const std::vector<int> actual = stand.download(sums, kThreads);
  for (int i = 0; i < static_cast<int>(kThreads); ++i) {
    int expected = 0;
    for (int k = 0; k < kTiles; ++k) expected += k * static_cast<int>(kThreads) + static_cast<int>(kThreads) - 1 - i;
    if (actual[static_cast<size_t>(i)] != expected) return false;
  }
  return true;
}

// ---- a counter without atomics ----

template <bool kPlanted>
__global__ void plain_increment(unsigned* count) {
  SHARDSCOPE_SHARED(unsigned, hits, 1);
  if (threadIdx.x == 0) hits[0] = 0;
  __syncthreads();
  if constexpr (kPlanted) {
    hits[0] = hits[0] + 1;  // planted: plain_increment
  } else {
    atomicAdd(&hits[0], 1u);
  }
  __syncthreads();
  if (threadIdx.x == 0) *count = hits[0];
}

bool run_plain_increment(Stand& stand) {
  unsigned* const count = stand.unwritten<unsigned>(1);
  stand.start({1, kThreads}, stand.planted() ? plain_increment<true> : plain_increment<false>, count);
  return stand.first(count) == kThreads;
}

// ---- a counter read while others still add ----

template <bool kPlanted>
__global__ void counter_read_too_early(unsigned* seen) {
  SHARDSCOPE_SHARED(unsigned, hits, 1);
  if (threadIdx.x == 0) hits[0] = 0;
  __syncthreads();
  atomicAdd(&hits[0], 1u);  // planted: counter_read_too_early
  if constexpr (!kPlanted) __syncthreads();
  seen[threadIdx.x] = hits[0];  // planted: counter_read_too_early
}

bool run_counter_read_too_early(Stand& stand) {
  unsigned* const seen = stand.unwritten<unsigned>(kThreads);
  stand.start({1, kThreads}, stand.planted() ? counter_read_too_early<true> : counter_read_too_early<false>, seen);
  return stand.first(seen) == kThreads;
}

// ---- a shuffle taken for a barrier ----

template <bool kPlanted>
__global__ void shuffle_taken_for_barrier(int* out) {
  SHARDSCOPE_SHARED(int, box, kWarpSize);
  box[threadIdx.x] = static_cast<int>(threadIdx.x);  // planted: shuffle_taken_for_barrier
  if constexpr (!kPlanted) __syncwarp();
  const int token = __shfl_sync(kFullMask, 100, 0);
  out[threadIdx.x] = token + box[threadIdx.x ^ 1u];  // planted: shuffle_taken_for_barrier
}

bool run_shuffle_taken_for_barrier(Stand& stand) {
  int* const out = stand.unwritten<int>(kWarpSize);
  stand.start({1, kWarpSize}, stand.planted() ? shuffle_taken_for_barrier<true> : shuffle_taken_for_barrier<false>,
              out);
  const std::vector<int> actual = stand.download(out, kWarpSize);
  for (int i = 0; i < kWarpSize; ++i) {
    if (actual[static_cast<size_t>(i)] != 100 + (i ^ 1)) return false;
  }
  return true;
}

// ---- past the end of a shared variable ----

template <bool kPlanted>
__global__ void shared_overflow(int* out) {
  SHARDSCOPE_SHARED(int, table, 33);
  SHARDSCOPE_SHARED(int, neighbour, 4);
  if (threadIdx.x < 4) neighbour[threadIdx.x] = 7;
  __syncthreads();
  for (unsigned i = threadIdx.x; i < (kPlanted ? 34 : 33); i += 32) table[i] = 1;  // planted: shared_overflow
  __syncthreads();
  out[threadIdx.x] = table[threadIdx.x] + neighbour[threadIdx.x % 4];
}

bool run_shared_overflow(Stand& stand) {
  int* const out = stand.unwritten<int>(32);
  stand.start({1, 32}, stand.planted() ? shared_overflow<true> : shared_overflow<false>, out);
  return stand.download(out, 32) == std::vector<int>(32, 8);
}

template <bool kPlanted>
__global__ void dynamic_shared_too_small(int* out) {
  SHARDSCOPE_DYNAMIC_SHARED(int, tile);
  tile[threadIdx.x] = static_cast<int>(threadIdx.x);  // planted: dynamic_shared_too_small
  __syncthreads();
  out[threadIdx.x] = tile[kThreads - 1 - threadIdx.x];
}

bool run_dynamic_shared_too_small(Stand& stand) {
  int* const out = stand.unwritten<int>(kThreads);
  const size_t bytes = (stand.planted() ? kThreads - 1 : kThreads) * sizeof(int);
  stand.start({1, kThreads, bytes}, stand.planted() ? dynamic_shared_too_small<true> : dynamic_shared_too_small<false>,
              out);
  const std::vector<int> actual = stand.download(out, kThreads);
  return actual.front() == static_cast<int>(kThreads) - 1 && actual.back() == 0;
}

// ---- never written ----

template <bool kPlanted>
__global__ void shared_unwritten(float* out) {
  SHARDSCOPE_SHARED(float, box, 2);
  if (!kPlanted || threadIdx.x != 0) box[threadIdx.x] = 3;
  __syncthreads();
  out[threadIdx.x] = box[1 - threadIdx.x];  // planted: shared_unwritten
}

bool run_shared_unwritten(Stand& stand) {
  float* const out = stand.unwritten<float>(2);
  stand.start({1, 2}, stand.planted() ? shared_unwritten<true> : shared_unwritten<false>, out);
  return stand.download(out, 2) == std::vector<float>{3, 3};
}

// ---- the address of a local variable given away ----

template <bool kPlanted>
__global__ void local_address_given_away(int* out) {
  SHARDSCOPE_SHARED(const int*, place, 1);
  SHARDSCOPE_SHARED(int, value, 1);
  volatile int own = 40 + static_cast<int>(threadIdx.x);
  if (threadIdx.x == 0) {
    value[0] = own;
    place[0] = kPlanted ? const_cast<const int*>(&own) : value;
  }
  __syncthreads();
  if (threadIdx.x == 1) *out = *place[0];  // planted: local_address_given_away
  __syncthreads();
}

bool run_local_address_given_away(Stand& stand) {
  int* const out = stand.unwritten<int>(1);
  stand.start({1, 2}, stand.planted() ? local_address_given_away<true> : local_address_given_away<false>, out);
  return stand.first(out) == 40;
}

// ---- barriers that not all threads reach ----

template <bool kPlanted>
__global__ void divergent_barrier(int* out) {
  SHARDSCOPE_SHARED(int, box, kThreads);
  box[threadIdx.x] = static_cast<int>(threadIdx.x);
  if constexpr (kPlanted) {
    if (threadIdx.x < kThreads / 2) {
      __syncthreads();  // planted: divergent_barrier
    } else {
      __syncthreads();  // planted: divergent_barrier
    }
  } else {
    __syncthreads();
  }
  out[threadIdx.x] = box[kThreads - 1 - threadIdx.x];
}

bool run_divergent_barrier(Stand& stand) {
  int* const out = stand.unwritten<int>(kThreads);
  stand.start({1, kThreads}, stand.planted() ? divergent_barrier<true> : divergent_barrier<false>, out);
  const std::vector<int> actual = stand.download(out, kThreads);
  return actual.front() == static_cast<int>(kThreads) - 1 && actual.back() == 0;
}

template <bool kPlanted>
__global__ void ended_before_barrier(int count, int* out) {
  SHARDSCOPE_SHARED(int, box, kThreads);
  const int i = static_cast<int>(threadIdx.x);
  if (kPlanted && i >= count) return;
  if (i < count) box[i] = i;
  __syncthreads();  // planted: ended_before_barrier
  if (i < count) out[i] = box[count - 1 - i];
}

bool run_ended_before_barrier(Stand& stand) {
  constexpr int kCount = 100;
  int* const out = stand.unwritten<int>(kCount);
  stand.start({1, kThreads}, stand.planted() ? ended_before_barrier<true> : ended_before_barrier<false>, kCount, out);
  const std::vector<int> actual = stand.download(out, kCount);
  return actual.front() == kCount - 1 && actual.back() == 0;
}

template <bool kPlanted>
__global__ void uneven_trips_to_barrier(int count, int* sum) {
  SHARDSCOPE_SHARED(int, total, 1);
  if (threadIdx.x == 0) total[0] = 0;
  __syncthreads();
  const int first = static_cast<int>(threadIdx.x);
  const int end = kPlanted ? count
                           : (count + static_cast<int>(blockDim.x) - 1) / static_cast<int>(blockDim.x) *
                                 static_cast<int>(blockDim.x);
  for (int i = first; i < end; i += static_cast<int>(blockDim.x)) {
    if (i < count) atomicAdd(&total[0], i);
    __syncthreads();  // planted: uneven_trips_to_barrier
  }
  if (first == 0) *sum = total[0];
}

bool run_uneven_trips_to_barrier(Stand& stand) {
  constexpr int kCount = 150;
  int* const sum = stand.unwritten<int>(1);
  stand.start({1, 64}, stand.planted() ? uneven_trips_to_barrier<true> : uneven_trips_to_barrier<false>, kCount, sum);
  return stand.first(sum) == sum_of_counting<int>(kCount);
}

}  // namespace

BugFile shared_memory_bugs() {
  return {__FILE__,
          {
              {"missing_barrier", run_missing_barrier, Fault::kSharedRace},
              {"missing_barrier_before_reuse", run_missing_barrier_before_reuse, Fault::kSharedRace},
              {"counter_read_too_early", run_counter_read_too_early, Fault::kSharedRace, Plain::kWrongResult},
              {"plain_increment", run_plain_increment, Fault::kSharedRace},
              {"shuffle_taken_for_barrier", run_shuffle_taken_for_barrier, Fault::kSharedRace},
              {"shared_overflow", run_shared_overflow, Fault::kOutOfBounds},
              {"dynamic_shared_too_small", run_dynamic_shared_too_small, Fault::kOutOfBounds},
              {"shared_unwritten", run_shared_unwritten, Fault::kUninitialised, Plain::kWrongResult},
              {"local_address_given_away", run_local_address_given_away, Fault::kForeignLocal},
              {"divergent_barrier", run_divergent_barrier, Fault::kDivergentBarrier, Plain::kReport},
              {"ended_before_barrier", run_ended_before_barrier, Fault::kDivergentBarrier, Plain::kReport},
              {"uneven_trips_to_barrier", run_uneven_trips_to_barrier, Fault::kDivergentBarrier, Plain::kReport},
          }};
}

}  // namespace shardscope::planted
