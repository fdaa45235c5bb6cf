#include "kernels/cpu/thread_team.hpp"

#include <catch2/catch.hpp>
#include <chrono>
#include <ctime>
#include <thread>
#include <vector>

#include "kernels/base/error.hpp"

using namespace shardscope;
using kernels::cpu::even_share;
using kernels::cpu::ThreadTeam;

TEST_CASE("even_share: shares are contiguous, cover all and differ by at most one") {
  for (const int64_t count : {0, 1, 5, 64, 1001}) {
    for (const int members : {1, 2, 3, 7}) {
      int64_t next = 0;
      for (int member = 0; member < members; ++member) {
        const Range share = even_share(count, member, members);
        CHECK(share.begin == next);
        CHECK((share.size() == count / members || share.size() == count / members + 1));
        next = share.end;
      }
      CHECK(next == count);
    }
  }
}

TEST_CASE("ThreadTeam: every member runs once, and the caller is member 0") {
  for (const int threads : {1, 2, 5}) {
    ThreadTeam team(threads, {});
    std::vector<int> runs(static_cast<size_t>(threads), 0);
    const auto caller = std::this_thread::get_id();
    bool caller_is_zero = true;
    for (int round = 0; round < 500; ++round) {
      team.run([&](int member) {
        ++runs[member];
        if ((std::this_thread::get_id() == caller) != (member == 0)) caller_is_zero = false;
      });
    }
    CHECK(runs == std::vector<int>(static_cast<size_t>(threads), 500));
    CHECK(caller_is_zero);
  }
}

TEST_CASE("ThreadTeam: a barrier separates phases, with more threads than cores too") {
  for (const int threads : {2, 9}) {
    ThreadTeam team(threads, {});
    std::atomic<int> arrived{0};
    std::atomic<int> early{0};
    for (int round = 0; round < 100; ++round) {
      arrived = 0;
      team.run([&](int) {
        for (int phase = 1; phase <= 3; ++phase) {
          arrived.fetch_add(1);
          team.barrier();
          if (arrived.load() != phase * threads) early.fetch_add(1);
          team.barrier();
        }
      });
    }
    CHECK(early.load() == 0);
  }
}

TEST_CASE("ThreadTeam: no sleeper is forgotten, however late members come") {
  ThreadTeam team(3, {});
  int64_t sums[3] = {0, 0, 0};
  for (int round = 0; round < 5000; ++round) {
    team.run([&](int member) {
      for (volatile int delay = 0; delay < (member * 37 + round) % 400;) delay = delay + 1;
      team.barrier();
      for (volatile int delay = 0; delay < (member * 91 + round) % 300;) delay = delay + 1;
      team.barrier();
      sums[member] += round;
    });
  }
  CHECK((sums[0] == sums[1] && sums[1] == sums[2]));
}

TEST_CASE("ThreadTeam: an idle team sleeps") {
  ThreadTeam team(3, {});
  team.run([](int) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(5));  // spinning ends
  const std::clock_t before = std::clock();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const double used_ms = 1000.0 * static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  CHECK(used_ms < 20.0);  // of all threads; spinning ones would have used 100 to 200
}

TEST_CASE("ThreadTeam: no threads or too few cores are bugs") {
  CHECK_THROWS_AS(ThreadTeam(0, {}), BugError);
  CHECK_THROWS_AS(ThreadTeam(2, {0}), BugError);
}
