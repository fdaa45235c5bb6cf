// The best candidate of each row over all ranks of a group, each of which holds a slice of the vocabulary. Host side:
// arguments and launch.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/candidates.hpp"
#include "kernels/cuda/operation_stamps.hpp"
#include "kernels/cuda/peer_rank.hpp"

namespace shardscope::cuda {

struct ExchangeCandidates {
  int64_t rows = 0;              // 8 bytes each, that one_shot_bytes of the capacity hold
  CandidateOut* best = nullptr;  // [rows] device memory, aligned to 8: in: this rank's best of each row (token_id -1:
                                 // none); out: the best of all ranks, ties to the smaller id
  OperationStamps* stamps = nullptr;  // where the call notes when it ran, or null
  bool programmatic = false;          // as Launch::programmatic
};

/// A call among those of all_reduce.hpp, with the same conditions, in one trip.
[[nodiscard]] cudaError_t exchange_candidates(const PeerRank& rank, const ExchangeCandidates& arguments,
                                              cudaStream_t stream);

}  // namespace shardscope::cuda
