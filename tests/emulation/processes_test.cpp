// The harness for tests that run as several processes: what a rank that fails, dies, hangs, leaks or prints looks like
// to the test, and that nobody is left.
#include "tests/emulation/processes.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <stdexcept>
#include <string>
#include <thread>

namespace shardscope::test {
namespace {

using End = Outcome::End;
using std::chrono::seconds;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

bool has_children() {
  return waitpid(-1, nullptr, WNOHANG) != -1 || errno != ECHILD;
}

}  // namespace

TEST_CASE("processes: ranks have numbers, meet at barriers and exchange values") {
  const int count = GENERATE(1, 2, 8);
  const std::vector<Outcome> outcomes = in_processes(count, {}, [&](Rank& rank) {
    rank.expect(rank.ranks() == count, "as many ranks as asked for");
    rank.expect(rank.pid(rank.rank()) == getpid(), "its own process");
    for (int turn = 0; turn < 20; ++turn) {
      const std::vector<int> values = rank.exchange(1000 * turn + rank.rank());
      for (int other = 0; other < count; ++other) {
        rank.expect(values[static_cast<size_t>(other)] == 1000 * turn + other, "what each rank shared in this turn");
      }
    }
  });
  CHECK(std::ssize(outcomes) == count);
  CHECK(!has_children());
}

TEST_CASE("processes: a failing rank is told with its number and its words, and others do not wait for it") {
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<Outcome> outcomes = run_in_processes(3, {}, [](Rank& rank) {
    rank.expect(rank.rank() != 1, "not rank one");
    if (rank.rank() == 2) throw std::invalid_argument("another exception");
    rank.barrier();
  });
  CHECK(outcomes[0].end == End::kFailed);  // at its barrier
  CHECK(contains(outcomes[0].message, "rank 1 (pid "));
  CHECK(contains(outcomes[0].message, "has ended"));
  CHECK(outcomes[1].end == End::kFailed);
  CHECK(outcomes[1].message == "expected: not rank one");
  CHECK(contains(outcomes[1].description(), "rank 1 (pid "));
  CHECK(outcomes[2].end == End::kFailed);
  CHECK(outcomes[2].message == "another exception");
  CHECK(std::chrono::steady_clock::now() - begin < seconds(10));
  CHECK(!has_children());
}

TEST_CASE(
    "processes: a rank that dies, as wanted or not, is told apart, one that leaves the body otherwise has failed") {
  const std::vector<Outcome> outcomes = run_in_processes(5, {}, [](Rank& rank) {
    if (rank.rank() == 0) rank.die();
    if (rank.rank() == 1) std::abort();
    if (rank.rank() == 2) _exit(0);
    if (rank.rank() == 3) rank.kill_rank(4);
    if (rank.rank() == 4) std::this_thread::sleep_for(seconds(100));
  });
  CHECK(outcomes[0].end == End::kDied);
  CHECK(outcomes[1].end == End::kSignal);
  CHECK(outcomes[1].signal == SIGABRT);
  CHECK(outcomes[1].output == "");  // Catch's handler for signals does not speak for a child
  CHECK(outcomes[2].end == End::kFailed);
  CHECK(outcomes[3].end == End::kReturned);
  CHECK(outcomes[4].end == End::kDied);
  CHECK(!has_children());
}

TEST_CASE("processes: a rank that hangs is ended at the limit, one that stands still when the others have ended") {
  std::vector<Outcome> outcomes = run_in_processes(
      2, {}, [](Rank& rank) { std::this_thread::sleep_for(seconds(rank.rank() == 0 ? 0 : 100)); }, seconds(1));
  CHECK(outcomes[0].end == End::kReturned);
  CHECK(outcomes[1].end == End::kLimit);
  CHECK(!has_children());

  const auto begin = std::chrono::steady_clock::now();
  outcomes = run_in_processes(2, {}, [](Rank& rank) {
    if (rank.rank() == 0) rank.stop_here();
  });
  CHECK(outcomes[0].end == End::kStopped);
  CHECK(outcomes[1].end == End::kReturned);
  CHECK(std::chrono::steady_clock::now() - begin < seconds(10));
  CHECK(!has_children());
}

TEST_CASE("processes: what a rank prints is kept, and not what the test had printed before") {
  std::cout << "before" << std::flush << " the fork ";
  const std::vector<Outcome> outcomes = run_in_processes(2, {}, [](Rank& rank) {
    std::cout << "rank " << rank.rank() << " speaks";
    std::fprintf(stderr, " twice");
  });
  CHECK(outcomes[0].output == " twicerank 0 speaks");  // the buffered stream comes last
  CHECK(outcomes[1].output == " twicerank 1 speaks");
}

TEST_CASE("processes: the last of much that a rank prints") {
  const std::vector<Outcome> outcomes = run_in_processes(1, {}, [](Rank&) {
    for (int i = 0; i < 100'000; ++i) std::cout << i << "\n";
  });
  CHECK(outcomes[0].end == End::kReturned);
  CHECK(outcomes[0].output.size() == 64 << 10);
  CHECK(contains(outcomes[0].output, "\n99999\n"));
}

TEST_CASE("processes: a barrier that a rank does not come to ends at its limit and names it") {
  const std::vector<Outcome> outcomes = run_in_processes(2, {}, [](Rank& rank) {
    if (rank.rank() == 0) rank.barrier(std::chrono::milliseconds(50));
    if (rank.rank() == 1) rank.stop_here();
  });
  CHECK(outcomes[0].end == End::kFailed);
  CHECK(contains(outcomes[0].message, "rank 1"));
  CHECK(contains(outcomes[0].message, "50 ms"));
}

TEST_CASE("processes: a parent with a second thread is refused") {
  std::atomic<bool> stop = false;
  std::thread other([&] {
    while (!stop) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  CHECK_THROWS_WITH(run_in_processes(1, {}, [](Rank&) {}), Catch::Contains("2 threads"));
  stop = true;
  other.join();
  CHECK(!has_children());
}

#if defined(__SANITIZE_ADDRESS__)
TEST_CASE("processes: a leak in a rank is found") {
  const std::vector<Outcome> outcomes = run_in_processes(2, {}, [](Rank& rank) {
    if (rank.rank() == 1) {
      // Enough that no forgotten copy of a pointer on the stack hides all of them.
      for (int i = 0; i < 100; ++i) new std::string(100, 'x');
    }
  });
  CHECK(outcomes[0].end == End::kReturned);
  CHECK(outcomes[1].end == End::kFailed);
  CHECK(contains(outcomes[1].message, "leaked"));
  CHECK(contains(outcomes[1].output, "LeakSanitizer"));
}
#endif

}  // namespace shardscope::test
