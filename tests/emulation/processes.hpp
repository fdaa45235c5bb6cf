// Runs a test's body as several processes, each a rank with a machine of its own. A child is forked, never outlives the
// test, and what it has to say comes back as text: Catch's assertions do not work in a child, so that a body uses
// Rank::expect, or throws. The parent must have one thread only: it never runs Policy::kWorker itself.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "tests/emulation/emulation.hpp"

namespace shardscope::test {

/// What the processes of one run share, beside what a body makes itself. Internal to processes.cpp.
struct Common;

/// How a rank ended.
struct Outcome {
  enum class End : uint8_t {
    kReturned,  // from the body
    kFailed,    // an expectation, another exception, or a leak that AddressSanitizer found
    kSignal,    // that it did not ask for
    kLimit,     // it had to be killed: the time was up
    kDied,      // by Rank::die or kill_rank, as the test wanted
    kStopped,   // by Rank::stop_here, as the test wanted; killed when the others had ended
  };

  int rank = 0;
  int pid = 0;
  End end = End::kReturned;
  int signal = 0;       // of kSignal
  std::string message;  // why it failed
  std::string output;   // what it wrote to its standard output and standard error; the last 64 KiB

  /// "rank 1 (pid 4711) failed: why; it printed: …"
  std::string description() const;
};

/// What a body knows of its rank, and does with the others.
class Rank {
 public:
  Rank(Common& common, int rank) : common_(common), rank_(rank) {}

  int rank() const { return rank_; }
  int ranks() const;
  int pid(int rank) const;

  /// Ends the rank's body as failed unless the condition holds.
  void expect(bool condition, std::string_view text) const;

  /// Waits until all ranks have come here as often as this one. Fails with the name of one that does not come in time.
  void barrier(std::chrono::milliseconds limit = std::chrono::seconds(20)) const;

  /// Puts bytes where the others can read them, at most kMostSharedBytes; a barrier has to stand between the two.
  void share(const void* bytes, size_t count) const;
  /// What that rank has shared last; zeros at first.
  const std::byte* shared(int rank) const;

  /// A small value from each rank, in their order. All ranks have to call it.
  template <class T>
  std::vector<T> exchange(const T& value) const {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= kMostSharedBytes);
    share(&value, sizeof(T));
    barrier();
    std::vector<T> values(static_cast<size_t>(ranks()));
    for (int other = 0; other < ranks(); ++other) {
      std::memcpy(static_cast<void*>(&values[static_cast<size_t>(other)]), shared(other), sizeof(T));
    }
    barrier();
    return values;
  }

  /// Ends this process at once, as SIGKILL does.
  [[noreturn]] void die() const;
  /// The same for another rank; returns when it has ended.
  void kill_rank(int rank) const;
  /// Stands still without an end, as after SIGSTOP: alive, and does nothing more.
  void stop_here() const;

  static constexpr size_t kMostSharedBytes = 64 << 10;

 private:
  Common& common_;
  int rank_;
};

/// Runs body(rank) in `count` processes, each on a machine restarted with `options`, and tells how they ended. No child
/// is left when it returns; those that are not done after `limit` are killed.
std::vector<Outcome> run_in_processes(int count, const emulation::Options& options,
                                      const std::function<void(Rank&)>& body,
                                      std::chrono::seconds limit = std::chrono::seconds(60));

/// The same; a rank that ended otherwise than the test wanted is a failure of the Catch test.
std::vector<Outcome> in_processes(int count, const emulation::Options& options, const std::function<void(Rank&)>& body,
                                  std::chrono::seconds limit = std::chrono::seconds(60));

/// Files of this process, open or mapped, that have a name in /dev/shm or the temporary folder, where they would be
/// left behind by a process that is killed.
std::vector<std::string> shared_files_with_names();

}  // namespace shardscope::test
