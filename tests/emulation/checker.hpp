// The checked mode: every access of a kernel to memory comes here, from the compiler's hooks (hooks.cpp) or from a
// call.
#pragma once

#include <cstdint>

#include "tests/emulation/machine.hpp"

namespace shardscope::emulation {

struct CheckedAccess {
  const void* address = nullptr;
  int64_t bytes = 0;
  bool write = false;
  const void* place = nullptr;  // return address of the code that accesses
  bool aligned = true;          // must be aligned to `bytes`
  bool atomic = false;
  bool update = false;     // an atomic that also reads
  bool system = false;     // the scope of an atomic
  bool pending = false;    // the begin of a cp.async: the bytes are not there yet
  bool completes = false;  // its end: a second look at accesses that were counted

  bool reads() const { return !write || update; }
};

/// Bounds, life time, alignment, whether the bytes were written, races; counts. Stops the machine at a fault. Nothing
/// to do outside a kernel and for the thread's own local memory.
void check_access(const CheckedAccess& access);

/// A copy's or fill's access, as a grid of its own. `description`: "cudaMemcpy to device". Returns false after a
/// report.
bool check_runtime_access(BlockId block, const Observer& observer, Allocation& allocation, int64_t offset,
                          int64_t bytes, bool write);

}  // namespace shardscope::emulation
