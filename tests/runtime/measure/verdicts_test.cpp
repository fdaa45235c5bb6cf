#include "runtime/measure/verdicts.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "runtime/measure/figures.hpp"

using namespace shardscope;
using namespace shardscope::runtime;

namespace {

GenerationSample sample_of(double tpot_ms, Disturbance disturbance = {}, int pass = 0) {
  return {.pass = pass,
          .ttft_ms = 50.0,
          .tpot_ms = tpot_ms,
          .latency_ms = 50 + 10 * tpot_ms,
          .disturbance = std::move(disturbance)};
}

/// 100, 101, …: quartiles 102.25 and 106.75 with ten of them.
std::vector<GenerationSample> ten_samples() {
  std::vector<GenerationSample> samples;
  for (int i = 0; i < 10; ++i) samples.push_back(sample_of(100 + i));
  return samples;
}

/// A quiet, well-measured point.
PointResult quiet_point(std::vector<GenerationSample> samples = {}) {
  if (samples.empty()) {
    for (int i = 0; i < 12; ++i) samples.push_back(sample_of(10 + 0.01 * (i % 6), {}, i / 6));
  }
  PointResult point{.tp = 2, .workload = {.batch = 1, .prompt_tokens = 8, .output_tokens = 11}};
  VisitRecord first{.warm_up = {.generations = 6, .change = 0.001, .steady = true}};
  VisitRecord second = first;
  for (const GenerationSample& sample : samples) (sample.pass == 0 ? first : second).samples.push_back(sample);
  set_times(point, {first, second});
  return point;
}

std::vector<std::string> verdicts_of(PointResult point, const Protocol& protocol = {}) {
  add_verdicts(point, protocol);
  return point.verdicts;
}

/// The only verdict, which begins with this word.
std::string only_verdict(const PointResult& point, const std::string& word) {
  const std::vector<std::string> verdicts = verdicts_of(point);
  REQUIRE(verdicts.size() == 1);
  CHECK(verdicts[0].rfind(word + ": ", 0) == 0);
  return verdicts[0];
}

}  // namespace

TEST_CASE("classify_outliers: Tukey's fences by hand") {
  std::vector<GenerationSample> samples = ten_samples();
  CHECK(classify_outliers(samples).high_mild == 0);
  // With the two ends replaced the quartiles stay; fences at 95.5 / 113.5 and 88.75 / 120.25.
  samples[0] = sample_of(95);
  samples[9] = sample_of(114);
  Outliers mild = classify_outliers(samples);
  CHECK(mild.low_mild == 1);
  CHECK(mild.high_mild == 1);
  CHECK(mild.low_severe + mild.high_severe == 0);
  samples[0] = sample_of(88);
  samples[9] = sample_of(121);
  Outliers severe = classify_outliers(samples);
  CHECK(severe.low_severe == 1);
  CHECK(severe.high_severe == 1);
  samples[9] = sample_of(113.4);
  CHECK(classify_outliers(samples).high_mild == 0);
}

TEST_CASE("classify_outliers: by what was seen while they ran, slow ones only") {
  std::vector<GenerationSample> samples = ten_samples();
  for (GenerationSample& sample : samples) sample.disturbance = {.stolen_share = 0, .waited_share = 0, .mhz = 3000};
  const auto cause = [&](Disturbance seen) {
    samples[9] = sample_of(200, seen);
    const Outliers outliers = classify_outliers(samples);
    CHECK(std::accumulate(outliers.causes.begin(), outliers.causes.end(), int64_t{0}) == 1);
    for (size_t i = 0; i < kOutlierCauses.size(); ++i) {
      if (outliers.causes[i] == 1) return kOutlierCauses[i];
    }
    return OutlierCause::kUnexplained;
  };
  CHECK(cause({.stolen_share = 0.05, .waited_share = 0.5, .mhz = 3000}) == OutlierCause::kStolen);
  CHECK(cause({.stolen_share = 0.0, .waited_share = 0.5, .mhz = 3000}) == OutlierCause::kWaited);
  CHECK(cause({.stolen_share = 0.0, .waited_share = 0.0, .mhz = 2000}) == OutlierCause::kSlowClock);
  CHECK(cause({.stolen_share = 0.0, .waited_share = 0.0, .mhz = 2950}) == OutlierCause::kUnexplained);
  CHECK(cause({}) == OutlierCause::kUnexplained);
  samples[9] = sample_of(10, {.stolen_share = 0.5});
  CHECK(classify_outliers(samples).causes[0] == 0);
}

