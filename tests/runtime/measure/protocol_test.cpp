#include "runtime/measure/protocol.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>
#include <set>

#include "runtime/measure/figures.hpp"
#include "tests/support/fake_machine.hpp"

using namespace shardscope;
using namespace shardscope::runtime;
using test::FakeMachine;

TEST_CASE("steadiness: medians of three against the three before") {
  const std::vector<double> five(5, 10.0);
  CHECK_FALSE(steadiness(five).has_value());
  const std::vector<double> values = {50, 10, 11, 90, 20, 22, 21};  // the first is out of both windows
  REQUIRE(steadiness(values).has_value());
  CHECK(*steadiness(values) == Approx(21.0 / 11.0 - 1));  // median(20, 22, 21) against median(10, 11, 90)
}

TEST_CASE("relative_noise: half of the median's interval, unknown below six values") {
  CHECK_FALSE(relative_noise(std::vector<double>{1, 2, 3, 4, 5}).has_value());
  // n = 6: the interval is the extremes.
  CHECK(*relative_noise(std::vector<double>{98, 99, 100, 100, 101, 104}) == Approx(3.0 / 100));
  CHECK(*relative_noise(std::vector<double>(9, 7.0)) == 0);
}

TEST_CASE("stop_verdict: a count is reached, or the time ends it and says what is missing") {
  const Protocol count{.iterations = 5, .max_seconds = 10};
  const std::vector<double> two = {1, 1}, three = {1, 1, 1};
  CHECK_FALSE(stop_verdict(count, {.pass = 0, .values = two, .seconds = 1}).enough);
  CHECK(stop_verdict(count, {.pass = 0, .values = three, .seconds = 1}).enough);  // the first visit takes the odd one
  CHECK(stop_verdict(count, {.pass = 1, .values = two, .seconds = 1}).enough);
  CHECK_FALSE(stop_verdict(count, {.pass = 0, .values = three, .seconds = 99}).unmet.has_value());
  const StopVerdict late = stop_verdict(count, {.pass = 0, .values = two, .seconds = 5});
  CHECK(late.enough);
  CHECK(late.unmet == "5 s a visit ended it with 2 of 3 generations");
}

TEST_CASE("stop_verdict: without a count the noise decides, from the least number of generations on") {
  const Protocol noise{.least_generations = 12, .noise_bound = 0.02, .max_seconds = 10};
  const std::vector<double> quiet5(5, 1.0), quiet6(6, 1.0), loud = {1, 1, 1, 1, 1, 1.5};
  CHECK_FALSE(stop_verdict(noise, {.pass = 0, .values = quiet5, .seconds = 1}).enough);
  CHECK(stop_verdict(noise, {.pass = 0, .values = quiet6, .seconds = 1}).enough);
  CHECK_FALSE(stop_verdict(noise, {.pass = 0, .values = loud, .seconds = 1}).enough);
  CHECK(stop_verdict(noise, {.pass = 0, .values = loud, .seconds = 5}).unmet ==
        "5 s a visit ended it with the median known to ±25.0 %, not 2.0 %");
  CHECK(stop_verdict(noise, {.pass = 0, .values = quiet5, .seconds = 5}).unmet ==
        "5 s a visit ended it with 5 generations, not 6");
}

TEST_CASE("stop_verdict: values that are no numbers never pass for quiet") {
  const Protocol noise{.least_generations = 12, .noise_bound = 0.02, .max_seconds = 10};
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    std::vector<double> values(7, 1.0);
    std::fill(values.begin(), values.end(), bad);
    CHECK_FALSE(stop_verdict(noise, {.pass = 0, .values = values, .seconds = 1}).enough);
  }
}

TEST_CASE("stop_verdict: thousands of generations are an end, too") {
  const Protocol noise{.least_generations = 12, .noise_bound = 0.0001, .max_seconds = 1e9};
  std::vector<double> values;
  for (int i = 0; i < 2000; ++i) values.push_back(1 + 0.01 * ((i * 37) % 997));
  CHECK(stop_verdict(noise, {.pass = 0, .values = values, .seconds = 1}).enough);
  CHECK(stop_verdict(noise, {.pass = 0, .values = values, .seconds = 1}).unmet.has_value());
  values.pop_back();
  CHECK_FALSE(stop_verdict(noise, {.pass = 0, .values = values, .seconds = 1}).enough);
}

