#include "topology/collective_times.hpp"

#include <cmath>

#include <catch2/catch.hpp>

#include "tests/topology/topologies.hpp"

using namespace shardscope;
using namespace shardscope::topology;
using Catch::Matchers::Contains;

namespace {

Measurement all_reduce(int gpus, int64_t bytes, double us) {
  return {.kind = Measurement::Kind::kAllReduce, .gpu_count = gpus, .bytes = bytes, .time_us = us};
}

Topology measured(std::vector<Measurement> figures) {
  Topology topology;
  topology.measurements = std::move(figures);
  return topology;
}

/// Exactly, without a hint that it was not measured.
double us_of(const CollectiveTimes& times, int ranks, int64_t bytes) {
  const std::optional<CollectiveTime> time = times.time(ranks, bytes);
  REQUIRE(time);
  CHECK_FALSE(time->below);
  return time->us;
}

Topology switched(const char* gpu) {
  Topology topology = test::joined(8, "NV18");
  topology.switched = true;
  for (Gpu& each : topology.gpus) each.name = gpu;
  return test::understood(topology);
}

}  // namespace

TEST_CASE("CollectiveTimes: sizes between two are interpolated logarithmically, and none is guessed") {
  const CollectiveTimes times(measured({all_reduce(4, 1024, 10), all_reduce(4, 16384, 40), all_reduce(2, 4096, 5)}));
  CHECK(us_of(times, 4, 1024) == 10);
  CHECK(us_of(times, 4, 16384) == 40);
  CHECK(us_of(times, 4, 4096) == Approx(20));  // half way by the logarithm, on both axes
  CHECK(us_of(times, 2, 4096) == 5);
  const std::optional<CollectiveTime> small = times.time(4, 100);
  REQUIRE(small);
  CHECK(small->below);
  CHECK(small->us == 10);
  CHECK_FALSE(times.time(4, 16385));  // above the largest
  CHECK_FALSE(times.time(8, 1024));   // nothing of eight ranks
  CHECK(times.source(8).empty());
  CHECK_THAT(times.source(4), Contains("measured on 4 GPUs"));
  CHECK_THROWS_AS(times.time(1, 1024), BugError);
  CHECK_THROWS_AS(times.time(4, 0), BugError);
}

TEST_CASE("CollectiveTimes: a larger message bounds a smaller one, so that an outlier is no time") {
  const CollectiveTimes times(measured({all_reduce(2, 1024, 9), all_reduce(2, 2048, 71), all_reduce(2, 4096, 12)}));
  CHECK(us_of(times, 2, 1024) == 9);
  CHECK(us_of(times, 2, 2048) == 12);
  CHECK(us_of(times, 2, 4096) == 12);
}

TEST_CASE("CollectiveTimes: of several figures the fastest, and those without peer access last") {
  Measurement slow = all_reduce(2, 1024, 30);
  slow.algorithm = "NCCL";
  Measurement fast = all_reduce(2, 1024, 8);
  fast.algorithm = "one-shot";
  Measurement off = all_reduce(2, 1024, 3);
  off.p2p = false;
  const CollectiveTimes times(measured({slow, fast, off}));
  CHECK(us_of(times, 2, 1024) == 8);
  CHECK_THAT(times.source(2), Contains("NCCL, one-shot") && !Contains("peer access off"));
  const CollectiveTimes without(measured({off}));
  CHECK(us_of(without, 2, 1024) == 3);
  CHECK_THAT(without.source(2), Contains("peer access off"));
}

TEST_CASE("CollectiveTimes: figures of which launches by one process are a part are called so") {
  Measurement one = all_reduce(2, 1024, 30);
  one.one_process = true;
  CHECK_THAT(CollectiveTimes(measured({one})).source(2), Contains("launched by one process"));
  Measurement each = all_reduce(2, 1024, 8);
  each.one_process = false;
  for (const Measurement& other : {each, all_reduce(2, 2048, 9)}) {
    CHECK_THAT(CollectiveTimes(measured({one, other})).source(2), !Contains("one process"));
  }
}

