// The end of a failed run: one line from the lowest failing rank, then the whole job ends.
#include <fcntl.h>
#include <mpi.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <ctime>

#include "parallel/world_state.hpp"

namespace shardscope::parallel {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kOthersMayPost{2000};
constexpr milliseconds kSecondChance{1000};  // after which another rank prints, should the lowest have died
constexpr milliseconds kKillWait{3000};
constexpr milliseconds kLaterHost{500};
constexpr milliseconds kPipeDrain{200};
constexpr unsigned kAbortSeconds = 5;

void sleep_ms(int64_t ms) {
  const timespec pause{ms / 1000, ms % 1000 * 1'000'000};
  nanosleep(&pause, nullptr);
}

/// The line in a single write, so that nothing of another process comes between.
void write_line(const World::State& s, int rank, const std::string& message) {
  std::string line = "shardscope: error: " + message;
  if (s.size > 1) line += ", rank " + std::to_string(rank) + " on " + s.host;
  std::replace(line.begin(), line.end(), '\n', ' ');
  line += '\n';
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

/// Until the launcher has read our line out of the pipe, so that its own words come after.
void drain_stderr() {
  const Clock::time_point end = Clock::now() + kPipeDrain;
  int left = 0;
  while (ioctl(STDERR_FILENO, FIONREAD, &left) == 0 && left > 0 && Clock::now() < end) sleep_ms(1);
  sleep_ms(10);
}

[[noreturn]] void abort_job(const World::State& s, int exit_code) {
  signal(SIGALRM, SIG_DFL);  // should the launcher be gone and MPI_Abort wait for it
  alarm(kAbortSeconds);
  MPI_Abort(s.comm == MPI_COMM_NULL ? MPI_COMM_WORLD : s.comm, exit_code);
  _exit(exit_code);
}

/// Whether nothing more is to be expected of any rank here.
bool all_settled(const Board& board) {
  return std::all_of(board.entries().begin(), board.entries().end(), [&](const BoardEntry& entry) {
    return entry.end.load(std::memory_order_acquire) != RankEnd::kRunning ||
           board.process_state_of(entry) != ProcessState::kAlive;
  });
}

void wait_for_posts(const Board& board) {
  const Clock::time_point end = Clock::now() + kOthersMayPost;
  while (!all_settled(board) && Clock::now() < end) sleep_ms(2);
}

/// How many hosts come before ours in rank order: their ranks print first and end us before we would.
int hosts_before(const World::State& s) {
  std::vector<std::string> before;
  for (const std::string& host : s.hosts) {
    if (host == s.host) break;
    if (std::find(before.begin(), before.end(), host) == before.end()) before.push_back(host);
  }
  return static_cast<int>(before.size());
}

}  // namespace

void World::fail(int exit_code, const std::string& message) {
  State& s = *state_;
  BoardEntry& own = s.board.own();
  std::fflush(nullptr);  // what the caller has written is not lost with _exit
  if (!s.mpi) {
    write_line(s, s.rank, message);
    _exit(exit_code);
  }
  own.message.assign(message);
  own.exit_code = exit_code;
  own.end.store(message.empty() ? RankEnd::kPeerFailure : RankEnd::kFailed, std::memory_order_release);

  wait_for_posts(s.board);
  if (s.size > s.host_size) sleep_ms(kLaterHost.count() * std::min(hosts_before(s), 4));

  const Clock::time_point start = Clock::now();
  while (Clock::now() - start < kKillWait) {
    const BoardEntry* lowest = s.board.lowest_failed();
    const bool second_chance = Clock::now() - start > kSecondChance;
    if ((lowest == &own || second_chance) && s.board.claim_printing()) {
      if (lowest == nullptr) {
        write_line(s, s.rank, "a rank failed without a word");
      } else {
        write_line(s, lowest->rank.load(), lowest == &own ? message : lowest->message.text());
      }
      drain_stderr();
      abort_job(s, lowest == nullptr ? exit_code : lowest->exit_code.load());
    }
    sleep_ms(5);
  }
  const BoardEntry* lowest = s.board.lowest_failed();
  _exit(lowest == nullptr ? exit_code : lowest->exit_code.load());
}

bool World::announce_end(int exit_code, const std::string& message) {
  BoardEntry& own = state_->board.own();
  own.message.assign(message);
  own.exit_code = exit_code;
  own.end.store(RankEnd::kFailed, std::memory_order_release);
  return state_->board.claim_printing();
}

}  // namespace shardscope::parallel
