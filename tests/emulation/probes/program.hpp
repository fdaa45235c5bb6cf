// Programs of a few steps that a kernel interprets, so that a test can make up access patterns at random: plain
// accesses, flags, fences, barriers.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace shardscope::probes {

inline constexpr int kProgramBlocks = 2;
/// The threads of a block that do something of their own: 0 and 1 of the first warp, 32 of the second.
inline constexpr int kActors = 3;
inline constexpr int kProgramThreads = 34;
inline constexpr int kProgramSteps = 16;
inline constexpr int kGlobalVariables = 3;
inline constexpr int kSharedVariables = 2;  // numbered after the global ones
inline constexpr int kFlags = 2;

enum class Act : uint8_t {
  kNothing,
  kRead,
  kWrite,
  kReleaseStore,  // of `value` to a flag
  kAcquireLoad,
  kRelaxedLoad,
  kExchange,  // relaxed, of `value`; returns the old one
  kFence,
  kBarrier,   // of all threads of the block
  kSyncWarp,  // of the first warp
};

struct Step {
  Act act = Act::kNothing;
  uint8_t target = 0;  // variable or flag
  uint16_t value = 0;
};

/// What all actors do, step by step; barriers and warp barriers stand at the same step for all actors of a block.
struct Program {
  Step steps[kProgramBlocks][kActors][kProgramSteps];
};

/// Runs it. `variables` [kGlobalVariables] and `flags` [kFlags] begin as zeros. records, as steps: 0 where a step has
/// not ended, else 1 plus the flag's value that it loaded; may be pinned host memory, to be read after a fault too.
cudaError_t run_program(const Program* program, uint32_t* variables, uint32_t* flags, uint32_t* records);

}  // namespace shardscope::probes
