#include "runtime/measure/sweep.hpp"

#include <catch2/catch.hpp>

#include "parallel/world.hpp"
#include "runtime/measure/bandwidth.hpp"
#include "runtime/model/slice.hpp"

using namespace shardscope;
using namespace shardscope::runtime;

namespace {

PointResult point_with(int tp, int64_t batch, double tpot_ms, PointStatus status = PointStatus::kOk) {
  PointResult point{.tp = tp, .workload = {.batch = batch, .prompt_tokens = 4, .output_tokens = 4}, .status = status};
  point.tpot_ms.p50 = tpot_ms;
  return point;
}

}  // namespace

TEST_CASE("set_speedup: against the smallest degree that ran, at equal workload") {
  std::vector<PointResult> earlier = {point_with(2, 1, 10), point_with(2, 8, 40), point_with(4, 1, 7)};
  PointResult point = point_with(8, 1, 4);
  set_speedup(point, earlier);
  CHECK(point.speedup == Approx(2.5));
  CHECK(point.efficiency == Approx(2.5 * 2 / 8));
  PointResult base = point_with(2, 1, 10);
  set_speedup(base, {});
  CHECK(base.speedup == Approx(1));
  CHECK(base.efficiency == Approx(1));
}

TEST_CASE("set_speedup: a degree that did not fit is no base") {
  PointResult point = point_with(4, 1, 5);
  PointResult lost = point_with(1, 1, 0, PointStatus::kOutOfMemory);
  lost.tpot_ms = {};
  set_speedup(point, {lost, point_with(2, 1, 9)});
  CHECK(point.tp_base == 2);
  CHECK(point.speedup == Approx(1.8));
}

