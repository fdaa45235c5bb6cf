// What a test asks of the emulation beside the CUDA runtime's own functions: in which order threads and streams run,
// which devices there are and how they misbehave, what the checker found, what the kernels loaded and stored, which
// calls the host made. One emulated machine per process; these functions are for one host thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/emulation/fakes/machine_table.hpp"

namespace shardscope::emulation {

/// When what was put into streams runs.
enum class Policy : uint8_t {
  kAtSynchronisation,  // only while the host waits or asks: reproducible. For one process and one host thread.
  kAtOnce,             // when it is enqueued, as far as it can go: a device that is always faster than the host
  kWorker,             // on a thread of its own, at some time, with pauses: what several processes need
};

/// The `nth` call of a function from now on fails; all later ones too if `from_then_on`.
struct FailingCall {
  std::string function;  // "cudaMalloc"
  int64_t nth = 1;
  int error = 0;  // the function's own error codes; 0: one that fits it
  bool from_then_on = false;
};

/// In which order, and how often rounded, a sum over ranks is made.
enum class Reduction : uint8_t {
  kOnce,  // in rank order, in fp32, rounded at the end
  kRing,  // rounded at every hop; where the ring begins differs from piece to piece
  kTree,  // pairs of ranks, rounded at every level
};

struct NcclOptions {
  Reduction reduction = Reduction::kOnce;
  int milliseconds_to_arrive = 30'000;  // a rank that does not come to an operation in that time is late: an error
  bool tells_of_dead_ranks = true;      // false: as a real one within a host, it waits for them without an end
  bool several_ranks_per_gpu = false;
  int milliseconds_to_initialise = 0;  // a non-blocking initialisation is in progress for at least so long
};

struct Options {
  // 0: threads, blocks and streams run first come, first served. Anything else: in a random order of that seed, blocks
  // interleaved; in the checked mode threads are also pre-empted between accesses.
  uint64_t seed = 0;
  int devices = 1;                    // of `model`
  std::string model = "h100";         // a key of find_model
  std::optional<MachineTable> table;  // instead of `devices` and `model`
  int64_t device_memory_bytes = 0;    // per device; 0: as the model has
  int multiprocessors = 0;            // of each device: how many blocks can be resident at once; 0: as the model has
  Policy policy = Policy::kAtSynchronisation;
  int seconds_to_end = 200;            // without any progress; then the program ends, saying where
  bool count_requests = false;         // group accesses into warp requests: sectors and bank passes
  bool refuse_default_stream = false;  // work for the null stream is an error
  std::vector<FailingCall> failing;
  NcclOptions nccl;
};

/// Forgets everything: device memory, streams, graphs, communicators, errors, unread reports, counters; and sets the
/// options. Pointers and handles of before are invalid. A process that never calls it has the options of its
/// environment (fakes/environment.hpp).
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
  kHostRace,          // the host changed bytes that a copy was still to read
  kLifetime,          // something was destroyed that something else still needs
  kRankMismatch,      // ranks of a communicator that do not do the same
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

/// How often the host called each function of the stand-ins since the restart, or since clear_calls.
std::map<std::string, int64_t> calls();
void clear_calls();

/// Why the last call that a stand-in refused was refused, in one line; "" if none was since the last question. Error
/// codes alone seldom say which of a function's arguments was wrong.
std::string take_refusal();

/// What the host has made and not given back: allocations, streams, events, graphs, handles, communicators. One line
/// each.
std::vector<std::string> not_given_back();

/// True in a program whose kernels are checked: its kernels were compiled with hooks.
bool checked();

}  // namespace shardscope::emulation
