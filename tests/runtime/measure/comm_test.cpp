#include "runtime/measure/comm.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <fstream>
#include <limits>
#include <map>

#include <nlohmann/json.hpp>

#include "kernels/base/error.hpp"
#include "tests/support/fake_sum_bench.hpp"
#include "tests/support/sum_rows.hpp"
#include "tests/support/thread_group.hpp"

using namespace shardscope;
using namespace shardscope::runtime;
using Catch::Matchers::Contains;
using parallel::SumTimes;
using test::FakeSumBench;
using test::sum_row_of;

namespace {

const std::vector<parallel::SumBench::Way> kTwoWays = {{"shm", 1 << 20, ""}, {"mpi", 1 << 20, ""}};
constexpr SumCase kSum{.tp = 2, .count = 256};

std::vector<SumRow> alone(FakeSumBench& bench, const SumProtocol& protocol) {
  test::Meeting meeting(1);
  test::ThreadCommunicator communicator(meeting, 0, 1);
  return measure_sum(
      {.bench = bench, .control = communicator, .now_seconds = [&] { return bench.seconds; }, .tell = {}}, kSum,
      {"shm", "mpi"}, protocol);
}

}  // namespace

TEST_CASE("sum_bandwidth: the all-reduce columns of the bus bandwidth cases") {
  std::ifstream in(SHARDSCOPE_TEST_DATA "/cases/A26-metrics-topology/bus-bandwidth.json");
  const nlohmann::json cases = nlohmann::json::parse(in);
  REQUIRE(cases.size() >= 5);
  for (const nlohmann::json& entry : cases) {
    CAPTURE(entry.dump());
    const SumBandwidth bandwidth = sum_bandwidth(entry.at("bytes"), entry.at("time_us"), entry.at("ranks"));
    constexpr double kLastDigit = 1e-4;
    CHECK(std::abs(bandwidth.algbw_gb_per_s - entry.at("algbw_GBps").get<double>()) <= kLastDigit / 2 + 1e-9);
    CHECK(std::abs(bandwidth.busbw_gb_per_s - entry.at("all_reduce_busbw_GBps").get<double>()) <=
          kLastDigit / 2 + 1e-9);
  }
}

TEST_CASE("combine: the slowest rank of a sample, the shortest call as transfer, the rest as mean wait") {
  const std::vector<SumTimes> ranks = {{.sample_us = {10, 20}, .calls_a_sample = 4, .inside_us = {5, 2, 9}, .wrong = 1},
                                       {.sample_us = {30, 5}, .calls_a_sample = 4, .inside_us = {3, 2, 12}, .wrong = 0},
                                       {.sample_us = {20, 6}, .calls_a_sample = 4, .inside_us = {4, 8, 6}, .wrong = 2}};
  const SumSamples group = combine(ranks);
  CHECK(group.sample_us == std::vector<double>{30, 20});
  CHECK(group.transfer_us == std::vector<double>{3, 2, 6});
  CHECK(group.wait_us == std::vector<double>{4 - 3, 4 - 2, 9 - 6});  // means 4, 4, 9
  CHECK(group.calls_a_sample == 4);
  CHECK(group.wrong == 3);
}

TEST_CASE("combine: a rank that comes late adds to the others' wait, not to the transfer") {
  constexpr double kTransfer = 7, kLate = 200;
  // The late rank waits for nobody; each of the others has its own call as long as the delay more.
  const std::vector<SumTimes> ranks = {{.sample_us = {1}, .inside_us = {kTransfer + kLate}},
                                       {.sample_us = {1}, .inside_us = {kTransfer + kLate}},
                                       {.sample_us = {1}, .inside_us = {kTransfer}}};
  const SumSamples group = combine(ranks);
  CHECK(group.transfer_us == std::vector<double>{kTransfer});
  CHECK(group.wait_us[0] == Approx(kLate * 2 / 3));
}

