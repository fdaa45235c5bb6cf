#include "runtime/measure/sweep.hpp"

#include <catch2/catch.hpp>

#include "parallel/world.hpp"

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
  set_speedup(point, {point_with(1, 1, 1, PointStatus::kOutOfMemory), point_with(2, 1, 9)});
  CHECK(point.speedup == Approx(1.8));
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
                       .last_level_cache_bytes = int64_t{1} << 40U,
                       .peak_gb_per_s = 100};
  size_t announced = 0;
  const auto points = run_sweep(world, *backend, model, options,
                                {.say = [](const std::string&) {}, .point = [&](const PointResult&) { ++announced; }});
  REQUIRE(points.size() == 3);
  CHECK(announced == 3);
  CHECK(points[0].generations == 2);
  CHECK(points[0].tpot_ms.n == 2);
  CHECK(points[0].itl_ms.n == 2 * 5);
  CHECK(points[0].cache_resident);         // everything fits a tebibyte
  CHECK_FALSE(points[0].mbu.has_value());  // then no figure against memory
  CHECK_FALSE(points[0].mbu_nominal.has_value());
  REQUIRE(points[0].mbu_achievable.has_value());
  CHECK(points[0].mbu_achievable->min > 0);
  CHECK(points[0].latency_ms.p50 >= points[0].ttft_ms.p50);
  CHECK(points[1].throughput_tokens_per_s > 0);
  CHECK_FALSE(points[2].tpot_ms.p50.has_value());  // one output token: undefined
  CHECK_FALSE(points[2].speedup.has_value());
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
