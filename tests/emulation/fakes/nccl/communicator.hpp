// Communicators, windows and groups of this process, and how a call of NCCL becomes an answer. Everything here is used
// with the stand-ins' lock (call.hpp).
#pragma once

#include <nccl.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/emulation/fakes/call.hpp"
#include "tests/emulation/fakes/nccl/clique.hpp"

namespace shardscope::emulation::nccl {

using Clock = std::chrono::steady_clock;

struct Communicator;

/// Something that all ranks must come to and that goes on while the host asks: an initialisation, a window.
class Task {
 public:
  explicit Task(std::shared_ptr<Communicator> communicator) : communicator_(std::move(communicator)) {}
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  virtual ~Task() = default;

  /// True when it is over, well or not: verdict() then says which. What it has to give is given when it is over.
  bool advance();
  const Verdict& verdict() const { return verdict_; }
  /// It will not be advanced any more: its group has failed. If it is over, that stays so.
  void drop();
  Communicator& communicator() const { return *communicator_; }

 protected:
  /// One attempt; true when over.
  virtual bool step() = 0;
  /// Takes back what others see of it.
  virtual void leave() = 0;
  /// Over, with that result.
  bool end(Verdict verdict) {
    verdict_ = std::move(verdict);
    return true;
  }

 private:
  std::shared_ptr<Communicator> communicator_;  // it may be aborted while the task waits for its group's end
  Verdict verdict_;
  bool over_ = false;
};

/// Memory that the communicator was told of.
struct Registration {
  const std::byte* begin = nullptr;
  int64_t bytes = 0;
  int64_t number = 0;  // of windows: the how-manieth, on all ranks
  bool window = false;
  bool symmetric = false;
  std::unique_ptr<Held> held;

  bool holds(const void* address, int64_t count) const {
    const auto* const first = static_cast<const std::byte*>(address);
    return first >= begin && first + count <= begin + bytes;
  }
};

struct Communicator {
  Clique clique;
  int rank = 0;
  int ranks = 0;
  int device = 0;
  bool blocking = true;
  bool ready = false;      // all ranks came
  bool finalised = false;  // ncclCommFinalize was called
  bool flushed = false;    // and is over
  bool aborted = false;
  ncclComm_t handle = nullptr;
  std::vector<std::shared_ptr<Task>> tasks;  // of a non-blocking one: what is in progress
  int answers_in_progress = 0;               // that GetAsyncError still has to give after an operation
  Verdict error;                             // asynchronous: stays

  int64_t next_operation = 0;
  int64_t next_piece = 0;
  int64_t next_window = 0;
  int64_t windows_over = 0;  // of those before, also of those that were given up
  int64_t symmetric_collectives = 0;
  std::map<const void*, Registration> registrations;  // by handle
  uint64_t driver = 0;                                // this_thread() of who last called an operation outside a group
  std::unique_ptr<Held> held;

  Place& own_place() const { return clique.place(rank); }
  /// Keeps the first asynchronous error.
  void fail(Verdict verdict);
  /// "rank 1 of 4 (pid 4711, device 0)"
  std::string description() const;
  /// "rank 2 (pid 4712)"
  std::string other(int its_rank) const;
  /// Of the ranks that have come to that operation, the lowest, and the lowest that does something else. Good if all
  /// do the same.
  Verdict different_operations(int64_t number) const;
  /// The same of where buffers lie in symmetric windows, if they do on all ranks. All have come to the operation.
  Verdict different_places(int64_t number) const;
  /// True if both buffers lie in symmetric windows on all ranks. All have come to the operation.
  bool is_symmetric(int64_t number) const;
  /// The same of windows.
  Verdict different_windows(int64_t number) const;
  /// Fails by such a difference, and tells all, so that each rank says the same.
  void fail_by_difference(const Verdict& verdict);
  /// Fails because not all come to this rank's last operation. If those that have come do different things, that
  /// matters more.
  void fail_without_all(const Verdict& verdict);
  /// Fails by what another rank has told so. False: none has.
  bool hear_of_difference();
  /// The window in which that range lies, and where.
  WindowPlace window_place(const void* address, int64_t bytes) const;
};

/// Calls since ncclGroupStart.
struct Group {
  struct Enqueued {
    cudaStream_t stream;
    std::shared_ptr<const Work> work;
    std::shared_ptr<Communicator> communicator;
  };

  int depth = 0;
  Verdict first_error;
  std::vector<std::shared_ptr<Task>> tasks;
  std::vector<Enqueued> works;
  std::unique_ptr<Held> held;
};

/// All that this process has of NCCL.
struct Library {
  Library() = default;
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  ~Library();

  std::map<ncclComm_t, std::shared_ptr<Communicator>> communicators;
  std::vector<Clique> ids;                // that this process made and that may still be used
  std::map<const void*, int64_t> memory;  // of ncclMemAlloc, and its bytes
  std::map<uint64_t, Group> groups;       // by this_thread()
  std::string last_error;
  uint64_t next_number = 1;  // of handles: none comes twice, so that an old one is recognised

  /// A handle that nobody can look into.
  void* new_handle();
};

Library& library();

/// How a call ends: what went wrong is kept for take_refusal and ncclGetLastError.
ncclResult_t answer(const Call& call, const Verdict& verdict, Communicator* communicator = nullptr);
/// The answer to a call that Options::failing is about.
ncclResult_t ordered_answer(const Call& call);

/// The communicator of that handle, in whatever state.
Verdict find(ncclComm_t handle, std::shared_ptr<Communicator>& communicator);
/// The same, ready to be used.
Verdict find_ready(ncclComm_t handle, std::shared_ptr<Communicator>& communicator);
/// Ready with its tasks: what is over counts.
void settle(Communicator& communicator);

/// A number of the calling thread that no other one has, also later.
uint64_t this_thread();
/// This thread's group, or nullptr.
Group* open_group();
/// Whether a communicator may take part in this thread's group, if there is one, beside those that do so already.
Verdict check_group(bool blocking);
/// Runs a task as the communicator and a group want it: now, at the end of the group, or while GetAsyncError asks.
Verdict run_task(const Call& call, std::shared_ptr<Task> task);
/// The same for several at once.
Verdict run_tasks(const Call& call, const std::vector<std::shared_ptr<Task>>& tasks);

/// Why memory must not be freed yet, after its description; "" if no part of it is registered.
std::string registration_within(const void* begin, int64_t bytes);

}  // namespace shardscope::emulation::nccl
