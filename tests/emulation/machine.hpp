// The machine that runs grids: CUDA threads as fibres, warps, blocks that are resident together, and who goes next.
// Internal to the emulation; tests use emulation.hpp and the CUDA runtime's functions.
//
// One host thread at a time (Call's lock, fakes/call.hpp). A fibre that has to wait hands over to the next ready thread
// of its block; when there is none, or a seed says so, to the scheduler, which picks another block or lets a new one
// in. Blocks come in when nobody else can go on, up to what the device holds; with a seed a few earlier than needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/emulation/counters.hpp"
#include "tests/emulation/device/emulated_calls.hpp"
#include "tests/emulation/device/emulated_launch.hpp"
#include "tests/emulation/emulation.hpp"
#include "tests/emulation/fibre.hpp"
#include "tests/emulation/memory.hpp"
#include "tests/emulation/order.hpp"

namespace shardscope::emulation {

class Machine;
struct Block;
struct Grid;

/// Why a thread does not run.
enum class State : uint8_t { kReady, kBarrier, kWarp, kPolling, kGridWait, kEnded };

/// A copy to shared memory that was begun.
struct Copy {
  std::byte* shared;
  const std::byte* global;
  int bytes;
  bool valid;         // false: zeros
  const void* place;  // of the code
};

/// What a lane brings to a warp operation and takes from it.
struct Operand {
  uint64_t bits = 0;
  int lane = 0;
  int width = 32;
  float* d = nullptr;
  const uint32_t* a = nullptr;
  const uint32_t* b = nullptr;
};

/// A CUDA thread. Belongs to a fibre, which runs one after another.
struct Thread final : Observer {
  Thread();

  /// Puts it at the begin of a kernel.
  void begin(Block& its_block, int its_index, uint3 its_id, const KnowledgePtr& base);
  /// What it knows of other threads' accesses is now this, and never less than before.
  void know(KnowledgePtr all);
  const KnowledgePtr& known() const { return known_; }
  std::string description() const;  // "thread (3,0,0) of block (1,0,0)"

  Fibre fibre;
  Block* block = nullptr;
  uint16_t index = 0;
  uint3 id{};
  State state = State::kEnded;

  // Where it stands when it waits.
  call::Site site{};
  const void* place = nullptr;
  Operand operand;
  uint64_t result = 0;

  // What it may learn and tell (checked mode). [0] of device scope, [1] of system scope.
  KnowledgePtr observed[2];   // by relaxed loads: known after a fence of that scope
  KnowledgePtr published[2];  // by its last fence of that scope: what a relaxed
                              // store then publishes

  int64_t accesses_to_pause = 0;
  int64_t accesses_between_pauses = 0;
  int64_t accesses_without_progress = 0;
  uint64_t progress_seen = 0;

  std::vector<Copy> copies;         // begun, in order
  std::vector<size_t> copy_groups;  // ends of the committed groups in `copies`

 private:
  bool knows_later(const Access& earlier) const override;

  KnowledgePtr known_;
};

/// Lanes that have arrived at one warp operation.
struct WarpOperation {
  enum class Kind : uint8_t { kSync, kShuffle, kVote, kReduce, kMultiply };
  Kind kind{};
  uint8_t variant = 0;  // call::Shuffle, Vote, Reduction; of kMultiply: bf16
  uint32_t mask = 0;
  uint32_t arrived = 0;
  call::Site site{};
};

std::string_view name(WarpOperation::Kind kind);

struct Warp {
  std::vector<WarpOperation> operations;  // those that wait for lanes
  uint32_t ended = 0;                     // lanes
  uint32_t lanes = 0;                     // that exist
  LaneClocks clocks[32];                  // [lane] what it knows of the others; its own is its step
};

/// Flags and atomics at one address: what their releases published.
struct FlagFacts {
  KnowledgePtr device[kMostDevices];
  KnowledgePtr system;
};

struct Block {
  void begin(Grid& its_grid, int64_t its_number);
  /// Nobody in it can go on, and nobody outside can change that.
  bool stuck() const;
  int64_t number() const;
  Warp& warp_of(const Thread& thread) { return warps[thread.index / 32]; }

