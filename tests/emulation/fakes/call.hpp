// What every function of the stand-ins begins with, and how libraries put work into streams. Between the stand-ins
// only; tests use emulation.hpp.
//
// One lock for everything: a function of a stand-in holds it from begin to end (Call), and so does the worker while it
// runs something. Functions of the stand-ins therefore do not call each other, but what lies below.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace shardscope::emulation {

/// Stands at the begin of each function that the host calls: one caller at a time, counted, and failing if Options say
/// so.
class Call {
 public:
  explicit Call(const char* function);
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call();

  /// Options::failing is about this call: return ordered_error(), or an error that fits if that is 0, and do nothing
  /// else.
  bool fails() const { return fails_; }
  int ordered_error() const { return ordered_error_; }

  /// Keeps why a call was refused, as "function: why", for emulation::take_refusal.
  void refuse(std::string_view why) const;

  /// Waits as a blocking function does: lets devices go on, and other threads and processes. False if a fault ended the
  /// machine, or if `milliseconds` (0: any time) have passed. Until then, at kAtSynchronisation, something that only
  /// this process could do and cannot any more is reported as no progress.
  bool wait_until(const std::function<bool()>& done, int64_t milliseconds = 0) const;

 private:
  const char* function_;
  bool fails_ = false;
  int ordered_error_ = 0;
};

/// Bytes that an operation reads or writes.
struct Range {
  const void* begin = nullptr;
  int64_t bytes = 0;
  bool written = false;
};

/// An operation of a library, as it stands in a stream or a graph: may be run several times. Immutable.
class Work {
 public:
  /// One run of it.
  class Run {
   public:
    virtual ~Run() = default;
    /// Does what can be done now. False: others have to do something first; it is called again then. Called with the
    /// lock, and with device memory accessible.
    virtual bool advance() = 0;
    /// While advance gives false: for whom it waits, for a report. "rank 2, which has not called ncclAllReduce"
    virtual std::string waits_for() const { return ""; }
    /// Whether one of those is in another process.
    virtual bool waits_for_others() const { return false; }
  };

  virtual ~Work() = default;
  virtual std::string name() const = 0;  // "ncclAllReduce"
  /// What each run accesses, in device or pinned memory. The checker looks at it before the run begins.
  virtual std::vector<Range> ranges() const = 0;
  virtual std::unique_ptr<Run> begin() const = 0;
  /// Works with the same key run one after another, in the order in which they were enqueued (a graph's: in which they
  /// were captured, when it is launched), in whatever streams. nullptr: no such order.
  virtual const void* serial_key() const { return nullptr; }
};

/// Puts the work into the stream, or into the graph that the stream is captured to. cudaErrorInvalidResourceHandle: no
/// such stream; capture errors as the runtime's own functions give them. Refusals are explained by the call.
cudaError_t enqueue_work(const Call& call, cudaStream_t stream, std::shared_ptr<const Work> work);

/// True if a graph or executable graph that lives holds work with that key.
bool graphs_hold(const void* serial_key);
/// True if work with that key is in a stream and not done.
bool streams_hold(const void* serial_key);

/// What the address belongs to.
struct Memory {
  int device = 0;     // ordinal in this process; kPinned (memory.hpp) for pinned host memory
  bool live = false;  // false: freed, or between allocations
  const std::byte* begin = nullptr;
  int64_t bytes = 0;  // of the allocation
};
/// False if it is neither device nor pinned memory.
bool find_memory(const void* address, Memory& memory);
/// True if the whole range lies in one live allocation of that device. Else `why` says what it is instead.
bool is_device_memory(const void* address, int64_t bytes, int device, std::string& why);

/// The calling thread's.
int current_device();
/// -1: no such stream. The null stream is the current device's.
int device_of_stream(cudaStream_t stream);
/// Which GPU of the machine a device of this process is: index into MachineTable::gpus.
int gpu_of_device(int device);
/// Device memory for a library's own allocator, at a multiple of `alignment`; cudaFree refuses it. nullptr: no memory.
std::byte* allocate_for_library(int device, int64_t bytes, int64_t alignment);
/// After all that devices have to do. False if it is none from allocate_for_library that lives.
bool free_for_library(const Call& call, void* begin);

/// True while the stream is being captured.
bool is_capturing(cudaStream_t stream);

/// A file without a name that processes share: its pages are zero at first and cost nothing until they are touched.
class SharedFile {
 public:
  SharedFile() = default;
  /// A new one of this process.
  explicit SharedFile(int64_t bytes);
  /// That of another process (or of this one), while the process that made it lives. Check with exists().
  SharedFile(int pid, int descriptor, int64_t bytes);
  SharedFile(SharedFile&& other) noexcept;
  SharedFile& operator=(SharedFile&& other) noexcept;
  ~SharedFile();

  bool exists() const { return memory_ != nullptr; }
  std::byte* data() const { return memory_; }
  int descriptor() const { return descriptor_; }

 private:
  std::byte* memory_ = nullptr;
  int64_t bytes_ = 0;
  int descriptor_ = -1;
};

/// True if that process has ended, also if its parent has not asked for its status yet.
bool process_has_ended(int pid);

/// Something that the host holds and has to give back: shown by not_given_back. RAII: stands in the object itself.
class Held {
 public:
  explicit Held(std::string what);  // "cuBLASLt handle of device 0"
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held();

  const std::string& what() const { return what_; }

 private:
  std::string what_;
};

/// A function that a library wants called by emulation::restart, to forget everything. At static initialisation.
bool at_restart(void (*forget)());

/// Asked before memory goes: why it is still needed, or "". What is needed is reported as destroyed too early. At
/// static initialisation.
bool watch_frees(std::string (*why_needed)(const void* begin, int64_t bytes));

struct Options;
/// Those of the last restart.
const Options& current_options();

/// Keeps a fault that is the host's, not a kernel's. `stops`: the machine runs no more, and the runtime's functions
/// fail. Fault is in emulation.hpp.
enum class Fault : uint8_t;
void report_host_fault(Fault fault, const std::string& message, bool stops);

}  // namespace shardscope::emulation