TEST_CASE("combine: where ranks note their own wait, wait and transfer are the means of what is before and after") {
  const std::vector<SumTimes> ranks = {{.sample_us = {1}, .inside_us = {10, 300}, .own_wait_us = {2, 290}},
                                       {.sample_us = {1}, .inside_us = {14, 20}, .own_wait_us = {9, 1}},
                                       {.sample_us = {1}, .inside_us = {12, 310}, .own_wait_us = {4, 297}}};
  const SumSamples group = combine(ranks);
  CHECK(group.wait_from == WaitFrom::kOwn);
  REQUIRE(group.wait_us.size() == 2);
  CHECK(group.wait_us[0] == Approx(5.0));
  CHECK(group.wait_us[1] == Approx(196.0));
  CHECK(group.transfer_us[0] == Approx((8 + 5 + 8) / 3.0));  // not the least, of the call of 10
  CHECK(group.transfer_us[1] == Approx((10 + 19 + 13) / 3.0));
  const SumRow row = sum_row(kSum, "one-shot", group);
  CHECK(row.wait_from == WaitFrom::kOwn);
  CHECK(std::string(wait_from_name(*row.wait_from)) == "own");
}

TEST_CASE("combine: a rank that comes late adds its delay to each other's own wait") {
  constexpr double kTransfer = 7, kLate = 200, kFirstWait = 1;
  const auto ranks = [&](double late) {
    const SumTimes waits{
        .sample_us = {1}, .inside_us = {kFirstWait + late + kTransfer}, .own_wait_us = {kFirstWait + late}};
    return std::vector<SumTimes>{
        waits, waits, {.sample_us = {1}, .inside_us = {kFirstWait + kTransfer}, .own_wait_us = {kFirstWait}}};
  };
  const SumSamples together = combine(ranks(0));
  const SumSamples apart = combine(ranks(kLate));
  CHECK(apart.transfer_us[0] == Approx(together.transfer_us[0]));
  CHECK(apart.wait_us[0] - together.wait_us[0] == Approx(kLate * 2 / 3));
}

TEST_CASE("combine: times of different calls are refused") {
  const SumTimes two{.sample_us = {1, 2}, .inside_us = {1, 2}};
  CHECK_THROWS_AS(combine(std::vector<SumTimes>{}), BugError);
  CHECK_THROWS_AS(combine(std::vector<SumTimes>{two, {.sample_us = {1}, .inside_us = {1, 2}}}), BugError);
  CHECK_THROWS_AS(combine(std::vector<SumTimes>{two, {.sample_us = {1, 2}, .inside_us = {1}}}), BugError);
  CHECK_THROWS_AS(combine(std::vector<SumTimes>{two, {.sample_us = {1, 2}, .calls_a_sample = 2, .inside_us = {1, 2}}}),
                  BugError);
  CHECK_THROWS_AS(
      combine(std::vector<SumTimes>{two, {.sample_us = {1, 2}, .inside_us = {1, 2}, .own_wait_us = {0, 0}}}), BugError);
}

TEST_CASE("sum_row: medians, and what is not known is left open") {
  const SumSamples samples{.sample_us = {4, 2, 3}, .transfer_us = {1, 5, 2}, .wait_us = {0, 9, 4}, .wrong = 6};
  const SumRow row = sum_row(kSum, "shm", samples);
  CHECK(row.time_us.p50 == 3.0);
  CHECK(row.time_us.n == 3);
  CHECK(row.transfer_us == 2.0);
  CHECK(row.wait_us == 4.0);
  CHECK(row.wait_from == WaitFrom::kMinimumOverRanks);
  CHECK(std::string(wait_from_name(*row.wait_from)) == "minimum_over_ranks");
  CHECK(row.wrong == 6);
  REQUIRE(row.bandwidth.has_value());
  CHECK(row.bandwidth->algbw_gb_per_s == Approx(1024 / 3.0 * 1e-3));
  CHECK(row.bandwidth->busbw_gb_per_s == row.bandwidth->algbw_gb_per_s);  // 2 ranks
  const SumRow untimed = sum_row(kSum, "shm", {.sample_us = {0, 0}});
  CHECK_FALSE(untimed.bandwidth.has_value());
  CHECK_FALSE(untimed.transfer_us.has_value());
  CHECK_FALSE(untimed.wait_us.has_value());
  CHECK_FALSE(untimed.wait_from.has_value());
  CHECK_FALSE(sum_row(kSum, "shm", {}).time_us.p50.has_value());
}