  Grid* grid = nullptr;
  BlockId id = 0;
  uint3 index{};
  std::vector<Thread*> threads;
  std::vector<Warp> warps;
  std::deque<Thread*> ready;
  std::vector<Thread*> polling;
  int live = 0;  // threads that have not ended
  int at_barrier = 0;
  int barrier_sum = 0;
  uint32_t epoch = 1;
  bool triggered = false;  // grid_dependency_launch, or ended
  std::unique_ptr<SharedMemory> shared;
  std::unordered_map<const void*, FlagFacts> flags;  // in shared memory
  RequestCounter requests;
};

/// A launch on its way.
struct Grid {
  const KernelEntry* kernel = nullptr;
  std::vector<std::vector<std::byte>> arguments;
  std::vector<void*> argument_pointers;
  dim3 size;
  dim3 block_size;
  int64_t shared_bytes = 0;
  int device = 0;
  bool early = false;             // a programmatic launch, started while its predecessor ran
  Grid* predecessor = nullptr;    // what grid_dependency_wait waits for; nullptr when that is done
  KnowledgePtr base;              // what every thread knows at its begin
  KnowledgePtr predecessor_done;  // what it knows after grid_dependency_wait

  // The machine's.
  KernelCounts* counts = nullptr;
  BlockId first_block = 0;
  std::vector<uint32_t> order;  // of blocks; empty: as numbered
  int64_t most_resident = 1;    // of its blocks on an empty device
  int64_t eager_blocks = 0;     // that may be resident before anybody is stuck
  int64_t started_blocks = 0;
  int64_t resident_blocks = 0;
  int64_t triggered_blocks = 0;
  int64_t done_blocks = 0;
  KnowledgePtr done_knowledge;  // of all its threads at their ends

  int64_t blocks() const { return static_cast<int64_t>(size.x) * size.y * size.z; }
  bool done() const { return done_blocks == blocks(); }
  bool triggered() const { return triggered_blocks == blocks(); }
};

inline int64_t Block::number() const {
  return static_cast<int64_t>(id) - grid->first_block;
}

/// What remains of a grid, or of a copy of the runtime (then `operation` says which), to name it in a report.
struct GridRecord {
  const void* kernel = nullptr;
  dim3 size;
  dim3 block_size;
  std::string operation;

  int64_t blocks() const { return static_cast<int64_t>(size.x) * size.y * size.z; }
};

/// Where grids come from: the stand-in runtime's streams.
class Source {
 public:
  /// Starts one thing that may start now, or notes that one is done; false if there was nothing. Called whenever a grid
  /// has ended or been triggered, again if it says so by grid_event, and when nothing can go on.
  virtual bool start_ready() = 0;
  /// True if something that it has started waits for others than grids.
  virtual bool waits() const = 0;
  /// What, for a report.
  virtual std::string waits_for() const = 0;

 protected:
  ~Source() = default;
};

/// What a step of the machine did.
enum class Step : uint8_t {
  kRan,
  kIdle,     // all that runs waits for time, for the host or for other processes
  kNothing,  // nothing runs
};

class Machine {
 public:
  static Machine& get();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  void restart(const Options& options);
  const Options& options() const { return options_; }
  bool checked() const { return checked_; }
  bool seeded() const { return options_.seed != 0; }
  /// A random number below `bound`; 0 without a seed.
  int64_t random_below(int64_t bound);

  // ---- for the runtime
  DeviceMemory& memory() { return *memory_; }
  const MachineTable& table() const { return *options_.table; }
  /// The GPUs of the table that this process sees: its devices.
  const std::vector<int>& visible() const { return visible_; }
  int devices() const { return static_cast<int>(visible_.size()); }
  const Gpu& gpu(int device) const { return table().gpus[static_cast<size_t>(visible_[static_cast<size_t>(device)])]; }
  PeerAccess peer_access(int device, int peer_gpu) const;
  int64_t memory_bytes(int device) const;
  /// What of it is free: what neither this process nor those of the table use.
  int64_t free_bytes(int device) const;
  int multiprocessors(int device) const;
  /// How many blocks of that many threads and bytes of shared memory a multiprocessor holds at once.
  int64_t resident_blocks_per_multiprocessor(int device, int64_t threads, int64_t shared_bytes) const;
  /// Lets the grid's blocks come in. It stays valid until it is done, at least.
  void start(const std::shared_ptr<Grid>& grid);
  /// Lets something run for a moment: one thread of a block and those it hands over to, or what the source can start.
  /// Nothing once a report has stopped the machine. With device memory open.
  /// `leap`: when everybody waits for time, it goes on in leaps, and a state in which nothing can change is reported.
  Step step(Source& source, bool leap = true);
  /// No grid is under way.
  bool only_works_wait() const { return grids_.empty(); }
  /// Reports that nothing can go on.
  void give_up(const Source& source);
  /// Others than this host thread change what kernels wait for: time then is the real one, and nothing is ever "stuck".
  bool real_time() const { return options_.policy == Policy::kWorker || shared_with_others_; }
  void shared_with_others() { shared_with_others_ = true; }
  /// Something has happened that may let the source start more.
  void grid_event() { grid_event_ = true; }
  bool stopped() const { return stopped_; }
  Fault stopped_by() const { return stopped_by_; }
  BlockId new_block_ids(const GridRecord& grid);
  bool peer_enabled[kMostDevices][kMostDevices] = {};  // [who][whose memory]
  /// Shows memory as that device sees it: what it writes to devices that lose its writes lasts until another one, or
  /// nobody (-1), is meant.
  void see_as(int device);

