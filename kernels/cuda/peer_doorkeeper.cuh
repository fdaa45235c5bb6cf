// The doorkeeper, the last warp of each block of a call (peer_words.cuh: the protocol): in block 0 it sends this rank's
// headers and waits for those of the peers; in all blocks it counts the call. A warp of its own, so that no thread that
// has data waits for more than its data.
#pragma once

#include "kernels/cuda/peer_words.cuh"

namespace shardscope::cuda {

/// Waits for the header of `peer`. False when it gave up, or the header is that of another call.
__device__ __forceinline__ bool receive_header(const PeerCall& call, const Begun& begun, int peer) {
  const uint64_t* const place = call.inboxes[call.rank] + begun.buffer + call.header_place + peer;
  PeerPatience patience;
  while (true) {
    const uint64_t header = load_relaxed_system(place);
    if (static_cast<uint32_t>(header >> 32) == begun.number) {
      if (static_cast<uint32_t>(header) == call.description) return true;
      note_failure(call, peer, kAnotherCall);
      return false;
    }
    if (patience.exhausted(call)) {
      note_failure(call, peer);
      return false;
    }
    poll_pause(place);
  }
}

/// Behind begin_call; the doorkeepers of all blocks call, each as a whole warp.
__device__ __forceinline__ void keep_door(const PeerCall& call, const Begun& begun) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const bool sends = blockIdx.x == 0 && !begun.failed && lane < call.ranks && lane != call.rank;
  if (sends) {
    store_relaxed_system(call.inboxes[lane] + begun.buffer + call.header_place + call.rank,
                         marked(begun.number, call.description));
  }
  if (lane == kWarpSize - 1) count_call(call, begun);
  if (blockIdx.x != 0) return;
  const bool arrived = sends ? receive_header(call, begun, lane) : !begun.failed;
  const bool all_arrived = __all_sync(kFullMask, arrived ? 1 : 0) != 0;
  if (lane != 0) return;
  if (all_arrived) mark_arrived(call.stamps);
  if (call.log != nullptr) log_entry(call, begun.number)->arrived_ns = all_arrived ? nanoseconds() : 0;
}

}  // namespace shardscope::cuda