TEST_CASE("next_samples: a count is reached exactly, whatever the size of the turns") {
  const SumProtocol protocol{.iterations = 25, .max_seconds = 10};
  CHECK(next_samples(protocol, {}, 0).samples == 10);
  CHECK(next_samples({.iterations = 3}, {}, 0).samples == 3);
  CHECK(next_samples(protocol, std::vector<double>(10, 1.0), 1e-5).samples == 15);
  const NextSamples done = next_samples(protocol, std::vector<double>(25, 1.0), 99);
  CHECK(done.samples == 0);
  CHECK_FALSE(done.unmet.has_value());
  const NextSamples late = next_samples(protocol, std::vector<double>(10, 1.0), 10);
  CHECK(late.samples == 0);
  CHECK(late.unmet == "10 s ended it with 10 of 25 samples");
}

TEST_CASE("next_samples: without a count the noise decides, from the least number on") {
  const SumProtocol protocol{.least_samples = 20, .most_samples = 50, .noise_bound = 0.02, .max_seconds = 1};
  std::vector<double> quiet(20, 5.0), loud;
  for (int i = 0; i < 20; ++i) loud.push_back(i % 2 == 0 ? 1.0 : 2.0);
  CHECK(next_samples(protocol, std::span(quiet).first(19), 0.001).samples > 0);
  CHECK(next_samples(protocol, quiet, 0.001).samples == 0);
  CHECK_FALSE(next_samples(protocol, quiet, 99).unmet.has_value());
  CHECK(next_samples(protocol, loud, 0.001).samples == 30);  // up to the most
  CHECK_THAT(*next_samples(protocol, loud, 1).unmet, Contains("1 s ended it with the median known to ±"));
  CHECK(*next_samples(protocol, std::span(quiet).first(7), 1).unmet == "1 s ended it with 7 samples, not 20");
  loud.resize(50, 3.0);
  CHECK_THAT(*next_samples(protocol, loud, 0.001).unmet, Contains("50 samples ended it with the median"));
}

TEST_CASE("next_samples: a turn of slow samples is short") {
  const SumProtocol protocol{.max_seconds = 0.8};
  CHECK(next_samples(protocol, std::vector<double>(10, 1.0), 0.05).samples == 20);  // 5 ms each, an eighth of the time
  CHECK(next_samples(protocol, std::vector<double>(10, 1.0), 0.5).samples == 10);
  CHECK(next_samples(protocol, std::vector<double>(10, 1.0), 1e-6).samples == 100);
}

TEST_CASE("next_samples: values that are no numbers never pass for quiet") {
  const SumProtocol protocol{.least_samples = 20, .most_samples = 50};
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    CHECK(next_samples(protocol, std::vector<double>(20, bad), 0.001).samples > 0);
  }
}

