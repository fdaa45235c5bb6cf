// How ranks exchange data through each other's memory: words of 8 bytes, 4 of data and 4 of flag, the number of the
// call. A word is stored at once and arrives whole on NVLink and on PCIe: no fence, no second trip for a flag. A rank
// stores ("pushes") into inboxes of its peers and polls its own.
//
// A call is a kernel, one of all_reduce, all_reduce_norm, exchange_candidates; all ranks make the same calls. Each call
// begins with a header: one word to every peer, in a place of its own for each sender, whose data is the call's
// description (peer_launch.cuh), a hash of what must be the same on all ranks. peer_doorkeeper.cuh sends and awaits
// them. In each call
//   (a) every rank stores a header into every peer's inbox without waiting for anything;
//   (b) every rank waits for the header of every peer before its kernel ends;
//   (c) every word that is stored into an inbox in a call is waited for by the inbox's owner in the same call.
// A rank that makes another call breaks (c). Its header says so, and whoever has read that makes no further call: this
// call's data are garbage, its kernel ends with a failure, and later calls do nothing.
//
// Why two buffers are enough. Call n uses buffer n % 2 of each inbox, so call n + 2 overwrites what call n left there,
// by whatever algorithm and to whatever place. Let rank r store a word of call n + 2 into the inbox of rank p. Then r's
// call n + 1 has ended (its stream's order; where launched early, grid_dependency_wait). It ended only after r had seen
// p's header of call n + 1, by (b). p stored that one after p's call n had ended, in which p read
// all it will ever read of buffer n % 2 for call n, and, by (c), in which all words of call n had arrived there. So p's
// reads, and everybody's stores, of call n come before r's stores of call n + 2. In the memory model: end and begin of
// kernels are fences, and the header of call n + 1, stored and read between them, makes the two fences an acquire that
// sees a release. Words that a third rank passes on (the results of two-shot) are not needed for this: no fence within
// a kernel.
//
// Words are told apart by their call's number alone: words of earlier calls, also of longer ones, carry other numbers.
// After 2^32 calls numbers repeat: a word that no call has written for exactly 2^32 calls would be taken for new.
//
// The number comes from device memory, since a captured graph repeats its arguments. All blocks read it when they
// begin; the last block to have read it, by a counter, adds one, for the next kernel. The doorkeepers do that, beside
// the threads that have data.
#pragma once

#include "kernels/cuda/operation_stamps.cuh"
#include "kernels/cuda/peer_rank.hpp"
#include "kernels/cuda/ptx.cuh"

