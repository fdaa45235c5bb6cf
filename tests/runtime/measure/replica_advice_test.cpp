#include "runtime/report/replica_advice.hpp"

#include <stdexcept>
#include <utility>

#include <catch2/catch.hpp>

#include "tests/support/parted_points.hpp"

using namespace shardscope::runtime;
using shardscope::test::an_even_point;
using Sentences = std::vector<std::string>;

namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Lone groups of 2 and 4 ranks; those of 4 make less of the requests of two groups from 4 each on.
struct LoneGroups {
  std::vector<PointResult> points;

  LoneGroups() {
    for (const auto& [batch, rate] : {std::pair(1, 100), {4, 400}, {16, 1600}}) add(2, batch, rate);
    for (const auto& [batch, rate] : {std::pair(1, 150), {2, 250}, {8, 700}, {16, 1200}, {32, 2800}}) {
      add(4, batch, rate);
    }
  }
  void add(int tp, int64_t batch, double tokens_per_s) {
    points.push_back(an_even_point(tp, {.ideal = 10}, 0.1));
    points.back().workload.batch = batch;
    set_rate(points.back(), tokens_per_s);
  }
  PointResult& row(int tp, int64_t batch) {
    for (PointResult& point : points) {
      if (point.tp == tp && point.workload.batch == batch) return point;
    }
    throw std::logic_error("no such row");
  }
  void remove(int tp, int64_t batch) { points.erase(points.begin() + (&row(tp, batch) - points.data())); }
  static void set_rate(PointResult& point, double tokens_per_s) {
    const double ms = static_cast<double>(point.workload.batch * point.workload.output_tokens) / tokens_per_s * 1e3;
    point.latency_ms.p50 = ms;
    point.latency_ms.p50_interval = {0.995 * ms, 1.005 * ms};  // its TPOT is known to 1 %
  }
};

}  // namespace

TEST_CASE("replica_advice: the large group may serve all replicas' requests as one batch") {
  LoneGroups groups;
  const auto advice = [&] { return replica_advice(groups.points); };
  CHECK(
      advice() ==
      Sentences{"2 replicas at TP=2 would give more tokens per second than TP=4 at batch 4 to 16 each (1.14x at batch "
                "16 each, against batch 32), if replicas do not disturb each other (measure with --replicas)."});
  groups.set_rate(groups.row(4, 2), 180);
  CHECK(contains(advice().at(0), "at batch 1 to 16 each"));
  SECTION("of what it was not given nothing is said") {
    groups.remove(4, 32);
    CHECK(contains(advice().at(0), "at batch 1 to 4 each (1.14x at batch 4 each, against batch 8)"));
    groups.remove(4, 16);
    groups.remove(4, 8);
    CHECK(contains(advice().at(0), "at batch 1 each (1.11x at batch 1 each, against batch 2)"));
    groups.remove(4, 2);
    CHECK(advice().empty());  // batch 1 alone, where two replicas serve two requests
  }
  SECTION("a larger batch stands for the one of them all") {
    groups.row(4, 32).workload.batch = 64;
    groups.set_rate(groups.row(4, 64), 2800);
    CHECK(contains(advice().at(0), "at batch 1 to 16 each (1.14x at batch 16 each, against batch 64)"));
  }
  SECTION("within the noise of its best batch, whichever that is") {
    const int64_t best = GENERATE(8, 16, 32);
    groups.set_rate(groups.row(4, best), 3170);  // 1.01x at the largest batch, within ± 1 % of each
    CHECK(advice().empty());
  }
  SECTION("replicas that were measured at once stand for themselves") {
    for (const auto& [batch, rate] : {std::pair(1, 195), {4, 790}, {16, 3080}}) {
      groups.add(2, batch, rate / 2.0);  // of one of the two
      groups.points.back().group.replicas = 2;
    }
    CHECK(advice() == Sentences{"2 replicas at TP=2 give more tokens per second than TP=4 at batch 1 to 16 each (1.10x "
                                "at batch 16 each, against batch 32), measured at once."});
    groups.set_rate(groups.points.back(), 1390);
    CHECK(advice().empty());
  }
}

TEST_CASE("replica_advice: nothing where the evidence is thin, and lengths where they vary") {
  LoneGroups groups;
  std::vector<PointResult>& points = groups.points;
  REQUIRE(replica_advice(points).size() == 1);
  SECTION("a latency that is not known as well") {
    for (PointResult& point : points) point.latency_ms.p50_interval.high = 3 * *point.latency_ms.p50;
    CHECK(replica_advice(points).empty());
    for (PointResult& point : points) point.latency_ms.p50_interval.high.reset();
    CHECK(replica_advice(points).empty());
  }
  SECTION("lengths are named where they vary") {
    groups.add(2, 1, 100);
    points.back().workload.output_tokens = 64;
    CHECK(contains(replica_advice(points).at(0), "at batch 4 to 16 each, with 8 + 4 tokens (1.14x"));
  }
  SECTION("a degree that does not divide the devices is none of theirs") {
    for (PointResult& point : points) point.tp = point.tp == 2 ? 3 : 4;
    CHECK(replica_advice(points).empty());
  }
  SECTION("thin evidence") {
    for (PointResult& point : points) point.oversubscribed = true;
    CHECK(replica_advice(points).empty());
  }
}
