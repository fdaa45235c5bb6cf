#include "runtime/measure/figures.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

using namespace shardscope;
using namespace shardscope::runtime;

namespace {

PointResult point_with(int tp, int64_t batch, double tpot_ms, PointStatus status = PointStatus::kOk) {
  PointResult point{.tp = tp, .workload = {.batch = batch, .prompt_tokens = 4, .output_tokens = 4}, .status = status};
  point.tpot_ms.p50 = tpot_ms;
  return point;
}

}  // namespace

TEST_CASE("set_speedups: against the smallest degree that ran, at equal workload") {
  std::vector<PointResult> points = {point_with(2, 1, 10), point_with(2, 8, 40), point_with(4, 1, 7),
                                     point_with(8, 1, 4)};
  set_speedups(points);
  CHECK(points[3].speedup == Approx(2.5));
  CHECK(points[3].efficiency == Approx(2.5 * 2 / 8));
  CHECK(points[0].speedup == Approx(1));
  CHECK(points[0].efficiency == Approx(1));
  CHECK(points[1].tp_base == 2);
  CHECK(points[1].speedup == Approx(1));
}

TEST_CASE("set_speedups: the order in which the points were measured is nothing") {
  std::vector<PointResult> points = {point_with(4, 1, 5), point_with(1, 1, 15)};
  set_speedups(points);
  CHECK(points[0].tp_base == 1);
  CHECK(points[0].speedup == Approx(3));
  points = {point_with(4, 1, 5)};  // the other is gone: nothing is left over from before
  points[0].tp_base = 1;
  set_speedups(points);
  CHECK(points[0].tp_base == 4);
}

TEST_CASE("set_speedups: a degree that did not fit is no base") {
  PointResult lost = point_with(1, 1, 0, PointStatus::kOutOfMemory);
  lost.tpot_ms = {};
  std::vector<PointResult> points = {lost, point_with(2, 1, 9), point_with(4, 1, 5)};
  set_speedups(points);
  CHECK_FALSE(points[0].speedup.has_value());
  CHECK(points[2].tp_base == 2);
  CHECK(points[2].speedup == Approx(1.8));
}

TEST_CASE("set_speedups: of the same placement, or of one group that stands for it") {
  using topology::Placement;
  std::vector<PointResult> points = {point_with(1, 1, 12), point_with(2, 1, 8), point_with(2, 1, 10),
                                     point_with(4, 1, 6)};
  points[0].group.also = points[3].group.also = {Placement::kBest, Placement::kWorst};
  points[1].group.also = {Placement::kBest};
  points[2].group.placement = Placement::kWorst;
  set_speedups(points);
  CHECK(points[1].speedup == Approx(1.5));
  CHECK(points[2].speedup == Approx(1.2));
  CHECK(points[3].speedup == Approx(2));
  points.erase(points.begin());
  set_speedups(points);
  CHECK(points[1].tp_base == 2);
  CHECK(points[1].speedup == Approx(1));  // not against the best
  CHECK_FALSE(points[2].speedup);         // two bases, no single figure
  CHECK_FALSE(points[2].tp_base);
}

TEST_CASE("set_speedups: none where the collectives are left out of one of the two times") {
  std::vector<PointResult> points = {point_with(2, 1, 10), point_with(4, 1, 7), point_with(8, 1, 4)};
  for (PointResult& point : points) point.rehearsal = Rehearsal{.step_collectives_ms = 0.5};
  points[1].rehearsal->step_collectives_ms.reset();
  set_speedups(points);
  CHECK(points[1].tp_base == 2);
  CHECK_FALSE(points[1].speedup);
  CHECK_FALSE(points[1].efficiency);
  CHECK(points[2].speedup == Approx(2.5));
  points[0].rehearsal->step_collectives_ms.reset();
  set_speedups(points);
  for (const PointResult& point : points) {
    CHECK(point.tp_base == 2);
    CHECK_FALSE(point.speedup);
    CHECK_FALSE(point.efficiency);
  }
}

TEST_CASE("set_speedups: a base whose MBU is impossible is still the base") {
  std::vector<PointResult> points = {point_with(1, 1, 8, PointStatus::kInvalid), point_with(2, 1, 5)};
  set_speedups(points);
  CHECK(points[1].tp_base == 1);
  CHECK(points[1].speedup == Approx(1.6));
}

