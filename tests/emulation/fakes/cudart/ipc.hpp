// Device memory that several processes map: what all of them know of it.
#pragma once

#include <atomic>
#include <cstdint>

namespace shardscope::emulation {

struct Allocation;

/// In a file that processes share. Zero: nothing is exported there.
struct Exported {
  static constexpr int kMostOpeners = 32;

  std::atomic<uint64_t> era;    // of the process: another one after each restart
  std::atomic<int64_t> number;  // the allocation's, in its process
  std::atomic<bool> lives;
  std::atomic<int> openers[kMostOpeners];  // process ids; 0: free
};

inline bool still_lives(const Exported& exported) {
  return exported.lives;
}

/// The allocation is freed: if it was exported, nobody may use it any more. One that is open elsewhere is reported.
void end_export(const Allocation& allocation);

void forget_ipc();

}  // namespace shardscope::emulation