TEST_CASE("measure_sum: ways take turns in an order of their own, each warmed before its first") {
  FakeSumBench bench(kTwoWays, [](const std::string& way, int64_t) { return way == "shm" ? 2.0 : 3.0; });
  const std::vector<SumRow> rows = alone(bench, {.warmup = 7, .iterations = 400, .seed = 3});
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].way == "shm");
  CHECK(rows[0].time_us.p50 == 2.0);
  CHECK(rows[1].time_us.p50 == 3.0);
  for (const SumRow& row : rows) CHECK(row.time_us.n == 400);
  std::map<std::string, int> turns;
  bool swapped = false;
  for (size_t i = 0; i < bench.tasks.size(); ++i) {
    const parallel::SumTask& task = bench.tasks[i];
    CHECK(task.count == kSum.count);
    CHECK(task.warm_up == (turns[task.way]++ == 0 ? 7 : 2));
    const int lead = turns["shm"] - turns["mpi"];
    CHECK(std::abs(lead) <= 1);  // nobody is a round ahead
    if (i % 2 == 0 && i > 0) swapped = swapped || task.way != bench.tasks[i - 2].way;
  }
  CHECK(turns["shm"] >= 4);
  CHECK(swapped);
}

TEST_CASE("measure_sum: each way ends by its own rule") {
  FakeSumBench bench(kTwoWays, [](const std::string& way, int64_t i) {
    if (way == "shm") return 5.0;
    return i % 2 == 0 ? 1000.0 : 9000.0;  // never quiet
  });
  const std::vector<SumRow> rows = alone(bench, {.least_samples = 40, .max_seconds = 0.5});
  CHECK_FALSE(rows[0].unmet.has_value());
  CHECK(rows[0].time_us.n >= 40);
  REQUIRE(rows[1].unmet.has_value());
  CHECK_THAT(*rows[1].unmet, Contains("0.5 s ended it"));
  CHECK(rows[1].time_us.n * 0.005 <= 0.75);  // no more than a turn beyond the limit
}

TEST_CASE("measure_sum: wrong sums of every turn are counted") {
  FakeSumBench bench(kTwoWays, [](const std::string&, int64_t) { return 1.0; });
  bench.wrong["mpi"] = 3;
  const std::vector<SumRow> rows = alone(bench, {.iterations = 10});
  CHECK(rows[0].wrong == 0);
  CHECK(rows[1].wrong == 3);
}

TEST_CASE("measure_sum: all ranks go the same way by rank 0's clock, and have the same rows") {
  constexpr int kRanks = 3;
  std::vector<std::vector<SumRow>> rows(kRanks);
  std::vector<size_t> turns(kRanks);
  test::run_group(kRanks, kernels::ActivationMode::kAuto, [&](RankContext context) {
    const int rank = context.communicator.rank();
    FakeSumBench bench(kTwoWays, [&](const std::string& way, int64_t) { return (way == "shm" ? 10.0 : 20.0) + rank; });
    // The others' clocks say that no time, or all of it, has gone by.
    const auto now = [&] {
      return rank == 0 ? bench.seconds : static_cast<double>(bench.tasks.size()) * 1000 * (rank - 1);
    };
    rows[rank] = measure_sum({.bench = bench, .control = context.communicator, .now_seconds = now, .tell = {}},
                             {.tp = kRanks, .count = 8}, {"shm", "mpi"}, {.least_samples = 60});
    turns[rank] = bench.tasks.size();
  });
  for (int rank = 0; rank < kRanks; ++rank) {
    REQUIRE(rows[rank].size() == 2);
    CHECK(turns[rank] == turns[0]);
    CHECK(rows[rank][0].time_us.p50 == 12.0);  // rank 2 is the slowest
    CHECK(rows[rank][0].transfer_us == 10.0);
    CHECK(rows[rank][0].wait_us == 1.0);  // 0, 1, 2
    CHECK(rows[rank][1].time_us.p50 == 22.0);
    CHECK(rows[rank][1].time_us.n == rows[0][1].time_us.n);
  }
}

