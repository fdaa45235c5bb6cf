// Whether what one device writes into another's memory arrives there, and can be read back: all pairs at once. Peer
// access that is claimed to work and loses or corrupts data exists (PCIe ACS, IOMMU). Host side: arguments and launch.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstdint>

#include "kernels/cuda/peer_rank.hpp"

namespace shardscope::cuda {

/// Words of 8 bytes that a pair exchanges in a round.
inline constexpr int64_t kProofWords = 8192;

/// A rank's verdict on each rank, itself too, in its own device memory, zero-filled before each call. kProofWords is
/// right.
struct PeerProofResult {
  uint32_t received[kMaxPeerRanks];   // words of that rank that arrived here and are right
  uint32_t read_back[kMaxPeerRanks];  // words that this rank wrote there and read back right
};

struct PeerProof {
  int rank = 0;
  int ranks = 1;
  std::array<void*, kMaxPeerRanks> areas{};  // of each rank, as this device addresses them: peer_proof_bytes(ranks)
  uint32_t round = 0;                        // from 1 on, another one in each call
  PeerProofResult* result = nullptr;
  const uint32_t* abort_word = nullptr;
  uint64_t wait_ns = 0;  // for all of the peers' words
};

/// Bytes of an area, aligned to 8, zero-filled before the first round.
constexpr int64_t peer_proof_bytes(int ranks) {
  return int64_t{ranks} * kProofWords * 8;
}

/// Writes a pattern of (round, from, to, word) into every peer's area, waits until its own area holds the others'
/// pattern, and reads back what it wrote. All ranks call together, each round once; between two rounds hosts meet.
/// Enqueued on `stream`; ends within about wait_ns. That a writer reads back its own words proves little: what never
/// left its device may come from there. cudaErrorInvalidValue for arguments out of range.
[[nodiscard]] cudaError_t prove_peers(const PeerProof& arguments, cudaStream_t stream);

}  // namespace shardscope::cuda
