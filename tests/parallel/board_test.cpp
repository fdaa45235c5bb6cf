// The board and the watch on plain memory: who is named for a wait that does not end.
#include "parallel/board.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <thread>

#include "kernels/base/error.hpp"
#include "parallel/watch.hpp"
#include "parallel/world.hpp"

namespace shardscope::parallel {
namespace {

using std::chrono::milliseconds;

/// A host of `size` ranks in this process; we are rank 0, the test plays the others.
struct Host {
  explicit Host(int size) : memory(Board::board_bytes(size)), hosts(size, "pluto"), everyone(size) {
    Board::clear(memory, size);
    for (int rank = 0; rank < size; ++rank) {
      Board(memory, rank, size).sign_in(rank);
      everyone[rank] = rank;
    }
    board = Board(memory, 0, size);
    watch = Watch(board, &hosts);
    watch.set_timeout(milliseconds(100));
  }

  /// What the wait ends with; `others` is called before each look.
  template <typename Others>
  std::string wait(const Others& others) {
    watch.begin("all-reduce", everyone);
    for (int look = 0; look < 100; ++look) {
      others();
      try {
        watch.check();
      } catch (const PeerFailure&) {
        return "peer failure";
      } catch (const SystemError& error) {
        return error.what();
      }
      std::this_thread::sleep_for(milliseconds(5));
    }
    return "no end";
  }

  std::vector<std::byte> memory;
  std::vector<std::string> hosts;
  std::vector<int> everyone;
  Board board;
  Watch watch;
};

TEST_CASE("Watch: a rank that makes no progress is named with host and deed") {
  Host host(3);
  host.board.entries()[2].doing.assign("prefill");
  const std::string error = host.wait([&] { host.board.entries()[1].beat(); });
  CHECK(error.starts_with("rank 2 made no progress for 0.1 s, host pluto, last doing 'prefill'"));
}

TEST_CASE("Watch: the culprit is named, not a rank that waits for it") {
  Host host(3);
  const std::string error = host.wait([&] { host.board.entries()[1].poll(); });
  CHECK(error.starts_with("rank 2 made no progress"));
}

TEST_CASE("Watch: several culprits are all named") {
  Host host(4);
  const std::string error = host.wait([&] { host.board.entries()[2].poll(); });
  CHECK(error.starts_with("ranks 1, 3 made no progress"));
}

TEST_CASE("Watch: where all ranks wait, all are named") {
  Host host(3);
  const std::string error = host.wait([&] {
    host.board.entries()[1].poll();
    host.board.entries()[2].poll();
  });
  CHECK(error.starts_with("no progress for 0.1 s of ranks 1, 2, all of them waiting"));
}

TEST_CASE("Watch: a rank outside the awaited ones is found when the awaited ones wait for it") {
  Host host(3);
  host.everyone = {1};
  const std::string error = host.wait([&] { host.board.entries()[1].poll(); });
  CHECK(error.starts_with("rank 2 made no progress"));
}

TEST_CASE("Watch: ranks that wait for a working rank are patient") {
  Host host(3);
  host.everyone = {1};
  const std::string error = host.wait([&] {
    host.board.entries()[1].poll();
    host.board.entries()[2].beat();
  });
  CHECK(error == "no end");
}

TEST_CASE("Watch: an awaited rank of another host is named after the timeout") {
  Host host(2);
  host.hosts.push_back("charon");
  host.everyone = {0, 1, 2};
  const std::string error = host.wait([&] { host.board.entries()[1].poll(); });
  CHECK(error.starts_with("no progress for 0.1 s of ranks 2 on charon"));
}

TEST_CASE("Watch: a failed peer ends the wait at once") {
  Host host(2);
  host.board.entries()[1].end = RankEnd::kFailed;
  CHECK(host.wait([] {}) == "peer failure");
}

TEST_CASE("Watch: a job that was suspended as a whole blames nobody at once") {
  Host host(2);
  host.watch.set_timeout(milliseconds(1500));
  host.watch.begin("all-reduce", host.everyone);
  std::this_thread::sleep_for(milliseconds(1600));
  CHECK_NOTHROW(host.watch.check());
}

TEST_CASE("Watch: a rank whose process is gone is named long before the timeout") {
  Host host(2);
  host.watch.set_timeout(milliseconds(60'000));
  const pid_t child = fork();
  if (child == 0) _exit(0);
  host.board.entries()[1].pid = child;
  const std::string error = host.wait([] {});  // a zombie
  CHECK(error.starts_with("rank 1 has died"));
  waitpid(child, nullptr, 0);
  CHECK(host.wait([] {}).starts_with("rank 1 has died"));
}

TEST_CASE("process_state: running, stopped, zombie and gone are told apart") {
  const pid_t child = fork();
  if (child == 0) {
    for (;;) pause();
  }
  CHECK(process_state(child) == ProcessState::kAlive);
  kill(child, SIGSTOP);
  waitpid(child, nullptr, WUNTRACED);
  CHECK(process_state(child) == ProcessState::kStopped);
  kill(child, SIGKILL);
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
  CHECK(process_state(child) == ProcessState::kGone);
  waitpid(child, nullptr, 0);
  CHECK(process_state(child) == ProcessState::kGone);
}

TEST_CASE("SharedText: cuts what is too long") {
  SharedText<8> text;
  CHECK(text.text().empty());
  text.assign("0123456789");
  CHECK(text.text() == "0123456");
  text.assign("ab");
  CHECK(text.text() == "ab");
}

TEST_CASE("Board: the lowest failing rank is found and only one may print") {
  Host host(4);
  CHECK(host.board.lowest_failed() == nullptr);
  host.board.entries()[1].end = RankEnd::kPeerFailure;
  host.board.entries()[3].end = RankEnd::kFailed;
  host.board.entries()[2].end = RankEnd::kFailed;
  CHECK(host.board.lowest_failed() == &host.board.entries()[2]);
  CHECK(host.board.claim_printing());
  CHECK_FALSE(Board(host.memory, 2, 4).claim_printing());
}

}  // namespace
}  // namespace shardscope::parallel
