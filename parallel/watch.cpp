// Who is to blame for a wait that does not end.
#include "parallel/watch.hpp"

#include <algorithm>

#include "kernels/base/error.hpp"
#include "parallel/world.hpp"

namespace shardscope::parallel {
namespace {

constexpr std::chrono::milliseconds kLongestGap{1000};
constexpr std::chrono::milliseconds kProcessCheckInterval{50};
constexpr std::chrono::milliseconds kPatrolInterval{250};

std::string seconds_text(std::chrono::milliseconds time) {
  const int64_t ms = time.count();
  std::string text = std::to_string(ms / 1000);
  if (ms % 1000 != 0) text.append(1, '.').append(std::to_string(ms % 1000 / 100));
  return text.append(" s");
}

}  // namespace

Watch::Watch(Board board, const std::vector<std::string>* hosts)
    : board_(board), hosts_(hosts), seen_(board.entries().size()) {}

void Watch::begin(std::string_view what, std::span<const int> awaited) {
  what_ = what;
  awaited_ = awaited;
  for (size_t i = 0; i < seen_.size(); ++i) {
    seen_[i] = {board_.entries()[i].heartbeats.load(std::memory_order_relaxed),
                board_.entries()[i].polls.load(std::memory_order_relaxed),
                {},
                {}};
  }
  last_look_ = Clock::now();
  waited_ = {};
  since_process_check_ = {};
}

void Watch::check() {
  const Clock::time_point now = Clock::now();
  const Clock::duration passed = std::min<Clock::duration>(now - last_look_, kLongestGap);
  last_look_ = now;
  board_.own().poll();
  if (board_.any_failure()) throw PeerFailure();
  observe(passed);
  if (since_process_check_ >= kProcessCheckInterval) {
    since_process_check_ = {};
    throw_if_dead();
  }
  if (waited_ >= timeout_) throw_if_silent();
}

void Watch::patrol() {
  const Clock::time_point now = Clock::now();
  if (now - last_look_ < kPatrolInterval) return;
  observe(std::min<Clock::duration>(now - last_look_, kLongestGap));
  last_look_ = now;
  if (board_.any_failure()) throw PeerFailure();
  throw_if_dead();
  std::vector<const BoardEntry*> culprits;
  for (size_t i = 0; i < seen_.size(); ++i) {
    const BoardEntry& entry = board_.entries()[i];
    const bool other = &entry != &board_.own() && entry.end.load() != RankEnd::kFinished;
    if (other && unresponsive(i)) culprits.push_back(&entry);
  }
  if (!culprits.empty()) throw_culprits(culprits, "made no progress for " + seconds_text(timeout_));
}

void Watch::observe(Clock::duration passed) {
  waited_ += passed;
  since_process_check_ += passed;
  for (size_t i = 0; i < seen_.size(); ++i) {
    const uint64_t heartbeats = board_.entries()[i].heartbeats.load(std::memory_order_relaxed);
    const uint64_t polls = board_.entries()[i].polls.load(std::memory_order_relaxed);
    Seen& seen = seen_[i];
    seen.without_heartbeat = heartbeats == seen.heartbeats ? seen.without_heartbeat + passed : Clock::duration{};
    seen.without_poll = polls == seen.polls ? seen.without_poll + passed : Clock::duration{};
    seen.heartbeats = heartbeats;
    seen.polls = polls;
  }
}

bool Watch::awaits(int rank) const {
  return std::find(awaited_.begin(), awaited_.end(), rank) != awaited_.end();
}

bool Watch::unresponsive(size_t index) const {
  return seen_[index].without_heartbeat >= timeout_ && seen_[index].without_poll >= timeout_;
}

bool Watch::host_is_silent() const {
  for (size_t i = 0; i < seen_.size(); ++i) {
    if (static_cast<int>(i) == board_.host_rank()) continue;
    if (board_.entries()[i].end.load() == RankEnd::kFinished) continue;
    if (seen_[i].without_heartbeat < timeout_) return false;
  }
  return true;
}

void Watch::throw_if_dead() const {
  std::vector<const BoardEntry*> dead;
  for (const BoardEntry& entry : board_.entries()) {
    if (&entry == &board_.own() || !awaits(entry.rank.load())) continue;
    if (board_.process_state_of(entry) == ProcessState::kGone) dead.push_back(&entry);
  }
  if (dead.empty()) return;
  if (board_.any_failure()) throw PeerFailure();  // it said why before it ended
  throw_culprits(dead, dead.size() == 1 ? "has died: its process is gone" : "have died: their processes are gone");
}

void Watch::throw_if_silent() const {
  std::vector<const BoardEntry*> culprits;
  for (bool awaited_only : {true, false}) {
    if (!awaited_only && !host_is_silent()) return;
    for (size_t i = 0; i < seen_.size(); ++i) {
      const BoardEntry& entry = board_.entries()[i];
      if (&entry == &board_.own() || !unresponsive(i)) continue;
      if (awaited_only ? !awaits(entry.rank.load()) : entry.end.load() == RankEnd::kFinished) continue;
      culprits.push_back(&entry);
    }
    if (!culprits.empty()) throw_culprits(culprits, "made no progress for " + seconds_text(timeout_));
  }
  throw_deadlock();
}

void Watch::throw_culprits(const std::vector<const BoardEntry*>& culprits, std::string_view deed) const {
  std::string ranks = culprits.size() == 1 ? "rank " : "ranks ";
  std::string where = "host " + (*hosts_)[board_.own().rank.load()];
  for (const BoardEntry* entry : culprits) {
    const std::string rank = std::to_string(entry->rank.load());
    if (entry != culprits.front()) ranks += ", ";
    ranks += rank;
    where += culprits.size() == 1 ? ", last doing '" : ", rank " + rank + " last doing '";
    where += entry->doing.text() + "'";
    if (board_.process_state_of(*entry) == ProcessState::kStopped) where += " (stopped by a signal)";
  }
  where += ", awaited in '" + std::string(what_) + "'";
  const std::string advice = deed.starts_with("made") ? "look at that process or raise --timeout"
                                                      : "see the launcher's words and the system log (out of memory?)";
  throw SystemError(ranks + " " + std::string(deed), where, advice);
}

void Watch::throw_deadlock() const {
  // Everybody here waits. If ranks on other hosts are awaited, of which this board knows nothing, they are the ones.
  const int own = board_.own().rank.load();
  const std::string& host = (*hosts_)[own];
  const bool remote = std::any_of(awaited_.begin(), awaited_.end(), [&](int rank) {
    return std::none_of(board_.entries().begin(), board_.entries().end(),
                        [&](const BoardEntry& entry) { return entry.rank.load() == rank; });
  });
  std::string ranks;
  std::string where = remote ? "" : "host " + host;
  for (int rank : awaited_) {
    const auto entry = std::find_if(board_.entries().begin(), board_.entries().end(),
                                    [&](const BoardEntry& candidate) { return candidate.rank.load() == rank; });
    const bool here = entry != board_.entries().end();
    if (rank == own || here == remote) continue;
    if (!ranks.empty()) ranks += ", ";
    ranks += std::to_string(rank);
    if (!here) ranks += " on " + (*hosts_)[rank];
    if (here) where += ", rank " + std::to_string(rank) + " last doing '" + entry->doing.text() + "'";
  }
  if (ranks.empty()) ranks = "none but this one";
  if (!where.empty()) where += ", ";
  where += "awaited in '" + std::string(what_) + "'";
  throw SystemError(
      "no progress for " + seconds_text(timeout_) + " of ranks " + ranks + (remote ? "" : ", all of them waiting"),
      where, "raise --timeout if a rank may take longer");
}

}  // namespace shardscope::parallel
