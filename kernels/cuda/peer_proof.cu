// Proof of peer access. Every rank stores a pattern into each area, its own among them, then polls its own area until
// the others' patterns are there, then loads back what it stored into theirs. A word of the pattern tells its round,
// sender, receiver and place, so that words that are missing, old, corrupted or in the wrong place do not count.
//
// Bytes: 64 KiB to each rank and as much back. Launch: one block of 256 threads a multiprocessor at most, so that the
// grid is resident at once: blocks wait for blocks of other devices.
#include "kernels/cuda/peer_proof.hpp"

#include "kernels/cuda/device_limits.hpp"
#include "kernels/cuda/ptx.cuh"

namespace shardscope::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kMostBlocks = 16;

/// A kernel's view of the arguments.
struct ProofCall {
  uint64_t* there[kMaxPeerRanks];  // of the i-th peer, the words that this rank sends: [kProofWords]
  const uint64_t* here;            // of this rank: [rank that sent][kProofWords]
  PeerProofResult* result;
  WaitLimit limit;
  uint32_t round;
  int rank;
  int ranks;
};

/// Differs for all (round, from, to, word), by a bijection: the finaliser of splitmix64 (S. Vigna), which spreads each
/// bit over all of the word. Never 0 where the round is not.
__device__ __forceinline__ uint64_t proof_word(uint32_t round, int from, int to, int64_t word) {
  uint64_t mixed = static_cast<uint64_t>(round) << 32 | static_cast<uint64_t>(from) << 28 |
                   static_cast<uint64_t>(to) << 24 | static_cast<uint64_t>(word);
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9u;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBu;
  return mixed ^ (mixed >> 31);
}

/// The i-th to deal with: each rank begins with the one after it, so that not all store to the same one at once.
__host__ __device__ __forceinline__ int peer_of(int rank, int ranks, int i) {
  const int peer = rank + 1 + i;
  return peer < ranks ? peer : peer - ranks;
}

__global__ void __launch_bounds__(kThreads) prove_peers_kernel(ProofCall call) {
  const int64_t threads = static_cast<int64_t>(gridDim.x) * blockDim.x;
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;

#pragma unroll
  for (int i = 0; i < kMaxPeerRanks; ++i) {
    if (i >= call.ranks) continue;
    const int peer = peer_of(call.rank, call.ranks, i);
    for (int64_t word = thread; word < kProofWords; word += threads) {
      store_relaxed_system(call.there[i] + word, proof_word(call.round, call.rank, peer, word));
    }
  }

  // One patience for all words: what has not come when it is at its end is looked at once more each, not waited for.
  Patience patience;
  bool waits = true;
  for (int i = 0; i < call.ranks; ++i) {
    const int peer = peer_of(call.rank, call.ranks, i);
    const uint64_t* const area = call.here + peer * kProofWords;
    uint32_t right = 0;
    for (int64_t word = thread; word < kProofWords; word += threads) {
      const uint64_t expected = proof_word(call.round, peer, call.rank, word);
      bool there = load_relaxed_system(area + word) == expected;
      while (!there && waits) {
        waits = !patience.exhausted(call.limit);
        poll_pause(area + word);
        there = load_relaxed_system(area + word) == expected;
      }
      right += there ? 1 : 0;
    }
    atomicAdd(&call.result->received[peer], right);
  }

#pragma unroll
  for (int i = 0; i < kMaxPeerRanks; ++i) {
    if (i >= call.ranks) continue;
    const int peer = peer_of(call.rank, call.ranks, i);
    uint32_t right = 0;
    for (int64_t word = thread; word < kProofWords; word += threads) {
      right += load_relaxed_system(call.there[i] + word) == proof_word(call.round, call.rank, peer, word) ? 1 : 0;
    }
    atomicAdd(&call.result->read_back[peer], right);
  }
}

bool valid(const PeerProof& a) {
  bool areas = a.ranks >= 1 && a.ranks <= kMaxPeerRanks;
  for (int i = 0; areas && i < a.ranks; ++i) {
    areas = a.areas[i] != nullptr && reinterpret_cast<uintptr_t>(a.areas[i]) % sizeof(uint64_t) == 0;
  }
  return areas && a.rank >= 0 && a.rank < a.ranks && a.round != 0 && a.result != nullptr;
}

}  // namespace

cudaError_t prove_peers(const PeerProof& arguments, cudaStream_t stream) {
  if (!valid(arguments)) return cudaErrorInvalidValue;
  int multiprocessors = 0;
  if (const cudaError_t error = count_multiprocessors(multiprocessors); error != cudaSuccess) return error;
  ProofCall call{};
  const auto area = [&](int rank) { return static_cast<uint64_t*>(arguments.areas[rank]); };
  for (int i = 0; i < arguments.ranks; ++i) {
    call.there[i] = area(peer_of(arguments.rank, arguments.ranks, i)) + arguments.rank * kProofWords;
  }
  call.here = area(arguments.rank);
  call.result = arguments.result;
  call.limit = {.abort_word = arguments.abort_word, .nanoseconds = arguments.wait_ns};
  call.round = arguments.round;
  call.rank = arguments.rank;
  call.ranks = arguments.ranks;
  const int blocks = multiprocessors < kMostBlocks ? multiprocessors : kMostBlocks;
  return launch(Launch{.grid = dim3(static_cast<unsigned>(blocks)), .block = dim3(kThreads), .stream = stream},
                prove_peers_kernel, call);
}

}  // namespace shardscope::cuda
