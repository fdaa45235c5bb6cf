// Planted bugs of order between the blocks of one grid: publishing without a fence, observing without one, a block
// taken for the last, overlapping rows, plain accesses of what others change atomically, and waits for what cannot
// come.
#include "kernels/cuda/ptx.cuh"
#include "tests/emulation/planted/planted.hpp"

namespace shardscope::planted {
namespace {

using namespace cuda;
using emulation::Fault;

constexpr unsigned kBlocks = 6;
constexpr unsigned kThreads = 64;

// ---- the last block adds up what the others have left ----

enum class LastBlock : uint8_t { kSound, kNoFence, kByNumber, kCounterNotReset };

template <LastBlock kKind>
__global__ void last_block(const int* values, int* partial, unsigned* arrived, int* sum) {
  SHARDSCOPE_SHARED(int, of_block, 1);
  SHARDSCOPE_SHARED(bool, is_last, 1);
  if (threadIdx.x == 0) of_block[0] = 0;
  __syncthreads();
  atomicAdd(&of_block[0], values[blockIdx.x * kThreads + threadIdx.x]);
  __syncthreads();
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = of_block[0];  // planted: missing_fence last_by_number
    if constexpr (kKind != LastBlock::kNoFence) __threadfence();
    is_last[0] = blockIdx.x + 1 == gridDim.x;
    if constexpr (kKind != LastBlock::kByNumber) is_last[0] = atomicAdd(arrived, 1u) + 1 == gridDim.x;
    if (is_last[0]) {
      if constexpr (kKind != LastBlock::kNoFence) __threadfence();
      int total = 0;
      for (unsigned i = 0; i < gridDim.x; ++i) total += partial[i];  // planted: missing_fence last_by_number
      *sum = total;
      if constexpr (kKind != LastBlock::kCounterNotReset) atomicExch(arrived, 0u);
    }
  }
}

template <LastBlock kBug>
bool run_last_block(Stand& stand) {
  const int* const values = stand.counting<int>(kBlocks * kThreads);
  int* const partial = stand.zeros<int>(kBlocks);
  unsigned* const arrived = stand.zeros<unsigned>(1);
  int* const sums = stand.zeros<int>(2);
  const auto kernel = stand.planted() ? last_block<kBug> : last_block<LastBlock::kSound>;
  for (int call = 0; call < 2; ++call) stand.start({kBlocks, kThreads}, kernel, values, partial, arrived, sums + call);
  const int expected = sum_of_counting<int>(kBlocks * kThreads);
  return stand.download(sums, 2) == std::vector<int>{expected, expected};
}

// ---- overlapping writes ----

template <bool kPlanted>
__global__ void two_blocks_one_cell(unsigned* out) {
  if (threadIdx.x == 0) out[kPlanted ? blockIdx.x / 2 : blockIdx.x] = blockIdx.x;  // planted: two_blocks_one_cell
}

bool run_two_blocks_one_cell(Stand& stand) {
  unsigned* const out = stand.zeros<unsigned>(kBlocks);
  stand.start({kBlocks, kThreads}, stand.planted() ? two_blocks_one_cell<true> : two_blocks_one_cell<false>, out);
  return stand.download(out, kBlocks) == std::vector<unsigned>{0, 1, 2, 3, 4, 5};
}

template <bool kPlanted>
__global__ void wrong_row_stride(unsigned columns, unsigned* out) {
  const unsigned stride = kPlanted ? columns - 1 : columns;
  for (unsigned i = threadIdx.x; i < columns; i += blockDim.x) {
    out[blockIdx.x * stride + i] = blockIdx.x;  // planted: wrong_row_stride
  }
}

bool run_wrong_row_stride(Stand& stand) {
  constexpr unsigned kColumns = 70;
  unsigned* const out = stand.unwritten<unsigned>(kBlocks * kColumns);
  stand.start({kBlocks, kThreads}, stand.planted() ? wrong_row_stride<true> : wrong_row_stride<false>, kColumns, out);
  const std::vector<unsigned> actual = stand.download(out, kBlocks * kColumns);
  for (unsigned i = 0; i < kBlocks * kColumns; ++i) {
    if (actual[i] != i / kColumns) return false;
  }
  return true;
}

// ---- block 1 fills a message and raises a flag, block 0 waits for it and reads ----

enum class Handover : uint8_t {
  kSound,
  kFenceBeforeBarrier,   // each thread fences what it wrote itself; the flag's writer covers only its own words
  kNoFenceByObserver,    // the flag is read without an acquire, and no fence follows before the barrier
  kRelaxedFlag,          // the flag is written without a release
  kPlainPolling,         // the flag is read like any other word
  kNoBarrierBeforeFlag,  // the flag rises while other threads still write
  kNoBarrierAfterFlag,   // only the thread that waited knows
  kFlagOfLastCall,       // the flag of the first call ends the wait of the second
};

template <Handover kKind>
__global__ void handover(unsigned call, uint32_t* message, uint32_t* flag, uint32_t* out) {
  const unsigned i = threadIdx.x;
  if (blockIdx.x == 1) {
    message[i] = call + i;  // planted: handover
    if constexpr (kKind == Handover::kFenceBeforeBarrier) __threadfence();
    if constexpr (kKind != Handover::kNoBarrierBeforeFlag) __syncthreads();
    if (i == 0) {
      if constexpr (kKind == Handover::kFenceBeforeBarrier) {
        atomicExch(flag, call);
      } else if constexpr (kKind == Handover::kRelaxedFlag) {
        store_relaxed_system(flag, call);
      } else {
        store_release_device(flag, call);  // planted: plain_polling
      }
    }
  } else {
    if (i == 0) {
      if constexpr (kKind == Handover::kPlainPolling) {
        const volatile uint32_t* const plain = flag;
        while (*plain < call) poll_pause(flag);  // planted: plain_polling
      } else if constexpr (kKind == Handover::kNoFenceByObserver) {
        while (load_relaxed_system(flag) < call) poll_pause(flag);
      } else {
        const unsigned awaited = kKind == Handover::kFlagOfLastCall ? 1 : call;
        while (load_acquire_device(flag) < awaited) poll_pause(flag);
      }
    }
    if constexpr (kKind != Handover::kNoBarrierAfterFlag) __syncthreads();
    const uint32_t* const received = &message[i];
    out[i] = *received;  // planted: handover
  }
}

template <Handover kBug>
bool run_handover(Stand& stand) {
  uint32_t* const message = stand.zeros<uint32_t>(kThreads);
  uint32_t* const flag = stand.zeros<uint32_t>(1);
  uint32_t* const out = stand.zeros<uint32_t>(kThreads);
  for (unsigned call = 1; call <= 2; ++call) {
    stand.start({2, kThreads}, stand.planted() ? handover<kBug> : handover<Handover::kSound>, call, message, flag, out);
  }
  const std::vector<uint32_t> actual = stand.download(out, kThreads);
  return actual.front() == 2 && actual.back() == kThreads + 1;
}

// ---- a plain load of what others add to ----

template <bool kPlanted>
__global__ void plain_load_of_counter(unsigned* counter, unsigned* seen) {
  atomicAdd(counter, 1u);                                         // planted: plain_load_of_counter
  if (kPlanted && threadIdx.x == 0) seen[blockIdx.x] = *counter;  // planted: plain_load_of_counter
  if (!kPlanted && threadIdx.x == 0) seen[blockIdx.x] = atomicAdd(counter, 0u);
}

bool run_plain_load_of_counter(Stand& stand) {
  unsigned* const counter = stand.zeros<unsigned>(1);
  unsigned* const seen = stand.unwritten<unsigned>(kBlocks);
  stand.start({kBlocks, kThreads}, stand.planted() ? plain_load_of_counter<true> : plain_load_of_counter<false>,
              counter, seen);
  return stand.first(counter) == kBlocks * kThreads;
}

// ---- waits for what cannot come ----

template <bool kPlanted>
__global__ void nobody_raises_the_flag(uint32_t* flag, uint32_t* out) {
  if (blockIdx.x == 1 && threadIdx.x == 0) store_release_device(flag, kPlanted ? 1u : 2u);
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    while (load_acquire_device(flag) < 2) poll_pause(flag);  // planted: nobody_raises_the_flag
    *out = 5;
  }
}

