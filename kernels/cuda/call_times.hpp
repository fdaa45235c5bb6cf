// Times of calls that are not ours (NCCL's): a kernel of one thread before and one behind. Host side: launch.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/peer_rank.hpp"

namespace shardscope::cuda {

/// Enqueues the note of now as the begin of call *calls + 1 in the log. calls: in this rank's device memory, zeroed
/// once.
[[nodiscard]] cudaError_t note_begin(const CallLog& log, const uint32_t* calls, cudaStream_t stream);
/// The same as its end; then adds 1 to *calls.
[[nodiscard]] cudaError_t note_end(const CallLog& log, uint32_t* calls, cudaStream_t stream);

}  // namespace shardscope::cuda
