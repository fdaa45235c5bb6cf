// Planted bugs of programmatic dependent launch: a kernel that may start while its predecessors run touches what they
// write or read before it has waited, waits with one thread only, or relies on a predecessor that did not wait itself.
#include "kernels/cuda/ptx.cuh"
#include "tests/emulation/planted/planted.hpp"

namespace shardscope::planted {
namespace {

using namespace cuda;
using emulation::Fault;

constexpr unsigned kCount = 64;

/// The predecessor: lets the next kernel start, then works: reads `in`, writes `out`.
template <bool kPlanted>
__global__ void predecessor(const int* in, int* out) {
  grid_dependency_launch();
  __syncthreads();
  const int value = in[threadIdx.x];  // planted: no_grid_wait_before_write
  out[threadIdx.x] = value + 1;       // planted: reading
}

enum class Wait : uint8_t { kAll, kNone, kOneThread, kOneThreadThenShuffle };

template <Wait kWait>
__device__ void wait_for_predecessor() {
  if constexpr (kWait == Wait::kAll) grid_dependency_wait();
  if constexpr (kWait == Wait::kOneThread) {
    if (threadIdx.x == 0) grid_dependency_wait();
  }
  if constexpr (kWait == Wait::kOneThreadThenShuffle) {  // the others come later, but know no more
    if (threadIdx.x % kWarpSize == 0) grid_dependency_wait();
    __shfl_sync(kFullMask, 0, 0);
  }
}

template <Wait kWait>
__global__ void reading_successor(const int* in, int* out) {
  wait_for_predecessor<kWait>();
  const int value = in[threadIdx.x];  // planted: reading
  out[threadIdx.x] = 2 * value;
}

template <Wait kBug>
bool run_reading_successor(Stand& stand) {
  const int* const values = stand.counting<int>(kCount);
  int* const between = stand.zeros<int>(kCount);
  int* const out = stand.unwritten<int>(kCount);
  stand.start({1, kCount}, predecessor<false>, values, between);
  stand.start({.grid = 1, .block = kCount, .programmatic = true},
              stand.planted() ? reading_successor<kBug> : reading_successor<Wait::kAll>, between, out);
  return stand.download(out, kCount).back() == 2 * static_cast<int>(kCount);
}

// ---- the successor writes what the predecessor still reads ----

template <Wait kWait>
__global__ void writing_successor(int* values) {
  wait_for_predecessor<kWait>();
  values[threadIdx.x] = -1;  // planted: no_grid_wait_before_write
}

bool run_no_grid_wait_before_write(Stand& stand) {
  int* const values = stand.counting<int>(kCount);
  int* const out = stand.unwritten<int>(kCount);
  stand.start({1, kCount}, predecessor<false>, values, out);
  stand.start({.grid = 1, .block = kCount, .programmatic = true},
              stand.planted() ? writing_successor<Wait::kNone> : writing_successor<Wait::kAll>, values);
  return stand.download(out, kCount).back() == static_cast<int>(kCount) && stand.first(values) == -1;
}

// ---- A, B, C: C waits for B, which lets C start at once and has not waited for A, whose result C reads ----

template <bool kPlanted>
__global__ void link_of_chain(int* other) {
  grid_dependency_launch();
  if constexpr (!kPlanted) grid_dependency_wait();
  other[threadIdx.x] = 3;
}

bool run_transitive_wait(Stand& stand) {
  const int* const values = stand.counting<int>(kCount);
  int* const between = stand.zeros<int>(kCount);
  int* const other = stand.unwritten<int>(kCount);
  int* const out = stand.unwritten<int>(kCount);
  stand.start({1, kCount}, predecessor<false>, values, between);
  stand.start({.grid = 1, .block = kCount, .programmatic = true},
              stand.planted() ? link_of_chain<true> : link_of_chain<false>, other);
  stand.start({.grid = 1, .block = kCount, .programmatic = true}, reading_successor<Wait::kAll>, between, out);
  return stand.download(out, kCount).back() == 2 * static_cast<int>(kCount) && stand.first(other) == 3;
}

}  // namespace

BugFile dependent_launch_bugs() {
  const auto reading = [](std::string_view name, bool (*run)(Stand&)) {
    return Bug{
        .name = name, .scenario = run, .fault = Fault::kGlobalRace, .kernel = "reading_successor", .mark = "reading"};
  };
  return {__FILE__,
          {
              reading("no_grid_wait_before_read", run_reading_successor<Wait::kNone>),
              reading("one_thread_waits", run_reading_successor<Wait::kOneThread>),
              reading("one_thread_waits_then_shuffle", run_reading_successor<Wait::kOneThreadThenShuffle>),
              reading("transitive_wait", run_transitive_wait),
              {.name = "no_grid_wait_before_write",
               .scenario = run_no_grid_wait_before_write,
               .fault = Fault::kGlobalRace,
               .kernel = "writing_successor"},
          }};
}

}  // namespace shardscope::planted