namespace shardscope::cuda {

/// A kernel's view of a PeerRank and of the call's message.
struct PeerCall {
  uint64_t* inboxes[kMaxPeerRanks];  // [2][buffer_words], see peer_layout.hpp
  PeerState* state;
  uint32_t* failure_on_host;  // or null
  CallTimes* log;             // or null
  OperationStamps* stamps;    // or null
  WaitLimit limit;
  int64_t buffer_words;
  int64_t sender_words;  // what each sender has of a buffer; behind it the next one's
  int64_t words;         // of the message
  int64_t chunk_words;   // two-shot: of the message, that each rank adds
  int64_t result_place;  // two-shot: of the sums, in a buffer
  int64_t header_place;  // of rank 0's header, in a buffer
  uint32_t description;
  uint32_t log_mask;
  int rank;
  int ranks;
};

/// What a thread knows of the call that it is in.
struct Begun {
  uint32_t number;
  bool failed;     // an earlier call: nothing is to be sent or waited for
  int64_t buffer;  // where the call's words begin, in every inbox
};

__device__ __forceinline__ uint64_t marked(uint32_t number, uint32_t data) {
  return static_cast<uint64_t>(number) << 32 | data;
}

// ---- threads --------------------------------------------------------------------------------------------------------
// The last warp of each block is its doorkeeper, beside the threads that have data.

__device__ __forceinline__ unsigned data_threads() {
  return blockDim.x - kWarpSize;
}
__device__ __forceinline__ bool is_doorkeeper() {
  return threadIdx.x >= data_threads();
}

/// This thread's number among those of the grid that have data; of a doorkeeper beyond every message. Adjacent warps
/// are on different multiprocessors, which share the stores.
__device__ __forceinline__ int64_t spread_thread() {
  constexpr int64_t kBeyond = INT64_MAX;
  const int64_t warp = static_cast<int64_t>(threadIdx.x / kWarpSize) * gridDim.x + blockIdx.x;
  return is_doorkeeper() ? kBeyond : warp * kWarpSize + threadIdx.x % kWarpSize;
}
__device__ __forceinline__ int64_t grid_threads() {
  return static_cast<int64_t>(gridDim.x) * data_threads();
}

// ---- begin and end --------------------------------------------------------------------------------------------------

__device__ __forceinline__ CallTimes* log_entry(const PeerCall& call, uint32_t number) {
  return call.log + (number & call.log_mask);
}

/// Behind grid_dependency_wait; all threads of all blocks call.
__device__ __forceinline__ Begun begin_call(const PeerCall& call) {
  SHARDSCOPE_SHARED(uint32_t, begun, 2);  // the call's number, and whether an earlier one failed
  if (threadIdx.x == 0) {
    begun[0] = load_acquire_device(&call.state->calls) + 1;
    begun[1] = load_relaxed_system(&call.state->failure);
    if (blockIdx.x == 0 && call.log != nullptr) {
      CallTimes* const entry = log_entry(call, begun[0]);
      entry->begin_ns = nanoseconds();
      entry->number = begun[0];
    }
  }
  __syncthreads();
  return {begun[0], begun[1] != 0, begun[0] % 2 * call.buffer_words};
}

/// By one thread of each block, once.
__device__ __forceinline__ void count_call(const PeerCall& call, const Begun& begun) {
  __threadfence();  // a release: this block's read of `calls` comes before the last block's store
  if (atomicAdd(&call.state->counted_blocks, 1u) + 1 == gridDim.x) {
    __threadfence();
    atomicExch(&call.state->counted_blocks, 0u);
    store_release_device(&call.state->calls, begun.number);
  }
}

/// The last that a kernel does; all threads of all blocks call.
__device__ __forceinline__ void end_call(const PeerCall& call, const Begun& begun) {
  mark_end(call.stamps);
  if (call.log == nullptr) return;
  __syncthreads();
  // The latest block's: what an earlier call left in the entry is less.
  if (threadIdx.x == 0) raise_stamp(&log_entry(call, begun.number)->end_ns, nanoseconds());
}

// ---- stores -------------------------------------------------------------------------------------------------------

/// Stores a word at `place` of every peer's inbox. Each rank begins with the peer after it, so that not all store to
/// the same one at once.
__device__ __forceinline__ void push_to_all(const PeerCall& call, int64_t place, uint64_t word) {
#pragma unroll
  for (int i = 1; i < kMaxPeerRanks; ++i) {
    if (i >= call.ranks) continue;
    const int peer = call.rank + i < call.ranks ? call.rank + i : call.rank + i - call.ranks;
    store_relaxed_system(call.inboxes[peer] + place, word);
  }
}

/// Where this rank's words are in every inbox.
__device__ __forceinline__ int64_t own_place(const PeerCall& call, const Begun& begun) {
  return begun.buffer + call.rank * call.sender_words;
}

/// Two-shot: which rank adds word `at` of the message.
__device__ __forceinline__ int owner_of(const PeerCall& call, int64_t at) {
  return static_cast<int>(static_cast<uint32_t>(at) / static_cast<uint32_t>(call.chunk_words));
}

/// Sends word `at` of the message: to all (one-shot), or to the rank that adds it, if that is another one.
template <bool kTwoShot>
__device__ __forceinline__ void push(const PeerCall& call, const Begun& begun, int64_t at, uint32_t data) {
  const uint64_t word = marked(begun.number, data);
  if constexpr (kTwoShot) {
    const int owner = owner_of(call, at);
    if (owner == call.rank) return;
    store_relaxed_system(call.inboxes[owner] + own_place(call, begun) + at - owner * call.chunk_words, word);
  } else {
    push_to_all(call, own_place(call, begun) + at, word);
  }
}

// ---- waits --------------------------------------------------------------------------------------------------------

/// One wait.
class PeerPatience {
 public:
  /// After each poll in vain: whether to give up, also because another thread has.
  __device__ __forceinline__ bool exhausted(const PeerCall& call) {
    return patience_.exhausted(call.limit) ||
           (++polls_ % kPollsALook == 0 && load_relaxed_system(&call.state->failure) != 0);
  }