namespace {

/// Two ranks that move 8 GB and 6 GB a step of 2 s (4 and 3 GB/s), 2 GB of the first one's replicated.
PointResult point_to_rate() {
  PointResult point = point_with(2, 1, 2000);
  point.ranks = {{.rank = 0,
                  .bytes = {.weights = 7e9, .kv_read = 0.9e9, .kv_write = 0.1e9, .replicated = 2e9},
                  .achievable_gb_per_s = 5},
                 {.rank = 1, .bytes = {.weights = 6e9, .activations = 1e9}, .achievable_gb_per_s = 6}};
  return point;
}

}  // namespace

TEST_CASE("set_utilisation: the four MBUs by hand") {
  PointResult point = point_to_rate();
  set_utilisation(point, 16e9, {.cache_bytes = int64_t{1} << 25U}, {.gb_per_s = 10});
  CHECK(point.status == PointStatus::kOk);
  CHECK(point.cache_resident == false);
  CHECK(point.ranks[0].mbu == Approx(0.4));
  CHECK(point.ranks[1].mbu == Approx(0.3));
  CHECK(point.mbu->mean == Approx(0.35));
  CHECK(point.mbu_achievable->max == Approx(0.8));
  CHECK(point.mbu_achievable->min == Approx(0.5));
  CHECK(point.ranks[0].mbu_useful == Approx(0.3));
  CHECK(point.mbu_nominal == Approx(16e9 / 2 / 20e9));
  CHECK(point.verdicts.empty());
}

TEST_CASE("set_utilisation: the rows of mbu.json") {
  std::ifstream in(SHARDSCOPE_TEST_DATA "/cases/A26-metrics-topology/mbu.json");
  const nlohmann::json document = nlohmann::json::parse(in);
  const nlohmann::json& rows = document.at("rows");
  REQUIRE(rows.size() == 2);
  for (const nlohmann::json& row : rows) {
    PointResult point = point_with(1, 1, row.at("tpot_s").get<double>() * 1e3);
    point.ranks = {{.rank = 0,
                    .bytes = {.weights = row.at("weight_bytes_on_rank"), .kv_read = row.at("kv_bytes_on_rank")},
                    .achievable_gb_per_s = 1e5}};
    set_utilisation(point, 1, {}, {.gb_per_s = row.at("peak_GBps").get<double>()});
    REQUIRE(point.mbu.has_value());
    CHECK(point.mbu->mean == Approx(row.at("expect_mbu").get<double>()).margin(5e-5));
  }
}

TEST_CASE("set_utilisation: without a peak only the achievable one, without a cache size no verdict") {
  PointResult point = point_to_rate();
  set_utilisation(point, 16e9, {}, {});
  CHECK_FALSE(point.mbu.has_value());
  CHECK_FALSE(point.mbu_nominal.has_value());
  CHECK_FALSE(point.cache_resident.has_value());
  CHECK(point.mbu_achievable.has_value());
}

