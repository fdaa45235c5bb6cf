// What the ranks of one communicator share: a file without a name that the process of ncclGetUniqueId made and the
// others map through /proc. Who is there, what each does now (Operation), and two slots of data for each rank, which
// operations go through in pieces, so that its size does not depend on theirs.
#pragma once

#include <nccl.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "tests/emulation/fakes/call.hpp"

namespace shardscope::emulation::nccl {

inline constexpr int kMostRanks = 16;
inline constexpr int64_t kSlotBytes = 256 << 10;
inline constexpr int kSlots = 2;           // for each rank: the next piece is written while the last one is still read
inline constexpr int kOperations = 4;      // for each rank: more than it can be ahead of another one
inline constexpr int kWindowsAtOnce = 32;  // that a rank has begun and that are not over
inline constexpr int kWindows = 2 * kWindowsAtOnce;  // others may still compare as many before those

/// A result, and why.
struct Verdict {
  ncclResult_t code = ncclSuccess;
  std::string why;

  bool good() const { return code == ncclSuccess; }
};

enum class Kind : int32_t { kAllReduce, kAllGather, kReduceScatter, kBroadcast };

/// "ncclAllReduce"
const char* name(Kind kind);

/// Where a buffer lies: in which window, the how-manieth of the communicator, and where in it.
struct WindowPlace {
  int64_t window = -1;  // -1: in none, or in one that is not symmetric
  int64_t offset = 0;

  bool operator==(const WindowPlace&) const = default;
};

/// What a rank does. Without padding: it is compared between processes.
struct Operation {
  Kind kind{};
  int32_t type = 0;       // ncclDataType_t
  int32_t reduction = 0;  // ncclRedOp_t, of all-reduce and reduce-scatter
  int32_t root = 0;       // of broadcast
  int64_t count = 0;
  WindowPlace sent;
  WindowPlace received;

  /// True if two ranks that do these do the same.
  bool fits(const Operation& other) const;
  /// `sent` and `received` of a rank that does it, as they are for rank 0: in place, one of them is the rank's own
  /// block of the other one, so that its offset has to differ between ranks.
  WindowPlace sent_for_rank_0(int rank) const;
  WindowPlace received_for_rank_0(int rank) const;
  std::string description() const;  // "ncclAllReduce of 576 ncclFloat16, ncclSum"
};

/// How a rank stands to the communicator.
enum class Presence : int { kAbsent, kComing, kThere, kAborted, kLeft };

struct WindowFacts {
  int64_t bytes = 0;
  int32_t flags = 0;

  bool operator==(const WindowFacts&) const = default;
};

/// One rank's part of the shared file.
struct Place {
  std::atomic<Presence> presence;
  std::atomic<int> pid;
  std::atomic<int> gpu;

  std::atomic<int64_t> announced;  // operations
  Operation operations[kOperations];
  std::atomic<int64_t> published;  // pieces, of all operations
  std::atomic<int64_t> windows;    // that it has asked for
  WindowFacts window_facts[kWindows];
};

/// What one rank tells all: the first to do so counts, and what it told stays.
class Announcement {
 public:
  void tell(const Verdict& verdict);
  /// Good while nobody has told anything.
  Verdict told() const;

 private:
  std::atomic<int> state_;  // 0: none, 1: being written, 2: there
  ncclResult_t code_;
  char text_[640];
};

/// How many ranks there are, and who was the first to say so.
struct RankCount {
  int16_t ranks = 0;
  int16_t rank = 0;
  int32_t pid = 0;
};
static_assert(std::atomic<RankCount>::is_always_lock_free, "processes share it");

struct Shared {
  uint64_t nonce;  // also in the id: the descriptor may belong to another file by now
  std::atomic<RankCount> count;
  Announcement failure;     // why the communicator cannot be made
  Announcement difference;  // of what ranks do once it is made
  Place places[kMostRanks];
};

class Clique {
 public:
  Clique() = default;

  /// A new one, with its id.
  static Verdict make(ncclUniqueId& id, Clique& clique);
  /// The one that the id is of.
  static Verdict open(const ncclUniqueId& id, Clique& clique);

  Shared& shared() const { return *reinterpret_cast<Shared*>(file_.data()); }
  Place& place(int rank) const { return shared().places[rank]; }
  /// The slot that the rank writes its `piece`-th piece to.
  std::byte* slot(int rank, int64_t piece) const;
  int pid(int rank) const { return place(rank).pid; }
  /// True when ranks have come, and all have left, failed or died: nobody will need the id any more.
  bool is_over() const;

 private:
  SharedFile file_;
};

}  // namespace shardscope::emulation::nccl
