// Planted bugs of warp operations: masks that name lanes which do not come, lanes that are not in their own mask,
// sources outside the mask, and an order between lanes that nobody made.
#include "kernels/cuda/ptx.cuh"
#include "tests/emulation/planted/planted.hpp"

namespace shardscope::planted {
namespace {

using namespace cuda;
using emulation::Fault;

// ---- a full mask where only half of the warp comes ----

template <bool kPlanted>
__global__ void full_mask_in_half_warp(int* out) {
  int value = static_cast<int>(threadIdx.x);
  if (threadIdx.x < 16) {
    value += __shfl_xor_sync(kPlanted ? kFullMask : 0x0000FFFFu, value, 1);  // planted: full_mask_in_half_warp
  }
  out[threadIdx.x] = value;
}

bool run_full_mask_in_half_warp(Stand& stand) {
  int* const out = stand.unwritten<int>(32);
  stand.start({1, 32}, stand.planted() ? full_mask_in_half_warp<true> : full_mask_in_half_warp<false>, out);
  const std::vector<int> actual = stand.download(out, 32);
  return actual[0] == 1 && actual[15] == 29 && actual[16] == 16;
}

// ---- a full mask after the lanes of a tail have left ----

template <bool kPlanted>
__global__ void mask_after_tail(int count, unsigned* odd_lanes) {
  const int i = static_cast<int>(threadIdx.x);
  if (kPlanted && i >= count) return;
  const unsigned odd = __ballot_sync(kFullMask, i < count && i % 2 == 1);  // planted: mask_after_tail
  if (i == 0) *odd_lanes = odd;
}

bool run_mask_after_tail(Stand& stand) {
  unsigned* const odd = stand.unwritten<unsigned>(1);
  stand.start({1, 32}, stand.planted() ? mask_after_tail<true> : mask_after_tail<false>, 21, odd);
  return stand.first(odd) == 0x000AAAAAu;
}

// ---- a lane that is not in its own mask ----

template <bool kPlanted>
__global__ void own_lane_not_in_mask(unsigned* out) {
  const unsigned half = threadIdx.x < 16 ? 0x0000FFFFu : 0xFFFF0000u;
  const int any = __any_sync(kPlanted ? 0x0000FFFFu : half, threadIdx.x == 20);  // planted: own_lane_not_in_mask
  out[threadIdx.x] = static_cast<unsigned>(any != 0);
}

bool run_own_lane_not_in_mask(Stand& stand) {
  unsigned* const out = stand.unwritten<unsigned>(32);
  stand.start({1, 32}, stand.planted() ? own_lane_not_in_mask<true> : own_lane_not_in_mask<false>, out);
  const std::vector<unsigned> actual = stand.download(out, 32);
  return actual[0] == 0 && actual[15] == 0 && actual[16] == 1 && actual[31] == 1;
}

// ---- a shuffle from a lane outside the mask ----

template <bool kPlanted>
__global__ void source_outside_mask(int* out) {
  int value = static_cast<int>(threadIdx.x);
  if (threadIdx.x < 16) {
    value = __shfl_sync(0x0000FFFFu, value, kPlanted ? 20 : 5);  // planted: source_outside_mask
  }
  out[threadIdx.x] = value;
}

bool run_source_outside_mask(Stand& stand) {
  int* const out = stand.unwritten<int>(32);
  stand.start({1, 32}, stand.planted() ? source_outside_mask<true> : source_outside_mask<false>, out);
  const std::vector<int> actual = stand.download(out, 32);
  return actual[0] == 5 && actual[15] == 5 && actual[16] == 16;
}

// ---- a whole-warp reduction in a block whose last warp is not whole ----

template <bool kPlanted>
__global__ void reduction_in_part_of_warp(float* sum) {
  SHARDSCOPE_SHARED(float, total, 1);
  if (threadIdx.x == 0) total[0] = 0;
  __syncthreads();
  const float of_warp = warp_sum(1);  // planted: reduction_in_part_of_warp
  if (threadIdx.x % 32 == 0) atomicAdd(&total[0], of_warp);
  __syncthreads();
  if (threadIdx.x == 0) *sum = total[0];
}

bool run_reduction_in_part_of_warp(Stand& stand) {
  float* const sum = stand.unwritten<float>(1);
  const unsigned threads = stand.planted() ? 52 : 64;
  stand.start({1, threads}, stand.planted() ? reduction_in_part_of_warp<true> : reduction_in_part_of_warp<false>, sum);
  return stand.first(sum) == 64;
}

// ---- two operations at once ----

template <bool kPlanted>
__global__ void two_warp_operations_at_once(unsigned* out) {
  unsigned result = 0;
  if (threadIdx.x < 16) {
    result = __ballot_sync(kPlanted ? kFullMask : 0x0000FFFFu, 1);  // planted: two_warp_operations_at_once
  } else {
    result = __shfl_sync(kPlanted ? kFullMask : 0xFFFF0000u, 9u, 16);  // planted: two_warp_operations_at_once
  }
  out[threadIdx.x] = result;
}

bool run_two_warp_operations_at_once(Stand& stand) {
  unsigned* const out = stand.unwritten<unsigned>(32);
  stand.start({1, 32}, stand.planted() ? two_warp_operations_at_once<true> : two_warp_operations_at_once<false>, out);
  const std::vector<unsigned> actual = stand.download(out, 32);
  return actual[0] == 0x0000FFFFu && actual[31] == 9;
}

// ---- each half ordered, but not one with the other ----

template <bool kPlanted>
__global__ void halves_synchronised_apart(int* out) {
  SHARDSCOPE_SHARED(int, box, 32);
  box[threadIdx.x] = 0;
  __syncwarp();
  box[threadIdx.x] = static_cast<int>(threadIdx.x);  // planted: halves_synchronised_apart
  if constexpr (kPlanted) {
    __syncwarp(threadIdx.x < 16 ? 0x0000FFFFu : 0xFFFF0000u);
  } else {
    __syncwarp();
  }
  out[threadIdx.x] = box[31 - threadIdx.x];  // planted: halves_synchronised_apart
}

bool run_halves_synchronised_apart(Stand& stand) {
  int* const out = stand.unwritten<int>(32);
  stand.start({1, 32}, stand.planted() ? halves_synchronised_apart<true> : halves_synchronised_apart<false>, out);
  const std::vector<int> actual = stand.download(out, 32);
  return actual.front() == 31 && actual.back() == 0;
}

// ---- given up ----

template <bool kPlanted>
__global__ void trapped(const int* value, int* out) {
  if (*value != (kPlanted ? 2 : 1)) __trap();  // planted: trapped
  *out = *value;
}

bool run_trapped(Stand& stand) {
  const int* const value = stand.counting<int>(1, 1);
  int* const out = stand.unwritten<int>(1);
  stand.start({1, 1}, stand.planted() ? trapped<true> : trapped<false>, value, out);
  return stand.first(out) == 1;
}

}  // namespace

BugFile warp_bugs() {
  return {__FILE__,
          {
              {"full_mask_in_half_warp", run_full_mask_in_half_warp, Fault::kDivergentWarp, Plain::kReport},
              {"mask_after_tail", run_mask_after_tail, Fault::kDivergentWarp, Plain::kReport},
              {"own_lane_not_in_mask", run_own_lane_not_in_mask, Fault::kDivergentWarp, Plain::kReport},
              {"source_outside_mask", run_source_outside_mask, Fault::kDivergentWarp, Plain::kReport},
              {"reduction_in_part_of_warp", run_reduction_in_part_of_warp, Fault::kDivergentWarp, Plain::kReport},
              {"two_warp_operations_at_once", run_two_warp_operations_at_once, Fault::kDivergentWarp, Plain::kReport},
              {"halves_synchronised_apart", run_halves_synchronised_apart, Fault::kSharedRace},
              {"trapped", run_trapped, Fault::kTrap, Plain::kReport},
          }};
}

}  // namespace shardscope::planted
