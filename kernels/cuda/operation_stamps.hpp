// When one operation of a step ran, in device memory, for an instrument: what kernels of ours note themselves
// (operation_stamps.cuh), and kernels of one thread that stand around everything else. Host side: launch.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace shardscope::cuda {

/// On the device's own clock (%globaltimer), which is no other device's. All zeros: nothing ran. Words that grow only,
/// so that kernels and their blocks note in any order: of the earliest moment the complement is the largest.
struct OperationStamps {
  uint64_t begun;    // ~ of when the first block of the first kernel began, which may be before its predecessor's end
  uint64_t end_ns;   // when the last block of any kernel was done
  uint64_t arrived;  // ~ of when all ranks had come to the first of the operation's calls; of no call of ours: 0
};

/// Enqueues the note of now as a begin, and as an end: for launches that stand between the two.
[[nodiscard]] cudaError_t stamp_begin(OperationStamps* stamps, cudaStream_t stream);
[[nodiscard]] cudaError_t stamp_end(OperationStamps* stamps, cudaStream_t stream);

/// Enqueues a kernel that reads the clock until it has gone on many times: *step_ns (device memory) becomes the
/// smallest difference, the clock's step as far as a kernel can tell, 0 where the clock never went on.
[[nodiscard]] cudaError_t measure_clock_step(uint64_t* step_ns, cudaStream_t stream);

}  // namespace shardscope::cuda
