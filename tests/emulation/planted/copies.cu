// Planted bugs of asynchronous copies to shared memory: read before the wait, waited for too few groups, no barrier for
// the other threads, a stage overwritten while it is read, a source past the end, and copies that nobody waits for.
#include "kernels/cuda/ptx.cuh"
#include "tests/emulation/planted/planted.hpp"

namespace shardscope::planted {
namespace {

using namespace cuda;
using emulation::Fault;

constexpr int kLanes = 32;
constexpr int kWords = kLanes * 4;  // of a tile: each thread copies 16 bytes

// ---- read before the wait ----

template <bool kPlanted>
__global__ void missing_copy_wait(const int* values, int* out) {
  SHARDSCOPE_SHARED(int, tile, kWords);
  cp_async16(&tile[4 * threadIdx.x], &values[4 * threadIdx.x]);
  cp_async_commit();
  if constexpr (!kPlanted) cp_async_wait<0>();
  out[threadIdx.x] = tile[4 * threadIdx.x];  // planted: missing_copy_wait
  if constexpr (kPlanted) cp_async_wait<0>();
}

bool run_missing_copy_wait(Stand& stand) {
  const int* const values = stand.counting<int>(kWords);
  int* const out = stand.unwritten<int>(kLanes);
  stand.start({1, kLanes}, stand.planted() ? missing_copy_wait<true> : missing_copy_wait<false>, values, out);
  const std::vector<int> actual = stand.download(out, kLanes);
  return actual.front() == 0 && actual.back() == 4 * (kLanes - 1);
}

// ---- two stages: the wait leaves the group that is read next unfinished; the stage is filled while it is read ----

enum class Pipeline : uint8_t { kSound, kWaitsTooLittle, kNoBarrierAfterWait, kOverwritesStage };

template <Pipeline kKind>
__global__ void pipeline(const int* values, int tiles, int* out) {
  SHARDSCOPE_SHARED(int, stages, 2 * kWords);
  const int lane = static_cast<int>(threadIdx.x);
  for (int i = 4 * lane; i < 2 * kWords; i += kWords) store16(&stages[i], make_uint4(0, 0, 0, 0));
  __syncthreads();
  cp_async16(&stages[4 * lane], &values[4 * lane]);  // planted, either: no_barrier_after_wait
  cp_async_commit();
  int sum = 0;
  for (int t = 0; t < tiles; ++t) {
    if (t + 1 < tiles) {
      int* const next = &stages[(t + 1) % 2 * kWords];
      const int* const source = &values[(t + 1) * kWords];
      cp_async16(&next[4 * lane], &source[4 * lane]);  // planted, either: no_barrier_after_wait stage_overwritten
    }
    cp_async_commit();
    if constexpr (kKind == Pipeline::kWaitsTooLittle) {
      cp_async_wait<2>();
    } else {
      cp_async_wait<1>();  // planted, either: no_barrier_after_wait stage_overwritten
    }
    if constexpr (kKind != Pipeline::kNoBarrierAfterWait) __syncthreads();
    const int* const copied_by_another = &stages[t % 2 * kWords + kWords - 4 - 4 * lane];
    sum += *copied_by_another;  // planted: waited_too_little no_barrier_after_wait stage_overwritten
    if constexpr (kKind != Pipeline::kOverwritesStage) __syncthreads();
  }
  cp_async_wait<0>();
  out[lane] = sum;
}

template <Pipeline kBug>
bool run_pipeline(Stand& stand) {
  constexpr int kTiles = 5;
  const int* const values = stand.counting<int>(kTiles * kWords);
  int* const out = stand.unwritten<int>(kLanes);
  stand.start({1, kLanes}, stand.planted() ? pipeline<kBug> : pipeline<Pipeline::kSound>, values, kTiles, out);
  const std::vector<int> actual = stand.download(out, kLanes);
  for (int lane = 0; lane < kLanes; ++lane) {
    int expected = 0;
    for (int t = 0; t < kTiles; ++t) expected += t * kWords + kWords - 4 - 4 * lane;
    if (actual[static_cast<size_t>(lane)] != expected) return false;
  }
  return true;
}

// ---- a copy that ends past the allocation ----

template <bool kPlanted>
__global__ void copy_past_end(const int* values, int words, int* out) {
  SHARDSCOPE_SHARED(int, tile, kWords);
  const int first = 4 * static_cast<int>(threadIdx.x);
  cp_async16(&tile[first], &values[first], kPlanted || first < words);  // planted: copy_past_end
  cp_async_commit();
  cp_async_wait<0>();
  out[threadIdx.x] = tile[first];
}

bool run_copy_past_end(Stand& stand) {
  constexpr int kUsed = kWords - 8;
  const int* const values = stand.counting<int>(kUsed, 1);
  int* const out = stand.unwritten<int>(kLanes);
  stand.start({1, kLanes}, stand.planted() ? copy_past_end<true> : copy_past_end<false>, values, kUsed, out);
  const std::vector<int> actual = stand.download(out, kLanes);
  return actual[0] == 1 && actual[kUsed / 4 - 1] == kUsed - 3 && actual[kUsed / 4] == 0 && actual[kLanes - 1] == 0;
}

// ---- a copy to an address that is no multiple of 16 ----

template <bool kPlanted>
__global__ void copy_misaligned(const int* values, int* out) {
  SHARDSCOPE_SHARED(int, tile, kWords);
  const int shift = kPlanted ? 1 : 4;
  if (threadIdx.x == 0) {
    cp_async16(&tile[0], &values[shift]);  // planted: copy_misaligned
    cp_async_commit();
    cp_async_wait<0>();
    *out = tile[0];
  }
}

bool run_copy_misaligned(Stand& stand) {
  const int* const values = stand.counting<int>(kWords);
  int* const out = stand.unwritten<int>(1);
  stand.start({1, kLanes}, stand.planted() ? copy_misaligned<true> : copy_misaligned<false>, values, out);
  return stand.first(out) == 4;
}

// ---- the source overwritten, or the target stored to, while the copy is under way ----

template <bool kPlanted>
__global__ void copy_source_overwritten(int* values, int* out) {
  SHARDSCOPE_SHARED(int, tile, kWords);
  const unsigned at = 4 * threadIdx.x;
  cp_async16(&tile[at], &values[at]);  // planted: copy_source_overwritten
  cp_async_commit();
  if constexpr (!kPlanted) cp_async_wait<0>();
  values[at] = -1;  // planted: copy_source_overwritten
  cp_async_wait<0>();
  out[threadIdx.x] = tile[at];
}

bool run_copy_source_overwritten(Stand& stand) {
  int* const values = stand.counting<int>(kWords);
  int* const out = stand.unwritten<int>(kLanes);
  stand.start({1, kLanes}, stand.planted() ? copy_source_overwritten<true> : copy_source_overwritten<false>, values,
              out);
  return stand.download(out, kLanes).back() == 4 * (kLanes - 1);
}

template <bool kPlanted>
__global__ void copy_target_stored_to(const int* values, int* out) {
  SHARDSCOPE_SHARED(int, tile, kWords);
  const unsigned at = 4 * threadIdx.x;
  cp_async16(&tile[at], &values[at]);  // planted: copy_target_stored_to
  cp_async_commit();
  if constexpr (!kPlanted) cp_async_wait<0>();
  tile[at] = -1;  // planted: copy_target_stored_to
  cp_async_wait<0>();
  out[threadIdx.x] = tile[at];
}

bool run_copy_target_stored_to(Stand& stand) {
  const int* const values = stand.counting<int>(kWords);
  int* const out = stand.unwritten<int>(kLanes);
  stand.start({1, kLanes}, stand.planted() ? copy_target_stored_to<true> : copy_target_stored_to<false>, values, out);
  return stand.download(out, kLanes).back() == -1;
}

// ---- overwritten by another thread, in order after the begin of the copy, but not after its end ----

template <bool kPlanted>
__global__ void copy_source_overwritten_by_another(int* values, int* out) {
  SHARDSCOPE_SHARED(int, tile, 4);
  if (threadIdx.x == 0) {
    cp_async16(tile, values);  // planted: copy_source_overwritten_by_another
    cp_async_commit();
    if constexpr (!kPlanted) cp_async_wait<0>();
  }
  __syncthreads();
  if (threadIdx.x == 1) values[0] = -1;  // planted: copy_source_overwritten_by_another
  __syncthreads();
  if (threadIdx.x == 0) {
    cp_async_wait<0>();
    *out = tile[0];
  }
}

bool run_copy_source_overwritten_by_another(Stand& stand) {
  int* const values = stand.counting<int>(4, 7);
  int* const out = stand.unwritten<int>(1);
  stand.start({1, kLanes},
              stand.planted() ? copy_source_overwritten_by_another<true> : copy_source_overwritten_by_another<false>,
              values, out);
  return stand.first(out) == 7;
}

// ---- a thread that ends with copies under way ----

template <bool kPlanted>
__global__ void pending_copy(const int* values, int* out) {
  SHARDSCOPE_SHARED(int, tile, kWords);
  cp_async16(&tile[4 * threadIdx.x], &values[4 * threadIdx.x]);  // planted: pending_copy
  cp_async_commit();
  if constexpr (!kPlanted) cp_async_wait<0>();
  out[threadIdx.x] = 1;
}

bool run_pending_copy(Stand& stand) {
  const int* const values = stand.counting<int>(kWords);
  int* const out = stand.unwritten<int>(kLanes);
  stand.start({1, kLanes}, stand.planted() ? pending_copy<true> : pending_copy<false>, values, out);
  return stand.download(out, kLanes) == std::vector<int>(kLanes, 1);
}

}  // namespace

BugFile copy_bugs() {
  return {__FILE__,
          {
              {"missing_copy_wait", run_missing_copy_wait, Fault::kUninitialised, Plain::kWrongResult},
              {"waited_too_little", run_pipeline<Pipeline::kWaitsTooLittle>, Fault::kUninitialised, Plain::kWrongResult,
               Orders::kEvery, 1, 132, "pipeline"},
              {"no_barrier_after_wait", run_pipeline<Pipeline::kNoBarrierAfterWait>, Fault::kSharedRace,
               Plain::kNothing, Orders::kEvery, 1, 132, "pipeline"},
              {"stage_overwritten", run_pipeline<Pipeline::kOverwritesStage>, Fault::kSharedRace, Plain::kNothing,
               Orders::kEvery, 1, 132, "pipeline"},
              {"copy_past_end", run_copy_past_end, Fault::kOutOfBounds},
              {"copy_misaligned", run_copy_misaligned, Fault::kMisaligned},
              {"copy_source_overwritten", run_copy_source_overwritten, Fault::kGlobalRace, Plain::kWrongResult},
              {"copy_source_overwritten_by_another", run_copy_source_overwritten_by_another, Fault::kGlobalRace,
               Plain::kWrongResult},
              {"copy_target_stored_to", run_copy_target_stored_to, Fault::kSharedRace, Plain::kWrongResult},
              {"pending_copy", run_pending_copy, Fault::kPendingCopy, Plain::kReport},
          }};
}

}  // namespace shardscope::planted
