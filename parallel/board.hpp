// The board of one host: a shared-memory entry for each rank there, in which it shows that it lives, what it does and
// why it failed. Only its own rank writes an entry; everybody reads all. This header knows no MPI: World maps the
// memory. Private to parallel/.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace shardscope::parallel {

/// Text that another process may read while it is being written: torn at worst, never out of bounds.
template <size_t kBytes>
class SharedText {
 public:
  void assign(std::string_view text) {
    const size_t length = std::min(text.size(), kBytes - 1);
    for (size_t i = 0; i < length; ++i) bytes_[i].store(text[i], std::memory_order_relaxed);
    bytes_[length].store('\0', std::memory_order_relaxed);
  }
  std::string text() const {
    std::string copy;
    for (size_t i = 0; i + 1 < kBytes; ++i) {
      const char c = bytes_[i].load(std::memory_order_relaxed);
      if (c == '\0') break;
      copy += c;
    }
    return copy;
  }

 private:
  std::array<std::atomic<char>, kBytes> bytes_{};
};

/// Why a rank no longer takes part. kFailed holds a message of its own; kPeerFailure ends because of another rank.
enum class RankEnd : int32_t { kRunning, kFailed, kPeerFailure, kFinished };

struct alignas(64) BoardEntry {
  std::atomic<uint64_t> heartbeats{0};  // progress: a step of work or a wait that ended
  std::atomic<uint64_t> polls{0};       // looks at the board out of a wait: lives, but makes no progress
  std::atomic<RankEnd> end{RankEnd::kRunning};
  std::atomic<int32_t> exit_code{0};
  std::atomic<int32_t> pid{0};
  std::atomic<int32_t> rank{-1};           // in the world
  std::atomic<uint64_t> pid_namespace{0};  // pids of another namespace mean nothing here
  SharedText<64> doing;
  alignas(64) SharedText<1024> message;

  /// Only the owner adds, so that no locked instruction is needed.
  void beat() { heartbeats.store(heartbeats.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }
  void poll() { polls.store(polls.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<RankEnd>::is_always_lock_free);

enum class ProcessState { kAlive, kStopped, kGone };

/// From /proc: a zombie counts as gone. kAlive where nothing can be known.
ProcessState process_state(pid_t pid);

/// This process's pid namespace, 0 where unknown.
uint64_t pid_namespace();

/// A view of the entries of one host; owns nothing.
class Board {
 public:
  Board() = default;
  /// memory: board_bytes(host_size) bytes, the same on every rank of the host, zero or set up by `clear`.
  Board(std::span<std::byte> memory, int host_rank, int host_size);

  static size_t board_bytes(int host_size);
  /// Constructs all entries; by one rank, before any other uses them.
  static void clear(std::span<std::byte> memory, int host_size);

  /// Fills in who this rank is. After clear().
  void sign_in(int world_rank);

  std::span<BoardEntry> entries() const { return entries_; }
  BoardEntry& own() const { return entries_[host_rank_]; }
  int host_rank() const { return host_rank_; }
  ProcessState process_state_of(const BoardEntry& entry) const;

  /// Whether any rank of this host has failed or ended because of a failure.
  bool any_failure() const;
  /// The entry with kFailed of the lowest world rank; nullptr if there is none.
  const BoardEntry* lowest_failed() const;
  /// True for the one process that may print the error line; every later caller gets false.
  bool claim_printing() const;
  bool printing_claimed() const;

 private:
  struct alignas(64) Head {
    std::atomic<int32_t> printer{0};
  };
  static std::span<std::byte> aligned(std::span<std::byte> memory);

  Head* head_ = nullptr;
  std::span<BoardEntry> entries_;
  int host_rank_ = 0;
};

}  // namespace shardscope::parallel