TEST_CASE("stop_verdict: a count is made in full, however large") {
  const Protocol count{.iterations = 10'000, .max_seconds = 1e9};
  const std::vector<double> many(4999, 1.0);
  CHECK_FALSE(stop_verdict(count, {.pass = 0, .values = many, .seconds = 1}).enough);
}

TEST_CASE("stop_verdict: the second visit makes as many generations as the first, whatever their noise") {
  const Protocol noise{.least_generations = 12, .noise_bound = 0.02, .max_seconds = 10};
  const std::vector<double> quiet(8, 1.0), nine = {1, 2, 1, 2, 1, 2, 1, 2, 1};
  CHECK_FALSE(stop_verdict(noise, {.pass = 1, .first_visit = 9, .values = quiet, .seconds = 1}).enough);
  CHECK(stop_verdict(noise, {.pass = 1, .first_visit = 9, .values = nine, .seconds = 1}).enough);
  CHECK(stop_verdict(noise, {.pass = 1, .first_visit = 9, .values = quiet, .seconds = 5}).unmet ==
        "5 s a visit ended it with 8 of 9 generations");
}

TEST_CASE("round_order: a permutation that depends on seed and round alone") {
  for (const size_t count : {size_t{0}, size_t{1}, size_t{9}}) {
    const std::vector<size_t> order = round_order(count, 3, 5);
    CHECK(order.size() == count);
    CHECK(std::set<size_t>(order.begin(), order.end()).size() == count);
    CHECK(order == round_order(count, 3, 5));
  }
  CHECK(round_order(9, 3, 5) != round_order(9, 3, 6));
  CHECK(round_order(9, 3, 5) != round_order(9, 4, 5));
}

TEST_CASE("round_order: each point is first about as often as any other") {
  std::vector<int> first(4, 0);
  for (int64_t round = 0; round < 4000; ++round) ++first[round_order(4, 1, round)[0]];
  for (const int count : first) CHECK(std::abs(count - 1000) <= 140);  // 5 standard deviations of a binomial
}

TEST_CASE("run_visit: a steady machine is warm after two windows") {
  FakeMachine machine(1, [](size_t, int64_t) { return 0.1; });
  const auto records = run_visit(machine, {.least_generations = 12}, 0, std::vector<int64_t>(1, 0));
  CHECK(records[0].warm_up.generations == 6);
  CHECK(records[0].warm_up.steady == true);
  CHECK(records[0].samples.size() == 6);
  CHECK(machine.counts[0] == 12);
  CHECK(records[0].seconds == Approx(0.6));
  CHECK_FALSE(records[0].unmet.has_value());
  CHECK(records[0].cold_ttft_ms == Approx(20));
}

TEST_CASE("run_visit: warm-up goes on while generations get faster, and its samples are not measured ones") {
  FakeMachine machine(1,
                      [](size_t, int64_t index) { return index < 10 ? 1.0 - 0.05 * static_cast<double>(index) : 0.5; });
  const auto records = run_visit(machine, {.least_generations = 12, .max_seconds = 100}, 0, std::vector<int64_t>(1, 0));
  CHECK(records[0].warm_up.steady == true);
  // The last six are 0.5 from the 16th on; medians of three agree once both windows hold two of them: the 15th.
  CHECK(records[0].warm_up.generations == 15);
  CHECK(records[0].cold_ttft_ms == Approx(200));
  for (const GenerationSample& sample : records[0].samples) CHECK(*sample.latency_ms == Approx(500));
}

TEST_CASE("run_visit: a machine that never settles ends warm-up at its limit and says so") {
  FakeMachine machine(1, [](size_t, int64_t index) { return 0.1 * (1 + static_cast<double>((index / 3) % 2)); });
  const auto records = run_visit(machine, {.iterations = 2, .max_seconds = 100}, 0, std::vector<int64_t>(1, 0));
  CHECK(records[0].warm_up.generations == kLongestWarmUp);
  CHECK(records[0].warm_up.steady == false);
  CHECK(std::abs(*records[0].warm_up.change) >= kSteadyChange);
}

TEST_CASE("run_visit: warm-up of slow generations ends by time, with at least three") {
  FakeMachine machine(1, [](size_t, int64_t) { return 50.0; });
  const auto records = run_visit(machine, {.max_seconds = 60}, 0, std::vector<int64_t>(1, 0));
  CHECK(records[0].warm_up.generations == 3);
  CHECK_FALSE(records[0].warm_up.change.has_value());  // too few to tell
  CHECK(records[0].warm_up.steady == false);           // but a limit ended it
  CHECK(records[0].samples.size() == 1);               // one lasts longer than the visit's half of the time
  CHECK(records[0].unmet.has_value());
}

TEST_CASE("run_visit: warm-up may take a visit's whole time until it can be judged, half of it from then on") {
  FakeMachine slow(1, [](size_t, int64_t index) { return 6.0 + static_cast<double>(index); });  // never steady
  const auto judged = run_visit(slow, {.max_seconds = 120}, 0, std::vector<int64_t>(1, 0));
  CHECK(judged[0].warm_up.generations == 6);  // 51 s: beyond half of 60, but before there were six, not
  REQUIRE(judged[0].warm_up.change.has_value());
  FakeMachine slower(1, [](size_t, int64_t) { return 16.0; });
  CHECK(run_visit(slower, {.max_seconds = 120}, 0, std::vector<int64_t>(1, 0))[0].warm_up.generations == 4);  // 64 s
}

TEST_CASE("run_visit: --warmup is exact") {
  FakeMachine machine(1, [](size_t, int64_t index) { return index < 3 ? 1.0 : 2.0; });
  const auto records =
      run_visit(machine, {.warmup = 6, .iterations = 4, .max_seconds = 100}, 1, std::vector<int64_t>(1, 0));
  CHECK(records[0].warm_up.generations == 6);
  CHECK(records[0].warm_up.steady == false);
  CHECK(*records[0].warm_up.change == Approx(1.0));
  CHECK(records[0].samples.size() == 2);
  CHECK(records[0].samples[0].pass == 1);
}

TEST_CASE("run_visit: points take turns, each in every round until it has enough") {
  // Point 1 is noisy for its first 20 measured generations, points 0 and 2 are quiet.
  FakeMachine machine(3, [](size_t point, int64_t index) {
    return point == 1 && index >= 6 && index < 26 ? 0.1 * (1 + 0.2 * static_cast<double>(index % 5)) : 0.1;
  });
  const auto records =
      run_visit(machine, {.least_generations = 12, .max_seconds = 1000, .seed = 5}, 0, std::vector<int64_t>(3, 0));
  CHECK(records[0].samples.size() == 6);
  CHECK(records[2].samples.size() == 6);
  CHECK(records[1].samples.size() > 6);
  // After 18 of warm-up, the first six rounds hold each point once.
  bool moved = false;
  for (size_t round = 0; round < 6; ++round) {
    const auto begin = machine.order.begin() + static_cast<int64_t>(18 + 3 * round);
    CHECK(std::set<size_t>(begin, begin + 3).size() == 3);
    moved = moved || !std::is_sorted(begin, begin + 3);
  }
  CHECK(moved);  // not always 0, 1, 2
}

TEST_CASE("run_visit: generations with instruments alternate with the others, are warmed, and take of the time") {
  FakeMachine machine(2, [](size_t, int64_t) { return 1.0; });
  machine.instruments = [&](size_t point) {
    machine.now += 0.5;
    return InstrumentedSample{.tpot_ms = static_cast<double>(point) + 1, .ranks = {StepTimes{}}};
  };
  const Protocol protocol{.warmup = 3, .iterations = 8, .max_seconds = 1000, .instrumented = true};
  const std::vector<int64_t> first(2, 0);
  const std::vector<VisitRecord> records = run_visit(machine, protocol, 1, first);
  for (size_t point = 0; point < 2; ++point) {
    CHECK(records[point].samples.size() == 4);
    REQUIRE(records[point].instrumented.size() == 4);
    CHECK(records[point].instrumented[0].pass == 1);
    CHECK(records[point].instrumented[0].tpot_ms == static_cast<double>(point) + 1);
    CHECK(records[point].seconds == Approx(4 * 1.5));
    // Of each point: the first to warm up; then after, before, after, before the round's other generation.
    std::vector<int64_t> others;  // generations without instruments before it
    for (const FakeMachine::At& at : machine.instrumented_at) {
      if (at.point != point) continue;
      others.push_back(
          std::count(machine.order.begin(), machine.order.begin() + static_cast<int64_t>(at.generations), point));
    }
    CHECK(others == std::vector<int64_t>{3, 3 + 1, 3 + 1, 3 + 3, 3 + 3});
  }
}

TEST_CASE("run_visit: a machine without instruments, and a protocol without them, measure the others alone") {
  FakeMachine machine(1, [](size_t, int64_t) { return 1.0; });
  const std::vector<int64_t> first(1, 0);
  const Protocol with{.warmup = 1, .iterations = 4, .max_seconds = 1000, .instrumented = true};
  CHECK(run_visit(machine, with, 0, first)[0].instrumented.empty());
  machine.instruments = [](size_t) { return InstrumentedSample{}; };
  const Protocol without{.warmup = 1, .iterations = 4, .max_seconds = 1000};
  CHECK(run_visit(machine, without, 0, first)[0].instrumented.empty());
  CHECK(machine.instrumented_at.empty());
}

TEST_CASE("run_visit: cold is the first generation after loading, and no other point's") {
  FakeMachine machine(2, [](size_t, int64_t) { return 0.1; });
  const auto records = run_visit(machine, {.warmup = 1, .iterations = 2}, 0, std::vector<int64_t>(2, 0));
  CHECK(records[0].cold_ttft_ms.has_value());
  CHECK_FALSE(records[1].cold_ttft_ms.has_value());
}

TEST_CASE("run_visit: --warmup too short to compare is no verdict") {
  FakeMachine machine(1, [](size_t, int64_t) { return 0.1; });
  const auto records = run_visit(machine, {.warmup = 5, .iterations = 2}, 0, std::vector<int64_t>(1, 0));
  CHECK_FALSE(records[0].warm_up.steady.has_value());
}

TEST_CASE("run_visit: every rank does what rank 0 decided, after each generation") {
  // This rank's clock would go on for long; rank 0 says after three that it is enough, in warm-up and measuring.
  FakeMachine machine(1, [](size_t, int64_t index) { return 1.0 + static_cast<double>(index); });
  machine.decide = [&](bool) { return machine.agreements % 3 == 0; };
  const Protocol protocol{.iterations = 1000, .max_seconds = 1e9};
  const auto records = run_visit(machine, protocol, 0, std::vector<int64_t>(1, 0));
  CHECK(records[0].warm_up.generations == 3);
  CHECK(records[0].samples.size() == 3);
  CHECK(machine.agreements == 6);
  // And where this rank alone thinks that it is enough, it goes on.
  FakeMachine slow(1, [](size_t, int64_t) { return 100.0; });
  slow.decide = [&](bool) { return slow.agreements % 7 == 0; };
  const auto longer = run_visit(slow, {.iterations = 2, .max_seconds = 1}, 0, std::vector<int64_t>(1, 0));
  CHECK(longer[0].warm_up.generations == 7);
  CHECK(longer[0].samples.size() == 7);
}

TEST_CASE("run_visit: every point is warmed before any bandwidth, which brackets the measured generations") {
  FakeMachine machine(2, [](size_t, int64_t) { return 0.1; });
  run_visit(machine, {.warmup = 2, .iterations = 6}, 0, std::vector<int64_t>(2, 0));
  REQUIRE(machine.before_at.size() == 2);
  REQUIRE(machine.after_at.size() == 2);
  for (const auto& at : machine.before_at) CHECK(at.generations == 4);
  for (const auto& at : machine.after_at) CHECK(at.generations == 4 + 6);
}

TEST_CASE("run_visit: progress never falls and stays within the visit") {
  FakeMachine machine(2, [](size_t, int64_t index) { return 0.1 + 0.01 * static_cast<double>(index % 3); });
  run_visit(machine, {.max_seconds = 20}, 0, std::vector<int64_t>(2, 0));
  REQUIRE_FALSE(machine.fractions.empty());
  CHECK(std::is_sorted(machine.fractions.begin(), machine.fractions.end()));
  CHECK(machine.fractions.front() >= 0);
  CHECK(machine.fractions.back() <= 1);
}

TEST_CASE("run_visit: stopping by noise does not spoil the median's interval") {
  // Log-normal generations about 100 ms, that is TPOT 20 ms, noisy enough that the rule decides when to stop.
  std::mt19937_64 random(7);
  std::normal_distribution<double> noise(0, 0.025);
  constexpr int kTrials = 600;
  int covered = 0;
  int64_t generations = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    const Protocol protocol{.warmup = 1, .least_generations = 12, .noise_bound = 0.02, .max_seconds = 1000};
    std::vector<VisitRecord> visits;
    for (int pass = 0; pass < 2; ++pass) {
      FakeMachine machine(1, [&](size_t, int64_t) { return 0.1 * std::exp(noise(random)); });
      const std::vector<int64_t> first = {visits.empty() ? 0 : static_cast<int64_t>(visits[0].samples.size())};
      visits.push_back(run_visit(machine, protocol, pass, first).front());
    }
    PointResult point{.tp = 1, .workload = {.batch = 1, .prompt_tokens = 8, .output_tokens = 5}};
    set_times(point, visits);
    const Interval& interval = point.tpot_ms.p50_interval;
    covered += interval.low && interval.high && *interval.low <= 20 && 20 <= *interval.high ? 1 : 0;
    generations += point.generations;
  }
  CAPTURE(covered, generations);
  CHECK(generations > 14 * kTrials);  // more than the least: the rule was at work
  CHECK(covered >= 0.94 * kTrials);
}

TEST_CASE("Protocol: a single generation needs no second visit") {
  CHECK(Protocol{.iterations = 1}.passes() == 1);
  CHECK(Protocol{.iterations = 2}.passes() == 2);
  CHECK(Protocol{}.passes() == 2);
}
