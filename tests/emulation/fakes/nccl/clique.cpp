#include "tests/emulation/fakes/nccl/clique.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "tests/emulation/fakes/nccl/types.hpp"

namespace shardscope::emulation::nccl {
namespace {

constexpr char kMagic[8] = {'n', 'c', 'c', 'l', 'f', 'a', 'k', 'e'};
constexpr int64_t kSlotsBegin = (sizeof(Shared) + 4095) / 4096 * 4096;
constexpr int64_t kFileBytes = kSlotsBegin + kMostRanks * kSlots * kSlotBytes;

/// What an id holds.
struct Id {
  char magic[8];
  int32_t pid;
  int32_t descriptor;
  uint64_t nonce;
};
static_assert(sizeof(Id) <= NCCL_UNIQUE_ID_BYTES);

uint64_t new_nonce() {
  static uint64_t made = 0;
  const auto now = static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  return (now << 20) ^ (static_cast<uint64_t>(getpid()) << 8) ^ ++made;
}

}  // namespace

const char* name(Kind kind) {
  switch (kind) {
    case Kind::kAllReduce:
      return "ncclAllReduce";
    case Kind::kAllGather:
      return "ncclAllGather";
    case Kind::kReduceScatter:
      return "ncclReduceScatter";
    case Kind::kBroadcast:
      return "ncclBroadcast";
  }
  return "";
}

bool Operation::fits(const Operation& other) const {
  return kind == other.kind && type == other.type && reduction == other.reduction && root == other.root &&
         count == other.count;
}

std::string Operation::description() const {
  std::string text = fmt::format("{} of {} {}", name(kind), count, type_name(static_cast<ncclDataType_t>(type)));
  if (kind == Kind::kAllReduce || kind == Kind::kReduceScatter) {
    text += fmt::format(", {}", reduction_name(static_cast<ncclRedOp_t>(reduction)));
  }
  if (kind == Kind::kBroadcast) text += fmt::format(" from rank {}", root);
  return text;
}

WindowPlace Operation::sent_for_rank_0(int rank) const {
  const WindowPlace own{sent.window, sent.offset - rank * count * type_bytes(static_cast<ncclDataType_t>(type))};
  return kind == Kind::kAllGather && own == received ? own : sent;
}

WindowPlace Operation::received_for_rank_0(int rank) const {
  const WindowPlace own{received.window,
                        received.offset - rank * count * type_bytes(static_cast<ncclDataType_t>(type))};
  return kind == Kind::kReduceScatter && own == sent ? own : received;
}

Verdict Clique::make(ncclUniqueId& id, Clique& clique) {
  clique.file_ = SharedFile(kFileBytes);
  if (!clique.file_.exists()) {
    const char* const why = std::strerror(errno);
    return {ncclSystemError,
            fmt::format("no file of {} bytes for ranks to share: {}; close files, or destroy communicators", kFileBytes,
                        why)};
  }
  // The file's zeros are the state of atomics and structures that nobody has touched.
  clique.shared().nonce = new_nonce();
  Id contents{};
  std::memcpy(contents.magic, kMagic, sizeof(kMagic));
  contents.pid = getpid();
  contents.descriptor = clique.file_.descriptor();
  contents.nonce = clique.shared().nonce;
  std::memset(&id, 0, sizeof(id));
  std::memcpy(&id, &contents, sizeof(contents));
  return {};
}

Verdict Clique::open(const ncclUniqueId& id, Clique& clique) {
  Id contents{};
  std::memcpy(&contents, &id, sizeof(contents));
  if (std::memcmp(contents.magic, kMagic, sizeof(kMagic)) != 0) {
    return {ncclInvalidArgument, "the unique id is none that ncclGetUniqueId gave: were all its 128 bytes sent?"};
  }
  if (!process_has_ended(contents.pid)) clique.file_ = SharedFile(contents.pid, contents.descriptor, kFileBytes);
  if (!clique.file_.exists() || clique.shared().nonce != contents.nonce) {
    return {ncclSystemError,
            fmt::format("the process {} that made the unique id is gone, or has been restarted, or the id's "
                        "communicator is over: each communicator needs a new id",
                        contents.pid)};
  }
  return {};
}

bool Clique::is_over() const {
  const RankCount count = shared().count;
  if (count.ranks == 0) return false;
  const bool failed = !shared().failure.told().good();
  for (int rank = 0; rank < count.ranks; ++rank) {
    const Presence presence = place(rank).presence;
    if (presence == Presence::kLeft || presence == Presence::kAborted) continue;
    if (presence != Presence::kThere) return false;  // it may still come
    const int pid = place(rank).pid;
    if (!failed && (pid == getpid() || !process_has_ended(pid))) return false;
  }
  return true;
}

std::byte* Clique::slot(int rank, int64_t piece) const {
  return file_.data() + kSlotsBegin + (rank * kSlots + piece % kSlots) * kSlotBytes;
}

void Announcement::tell(const Verdict& verdict) {
  int none = 0;
  if (!state_.compare_exchange_strong(none, 1)) return;
  code_ = verdict.code;
  const size_t length = std::min(verdict.why.size(), sizeof(text_) - 1);
  std::memcpy(text_, verdict.why.data(), length);
  text_[length] = '\0';
  state_ = 2;
}

Verdict Announcement::told() const {
  if (state_ != 2) return {};
  return {code_, text_};
}

}  // namespace shardscope::emulation::nccl
