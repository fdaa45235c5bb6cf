// Planted bugs of protocols between blocks that go beyond one flag: a lock, a chain of flags, a ring of slots, a warp
// that publishes for its lanes, a last block whose threads all read, data that travels beside its flag. The sound twins
// matter as much: each is a pattern that a checker could wrongly complain about.
#include "kernels/cuda/ptx.cuh"
#include "tests/emulation/planted/planted.hpp"

namespace shardscope::planted {
namespace {

using namespace cuda;
using emulation::Fault;

// ---- fences and relaxed atomics instead of release and acquire ----

enum class Fences : uint8_t { kRight, kNotByPublisher, kNotByObserver, kObserverTooEarly };

template <Fences kFences>
__global__ void relaxed_with_fences(int* message, unsigned* flag, int* out) {
  if (blockIdx.x == 1) {
    message[threadIdx.x] = static_cast<int>(threadIdx.x);  // planted: relaxed_with_fences
    __syncthreads();
    if (threadIdx.x == 0) {
      if constexpr (kFences != Fences::kNotByPublisher) __threadfence();
      atomicExch(flag, 1u);
    }
  } else {
    if (threadIdx.x == 0) {
      if constexpr (kFences == Fences::kObserverTooEarly) __threadfence();
      while (atomicAdd(flag, 0u) == 0) poll_pause(flag);
      if constexpr (kFences == Fences::kRight || kFences == Fences::kNotByPublisher) __threadfence();
    }
    __syncthreads();
    const int received = message[threadIdx.x];  // planted: relaxed_with_fences
    out[threadIdx.x] = received;
  }
}

template <Fences kBug>
bool run_relaxed_with_fences(Stand& stand) {
  int* const message = stand.zeros<int>(64);
  unsigned* const flag = stand.zeros<unsigned>(1);
  int* const out = stand.unwritten<int>(64);
  stand.start({2, 64}, stand.planted() ? relaxed_with_fences<kBug> : relaxed_with_fences<Fences::kRight>, message, flag,
              out);
  return stand.download(out, 64).back() == 63;
}

// ---- a lock ----

template <bool kPlanted>
__global__ void lock_without_fence(unsigned* lock, unsigned* count) {
  if (threadIdx.x != 0) return;
  while (atomicCAS(lock, 0u, 1u) != 0) poll_pause(lock);
  __threadfence();
  *count = *count + 1;  // planted: lock_without_fence
  if constexpr (!kPlanted) __threadfence();
  atomicExch(lock, 0u);
}

bool run_lock_without_fence(Stand& stand) {
  unsigned* const lock = stand.zeros<unsigned>(1);
  unsigned* const count = stand.zeros<unsigned>(1);
  stand.start({7, 32}, stand.planted() ? lock_without_fence<true> : lock_without_fence<false>, lock, count);
  return stand.first(count) == 7;
}

// ---- block 0 tells block 1, which tells block 2, which reads what block 0 wrote ----

template <bool kPlanted>
__global__ void relaxed_link_in_chain(int* value, uint32_t* flags, int* out) {
  if (threadIdx.x != 0) return;
  if (blockIdx.x == 0) {
    *value = 11;  // planted: relaxed_link_in_chain
    store_release_device(&flags[0], 1);
  } else if (blockIdx.x == 1) {
    if constexpr (kPlanted) {
      while (load_relaxed_system(&flags[0]) == 0) poll_pause(&flags[0]);
    } else {
      while (load_acquire_device(&flags[0]) == 0) poll_pause(&flags[0]);
    }
    store_release_device(&flags[1], 1);
  } else {
    while (load_acquire_device(&flags[1]) == 0) poll_pause(&flags[1]);
    const int seen = *value;  // planted: relaxed_link_in_chain
    *out = seen;
  }
}

bool run_relaxed_link_in_chain(Stand& stand) {
  int* const value = stand.zeros<int>(1);
  uint32_t* const flags = stand.zeros<uint32_t>(2);
  int* const out = stand.unwritten<int>(1);
  stand.start({3, 32}, stand.planted() ? relaxed_link_in_chain<true> : relaxed_link_in_chain<false>, value, flags, out);
  return stand.first(out) == 11;
}

// ---- a ring of two slots between a writing and a reading block ----

constexpr uint32_t kMessages = 100;

template <bool kPlanted>
__global__ void ring_without_acknowledgement(int* slots, uint32_t* written, uint32_t* consumed, int* sum) {
  if (threadIdx.x != 0) return;
  if (blockIdx.x == 0) {
    for (uint32_t n = 0; n < kMessages; ++n) {
      if (!kPlanted && n >= 2) {
        while (load_acquire_device(consumed) + 2 <= n) poll_pause(consumed);
      }
      slots[n % 2] = static_cast<int>(n);  // planted: ring_without_acknowledgement
      store_release_device(written, n + 1);
    }
  } else {
    int total = 0;
    for (uint32_t n = 0; n < kMessages; ++n) {
      while (load_acquire_device(written) <= n) poll_pause(written);
      total += slots[n % 2];  // planted: ring_without_acknowledgement
      store_release_device(consumed, n + 1);
    }
    *sum = total;
  }
}

bool run_ring_without_acknowledgement(Stand& stand) {
  int* const slots = stand.zeros<int>(2);
  uint32_t* const counters = stand.zeros<uint32_t>(2);
  int* const sum = stand.unwritten<int>(1);
  stand.start({2, 32}, stand.planted() ? ring_without_acknowledgement<true> : ring_without_acknowledgement<false>,
              slots, counters, counters + 1, sum);
  return stand.first(sum) == sum_of_counting<int>(kMessages);
}

// ---- one lane publishes for its warp ----

template <bool kPlanted>
__global__ void lane_publishes_too_early(int* message, uint32_t* flag, int* out) {
  if (blockIdx.x == 1) {
    message[threadIdx.x] = static_cast<int>(threadIdx.x);  // planted: lane_publishes_too_early
    if constexpr (!kPlanted) __syncwarp();
    if (threadIdx.x == 0) store_release_device(flag, 1);
  } else {
    if (threadIdx.x == 0) {
      while (load_acquire_device(flag) == 0) poll_pause(flag);
    }
    __syncwarp();
    const int received = message[threadIdx.x];  // planted: lane_publishes_too_early
    out[threadIdx.x] = received;
  }
}

bool run_lane_publishes_too_early(Stand& stand) {
  int* const message = stand.zeros<int>(32);
  uint32_t* const flag = stand.zeros<uint32_t>(1);
  int* const out = stand.unwritten<int>(32);
  stand.start({2, 32}, stand.planted() ? lane_publishes_too_early<true> : lane_publishes_too_early<false>, message,
              flag, out);
  return stand.download(out, 32).back() == 31;
}

// ---- the last block: thread 0 counts, all threads read what the other blocks left ----

template <bool kPlanted>
__global__ void last_block_reads_without_fence(int* partial, unsigned* arrived, int* sums) {
  SHARDSCOPE_SHARED(bool, is_last, 1);
  const unsigned i = threadIdx.x;
  partial[blockIdx.x * blockDim.x + i] = static_cast<int>(i);  // planted: last_block_reads_without_fence
  __syncthreads();
  if (i == 0) {
    __threadfence();
    is_last[0] = atomicAdd(arrived, 1u) + 1 == gridDim.x;
    if constexpr (!kPlanted) __threadfence();
  }
  __syncthreads();
  if (!is_last[0]) return;
  int sum = 0;
  for (unsigned block = 0; block < gridDim.x; ++block) {
    sum += partial[block * blockDim.x + i];  // planted: last_block_reads_without_fence
  }
  sums[i] = sum;
}

bool run_last_block_reads_without_fence(Stand& stand) {
  int* const partial = stand.zeros<int>(5 * 64);
  unsigned* const arrived = stand.zeros<unsigned>(1);
  int* const sums = stand.unwritten<int>(64);
  stand.start({5, 64}, stand.planted() ? last_block_reads_without_fence<true> : last_block_reads_without_fence<false>,
              partial, arrived, sums);
  return stand.download(sums, 64).back() == 5 * 63;
}

// ---- a word of data and its flag: in one store of 8 bytes, or in two of 4 ----

template <bool kPlanted>
__global__ void flag_beside_data(uint64_t* cells, int* out) {
  uint64_t* const cell = &cells[threadIdx.x];
  auto* const words = reinterpret_cast<uint32_t*>(cell);
  if (blockIdx.x == 1) {
    const uint32_t data = 100 + threadIdx.x;
    if constexpr (kPlanted) {
      words[0] = data;  // planted: flag_beside_data
      store_relaxed_system(&words[1], 1);
    } else {
      store_relaxed_system(cell, (uint64_t{1} << 32) | data);
    }
  } else if constexpr (kPlanted) {
    while (load_relaxed_system(&words[1]) == 0) poll_pause(cell);
    out[threadIdx.x] = static_cast<int>(words[0]);  // planted: flag_beside_data
  } else {
    uint64_t both = 0;
    while (((both = load_relaxed_system(cell)) >> 32) == 0) poll_pause(cell);
    out[threadIdx.x] = static_cast<int>(both & 0xFFFFFFFFu);
  }
}

bool run_flag_beside_data(Stand& stand) {
  uint64_t* const cells = stand.zeros<uint64_t>(32);
  int* const out = stand.unwritten<int>(32);
  stand.start({2, 32}, stand.planted() ? flag_beside_data<true> : flag_beside_data<false>, cells, out);
  return stand.download(out, 32).back() == 131;
}

// ---- shared memory taken for the grid's ----

template <bool kPlanted>
__global__ void shared_by_first_block_only(int* out) {
  SHARDSCOPE_SHARED(int, table, 32);
  if (!kPlanted || blockIdx.x == 0) table[threadIdx.x] = static_cast<int>(threadIdx.x);
  __syncthreads();
  out[blockIdx.x * 32 + threadIdx.x] = table[31 - threadIdx.x];  // planted: shared_by_first_block_only
}

bool run_shared_by_first_block_only(Stand& stand) {
  int* const out = stand.unwritten<int>(64);
  stand.start({2, 32}, stand.planted() ? shared_by_first_block_only<true> : shared_by_first_block_only<false>, out);
  return stand.download(out, 64)[32] == 31;
}

}  // namespace

BugFile protocol_bugs() {
  const auto fences = [](std::string_view name, bool (*run)(Stand&)) {
    return Bug{.name = name,
               .scenario = run,
               .fault = Fault::kGlobalRace,
               .kernel = "relaxed_with_fences",
               .mark = "relaxed_with_fences"};
  };
  return {
      __FILE__,
      {
          fences("publisher_without_fence", run_relaxed_with_fences<Fences::kNotByPublisher>),
          fences("observer_without_fence", run_relaxed_with_fences<Fences::kNotByObserver>),
          fences("observer_fences_too_early", run_relaxed_with_fences<Fences::kObserverTooEarly>),
          {.name = "lock_without_fence", .scenario = run_lock_without_fence, .fault = Fault::kGlobalRace},
          {.name = "relaxed_link_in_chain", .scenario = run_relaxed_link_in_chain, .fault = Fault::kGlobalRace},
          // Where the writer runs far ahead it has done all before the reader looks: wrong, but in order.
          {.name = "ring_without_acknowledgement",
           .scenario = run_ring_without_acknowledgement,
           .fault = Fault::kGlobalRace,
           .plain = Plain::kWrongResult,
           .orders = Orders::kSome},
          {.name = "lane_publishes_too_early", .scenario = run_lane_publishes_too_early, .fault = Fault::kGlobalRace},
          {.name = "last_block_reads_without_fence",
           .scenario = run_last_block_reads_without_fence,
           .fault = Fault::kGlobalRace},
          {.name = "flag_beside_data", .scenario = run_flag_beside_data, .fault = Fault::kGlobalRace},
          {.name = "shared_by_first_block_only",
           .scenario = run_shared_by_first_block_only,
           .fault = Fault::kUninitialised,
           .plain = Plain::kWrongResult},
      }};
}

}  // namespace shardscope::planted
