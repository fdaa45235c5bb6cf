// What a test asks of the emulation beside the CUDA runtime's own functions: in which order threads run, what the
// checker found, what the kernels loaded and stored. One emulated machine per process; not for several host threads at
// once.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace shardscope::emulation {

struct Options {
  // 0: threads, blocks and streams run first come, first served. Anything else: in a random order of that seed, blocks
  // interleaved; in the checked mode threads are also pre-empted between accesses.
  uint64_t seed = 0;
  int devices = 1;
  int64_t device_memory_bytes = int64_t{8} << 30;  // per device
  int multiprocessors = 132;                       // of each device: how many blocks can be resident at once
  int seconds_to_end = 200;                        // for one synchronising call; then the program aborts, saying where
  bool count_requests = false;                     // group accesses into warp requests: sectors and bank passes
};

/// Forgets everything: device memory, streams, errors, unread reports, counters; and sets the options.
/// Pointers of before are invalid.
void restart(const Options& options);

/// What a kernel did wrong.
enum class Fault : uint8_t {
  kOutOfBounds,       // outside every allocation, past the end of one, or past a shared variable
  kUseAfterFree,      // in an allocation that has been freed
  kHostMemory,        // memory of the host that no device sees
  kForeignLocal,      // local memory of another thread
  kMisaligned,        // an address that is no multiple of the access's size
  kUninitialised,     // bytes that nobody has written, or a cp.async that has not been waited for
  kSharedRace,        // two accesses of shared memory without an order between them
  kGlobalRace,        // the same for global memory: between threads, blocks, kernels or devices
  kDivergentBarrier,  // threads of a block at different barriers, or ended before one
  kDivergentWarp,     // a warp operation whose lanes are not all there, or that names lanes wrongly
  kPendingCopy,       // a thread ended with cp.async copies that nobody has waited for
  kNoProgress,        // every thread waits for something that cannot come
  kPeerAccess,        // memory of a device to which peer access was not enabled
  kTrap,              // the kernel called __trap()
};
std::string_view name(Fault fault);

struct Report {
  Fault fault{};
  std::string kernel;   // demangled name
  std::string message;  // one line: what, kernel, block, thread, file:line; for a race both accesses
};

/// The reports since the last call. A kernel ends at its first; after it the runtime's functions fail until `restart`.
std::vector<Report> take_reports();

/// Names the class under which accesses to an allocation are counted, for example "weights". `allocation` is what
/// cudaMalloc gave. Without a label: "unlabelled".
void label(const void* allocation, std::string_view allocation_class);

struct Traffic {
  int64_t loaded_bytes = 0;
  int64_t stored_bytes = 0;
};

/// Requests of warps: what the lanes of a warp access by one instruction at a time. Counted with count_requests.
struct Requests {
  int64_t requests = 0;
  int64_t units = 0;        // global: 32-byte sectors touched; shared: passes over the 32 banks
  int64_t ideal_units = 0;  // the least for that many bytes
};

/// What one kernel (a function, all its launches) did. Accesses and bytes are counted in the checked mode only.
struct KernelCounters {
  std::string kernel;
  int64_t launches = 0;
  int64_t accesses = 0;                  // loads and stores seen by the checker, those of local memory left out
  std::map<std::string, Traffic> bytes;  // by allocation class; "shared" is shared memory
  Requests global_loads;
  Requests global_stores;
  Requests shared_accesses;
};
std::vector<KernelCounters> counters();
void clear_counters();

/// True in a program whose kernels are checked: its kernels were compiled with hooks.
bool checked();

}  // namespace shardscope::emulation
