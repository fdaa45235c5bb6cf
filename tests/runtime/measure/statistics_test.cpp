#include "runtime/measure/statistics.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <random>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

using namespace shardscope::runtime;

TEST_CASE("distribution_of: figures of a small sample by hand") {
  const std::vector<double> samples = {4, 1, 3, 2};
  const Distribution d = distribution_of(samples);
  CHECK(d.n == 4);
  CHECK(d.mean == Approx(2.5));
  CHECK(d.p50 == Approx(2.5));
  CHECK(d.p90 == Approx(3.7));  // position 2.7 between 3 and 4
  CHECK(d.min == Approx(1));
  CHECK(d.max == Approx(4));
  CHECK(d.stddev == Approx(std::sqrt(5.0 / 3)));
  CHECK_FALSE(d.p95_supported);
  CHECK_FALSE(d.p50_interval.high.has_value());
}

TEST_CASE("distribution_of: nothing and one value") {
  CHECK_FALSE(distribution_of({}).mean.has_value());
  const std::vector<double> one = {7};
  const Distribution d = distribution_of(one);
  CHECK(d.p99 == Approx(7));
  CHECK_FALSE(d.stddev.has_value());
  CHECK_FALSE(d.mean_interval.low.has_value());
}

TEST_CASE("quantile_ranks: the upper end is finite from n = 6, 72 and 368 on") {
  CHECK_FALSE(quantile_ranks(5, 0.50).high.has_value());
  CHECK(quantile_ranks(6, 0.50).high == 6);
  CHECK(quantile_ranks(6, 0.50).low == 1);
  CHECK_FALSE(quantile_ranks(71, 0.95).high.has_value());
  CHECK(quantile_ranks(72, 0.95).high == 72);
  CHECK(quantile_ranks(72, 0.95).low == 64);
  CHECK_FALSE(quantile_ranks(367, 0.99).high.has_value());
  CHECK(quantile_ranks(368, 0.99).high == 368);
  CHECK(quantile_ranks(368, 0.99).low == 360);
}

TEST_CASE("quantile_ranks: large samples do not underflow") {
  const RankInterval ranks = quantile_ranks(100'000, 0.5);
  REQUIRE(ranks.low.has_value());
  REQUIRE(ranks.high.has_value());
  // Normal approximation: n / 2 -+ 1.96 sqrt(n) / 2.
  CHECK(std::abs(*ranks.low - (50'000 - 310)) <= 3);
  CHECK(std::abs(*ranks.high - (50'000 + 310)) <= 3);
}

namespace {

/// P(the interval of order statistics holds the quantile), summed term by term with lgamma: X(low) <= quantile <
/// X(high) where between low and high - 1 of the n values lie below it.
double exact_coverage(int64_t n, double q) {
  const RankInterval ranks = quantile_ranks(n, q);
  double sum = 0;
  for (int64_t below = ranks.low.value_or(0); below < ranks.high.value_or(n + 1); ++below) {
    const auto k = static_cast<double>(below);
    const auto all = static_cast<double>(n);
    sum += std::exp(std::lgamma(all + 1) - std::lgamma(k + 1) - std::lgamma(all - k + 1) + k * std::log(q) +
                    (all - k) * std::log1p(-q));
  }
  return sum;
}

}  // namespace

TEST_CASE("quantile_ranks: the exact coverage is at least 95 % for every n from 6 to 2000") {
  for (const double q : {0.5, 0.95, 0.99}) {
    double least = 1;
    for (int64_t n = 6; n <= 2000; n += n < 400 ? 1 : 37) least = std::min(least, exact_coverage(n, q));
    CAPTURE(q, least);
    CHECK(least >= 0.95 - 1e-9);
    CHECK(exact_coverage(2000, q) <= 0.97);  // and no wider than it must be
  }
}

TEST_CASE("distribution_of: intervals cover the true quantile in at least 94 % of simulated samples") {
  std::mt19937_64 random(1);
  std::exponential_distribution<double> draw(1.0);
  constexpr int kTrials = 1500;
  for (const int n : {6, 7, 12, 25, 71, 72, 200, 367, 368, 700, 2000}) {
    std::array<int, 3> covered{};
    for (int trial = 0; trial < kTrials; ++trial) {
      std::vector<double> samples(n);
      for (double& sample : samples) sample = draw(random);
      const Distribution d = distribution_of(samples);
      const auto holds = [](const Interval& interval, double q) {
        const double truth = -std::log(1 - q);
        return interval.low.value_or(-INFINITY) <= truth && truth <= interval.high.value_or(INFINITY);
      };
      covered[0] += holds(d.p50_interval, 0.5) ? 1 : 0;
      covered[1] += holds(d.p95_interval, 0.95) ? 1 : 0;
      covered[2] += holds(d.p99_interval, 0.99) ? 1 : 0;
    }
    CAPTURE(n, covered[0], covered[1], covered[2]);
    for (const int count : covered) CHECK(count >= 0.94 * kTrials);
  }
}

TEST_CASE("distribution_of: the interval of the mean is Student's") {
  // Tables: t(0.975) = 2.262 for 9 degrees of freedom, 2.571 for 5.
  std::vector<double> ten = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  const Distribution d = distribution_of(ten);
  CHECK(*d.mean_interval.high - *d.mean == Approx(2.262 * *d.stddev / std::sqrt(10.0)).epsilon(0.01));
  const std::vector<double> six = {1, 2, 3, 4, 5, 6};
  const Distribution e = distribution_of(six);
  CHECK(*e.mean_interval.high - *e.mean == Approx(2.571 * *e.stddev / std::sqrt(6.0)).epsilon(0.01));
  const std::vector<double> five = {1, 2, 3, 4, 5};
  CHECK_FALSE(distribution_of(five).mean_interval.high.has_value());
}

TEST_CASE("generation_times: the cases of latency.json") {
  std::ifstream in(SHARDSCOPE_TEST_DATA "/cases/A26-metrics-topology/latency.json");
  const nlohmann::json cases = nlohmann::json::parse(in);
  REQUIRE(cases.size() >= 5);
  for (const nlohmann::json& entry : cases) {
    CAPTURE(entry.at("name"));
    std::vector<double> times_ms;
    for (const double time : entry.at("token_times_s")) times_ms.push_back(time * 1e3);
    const GenerationTimes times = generation_times(times_ms);
    const nlohmann::json& expect = entry.at("expect");
    const auto same = [](const std::optional<double>& ms, const nlohmann::json& seconds) {
      return seconds.is_null() ? !ms.has_value()
                               : ms.has_value() && std::abs(*ms - seconds.get<double>() * 1e3) <= 1e-6;
    };
    CHECK(same(times.ttft_ms, expect.at("ttft_s")));
    CHECK(same(times.tpot_ms, expect.at("tpot_s")));
    CHECK(same(times.latency_ms, expect.at("e2e_s")));
    REQUIRE(times.itl_ms.size() == expect.at("itl_s").size());
    for (size_t i = 0; i < times.itl_ms.size(); ++i) {
      CHECK(std::abs(times.itl_ms[i] - expect.at("itl_s")[i].get<double>() * 1e3) <= 1e-6);
    }
  }
}