 private:
  static constexpr unsigned kPollsALook = 32;
  Patience patience_;
  unsigned polls_ = 0;
};

/// That the data of rank `missing` did not come; or, with kAnotherCall, that it makes another call.
__device__ __forceinline__ void note_failure(const PeerCall& call, int missing, uint32_t how = 0) {
  if (load_relaxed_system(&call.state->failure) != 0) return;
  const uint32_t failure = (static_cast<uint32_t>(missing) + 1) | how;
  store_relaxed_system(&call.state->failure, failure);
  if (call.failure_on_host != nullptr) store_relaxed_system(call.failure_on_host, failure);
}

/// Polls word `at` of what every peer has sent until all carry the call's number. False when it gave up.
__device__ __forceinline__ bool receive_all(const PeerCall& call, const Begun& begun, int64_t at,
                                            uint32_t (&received)[kMaxPeerRanks]) {
  const uint64_t* const words = call.inboxes[call.rank] + begun.buffer + at;
  PeerPatience patience;
  while (true) {
    int missing = -1;
#pragma unroll
    for (int peer = 0; peer < kMaxPeerRanks; ++peer) {
      if (peer >= call.ranks || peer == call.rank) continue;
      const uint64_t word = load_relaxed_system(words + peer * call.sender_words);
      received[peer] = static_cast<uint32_t>(word);
      if (static_cast<uint32_t>(word >> 32) != begun.number) missing = peer;
    }
    if (missing < 0) return true;
    if (patience.exhausted(call)) {
      note_failure(call, missing);
      return false;
    }
    poll_pause(words + missing * call.sender_words);
  }
}

/// Polls a word that rank `from` stores after it has waited itself. False when it gave up; missing is then who has not
/// sent its header yet, if there is such a rank: `from` may wait for it, too.
__device__ __forceinline__ bool receive_one(const PeerCall& call, const Begun& begun, const uint64_t* word, int from,
                                            uint32_t& received) {
  PeerPatience patience;
  while (true) {
    const uint64_t arrived = load_relaxed_system(word);
    received = static_cast<uint32_t>(arrived);
    if (static_cast<uint32_t>(arrived >> 32) == begun.number) return true;
    if (patience.exhausted(call)) break;
    poll_pause(word);
  }
  const uint64_t* const headers = call.inboxes[call.rank] + begun.buffer + call.header_place;
  int missing = from;
  for (int peer = 0; peer < call.ranks; ++peer) {
    if (peer == call.rank) continue;
    if (static_cast<uint32_t>(load_relaxed_system(headers + peer) >> 32) != begun.number) missing = peer;
  }
  note_failure(call, missing);
  return false;
}

/// Two-shot: word `at` of the result, of another rank. False when it gave up.
__device__ __forceinline__ bool receive_result(const PeerCall& call, const Begun& begun, int64_t at, int owner,
                                               uint32_t& result) {
  const uint64_t* const results = call.inboxes[call.rank] + begun.buffer + call.result_place;
  return receive_one(call, begun, results + at, owner, result);
}

}  // namespace shardscope::cuda