TEST_CASE("CollectiveTimes: a bandwidth is a time, and figures that are none are left out") {
  Measurement rate{.kind = Measurement::Kind::kAllReduce, .gpu_count = 2, .bytes = 1'000'000, .gb_per_s = 100};
  CHECK(us_of(CollectiveTimes(measured({rate})), 2, 1'000'000) == Approx(10));
  Measurement copy = all_reduce(2, 1024, 1);
  copy.kind = Measurement::Kind::kP2pLatency;
  Measurement nameless = all_reduce(2, 1024, 1);
  nameless.gpu_count.reset();
  const CollectiveTimes none(measured({copy, nameless, all_reduce(2, 0, 1), all_reduce(1, 1024, 1)}));
  CHECK_FALSE(none.time(2, 1024));
  CHECK_FALSE(CollectiveTimes().time(2, 1024));
}

TEST_CASE("CollectiveTimes: what is known of others stands for machines of that GPU behind NVSwitches alone") {
  const std::vector<KnownTimes> known = {
      {.gpu = "h100-sxm", .what = "somebody's H100", .ranks = 4, .us = {{8192, 10.0}, {16384, 12.5}, {32768, 11.2}}}};
  const CollectiveTimes hopper(switched("NVIDIA H100 80GB HBM3"), known);
  CHECK(us_of(hopper, 4, 8192) == 10);
  CHECK(us_of(hopper, 4, 16384) == 11.2);  // twice the bytes took that
  CHECK_THAT(hopper.source(4), Contains("somebody's H100"));
  CHECK_FALSE(hopper.time(4, 1 << 20));
  CHECK_FALSE(hopper.time(3, 8192));
  CHECK_FALSE(CollectiveTimes(switched("NVIDIA H200"), known).time(4, 8192));
  CHECK_FALSE(CollectiveTimes(switched("NVIDIA H100 80GB HBM3")).time(4, 8192));
  Topology pairs = test::joined(4, "SYS");
  for (Gpu& each : pairs.gpus) each.name = "NVIDIA H100 80GB HBM3";
  CHECK_FALSE(CollectiveTimes(test::understood(pairs), known).time(4, 8192));
}

TEST_CASE("CollectiveTimes: own figures of a machine come before those of others, degree by degree") {
  const std::vector<KnownTimes> known = {{.gpu = "h100-sxm", .what = "others", .ranks = 8, .us = {{8192, 16.0}}},
                                         {.gpu = "h100-sxm", .what = "others", .ranks = 2, .us = {{8192, 6.8}}}};
  Topology topology = switched("NVIDIA H100 80GB HBM3");
  topology.measurements = {all_reduce(8, 8192, 99)};
  const CollectiveTimes times(topology, known);
  CHECK(us_of(times, 8, 8192) == 99);
  CHECK(us_of(times, 2, 8192) == 6.8);
  CHECK_THAT(times.source(8), Contains("measured on 8 GPUs"));
}

TEST_CASE("CollectiveTimes: its tables are what it interpolates between") {
  using Tables = std::map<int, std::map<int64_t, double>>;
  CHECK(CollectiveTimes().tables().empty());
  const CollectiveTimes times(measured({all_reduce(4, 1024, 10), all_reduce(4, 16384, 9), all_reduce(2, 4096, 5)}));
  CHECK(times.tables() == Tables{{2, {{4096, 5}}}, {4, {{1024, 9}, {16384, 9}}}});
}

TEST_CASE("CollectiveTimes: a recorded run of nccl-tests") {
  const CollectiveTimes times(test::recorded("nccl-tests/digitalocean-h100-sxm-2gpu.txt"));
  CHECK(us_of(times, 2, 131072) == Approx(15.6).margin(0.05));
  CHECK(us_of(times, 2, 1 << 20) == Approx(26.3).margin(0.05));
  CHECK_FALSE(times.time(4, 131072));
  double last = 0;
  for (int64_t bytes = 1024; bytes <= 1 << 30; bytes = bytes * 5 / 4) {
    const double us = us_of(times, 2, bytes);
    CHECK(us >= last);
    last = us;
  }
}
