// What a rank of a group holds for collectives that push data into the other ranks' memory: inboxes, the count of its
// calls, and the times of its latest ones. Who allocates the inboxes and how their addresses become known (one process:
// peer access; several: IPC) is the caller's.
#pragma once

#include <array>
#include <cstdint>

namespace shardscope::cuda {

inline constexpr int kMaxPeerRanks = 8;

/// What PeerState::failure has beside a rank: that rank made another call than this one (or the same of another size),
/// and this call's data are of no use.
inline constexpr uint32_t kAnotherCall = 0x100;

/// In each rank's own device memory; zero-filled once, before any rank's first call.
struct PeerState {
  uint32_t calls;           // so far, with the one that runs; modulo 2^32
  uint32_t counted_blocks;  // of the call that begins
  // 0, or 1 + the rank whose data did not come in time, or that and kAnotherCall. Not 0: later calls do nothing.
  uint32_t failure;
  uint32_t unused;
};

/// When a call ran, on this device's own clock (%globaltimer), which is no other device's.
struct CallTimes {
  uint64_t begin_ns;    // its kernel began, after the kernel before it had ended
  uint64_t arrived_ns;  // the headers of all other ranks were there; of a foreign or failed call: 0
  uint64_t end_ns;      // its last block was done
  uint64_t number;      // of the call, from 1 on
};

/// The latest calls, call n in entry n % count. In this rank's device memory, zero-filled once.
struct CallLog {
  CallTimes* entries = nullptr;  // null: nothing is kept
  uint32_t count = 0;            // a power of two
};

/// The largest messages of a group, bytes, multiples of 4 up to 2^30.
struct PeerCapacity {
  int64_t one_shot_bytes = 0;
  int64_t two_shot_bytes = 0;
};

/// What one rank needs for its calls. All ranks have the same number of ranks and capacity.
struct PeerRank {
  int rank = 0;
  int ranks = 1;  // 1 to kMaxPeerRanks
  PeerCapacity capacity;
  std::array<void*, kMaxPeerRanks> inboxes{};  // of each rank, as this device addresses them, aligned to 16
  PeerState* state = nullptr;                  // this rank's
  CallLog log;                                 // this rank's
  const uint32_t* abort_word = nullptr;        // host memory that the device can read, or null; not 0: waits give up
  uint64_t wait_ns = 0;                        // how long a thread waits for its peers' data before it gives up
  // Pinned memory of the host that the device can write, or null: receives the state's failure too, when there is one,
  // so that the host need not read device memory to learn of it.
  uint32_t* failure_on_host = nullptr;
};

/// Bytes of an inbox, aligned to 16, zero-filled before any rank's first call: twice, for each 4 bytes of a message, 8
/// bytes a rank (one-shot) or 8 bytes and 8 bytes more (two-shot), whichever is more; 128 bytes of headers; and a
/// thousandth for a norm.
int64_t peer_inbox_bytes(int ranks, const PeerCapacity& capacity);

}  // namespace shardscope::cuda
