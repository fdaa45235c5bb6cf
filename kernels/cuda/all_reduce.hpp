// One-shot all-reduce of small messages among the GPUs that can address each other's memory: each rank pushes its data
// into every peer's inbox and polls its own. Host side: what a rank holds, arguments and launch. Who allocates the
// inboxes and how their addresses become known (one process: peer access; several: IPC) is the caller's.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/dtype.hpp"

namespace shardscope::cuda {

inline constexpr int kMaxOneShotRanks = 8;

/// In each rank's own device memory; zero-filled once, before any rank's first call.
struct OneShotState {
  uint32_t calls;            // finished so far; modulo 2^32
  uint32_t finished_blocks;  // of the call that runs
  uint32_t failure;          // 0, or 1 + the rank whose data did not come in time. Not 0: later calls do nothing
  uint32_t unused;
};

/// What one rank needs for its calls. All ranks have the same number of ranks and capacity.
struct OneShotRank {
  int rank = 0;
  int ranks = 1;                                  // 1 to kMaxOneShotRanks
  int64_t capacity_bytes = 0;                     // of data, a multiple of 4
  std::array<void*, kMaxOneShotRanks> inboxes{};  // of each rank, as this device addresses them
  OneShotState* state = nullptr;                  // this rank's
  const uint32_t* abort_word = nullptr;           // host memory that the device can read, or null; not 0: waits give up
  uint64_t wait_ns = 0;                           // how long a thread waits for its peers' data before it gives up
};

/// Bytes of an inbox: twice, for each rank, 8 bytes (4 of data, 4 of flag) for each 4 bytes of capacity. Aligned to 8,
/// zero-filled before any rank's first call.
constexpr int64_t one_shot_inbox_bytes(int ranks, int64_t capacity_bytes) {
  return 2 * int64_t{ranks} * capacity_bytes / 4 * 8;
}

struct AllReduce {
  kernels::DType dtype = kernels::DType::kF32;  // fp32, fp16 or bf16
  int64_t count = 0;                            // elements; any, whose bytes the capacity holds
  const void* x = nullptr;                      // [count], aligned to 4 bytes
  void* out = nullptr;                          // [count], aligned to 4 bytes; may be x
  bool programmatic = false;                    // as Launch::programmatic
};

/// out = the sum of all ranks' x, added in fp32 in the order of the ranks and rounded once: the same bits on every
/// rank. Every rank makes the same calls (dtype and count) in the same order, each on one stream, and every kernel
/// between two calls on that stream calls grid_dependency_wait or is launched without `programmatic`. The kernels of
/// all ranks must be able to run at the same time; each takes at most one block a multiprocessor. Enqueued on `stream`,
/// does not wait. If a peer's data does not come, the kernel ends, `out` is undefined and state->failure says which
/// rank it waited for; then inboxes and states of all ranks have to be cleared together. cudaErrorInvalidValue for
/// arguments that the comments above do not allow. No elements: nothing to do, and no call is counted.
[[nodiscard]] cudaError_t all_reduce_one_shot(const OneShotRank& rank, const AllReduce& arguments, cudaStream_t stream);

}  // namespace shardscope::cuda
