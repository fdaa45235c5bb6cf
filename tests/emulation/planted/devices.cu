// Planted bugs of order between devices: an all-reduce of four devices in which each rank publishes a copy of its
// values, raises a flag at every peer, waits for all peers' flags, sums in rank order, and waits again before it
// returns, so that the next call may overwrite the copy. One block a device; two calls.
#include "kernels/cuda/ptx.cuh"
#include "tests/emulation/planted/planted.hpp"

namespace shardscope::planted {
namespace {

using namespace cuda;
using emulation::Fault;

constexpr int kRanks = 4;
constexpr unsigned kCount = 64;

struct Board {
  int* copies[kRanks];         // [rank]: [kCount] on that rank's device, what it contributes
  uint32_t* ready[kRanks];     // [rank]: [kRanks] on that rank's device, raised by each peer
  uint32_t* finished[kRanks];  // the same for the handshake at the end
};

enum class Exchange : uint8_t {
  kSound,
  kNoWait,             // sums at once
  kNoExitHandshake,    // the next call may overwrite what a peer still reads
  kFlagBeforeBarrier,  // the flags rise while other threads still copy
  kDeviceScope,        // flags that order only within one device
  kRelaxed,            // flags that order nothing
  kDeviceFenceBefore,  // after a fence that orders only within one device
  kDeviceFenceAfter,   // observed with such a fence
  kSystemFences,       // with the right fences: sound
  kOneFlagMissing,     // the last rank tells all but rank 0
};

template <Exchange kKind>
constexpr bool kWithFences =
    kKind == Exchange::kDeviceFenceBefore || kKind == Exchange::kDeviceFenceAfter || kKind == Exchange::kSystemFences;

template <Exchange kKind>
__device__ void raise(uint32_t* flag, uint32_t call) {
  if constexpr (kKind == Exchange::kDeviceScope) {
    store_release_device(flag, call);  // planted: device_scope_flags
  } else if constexpr (kKind == Exchange::kRelaxed) {
    store_relaxed_system(flag, call);
  } else if constexpr (kWithFences<kKind>) {
    if constexpr (kKind == Exchange::kDeviceFenceBefore) __threadfence();
    if constexpr (kKind != Exchange::kDeviceFenceBefore) __threadfence_system();
    store_relaxed_system(flag, call);
  } else {
    store_release_system(flag, call);
  }
}

template <Exchange kKind>
__device__ void await(const uint32_t* flag, uint32_t call) {
  if constexpr (kKind == Exchange::kDeviceScope) {
    while (load_acquire_device(flag) < call) poll_pause(flag);  // planted: device_scope_flags
  } else if constexpr (kKind == Exchange::kRelaxed) {
    while (load_relaxed_system(flag) < call) poll_pause(flag);
  } else if constexpr (kWithFences<kKind>) {
    while (load_relaxed_system(flag) < call) poll_pause(flag);
    if constexpr (kKind == Exchange::kDeviceFenceAfter) __threadfence();
    if constexpr (kKind != Exchange::kDeviceFenceAfter) __threadfence_system();
  } else {
    while (load_acquire_system(flag) < call) poll_pause(flag);  // planted, either: flag_never_raised
  }
}

template <Exchange kKind>
__global__ void all_reduce(Board board, int rank, uint32_t call, const int* values, int* sums) {
  const unsigned i = threadIdx.x;
  board.copies[rank][i] = values[i];  // planted: copies
  if constexpr (kKind != Exchange::kFlagBeforeBarrier) __syncthreads();
  if (i < kRanks) {
    if (kKind != Exchange::kOneFlagMissing || rank != kRanks - 1 || i != 0) raise<kKind>(&board.ready[i][rank], call);
    if constexpr (kKind != Exchange::kNoWait) await<kKind>(&board.ready[rank][i], call);
  }
  __syncthreads();
  int sum = 0;
  for (int peer = 0; peer < kRanks; ++peer) {
    sum += board.copies[peer][i];  // planted: copies
  }
  sums[i] = sum;
  if constexpr (kKind != Exchange::kNoExitHandshake) {
    __syncthreads();
    if (i < kRanks) {
      raise<kKind>(&board.finished[i][rank], call);
      await<kKind>(&board.finished[rank][i], call);
    }
    __syncthreads();
  }
}

template <Exchange kBug, Exchange kTwin = Exchange::kSound>
bool run_all_reduce(Stand& stand) {
  Board board{};
  const int* values[2][kRanks];
  int* sums[kRanks];
  for (int rank = 0; rank < kRanks; ++rank) {
    stand.note(cudaSetDevice(rank));
    for (int peer = 0; peer < kRanks; ++peer) {
      if (peer != rank) stand.note(cudaDeviceEnablePeerAccess(peer, 0));
    }
    board.copies[rank] = stand.zeros<int>(kCount);
    board.ready[rank] = stand.zeros<uint32_t>(kRanks);
    board.finished[rank] = stand.zeros<uint32_t>(kRanks);
    for (int call = 0; call < 2; ++call) values[call][rank] = stand.counting<int>(kCount, 100 * rank + 7 * call);
    sums[rank] = stand.zeros<int>(kCount);
    stand.finish();
  }
  const auto kernel = stand.planted() ? all_reduce<kBug> : all_reduce<kTwin>;
  for (int call = 0; call < 2; ++call) {
    for (int rank = 0; rank < kRanks; ++rank) {
      stand.note(cudaSetDevice(rank));
      stand.start({1, kCount}, kernel, board, rank, static_cast<uint32_t>(call + 1), values[call][rank], sums[rank]);
    }
  }
  bool right = true;
  for (int rank = 0; rank < kRanks; ++rank) {
    stand.note(cudaSetDevice(rank));
    const std::vector<int> actual = stand.download(sums[rank], kCount);
    for (int i = 0; i < static_cast<int>(kCount); ++i) {
      right = right && actual[static_cast<size_t>(i)] == kRanks * (i + 7) + 100 * kRanks * (kRanks - 1) / 2;
    }
  }
  return right;
}

}  // namespace

BugFile device_bugs() {
  const auto bug = [](std::string_view name, bool (*run)(Stand&), Fault fault = Fault::kGlobalRace,
                      Plain plain = Plain::kNothing) {
    return Bug{.name = name,
               .scenario = run,
               .fault = fault,
               .plain = plain,
               .devices = kRanks,
               .kernel = "all_reduce",
               .mark = name == "device_scope_flags" || name == "flag_never_raised" ? name : "copies"};
  };
  return {__FILE__,
          {
              bug("no_wait_for_peers", run_all_reduce<Exchange::kNoWait>),
              bug("no_exit_handshake", run_all_reduce<Exchange::kNoExitHandshake>),
              bug("flag_before_barrier", run_all_reduce<Exchange::kFlagBeforeBarrier>),
              bug("device_scope_flags", run_all_reduce<Exchange::kDeviceScope>),
              bug("relaxed_flags", run_all_reduce<Exchange::kRelaxed>),
              bug("device_fence_before_flag", run_all_reduce<Exchange::kDeviceFenceBefore, Exchange::kSystemFences>),
              bug("device_fence_after_flag", run_all_reduce<Exchange::kDeviceFenceAfter, Exchange::kSystemFences>),
              bug("flag_never_raised", run_all_reduce<Exchange::kOneFlagMissing>, Fault::kNoProgress, Plain::kReport),
          }};
}

}  // namespace shardscope::planted
