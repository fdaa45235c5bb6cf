// Readings of /proc and /sys in made-up roots, one of this host, and the shares between two.
#include "topology/activity.hpp"

#include <unistd.h>

#include <limits>

#include <catch2/catch.hpp>

#include "tests/topology/fake_root.hpp"

namespace shardscope::topology {
namespace {

using test::FakeRoot;

/// Four cores with 100, 200, 300 and 500 stolen ticks, the last numbered 12; guest time behind them.
constexpr const char* kStat =
    "cpu  9 9 9 9 9 9 9 1100 7 7\n"
    "cpu0 1 2 3 4 5 6 7 100 8 9\n"
    "cpu1 1 2 3 4 5 6 7 200 8 9\n"
    "cpu2 1 2 3 4 5 6 7 300 8 9\n"
    "cpu12 1 2 3 4 5 6 7 500 8 9\n"
    "intr 12345 0 0\nctxt 99\nbtime 1700000000\n";

Activity read(const FakeRoot& root, std::vector<int> cores) {
  return ActivityProbe(std::move(cores), root.path()).read();
}

double seconds_of_ticks(double ticks) {
  return ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

void set_clock(const FakeRoot& root, int core, const std::string& khz) {
  root.write("/sys/devices/system/cpu/cpu" + std::to_string(core) + "/cpufreq/scaling_cur_freq", khz);
}

void set_thread(const FakeRoot& root, int thread, const std::string& schedstat) {
  root.write("/proc/self/task/" + std::to_string(thread) + "/schedstat", schedstat);
}

TEST_CASE("ActivityProbe: steal of the watched cores alone, summed") {
  const FakeRoot root;
  root.write("/proc/stat", kStat);
  CHECK(read(root, {0}).stolen_seconds == Approx(seconds_of_ticks(100)));
  CHECK(read(root, {0, 1, 2, 12}).stolen_seconds == Approx(seconds_of_ticks(1100)));
  CHECK(read(root, {12, 1}).stolen_seconds == Approx(seconds_of_ticks(700)));
}

TEST_CASE("ActivityProbe: a core that several threads share counts once") {
  const FakeRoot root;
  root.write("/proc/stat", kStat);
  const ActivityProbe probe({2, 0, 2, 0, 2}, root.path());
  CHECK(probe.cores() == 2);
  CHECK(probe.read().stolen_seconds == Approx(seconds_of_ticks(400)));
}

TEST_CASE("ActivityProbe: steal is unknown unless every watched core has it") {
  const FakeRoot root;
  root.write("/proc/stat", kStat);
  CHECK_FALSE(read(root, {}).stolen_seconds);
  CHECK_FALSE(read(root, {0, 3}).stolen_seconds);
  for (const char* text :
       {"", "garbage", "cpu0", "cpu0 1 2 3 4 5 6 7\n", "cpu0 1 2 3 4 5 6 7 -5\n", "cpu0 1 2 3 4 5 6 7 many 8 9\n",
        "cpu0x 1 2 3 4 5 6 7 100\n", "\n\ncpu0 1 2 3 4 5 6 7 8\n", "cpu0 1 2 3 4 5 6 7 99999999999999999999 8\n"}) {
    INFO(text);
    root.write("/proc/stat", text);
    CHECK_FALSE(read(root, {0}).stolen_seconds);
  }
}

TEST_CASE("ActivityProbe: waiting of all threads of this process, summed") {
  const FakeRoot root;
  set_thread(root, 100, "5000000000 1500000000 42\n");
  set_thread(root, 101, "1 250000000 7\n");
  set_thread(root, 102, "0 0 0\n");               // has just begun
  set_thread(root, 4194303, "1 1000000000 1\n");  // the largest number there is
  CHECK(read(root, {}).waited_seconds == Approx(2.75));
}

TEST_CASE("ActivityProbe: a thread that ended while it was read is left out") {
  const FakeRoot root;
  set_thread(root, 100, "5000000000 1500000000 42\n");
  set_thread(root, 101, "");
  root.make_folder("/proc/self/task/102");
  CHECK(read(root, {}).waited_seconds == Approx(1.5));
}

TEST_CASE("ActivityProbe: waiting is unknown where the kernel keeps no account, or writes something else") {
  const FakeRoot root;
  CHECK_FALSE(read(root, {0}).waited_seconds);
  set_thread(root, 100, "0 0 0\n");
  set_thread(root, 101, "0 0 0\n");
  CHECK_FALSE(read(root, {0}).waited_seconds);
  for (const char* text : {"7", "5 x 1", "-5 3 1", "5 -3 1", "5 nan 1", "5,3,1"}) {
    INFO(text);
    set_thread(root, 101, text);
    CHECK_FALSE(read(root, {0}).waited_seconds);
  }
}

TEST_CASE("ActivityProbe: mean clock of the watched cores that tell one") {
  const FakeRoot root;
  CHECK_FALSE(read(root, {0, 1}).mhz);
  set_clock(root, 0, "2000000\n");
  set_clock(root, 1, "3000000\n");
  set_clock(root, 9, "1000000\n");
  CHECK(read(root, {0, 1, 5}).mhz == Approx(2500));
  CHECK(read(root, {9}).mhz == Approx(1000));
  for (const char* text : {"", "<unknown>\n", "0\n", "-5\n", "inf\n", "3000000 kHz\n"}) {
    INFO(text);
    set_clock(root, 1, text);
    CHECK(read(root, {0, 1}).mhz == Approx(2000));
    CHECK_FALSE(read(root, {1}).mhz);
  }
}

TEST_CASE("ActivityProbe: folders where files should be are read as nothing") {
  const FakeRoot root;
  root.make_folder("/proc/stat");
  root.make_folder("/proc/self/task/1/schedstat");
  root.make_folder("/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq");
  const Activity activity = read(root, {0});
  CHECK_FALSE(activity.stolen_seconds);
  CHECK_FALSE(activity.waited_seconds);
  CHECK_FALSE(activity.mhz);
}

TEST_CASE("ActivityProbe: this host's own counters are none or not negative, and do not fall") {
  const ActivityProbe probe({0});
  const Activity before = probe.read();
  const Activity after = probe.read();
  CHECK(before.stolen_seconds.value_or(0) >= 0);
  CHECK(before.waited_seconds.value_or(0) >= 0);
  CHECK(before.mhz.value_or(1) > 0);
  CHECK(after.stolen_seconds.has_value() == before.stolen_seconds.has_value());
  CHECK(after.stolen_seconds.value_or(0) >= before.stolen_seconds.value_or(0));
}

TEST_CASE("shares_between: of the cores' time and of the threads' time") {
  const Activity before{.stolen_seconds = 10, .waited_seconds = 100, .mhz = 1000};
  const Activity after{.stolen_seconds = 11, .waited_seconds = 103, .mhz = 3000};
  const ActivityShares shares = shares_between(before, after, 5, 4, 2);
  CHECK(shares.stolen_share == Approx(0.05));  // 1 s of 20 core seconds
  CHECK(shares.waited_share == Approx(0.3));   // 3 s of 10 thread seconds
  CHECK(shares.mhz == 3000);
}

TEST_CASE("shares_between: a counter that fell is no share, one that ran ahead is the whole") {
  const Activity low{.stolen_seconds = 1, .waited_seconds = 1};
  const Activity high{.stolen_seconds = 9, .waited_seconds = 9};
  const ActivityShares fell = shares_between(high, low, 1, 1, 1);
  CHECK(fell.stolen_share == 0.0);
  CHECK(fell.waited_share == 0.0);
  const ActivityShares ran_ahead = shares_between(low, high, 1, 1, 1);
  CHECK(ran_ahead.stolen_share == 1.0);
  CHECK(ran_ahead.waited_share == 1.0);
}

TEST_CASE("shares_between: nothing where either reading lacks the counter, or there is no time") {
  const Activity full{.stolen_seconds = 1, .waited_seconds = 1, .mhz = 2000};
  const Activity later{.stolen_seconds = 2, .waited_seconds = 2, .mhz = 2000};
  for (const ActivityShares& shares :
       {shares_between({}, later, 1, 1, 1), shares_between(full, {}, 1, 1, 1), shares_between(full, later, 0, 1, 1),
        shares_between(full, later, -1, 1, 1), shares_between(full, later, 1, 0, 0),
        shares_between(full, later, std::numeric_limits<double>::quiet_NaN(), 1, 1)}) {
    CHECK_FALSE(shares.stolen_share);
    CHECK_FALSE(shares.waited_share);
  }
  CHECK_FALSE(shares_between(full, {}, 1, 1, 1).mhz);
  const ActivityShares stolen_alone = shares_between({.stolen_seconds = 1}, {.stolen_seconds = 1.5}, 1, 1, 1);
  CHECK(stolen_alone.stolen_share == Approx(0.5));
  CHECK_FALSE(stolen_alone.waited_share);
}

TEST_CASE("shares_between: a thread that ended between the readings does not make the share negative") {
  const FakeRoot root;
  set_thread(root, 1, "1000000000 1000000000 1\n");
  set_thread(root, 2, "1000000000 8000000000 1\n");
  const Activity before = read(root, {});
  root.remove("/proc/self/task/2");
  set_thread(root, 1, "2000000000 1500000000 1\n");
  const Activity after = read(root, {});
  CHECK(after.waited_seconds == Approx(1.5));
  CHECK(shares_between(before, after, 1, 1, 1).waited_share == 0.0);
}

}  // namespace
}  // namespace shardscope::topology
