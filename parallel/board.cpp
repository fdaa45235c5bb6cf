// The host's board: placing it in memory, and what /proc says about the ranks on it.
#include "parallel/board.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <new>

#include "kernels/base/error.hpp"

namespace shardscope::parallel {

ProcessState process_state(pid_t pid) {
  if (kill(pid, 0) != 0 && errno == ESRCH) return ProcessState::kGone;
  std::array<char, 64> path{};
  std::snprintf(path.data(), path.size(), "/proc/%d/stat", static_cast<int>(pid));
  const int file = open(path.data(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return ProcessState::kAlive;
  std::array<char, 512> text{};
  const ssize_t bytes = read(file, text.data(), text.size() - 1);
  close(file);
  if (bytes <= 0) return errno == ESRCH ? ProcessState::kGone : ProcessState::kAlive;
  // "pid (name) S …": the name may hold anything, so the state follows the last parenthesis.
  const char* name_end = std::strrchr(text.data(), ')');
  if (name_end == nullptr || name_end[1] != ' ') return ProcessState::kAlive;
  switch (name_end[2]) {
    case 'Z':
    case 'X':
      return ProcessState::kGone;
    case 'T':
    case 't':
      return ProcessState::kStopped;
    default:
      return ProcessState::kAlive;
  }
}

uint64_t pid_namespace() {
  struct stat status {};
  return stat("/proc/self/ns/pid", &status) == 0 ? static_cast<uint64_t>(status.st_ino) : 0;
}

std::span<std::byte> Board::aligned(std::span<std::byte> memory) {
  const size_t misplaced = reinterpret_cast<uintptr_t>(memory.data()) % alignof(BoardEntry);
  return memory.subspan(misplaced == 0 ? 0 : alignof(BoardEntry) - misplaced);
}

size_t Board::board_bytes(int host_size) {
  return alignof(BoardEntry) + sizeof(Head) + sizeof(BoardEntry) * static_cast<size_t>(host_size);
}

void Board::clear(std::span<std::byte> memory, int host_size) {
  std::span<std::byte> place = aligned(memory);
  new (place.data()) Head;
  place = place.subspan(sizeof(Head));
  for (int i = 0; i < host_size; ++i) new (place.data() + sizeof(BoardEntry) * static_cast<size_t>(i)) BoardEntry;
}

Board::Board(std::span<std::byte> memory, int host_rank, int host_size) : host_rank_(host_rank) {
  require(memory.size() >= board_bytes(host_size), "Board: memory too small");
  std::span<std::byte> place = aligned(memory);
  head_ = reinterpret_cast<Head*>(place.data());
  entries_ = {reinterpret_cast<BoardEntry*>(place.data() + sizeof(Head)), static_cast<size_t>(host_size)};
}

void Board::sign_in(int world_rank) {
  own().rank = world_rank;
  own().pid_namespace = pid_namespace();
  own().doing.assign("starting");
  own().pid = getpid();
}

ProcessState Board::process_state_of(const BoardEntry& entry) const {
  const int32_t pid = entry.pid.load();
  if (pid == 0 || entry.pid_namespace.load() != own().pid_namespace.load()) return ProcessState::kAlive;
  return process_state(pid);
}

bool Board::any_failure() const {
  return std::any_of(entries_.begin(), entries_.end(), [](const BoardEntry& entry) {
    const RankEnd end = entry.end.load(std::memory_order_acquire);
    return end == RankEnd::kFailed || end == RankEnd::kPeerFailure;
  });
}

const BoardEntry* Board::lowest_failed() const {
  const BoardEntry* lowest = nullptr;
  for (const BoardEntry& entry : entries_) {
    if (entry.end.load(std::memory_order_acquire) != RankEnd::kFailed) continue;
    if (lowest == nullptr || entry.rank.load() < lowest->rank.load()) lowest = &entry;
  }
  return lowest;
}

bool Board::claim_printing() const {
  return head_->printer.exchange(1) == 0;
}

bool Board::printing_claimed() const {
  return head_->printer.load() != 0;
}

}  // namespace shardscope::parallel