TEST_CASE("classify_outliers: what goes on all the time is no cause") {
  std::vector<GenerationSample> samples = ten_samples();
  for (GenerationSample& sample : samples) sample.disturbance = {.stolen_share = 0.05, .waited_share = 0.3};
  samples[9] = sample_of(200, {.stolen_share = 0.055, .waited_share = 0.31});
  CHECK(classify_outliers(samples).causes[static_cast<size_t>(OutlierCause::kUnexplained)] == 1);
  samples[9] = sample_of(200, {.stolen_share = 0.055, .waited_share = 0.35});
  CHECK(classify_outliers(samples).causes[static_cast<size_t>(OutlierCause::kWaited)] == 1);
}

TEST_CASE("classify_outliers: five samples have none") {
  std::vector<GenerationSample> samples(4, sample_of(1));
  samples.push_back(sample_of(1000));
  CHECK(classify_outliers(samples).high_severe == 0);
}

TEST_CASE("add_verdicts: nothing to say of a quiet point") {
  CHECK(verdicts_of(quiet_point()).empty());
}

TEST_CASE("add_verdicts: too few generations") {
  const PointResult five = quiet_point({sample_of(1), sample_of(1), sample_of(1), sample_of(1), sample_of(1)});
  CHECK_FALSE(five.noise.relative.has_value());
  CHECK(only_verdict(five, "too_few").find("5 generations") != std::string::npos);
  CHECK(verdicts_of(quiet_point(std::vector<GenerationSample>(6, sample_of(1)))).empty());
}

TEST_CASE("add_verdicts: a warm-up that never became steady, the worse of the visits") {
  PointResult point = quiet_point();
  point.warm_ups[1] = {.generations = 30, .change = -0.042, .steady = false};
  CHECK(only_verdict(point, "unsteady").find("-4.2 %") != std::string::npos);
  point.warm_ups[1] = {.generations = 3, .change = std::nullopt, .steady = std::nullopt};
  CHECK(verdicts_of(point).empty());  // --warmup 3 asked for no more
  point.warm_ups[1].steady = false;   // a limit came first
  CHECK(only_verdict(point, "unsteady").find("3 generations, too few to compare") != std::string::npos);
}

TEST_CASE("add_verdicts: a limit that ended the point names what was not met") {
  PointResult point = quiet_point();
  point.unmet = "30 s a visit ended it with 7 of 10 generations";
  CHECK(only_verdict(point, "limit") == "limit: 30 s a visit ended it with 7 of 10 generations");
}

TEST_CASE("add_verdicts: noise over its bound, and visits that differ") {
  PointResult wide = quiet_point();
  wide.noise.relative = 0.021;
  CHECK(only_verdict(wide, "noise").find("±2.1 %, wanted ±2 %") != std::string::npos);
  wide.noise.relative = 0.02;
  CHECK(verdicts_of(wide).empty());
  wide.noise.relative = std::nan("");
  CHECK(verdicts_of(wide).size() == 1);
  PointResult shifted = quiet_point();
  shifted.noise.pass_shift = -0.05;
  CHECK(only_verdict(shifted, "noise").find("-5.0 %") != std::string::npos);
}

TEST_CASE("set_times: the shift between the visits is that of their medians") {
  std::vector<GenerationSample> samples;
  for (const double tpot : {10.0, 11.0, 30.0}) samples.push_back(sample_of(tpot, {}, 0));
  for (const double tpot : {12.0, 13.2, 14.0, 13.2}) samples.push_back(sample_of(tpot, {}, 1));
  CHECK(*quiet_point(samples).noise.pass_shift == Approx(13.2 / 11 - 1));
}

