// Planted bugs of words that are sometimes touched by atomics and sometimes plainly, which an own atomic in between
// must not hide, and of flags in shared memory, which are another block's at the same address.
#include "kernels/cuda/ptx.cuh"
#include "tests/emulation/planted/planted.hpp"

namespace shardscope::planted {
namespace {

using namespace cuda;
using emulation::Fault;

// ---- a counter that block 0 clears plainly before all add to it ----

template <bool kPlanted>
__global__ void cleared_before_own_atomic(unsigned* count) {
  if (threadIdx.x != 0) return;
  if (blockIdx.x == 0 && kPlanted) *count = 0;  // planted, either: cleared_before_own_atomic
  atomicAdd(count, 1u);                         // planted, either: cleared_before_own_atomic
}

bool run_cleared_before_own_atomic(Stand& stand) {
  unsigned* const count = stand.zeros<unsigned>(1);
  stand.start({2, 32}, stand.planted() ? cleared_before_own_atomic<true> : cleared_before_own_atomic<false>, count);
  return stand.first(count) == 2;
}

// ---- the last block reads the counter plainly: it is the last, but nothing orders the others' updates ----

template <bool kPlanted>
__global__ void counter_read_plainly(unsigned* count, unsigned* out) {
  if (threadIdx.x != 0) return;
  if (atomicAdd(count, 1u) + 1 != gridDim.x) return;  // planted: counter_read_plainly
  *out = kPlanted ? *count : atomicAdd(count, 0u);    // planted: counter_read_plainly
}

bool run_counter_read_plainly(Stand& stand) {
  unsigned* const count = stand.zeros<unsigned>(1);
  unsigned* const out = stand.unwritten<unsigned>(1);
  stand.start({3, 32}, stand.planted() ? counter_read_plainly<true> : counter_read_plainly<false>, count, out);
  return stand.first(out) == 3;
}

// ---- read plainly, then by an own atomic, while another block adds ----

template <bool kPlanted>
__global__ void read_before_own_atomic(unsigned* count, unsigned* out) {
  if (threadIdx.x != 0) return;
  if (blockIdx.x == 0) {
    const unsigned before = kPlanted ? *count : 0;  // planted, either: read_before_own_atomic
    *out = atomicAdd(count, 0u) >= before ? 1 : 0;
  } else {
    atomicAdd(count, 1u);  // planted, either: read_before_own_atomic
  }
}

bool run_read_before_own_atomic(Stand& stand) {
  unsigned* const count = stand.zeros<unsigned>(1);
  unsigned* const out = stand.unwritten<unsigned>(1);
  stand.start({2, 32}, stand.planted() ? read_before_own_atomic<true> : read_before_own_atomic<false>, count, out);
  return stand.first(out) == 1;
}

// ---- a flag in shared memory, which no other block sees ----

template <bool kPlanted>
__global__ void shared_flag_between_blocks(int* value, unsigned* global_flag, int* out) {
  SHARDSCOPE_SHARED(unsigned, shared_flag, 1);
  if (threadIdx.x != 0) return;
  *shared_flag = 0;
  unsigned* const flag = kPlanted ? shared_flag : global_flag;
  if (blockIdx.x == 0) {
    *value = 5;  // planted, either: shared_flag_between_blocks
    __threadfence();
    atomicExch(flag, 1u);
    return;
  }
  while (atomicAdd(flag, 0u) == 0 && !kPlanted) poll_pause(flag);
  __threadfence();
  const int seen = *value;  // planted, either: shared_flag_between_blocks
  *out = seen | 5;          // 5, whether it was there already or not
}

bool run_shared_flag_between_blocks(Stand& stand) {
  int* const value = stand.zeros<int>(1);
  unsigned* const flag = stand.zeros<unsigned>(1);
  int* const out = stand.unwritten<int>(1);
  stand.start({2, 32}, stand.planted() ? shared_flag_between_blocks<true> : shared_flag_between_blocks<false>, value,
              flag, out);
  return stand.first(out) == 5;
}

}  // namespace

BugFile atomic_bugs() {
  return {__FILE__,
          {
              {"cleared_before_own_atomic", run_cleared_before_own_atomic, Fault::kGlobalRace},
              {"counter_read_plainly", run_counter_read_plainly, Fault::kGlobalRace},
              {"read_before_own_atomic", run_read_before_own_atomic, Fault::kGlobalRace},
              {"shared_flag_between_blocks", run_shared_flag_between_blocks, Fault::kGlobalRace},
          }};
}

}  // namespace shardscope::planted