TEST_CASE("set_utilisation: what fits the caches has no MBU against memory") {
  PointResult point = point_to_rate();
  set_utilisation(point, 16e9, {.cache_bytes = 14'000'000'000}, {.gb_per_s = 10});
  CHECK(point.cache_resident == true);
  CHECK_FALSE(point.mbu.has_value());
  CHECK(point.verdicts.size() == 1);
}

TEST_CASE("set_utilisation: more than 100 % of anything makes the point invalid") {
  PointResult by_peak = point_to_rate();
  set_utilisation(by_peak, 1e9, {}, {.gb_per_s = 3.9});
  CHECK(by_peak.status == PointStatus::kInvalid);
  PointResult by_nominal = point_to_rate();
  set_utilisation(by_nominal, 50e9, {}, {.gb_per_s = 10});
  CHECK(by_nominal.status == PointStatus::kInvalid);
  PointResult by_measurement = point_to_rate();
  by_measurement.ranks[1].achievable_gb_per_s = 2.9;
  set_utilisation(by_measurement, 1e9, {}, {});
  CHECK(by_measurement.status == PointStatus::kInvalid);
  CHECK(by_measurement.verdicts.front().rfind("invalid: ", 0) == 0);
}

TEST_CASE("set_utilisation: a time or a bandwidth that is no number makes the point invalid, and gives no figure") {
  PointResult time = point_to_rate();
  time.tpot_ms.p50 = std::nan("");
  set_utilisation(time, 16e9, {}, {.gb_per_s = 10});
  CHECK(time.status == PointStatus::kInvalid);
  const double bad = GENERATE(0.0, -1.0, std::nan(""), HUGE_VAL);
  PointResult bandwidth = point_to_rate();
  bandwidth.ranks[1].achievable_gb_per_s = bad;
  set_utilisation(bandwidth, 16e9, {}, {.gb_per_s = 10});
  CHECK(bandwidth.status == PointStatus::kInvalid);
  CHECK_FALSE(bandwidth.mbu_achievable.has_value());
  CHECK(bandwidth.verdicts.size() == 1);
}

TEST_CASE("set_prefill: operations over TTFT, against the peaks of all ranks") {
  PointResult point = point_with(2, 1, 10);
  point.ttft_ms.p50 = 500;
  set_prefill(point, 3e12, {});
  CHECK(point.prefill_tflops_per_s == Approx(6));
  CHECK_FALSE(point.mfu_prefill.has_value());
  set_prefill(point, 3e12, {.tflops = 10});
  CHECK(point.mfu_prefill == Approx(0.3));
  CHECK(point.status == PointStatus::kOk);
  set_prefill(point, 3e12, {.tflops = 2.9});
  CHECK(point.status == PointStatus::kInvalid);
  CHECK(point.verdicts.back().rfind("invalid: ", 0) == 0);
  PointResult unmeasured = point_with(2, 1, 10);
  set_prefill(unmeasured, 3e12, {.tflops = 10});
  CHECK_FALSE(unmeasured.prefill_tflops_per_s.has_value());
}

TEST_CASE("set_times: throughput over the generations' own time, text apart") {
  PointResult point{.tp = 1, .workload = {.batch = 3, .prompt_tokens = 8, .output_tokens = 5}};
  point.text_cost = TextCost{.tokenise_ms = 2, .detokenise_ms = 1};
  VisitRecord visit{.cold_ttft_ms = 999, .seconds = 7};
  for (const double scale : {1.0, 2.0}) {
    visit.samples.push_back({.ttft_ms = 100 * scale,
                             .tpot_ms = 25 * scale,
                             .latency_ms = 200 * scale,
                             .itl_ms = {25 * scale, 25 * scale, 20 * scale, 30 * scale}});
  }
  set_times(point, {visit, {.cold_ttft_ms = 1}});
  CHECK(point.generations == 2);
  CHECK(point.throughput_tokens_per_s == Approx(2 * 3 * 5 / 0.6));
  CHECK(point.requests_per_s == Approx(2 * 3 / 0.6));
  CHECK(point.cold_ttft_ms == 999);
  CHECK(point.ttft_ms.p50 == Approx(150));
  CHECK(point.itl_ms.n == 8);
  CHECK(point.itl_ms.max == Approx(60));
  CHECK_FALSE(point.itl_ms.p50_interval.low.has_value());  // gaps of one generation depend on each other
  CHECK(point.end_to_end_ms == Approx(300 + 3 * 3));
  CHECK(point.samples.size() == 2);
}

TEST_CASE("set_times: nothing measured is nothing known") {
  PointResult point{.tp = 1, .workload = {.batch = 3, .prompt_tokens = 8, .output_tokens = 5}};
  point.text_cost = TextCost{};
  set_times(point, {});
  CHECK_FALSE(point.throughput_tokens_per_s.has_value());
  CHECK_FALSE(point.end_to_end_ms.has_value());
  CHECK_FALSE(point.ttft_ms.p50.has_value());
  CHECK_FALSE(point.noise.relative.has_value());
  CHECK_FALSE(point.disturbance.stolen_share.has_value());
}

TEST_CASE("tpot_interval: closed intervals of a TPOT only") {
  PointResult point = point_with(1, 1, 10);
  point.tpot_ms.n = 12;
  CHECK_FALSE(tpot_interval(point).has_value());
  point.noise.low_ms = 9.5;
  CHECK_FALSE(tpot_interval(point).has_value());
  point.noise.high_ms = 10.5;
  CHECK(tpot_interval(point)->low == 9.5);
  CHECK(tpot_interval(point)->high == 10.5);
  point.tpot_ms.n = 0;  // then the interval is one of TTFT
  CHECK_FALSE(tpot_interval(point).has_value());
}