TEST_CASE("set_times: what is known of the median holds both visits' medians") {
  std::vector<GenerationSample> samples;
  for (int i = 0; i < 50; ++i) {
    samples.push_back(sample_of(100 + 0.01 * i, {}, 0));  // median 100.245
    samples.push_back(sample_of(110 + 0.01 * i, {}, 1));  // median 110.245
  }
  const PointResult point = quiet_point(samples);
  CHECK(*point.noise.low_ms <= 100.245 + 1e-9);
  CHECK(*point.noise.high_ms >= 110.245 - 1e-9);
  CHECK(*point.noise.relative == Approx((*point.noise.high_ms - *point.noise.low_ms) / 2 / *point.tpot_ms.p50));
}

TEST_CASE("add_verdicts: stolen time, waiting for cores, a moving clock") {
  PointResult point = quiet_point();
  point.disturbance = {.stolen_share = 0.01, .waited_share = 0.02, .mhz = 3000};
  point.highest_mhz = 3150;
  CHECK(verdicts_of(point).empty());
  point.disturbance.stolen_share = 0.031;
  CHECK(only_verdict(point, "interference").find("3.1 %") != std::string::npos);
  point.disturbance = {.waited_share = 0.25};
  CHECK(only_verdict(point, "interference").find("25.0 %") != std::string::npos);
  point.oversubscribed = true;  // then the ranks themselves are in each other's way
  CHECK(only_verdict(point, "oversubscribed").find("overhead") != std::string::npos);
  point = quiet_point();
  point.disturbance.mhz = 2000;
  point.highest_mhz = 3000;
  CHECK(only_verdict(point, "interference").find("between 2000 and 3000 MHz") != std::string::npos);
}

TEST_CASE("set_times: disturbance is weighted by time, the clock is its range") {
  std::vector<GenerationSample> samples(12, sample_of(10));                              // 150 ms each
  samples[3] = sample_of(155, {.stolen_share = 0.5, .waited_share = 0.1, .mhz = 2000});  // 1600 ms
  samples[4].disturbance = {.stolen_share = 0.0, .waited_share = 0.0, .mhz = 3000};
  const PointResult point = quiet_point(samples);
  CHECK(*point.disturbance.stolen_share == Approx(0.5 * 1600 / 1750));
  CHECK(*point.disturbance.waited_share == Approx(0.1 * 1600 / 1750));
  CHECK(*point.disturbance.mhz == 2000);
  CHECK(*point.highest_mhz == 3000);
}

TEST_CASE("add_verdicts: outliers are counted and kept") {
  std::vector<GenerationSample> samples;
  for (int i = 0; i < 12; ++i) samples.push_back(sample_of(10 + 0.01 * (i % 6), {.stolen_share = 0}, i / 6));
  samples[4] = sample_of(20, {.stolen_share = 0.2});
  const PointResult point = quiet_point(samples);
  CHECK(*point.tpot_ms.max == 20);
  const std::vector<std::string> verdicts = verdicts_of(point);
  CHECK(verdicts.back() == "outliers: of 12 generations 1 slow (1 severe; 1 with stolen time); none is dropped");
}

TEST_CASE("add_verdicts: bandwidth that drifted") {
  PointResult point = quiet_point();
  point.ranks = {{.rank = 0, .bandwidth_drift = 0.05}, {.rank = 1, .bandwidth_drift = -0.05}};
  CHECK(verdicts_of(point).empty());
  point.ranks[1].bandwidth_drift = std::nan("");
  CHECK(verdicts_of(point).size() == 1);
  point.ranks[1].bandwidth_drift = -0.08;
  CHECK(only_verdict(point, "bandwidth_drift").find("-8 to +5 (by rank) %") != std::string::npos);
}