TEST_CASE("set_speedup: a base whose MBU is impossible is still the base") {
  PointResult point = point_with(2, 1, 5);
  set_speedup(point, {point_with(1, 1, 8, PointStatus::kInvalid)});
  CHECK(point.tp_base == 1);
  CHECK(point.speedup == Approx(1.6));
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
  set_utilisation(point, 16e9, {.cache_bytes = int64_t{1} << 25U}, 10);
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

TEST_CASE("set_utilisation: without a peak only the achievable one, without a cache size no verdict") {
  PointResult point = point_to_rate();
  set_utilisation(point, 16e9, {}, std::nullopt);
  CHECK_FALSE(point.mbu.has_value());
  CHECK_FALSE(point.mbu_nominal.has_value());
  CHECK_FALSE(point.cache_resident.has_value());
  CHECK(point.mbu_achievable.has_value());
}

TEST_CASE("set_utilisation: what fits the caches has no MBU against memory") {
  PointResult point = point_to_rate();
  set_utilisation(point, 16e9, {.cache_bytes = 14'000'000'000}, 10);
  CHECK(point.cache_resident == true);
  CHECK_FALSE(point.mbu.has_value());
  CHECK(point.verdicts.size() == 1);
}

TEST_CASE("set_utilisation: more than 100 % of anything makes the point invalid") {
  PointResult by_peak = point_to_rate();
  set_utilisation(by_peak, 1e9, {}, 3.9);
  CHECK(by_peak.status == PointStatus::kInvalid);
  PointResult by_nominal = point_to_rate();
  set_utilisation(by_nominal, 50e9, {}, 10);
  CHECK(by_nominal.status == PointStatus::kInvalid);
  PointResult by_measurement = point_to_rate();
  by_measurement.ranks[1].achievable_gb_per_s = 2.9;
  set_utilisation(by_measurement, 1e9, {}, std::nullopt);
  CHECK(by_measurement.status == PointStatus::kInvalid);
  CHECK(by_measurement.verdicts.front().rfind("invalid: ", 0) == 0);
}

TEST_CASE("set_speedup: without a TPOT there is none") {
  PointResult point{.tp = 2};
  set_speedup(point, {});
  CHECK_FALSE(point.speedup.has_value());
}

TEST_CASE("prompt_of_length: exact, seeded, within the vocabulary") {
  const auto a = prompt_of_length(300, {}, 50, 7, 0);
  CHECK(a.size() == 300);
  CHECK(a == prompt_of_length(300, {}, 50, 7, 0));
  CHECK(a != prompt_of_length(300, {}, 50, 8, 0));
  CHECK(a != prompt_of_length(300, {}, 50, 7, 1));
  for (const int32_t id : a) CHECK((id >= 0 && id < 50));
  CHECK(prompt_of_length(5, {1, 2, 3}, 50, 0, 0) == std::vector<int32_t>{1, 2, 3, 1, 2});
  CHECK(prompt_of_length(2, {1, 2, 3}, 50, 0, 0) == std::vector<int32_t>{1, 2});
}

TEST_CASE("run_sweep: one rank measures every workload and its figures hang together") {
  parallel::World world({});
  const auto backend = kernels::make_cpu_backend({.threads = 1});
  const OpenedModel model = open_model({.model = "tiny"});
  SweepOptions options{.degrees = {1},
                       .workloads = {{.batch = 1, .prompt_tokens = 5, .output_tokens = 6},
                                     {.batch = 3, .prompt_tokens = 4, .output_tokens = 2},
                                     {.batch = 1, .prompt_tokens = 3, .output_tokens = 1}},
                       .warmup = 1,
                       .iterations = 2,
                       .valid_vocab = model.config.vocab,
                       .place_of_group = [](int) { return GroupPlace{.cache_bytes = int64_t{1} << 40U}; },
                       .peak_gb_per_s = 100};
  size_t announced = 0;
  const auto points = run_sweep(world, *backend, model, options,
                                {.say = [](const std::string&) {}, .point = [&](const PointResult&) { ++announced; }});
  REQUIRE(points.size() == 3);
  CHECK(announced == 3);
  CHECK(points[0].generations == 2);
  CHECK(points[0].tpot_ms.n == 2);
  CHECK(points[0].itl_ms.n == 2 * 5);
  CHECK(points[0].cache_resident == true);  // everything fits a tebibyte
  CHECK_FALSE(points[0].mbu.has_value());   // then no figure against memory
  CHECK_FALSE(points[0].mbu_nominal.has_value());
  REQUIRE(points[0].mbu_achievable.has_value());
  CHECK(points[0].mbu_achievable->min > 0);
  CHECK(points[0].latency_ms.p50 >= points[0].ttft_ms.p50);
  CHECK(points[1].throughput_tokens_per_s > 0);
  CHECK_FALSE(points[2].tpot_ms.p50.has_value());  // one output token: undefined
  CHECK_FALSE(points[2].speedup.has_value());
}

TEST_CASE("run_sweep: the bytes read for the bandwidth are those of the point, whatever the other batches") {
  parallel::World world({});
  const auto backend = kernels::make_cpu_backend({.threads = 1});
  const OpenedModel model = open_model({.model = "tiny"});
  const parallel::ShardPlan plan = plan_shards(shard_dimensions(model.config), 1);
  const auto communicator = parallel::make_communicator(world, {.group_size = 1});
  const RankContext context{*backend, *communicator, world};
  Decoder decoder(model.config, *model.weights, plan, {.slots = 9, .max_positions = 40}, context);
  const auto one = measure_read_bandwidth(decoder, context, {.kv = {.slots = 1, .positions = 10}, .seconds = 0.01});
  const auto nine = measure_read_bandwidth(decoder, context, {.kv = {.slots = 9, .positions = 10}, .seconds = 0.01});
  CHECK(nine.bytes - one.bytes == 8 * 10 * decoder.kv_cache().bytes_per_position());
  CHECK(one.passes >= 5);
  CHECK(one.best_gb_per_s >= one.median_gb_per_s);
}

TEST_CASE("run_sweep: --max-seconds ends a point and says so") {
  parallel::World world({});
  const auto backend = kernels::make_cpu_backend({.threads = 1});
  const OpenedModel model = open_model({.model = "tiny"});
  const SweepOptions options{.degrees = {1},
                             .workloads = {{.batch = 1, .prompt_tokens = 2, .output_tokens = 3}},
                             .warmup = 1,
                             .iterations = 1'000'000,
                             .max_seconds = 0.05,
                             .valid_vocab = model.config.vocab};
  const auto points = run_sweep(world, *backend, model, options,
                                {.say = [](const std::string&) {}, .point = [](const PointResult&) {}});
  CHECK(points[0].ended_by_time);
  CHECK(points[0].generations < 1'000'000);
  CHECK(points[0].verdicts.back().rfind("time_limit: ", 0) == 0);
}

TEST_CASE("run_sweep: a model that does not fit is a row, not an end") {
  parallel::World world({});
  const auto backend = kernels::make_cpu_backend({.threads = 1});
  const OpenedModel model = open_model({.model = "tiny"});
  SweepOptions options{.degrees = {1},
                       .workloads = {{.batch = 1, .prompt_tokens = 5, .output_tokens = 6}},
                       .valid_vocab = model.config.vocab,
                       .host_memory_bytes = 1000};
  const auto points = run_sweep(world, *backend, model, options,
                                {.say = [](const std::string&) {}, .point = [](const PointResult&) {}});
  REQUIRE(points.size() == 1);
  CHECK(points[0].status == PointStatus::kOutOfMemory);
  CHECK_FALSE(points[0].verdicts.empty());
}