TEST_CASE("measure_sum: own waits of all ranks, of every turn, go into the rows") {
  constexpr int kRanks = 3;
  std::vector<std::vector<SumRow>> rows(kRanks);
  test::run_group(kRanks, kernels::ActivationMode::kAuto, [&](RankContext context) {
    const int rank = context.communicator.rank();
    FakeSumBench bench(kTwoWays, [&](const std::string&, int64_t) { return 10.0 + rank; });
    bench.own_wait_us = 3.0 * rank;
    rows[rank] = measure_sum(
        {.bench = bench, .control = context.communicator, .now_seconds = [&] { return bench.seconds; }, .tell = {}},
        {.tp = kRanks, .count = 8}, {"shm"}, {.iterations = 30});
  });
  for (const std::vector<SumRow>& its : rows) {
    REQUIRE(its.size() == 1);
    CHECK(its[0].wait_from == WaitFrom::kOwn);
    CHECK(*its[0].wait_us == Approx(3.0));           // 0, 3, 6
    CHECK(*its[0].transfer_us == Approx(24.0 / 3));  // 10, 8, 6
  }
}

TEST_CASE("crossovers: the fastest from the smallest size on, and each that is clearly faster") {
  const std::vector<SumRow> rows = {sum_row_of(2, 4096, "mpi", 9),  sum_row_of(2, 4096, "shm", 3),
                                    sum_row_of(2, 1024, "shm", 1),  sum_row_of(2, 1024, "mpi", 2),
                                    sum_row_of(2, 8192, "shm", 20), sum_row_of(2, 8192, "mpi", 15)};
  const std::vector<Crossover> found = crossovers(rows);
  REQUIRE(found.size() == 2);
  CHECK((found[0].from_bytes == 1024 && found[0].way == "shm" && found[0].tp == 2));
  CHECK((found[1].from_bytes == 8192 && found[1].way == "mpi"));
}

TEST_CASE("crossovers: a lead within the noise changes nothing") {
  std::vector<SumRow> rows = {sum_row_of(2, 1024, "shm", 1), sum_row_of(2, 1024, "mpi", 2),
                              sum_row_of(2, 2048, "shm", 2.05, 1.5), sum_row_of(2, 2048, "mpi", 2, 1.5)};
  CHECK(crossovers(rows).size() == 1);
  rows[2] = sum_row_of(2, 2048, "shm", 2.05);
  rows[3] = sum_row_of(2, 2048, "mpi", 2);
  CHECK(crossovers(rows).size() == 2);
  rows[3] = sum_row({.tp = 2, .count = 512}, "mpi", {.sample_us = {2, 2, 2}});  // too few to have an interval
  CHECK(crossovers(rows).size() == 1);
}

TEST_CASE("crossovers: wrong sums and ways without a figure have no part") {
  std::vector<SumRow> rows = {sum_row_of(2, 1024, "shm", 1), sum_row_of(2, 1024, "mpi", 2),
                              sum_row_of(2, 2048, "mpi", 3)};  // too large for shm
  std::vector<Crossover> found = crossovers(rows);
  REQUIRE(found.size() == 2);
  CHECK((found[1].way == "mpi" && found[1].from_bytes == 2048));
  rows[0].wrong = 1;
  found = crossovers(rows);
  REQUIRE(found.size() == 1);
  CHECK(found[0].way == "mpi");
  CHECK(crossovers(std::vector<SumRow>{}).empty());
}

TEST_CASE("crossovers: each degree, type and mode has its own") {
  std::vector<SumRow> rows = {sum_row_of(2, 1024, "a", 1), sum_row_of(4, 1024, "a", 3), sum_row_of(4, 1024, "b", 2),
                              sum_row_of(2, 1024, "b", 1.5)};
  rows.push_back(sum_row_of(2, 1024, "b", 0.5));
  rows.back().sum.graph = true;
  rows.push_back(sum_row_of(2, 1024, "c", 0.5));
  rows.back().sum.dtype = kernels::DType::kBF16;
  const std::vector<Crossover> found = crossovers(rows);
  REQUIRE(found.size() == 4);
  for (const Crossover& crossover : found) {
    const char* way = crossover.dtype == kernels::DType::kBF16 ? "c" : crossover.graph || crossover.tp == 4 ? "b" : "a";
    CHECK(crossover.way == way);
  }
}
