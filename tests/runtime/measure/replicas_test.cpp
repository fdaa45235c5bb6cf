#include <catch2/catch.hpp>

#include "kernels/base/error.hpp"
#include "runtime/measure/figures.hpp"
#include "runtime/measure/sweep.hpp"
#include "runtime/report/document.hpp"
#include "runtime/report/rivals.hpp"
#include "runtime/report/table.hpp"
#include "tests/support/points.hpp"

using namespace shardscope;
using namespace shardscope::runtime;
using Catch::Matchers::Contains;
using test::a_point;

namespace {

PointResult replicas_of(int tp, int replicas, double tpot_ms) {
  PointResult point = a_point(tp, tpot_ms);
  point.group.replicas = replicas;
  return point;
}

}  // namespace

TEST_CASE("SweepOptions: replicas follow the lone group of a degree that leaves room for two") {
  const SweepOptions options{.degrees = {1, 2, 4}, .replica_ranks = 5, .workloads = {{.batch = 1}, {.batch = 2}}};
  std::vector<std::pair<size_t, int>> groups;
  for (const topology::PlacedGroup& group : options.all_groups()) {
    groups.emplace_back(group.places.size(), group.replicas);
    CHECK(group.ranks() <= 5);
  }
  CHECK(groups == std::vector<std::pair<size_t, int>>{{1, 1}, {1, 5}, {2, 1}, {2, 2}, {4, 1}});
  CHECK(options.point_count() == 10);
}

TEST_CASE("set_times: rates are of all replicas together, times of one") {
  PointResult lone{.tp = 2, .workload = {.batch = 3, .prompt_tokens = 4, .output_tokens = 5}};
  PointResult three = lone;
  three.group.replicas = 3;
  const std::vector<VisitRecord> visits = {
      {.samples = {{.ttft_ms = 4, .tpot_ms = 1, .latency_ms = 8, .itl_ms = {1, 1, 1, 1}}}}};
  set_times(lone, visits);
  set_times(three, visits);
  CHECK(*lone.throughput_tokens_per_s == Approx(3 * 5 / 8e-3));
  CHECK(*three.throughput_tokens_per_s == Approx(3 * *lone.throughput_tokens_per_s));
  CHECK(*three.requests_per_s == Approx(3 * *lone.requests_per_s));
  CHECK(*three.tpot_ms.p50 == *lone.tpot_ms.p50);
}

TEST_CASE("replicas: no base, no rival and no speed-up of lone rows") {
  const auto points = test::with_speedups({replicas_of(1, 4, 20), a_point(1, 10), a_point(2, 5), replicas_of(2, 2, 6)});
  CHECK_FALSE(points[0].speedup);
  CHECK_FALSE(points[3].tp_base);
  CHECK(points[2].speedup == Approx(10.1 / 5.1));
  const Rivals rivals = rivals_of(points[1], topology::Placement::kLinear, points);
  REQUIRE(rivals.judged.size() == 1);
  CHECK(rivals.judged[0] == &points[2]);
  CHECK(rivals.unjudged.empty());
}

TEST_CASE("replicas: in documents and tables") {
  const PointResult two = replicas_of(2, 2, 6);
  const Json document = point_json(two, false);
  CHECK(document["replicas"] == 2);
  CHECK(point_from_json(document, "here").group.replicas == 2);
  Json none = document;
  none["replicas"] = 0;
  CHECK_THROWS_AS(point_from_json(none, "here"), UserError);
  CHECK_THAT(scale_table({a_point(2, 5), two}), Contains("TP  repl.  batch") && Contains("\n2       2      1"));
  CHECK_THAT(scale_table({a_point(2, 5)}), !Contains("repl."));
  CHECK_THAT(point_line(two), Contains("tp 2 x 2 replicas, batch 1"));
}
