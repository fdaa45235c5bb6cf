#include "parallel/host_sum_bench.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <limits>

#include "kernels/base/error.hpp"

using namespace shardscope;
using namespace shardscope::parallel;

namespace {

std::vector<float> exact_sums(int ranks, int64_t count) {
  std::vector<float> sums;
  for (int64_t i = 0; i < count; ++i) {
    float sum = 0;
    for (int rank = 0; rank < ranks; ++rank) sum += known_part(rank, i);
    sums.push_back(sum);
  }
  return sums;
}

}  // namespace

TEST_CASE("known_part: small integers that differ from rank to rank and from element to element") {
  for (int rank = 0; rank < 8; ++rank) {
    for (int64_t i = 0; i < 40; ++i) {
      const float value = known_part(rank, i);
      CHECK(std::abs(value) <= 8);
      CHECK(value == std::round(value));
      CHECK(value != known_part(rank, i + 1));
      CHECK(value != known_part(rank + 1, i));
    }
  }
}

TEST_CASE("count_wrong: exact sums of any count are right") {
  for (const int ranks : {1, 2, 3, 8}) {
    for (const int64_t count : {0, 1, 10, 11, 12, 257}) CHECK(count_wrong(exact_sums(ranks, count), ranks) == 0);
  }
}

TEST_CASE("count_wrong: every planted error is found, a NaN too") {
  std::vector<float> sums = exact_sums(3, 30);
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity(), 1000.0F}) {
    for (const size_t place : {size_t{0}, size_t{10}, size_t{11}, size_t{29}}) {
      const float kept = sums[place];
      sums[place] = bad;
      CHECK(count_wrong(sums, 3) == 1);
      sums[place] = kept;
    }
  }
  CHECK(count_wrong(std::span(sums).subspan(1), 3) > 20);    // shifted by one
  CHECK(count_wrong(std::vector<float>(30, 0.0F), 3) > 20);  // never summed
  CHECK(count_wrong(exact_sums(2, 30), 3) > 20);             // a rank is missing
}

TEST_CASE("HostSumBench: one rank alone has one way, without time in it") {
  World world({});
  HostSumBench bench(world, {.group_size = 1, .max_floats = 64});
  REQUIRE(bench.ways().size() == 1);
  CHECK(bench.ways()[0].name == "none");
  CHECK(bench.ways()[0].why_not.empty());
  CHECK(bench.ways()[0].most_bytes == 256);
  CHECK_FALSE(bench.on_devices());
  const SumTimes times = bench.time({.way = "none", .count = 64, .samples = 5, .warm_up = 3});
  CHECK(times.sample_us.size() == 5);
  CHECK(times.inside_us == times.sample_us);
  CHECK(times.calls_a_sample == 1);
  CHECK(times.wrong == 0);
  CHECK_THROWS_AS(bench.time({.way = "shm", .count = 1, .samples = 1}), BugError);
  CHECK_THROWS_AS(bench.time({.way = "none", .count = 65, .samples = 1}), BugError);
  CHECK_THROWS_AS(bench.time({.way = "none", .count = 1, .dtype = kernels::DType::kF16, .samples = 1}), BugError);
  CHECK_THROWS_AS(bench.time({.way = "none", .count = 1, .graph = true, .samples = 1}), BugError);
}
