// The host's side of calls among ranks (peer_words.cuh): what of a PeerRank is refused, how a kernel sees it, and what
// tells one call from another.
#pragma once

#include "kernels/cuda/all_reduce.hpp"
#include "kernels/cuda/device_limits.hpp"
#include "kernels/cuda/peer_layout.hpp"
#include "kernels/cuda/peer_words.cuh"

namespace shardscope::cuda {

inline bool aligned(const void* pointer, uintptr_t bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}

inline bool valid(const PeerCapacity& capacity) {
  constexpr int64_t kMostBytes = int64_t{1} << 30;  // so that words of a message can be counted in 32 bits
  const auto of_words = [&](int64_t bytes) { return bytes >= 0 && bytes <= kMostBytes && bytes % kWordDataBytes == 0; };
  return of_words(capacity.one_shot_bytes) && of_words(capacity.two_shot_bytes);
}

inline bool valid(const CallLog& log) {
  return log.entries == nullptr ||
         (aligned(log.entries, alignof(CallTimes)) && log.count > 0 && (log.count & (log.count - 1)) == 0);
}

inline bool valid(const PeerRank& rank) {
  bool inboxes = rank.ranks >= 1 && rank.ranks <= kMaxPeerRanks;
  for (int i = 0; inboxes && i < rank.ranks; ++i) {
    inboxes = rank.inboxes[static_cast<size_t>(i)] != nullptr && aligned(rank.inboxes[static_cast<size_t>(i)], 16);
  }
  return inboxes && rank.rank >= 0 && rank.rank < rank.ranks && valid(rank.capacity) && rank.state != nullptr &&
         aligned(rank.state, alignof(PeerState)) && valid(rank.log);
}

enum class CallKind : uint8_t { kSum, kNorm, kCandidates };

/// What is the same on all ranks of a call.
struct CallDescription {
  CallKind kind = CallKind::kSum;
  Shots shots = Shots::kOne;
  kernels::DType dtype = kernels::DType::kF32;
  int64_t rows = 0;
  int64_t columns = 0;
};

/// A call's description in a word: two different calls have the same one in one of 2^32 cases. Each part goes through
/// the finaliser of splitmix64 (S. Vigna), so that the same parts in another order give another word.
inline uint32_t described(const CallDescription& call) {
  uint64_t mixed = 0;
  for (const uint64_t part :
       {static_cast<uint64_t>(call.kind), static_cast<uint64_t>(call.shots), static_cast<uint64_t>(call.dtype),
        static_cast<uint64_t>(call.rows), static_cast<uint64_t>(call.columns)}) {
    mixed += part + 0x9E3779B97F4A7C15u;
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBu;
    mixed ^= mixed >> 31;
  }
  return static_cast<uint32_t>(mixed >> 32);
}

/// A call with a message of so many words. cudaErrorInvalidValue for more than the capacity holds.
inline cudaError_t make_call(const PeerRank& rank, const CallDescription& description, int64_t words, PeerCall& call) {
  const PeerLayout layout = peer_layout(rank.ranks, rank.capacity);
  const bool two_shot = description.shots == Shots::kTwo;
  if (words > (two_shot ? layout.two_shot_words : layout.one_shot_words)) return cudaErrorInvalidValue;
  call = {};
  for (size_t i = 0; i < kMaxPeerRanks; ++i) call.inboxes[i] = static_cast<uint64_t*>(rank.inboxes[i]);
  call.state = rank.state;
  call.failure_on_host = rank.failure_on_host;
  call.log = rank.log.entries;
  call.log_mask = rank.log.count - 1;
  call.limit = {.abort_word = rank.abort_word, .nanoseconds = rank.wait_ns};
  call.buffer_words = layout.buffer_words;
  call.sender_words = two_shot ? layout.chunk_words : layout.one_shot_words;
  call.words = words;
  call.chunk_words = peer_chunk_words(words, rank.ranks);
  call.result_place = rank.ranks * layout.chunk_words;
  call.header_place = layout.header_place;
  call.description = described(description);
  call.rank = rank.rank;
  call.ranks = rank.ranks;
  return cudaSuccess;
}

inline int64_t round_to_warps(int64_t threads) {
  return (threads + kWarpSize - 1) / kWarpSize * kWarpSize;
}

/// A grid of a thread a word, at most most_threads a block, with a doorkeeper in each block; of one block a
/// multiprocessor at most, so that it is resident at once. Small messages are spread over many multiprocessors, whose
/// stores leave side by side.
inline cudaError_t spread(int64_t words, int most_threads, Launch& where) {
  constexpr int64_t kFewThreads = 128;
  int multiprocessors = 0;
  if (const cudaError_t error = count_multiprocessors(multiprocessors); error != cudaSuccess) return error;
  const int64_t wanted = (words + kFewThreads - 1) / kFewThreads;
  const int64_t blocks = wanted < multiprocessors ? wanted : multiprocessors;
  const int64_t threads = round_to_warps((words + blocks - 1) / blocks);
  where.grid = dim3(static_cast<unsigned>(blocks));
  where.block = dim3(static_cast<unsigned>((threads < most_threads ? threads : most_threads) + kWarpSize));
  return cudaSuccess;
}

}  // namespace shardscope::cuda