bool run_nobody_raises_the_flag(Stand& stand) {
  uint32_t* const flag = stand.zeros<uint32_t>(1);
  uint32_t* const out = stand.unwritten<uint32_t>(1);
  stand.start({2, kThreads}, stand.planted() ? nobody_raises_the_flag<true> : nobody_raises_the_flag<false>, flag, out);
  return stand.first(out) == 5;
}

template <bool kPlanted>
__global__ void grid_larger_than_device(uint32_t* arrived, uint32_t* out) {
  if (threadIdx.x == 0) {
    atomicAdd(arrived, 1u);
    while (load_acquire_device(arrived) < gridDim.x) poll_pause(arrived);  // planted: grid_larger_than_device
    out[blockIdx.x] = 1;
  }
}

// 1024 threads a block and 2048 a multiprocessor: two blocks on each are resident at once.
bool run_grid_larger_than_device(Stand& stand) {
  const unsigned blocks = stand.planted() ? 40 : 4;
  uint32_t* const arrived = stand.zeros<uint32_t>(1);
  uint32_t* const out = stand.unwritten<uint32_t>(blocks);
  stand.start({blocks, 1024}, stand.planted() ? grid_larger_than_device<true> : grid_larger_than_device<false>, arrived,
              out);
  return stand.download(out, blocks) == std::vector<uint32_t>(blocks, 1);
}

}  // namespace