  // ---- for the calls of kernels (on a fibre)
  /// The thread that this host thread runs; nullptr: it runs host code.
  static Thread* running() { return running_; }
  /// Gives way until somebody makes the thread ready.
  void wait(Thread& thread, State state);
  void make_ready(Thread& thread);
  /// Gives way to others that are ready.
  void pause(Thread& thread);
  void pause_at_access(Thread& thread);
  void trigger(Block& block);
  /// Something has changed that somebody may wait for.
  void note_progress() { ++progress_; }
  uint64_t progress() const { return progress_; }
  /// The machine's clock.
  uint64_t tick_ns();

  /// Reports the fault, with what text() gives, and ends all that runs. The fibre's frames are never left, so that
  /// nothing may be owned by them then: hence a function that makes the text.
  template <class Text>
  [[noreturn]] void stop(Fault fault, const Thread& thread, const void* place, const Text& text) {
    report(fault, thread, text(), place);
    leave();
  }
  [[noreturn]] void report_ended_before_barrier(const Thread& waiting, const Thread& ended);
  /// A fault found outside kernels.
  void record(Fault fault, const std::string& kernel, const std::string& message, bool stops = true);
  /// Who made an access: "thread (0,0,0) of block (1,0,0) of kernel k", or the runtime's operation.
  std::string describe(const Access& access) const;

  std::unordered_map<const void*, FlagFacts>& flags() { return flags_; }
  CounterTable& counters() { return counters_; }
  std::vector<Report> take_reports() { return std::exchange(reports_, {}); }

 private:
  friend struct Thread;
  Machine();

  static void run_threads(void* thread);
  void run_thread(Thread& thread);
  void end_thread(Thread& thread);
  void hand_over(Thread& thread);
  Thread* pop_ready(Block& block);
  Thread& spare_thread();
  int64_t accesses_to_pause();

  int64_t next_block();
  bool admit(Grid& grid);
  void end_block(size_t resident_index);
  void end_grid(Grid& grid);
  Step idle(const Source& source, bool leap);

  bool loses_writes(int device) const;
  void lose_writes(int device, bool losing);

  [[noreturn]] void leave();
  void report(Fault fault, const Thread& thread, const std::string& what, const void* place);
  void report_stuck_block(const Block& block);
  void report_no_progress(const Source& source);
  void abandon_everything();

  Options options_;
  std::vector<int> visible_;
  bool checked_ = false;
  bool shared_with_others_ = false;
  std::unique_ptr<DeviceMemory> memory_;
  std::mt19937_64 random_;
  Fibre* scheduler_ = nullptr;  // of the host thread that runs the machine
  static thread_local Thread* running_ __attribute__((tls_model("initial-exec")));
  std::vector<std::shared_ptr<Grid>> grids_;
  std::vector<std::unique_ptr<Block>> resident_;
  std::vector<std::unique_ptr<Block>> spare_blocks_;
  std::vector<std::unique_ptr<Thread>> threads_;
  std::vector<Thread*> spare_threads_;
  double device_use_[kMostDevices] = {};  // the share of what each device can hold
  BlockId next_block_id_ = 1;
  std::map<BlockId, GridRecord> history_;  // by first block
  std::unordered_map<const void*, FlagFacts> flags_;
  CounterTable counters_;
  std::vector<Report> reports_;

  uint64_t progress_ = 0;  // counts what may change what somebody waits for
  uint64_t idle_progress_ = 0;
  uint64_t now_ns_ = 1;  // virtual: goes on when everybody waits
  uint64_t idle_ns_ = 0;
  uint64_t idle_step_ns_ = 0;
  uint64_t began_ns_ = 0;          // real time at the restart
  uint64_t progress_seen_ns_ = 0;  // real time of the last progress, while idle
  int seen_as_ = -1;
  bool grid_event_ = false;
  bool rotate_ = false;
  bool stopped_ = false;
  Fault stopped_by_{};
};

/// While it lives, device memory is accessible.
class Opened {
 public:
  Opened() { Machine::get().memory().open(); }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  ~Opened() {
    Machine::get().see_as(-1);
    Machine::get().memory().close();
  }
};

/// The coordinates of the `number`-th thread or block of that many.
uint3 coordinates(int64_t number, const dim3& size);

/// For a report: which lanes the operation at which the thread waits lacks, and where they are.
std::string missing_lanes(const Thread& thread);

}  // namespace shardscope::emulation