BugFile block_order_bugs() {
  const auto last = [](std::string_view name, bool (*run)(Stand&), std::optional<Fault> fault, Plain plain) {
    return Bug{.name = name, .scenario = run, .fault = fault, .plain = plain, .kernel = "last_block"};
  };
  const auto flag = [](std::string_view name, bool (*run)(Stand&), Orders orders = Orders::kEvery) {
    return Bug{.name = name,
               .scenario = run,
               .fault = Fault::kGlobalRace,
               .orders = orders,
               .kernel = "handover",
               .mark = name == "plain_polling" ? name : "handover"};
  };
  return {__FILE__,
          {
              last("missing_fence", run_last_block<LastBlock::kNoFence>, Fault::kGlobalRace, Plain::kNothing),
              last("last_by_number", run_last_block<LastBlock::kByNumber>, Fault::kGlobalRace, Plain::kWrongResult),
              last("counter_not_reset", run_last_block<LastBlock::kCounterNotReset>, std::nullopt, Plain::kWrongResult),
              {"two_blocks_one_cell", run_two_blocks_one_cell, Fault::kGlobalRace, Plain::kWrongResult},
              {"wrong_row_stride", run_wrong_row_stride, Fault::kGlobalRace, Plain::kWrongResult},
              flag("fence_before_barrier", run_handover<Handover::kFenceBeforeBarrier>),
              flag("no_fence_by_observer", run_handover<Handover::kNoFenceByObserver>),
              flag("relaxed_flag", run_handover<Handover::kRelaxedFlag>),
              flag("plain_polling", run_handover<Handover::kPlainPolling>),
              flag("no_barrier_before_flag", run_handover<Handover::kNoBarrierBeforeFlag>),
              flag("no_barrier_after_flag", run_handover<Handover::kNoBarrierAfterFlag>),
              // In some orders block 1 happens to have raised the flag of the second call too before block 0 looks.
              flag("flag_of_last_call", run_handover<Handover::kFlagOfLastCall>, Orders::kSome),
              {"plain_load_of_counter", run_plain_load_of_counter, Fault::kGlobalRace},
              {"nobody_raises_the_flag", run_nobody_raises_the_flag, Fault::kNoProgress, Plain::kReport},
              {"grid_larger_than_device", run_grid_larger_than_device, Fault::kNoProgress, Plain::kReport,
               Orders::kEvery, 1, 2},
          }};
}

}  // namespace shardscope::planted
