#include <catch2/catch.hpp>

#include "runtime/measure/verdicts.hpp"
#include "runtime/report/advice.hpp"
#include "tests/support/points.hpp"

using namespace shardscope::runtime;
using shardscope::test::a_point;
using shardscope::test::with_speedups;
using Sentences = std::vector<std::string>;

TEST_CASE("speedup_advice: one sentence per workload, about the fastest degree") {
  const auto points = with_speedups({a_point(1, 9.9), a_point(2, 4.9), a_point(4, 5.5)});
  // a_point(tp, t): six generations from t to t + 0.2, the median between them.
  CHECK(speedup_advice(points) ==
        Sentences{"At batch 1 with 8 + 4 tokens, TP=2 is 2.00x faster than TP=1 (100 % of ideal; 1.94x to 2.06x within "
                  "their noise). TP=4 is not faster than that beyond the noise."});
  CHECK(speedup_advice({points[0]}).empty());
  CHECK(speedup_advice({}).empty());
}

TEST_CASE("speedup_advice: workloads are never mixed") {
  std::vector<PointResult> points = {a_point(1, 9.9), a_point(1, 30), a_point(2, 4.9), a_point(2, 14.9)};
  points[1].workload.batch = 4;
  points[3].workload.batch = 4;
  const Sentences advice = speedup_advice(with_speedups(points));
  REQUIRE(advice.size() == 2);
  CHECK(advice[0].rfind("At batch 1 with 8 + 4 tokens, TP=2 is 2.00x faster than TP=1 (100 % of ideal;", 0) == 0);
  CHECK(advice[1].rfind("At batch 4 with 8 + 4 tokens, TP=2 is 2.01x faster than TP=1 (100 % of ideal;", 0) == 0);
}

TEST_CASE("speedup_advice: a degree that is surely faster is named, whatever a noisier one may be") {
  std::vector<PointResult> points = {a_point(1, 10), a_point(2, 6), a_point(4, 5.9)};
  points[2].noise.high_ms = 11;
  const Sentences advice = speedup_advice(with_speedups(points));
  REQUIRE(advice.size() == 1);
  CHECK(advice[0].find("TP=2 is 1.66x faster than TP=1") != std::string::npos);
  points[1].noise.high_ms = 11;
  CHECK(speedup_advice(with_speedups(points)) ==
        Sentences{"At batch 1 with 8 + 4 tokens, TP=2, 4 are not faster than TP=1 beyond the noise."});
}

TEST_CASE("speedup_advice: the smallest degree that cannot be told from the fastest") {
  const Sentences advice = speedup_advice(with_speedups({a_point(1, 10), a_point(2, 5.0), a_point(3, 4.9)}));
  REQUIRE(advice.size() == 1);
  CHECK(advice[0].find("TP=2 is 1.98x faster than TP=1 (99 % of ideal") != std::string::npos);
  CHECK(advice[0].find("TP=3 is not faster than that beyond the noise.") != std::string::npos);
}

TEST_CASE("speedup_advice: slower is said, too") {
  const std::string where = "At batch 1 with 8 + 4 tokens, ";
  CHECK(speedup_advice(with_speedups({a_point(1, 10), a_point(2, 30), a_point(3, 31)})) ==
        Sentences{where + "TP=2, 3 are slower than TP=1."});
  CHECK(speedup_advice(with_speedups({a_point(1, 10), a_point(2, 30), a_point(3, 10.1)})) ==
        Sentences{where + "TP=2 is slower than TP=1, TP=3 is not faster than TP=1 beyond the noise."});
}

TEST_CASE("speedup_advice: more than ideal is said with a doubt") {
  const Sentences advice = speedup_advice(with_speedups({a_point(1, 10), a_point(2, 4)}));
  REQUIRE(advice.size() == 1);
  CHECK(advice[0].find("That is more than ideal") != std::string::npos);
}

TEST_CASE("speedup_advice: points of two runs are not compared") {
  std::vector<PointResult> points = {a_point(1, 10), a_point(2, 6), a_point(4, 4)};
  mark_resumed(points[1]);
  const Sentences advice = speedup_advice(with_speedups(points));
  REQUIRE(advice.size() == 1);
  CHECK(advice[0].find("TP=4 is") != std::string::npos);
  CHECK(advice[0].find("TP=2 could not be judged.") != std::string::npos);
  mark_resumed(points[0]);
  mark_resumed(points[2]);
  CHECK(speedup_advice(with_speedups(points))[0].find("judged") == std::string::npos);
}

TEST_CASE("speedup_advice: what could not be judged is named") {
  std::vector<PointResult> points = {a_point(1, 5), a_point(2, 4.9), a_point(4, 2)};
  points[2].status = PointStatus::kInvalid;
  CHECK(speedup_advice(with_speedups(points)) ==
        Sentences{"At batch 1 with 8 + 4 tokens, TP=2 is not faster than TP=1 beyond the noise. TP=4 could not be "
                  "judged."});
}

TEST_CASE("speedup_advice: nothing from few samples, shared cores, or points that are not ok") {
  auto points = with_speedups({a_point(1, 9.9), a_point(2, 4.9)});
  REQUIRE(speedup_advice(points).size() == 1);
  const size_t spoiled = GENERATE(0U, 1U);
  SECTION("shared cores") {
    points[spoiled].oversubscribed = true;
  }
  SECTION("emulated") {
    points[spoiled].kind = FigureKind::kEmulated;
  }
  SECTION("impossible") {
    points[spoiled].status = PointStatus::kInvalid;
  }
  SECTION("visited once") {
    points[spoiled].status = PointStatus::kIncomplete;
  }
  SECTION("five samples") {
    const std::vector<double> five = {4.9, 5, 5.1, 4.9, 5};
    points[spoiled].tpot_ms = distribution_of(five);
    points[spoiled].noise = {};
  }
  SECTION("no TPOT") {
    points[spoiled].tpot_ms = {};
  }
  CHECK(speedup_advice(points).empty());
}

TEST_CASE("speedup_advice: no claim within the noise, nor within the shift between visits") {
  const Sentences none = {"At batch 1 with 8 + 4 tokens, TP=2 is not faster than TP=1 beyond the noise."};
  CHECK(speedup_advice(with_speedups({a_point(1, 5.0), a_point(2, 4.9)})) == none);  // 5.0 … 5.2 and 4.9 … 5.1 overlap
  CHECK(speedup_advice(with_speedups({a_point(1, 5.0), a_point(2, 5.1)})) == none);
  std::vector<PointResult> apart = {a_point(1, 5.0), a_point(2, 4.0)};  // 5.0 … 5.2 and 4.0 … 4.2
  REQUIRE(speedup_advice(with_speedups(apart)) != none);
  apart[1].noise.high_ms = 5.05;  // as the visits' medians would have it
  CHECK(speedup_advice(with_speedups(apart)) == none);
}

namespace {

using shardscope::topology::Placement;

/// A base, both placements of two devices, and all of four.
std::vector<PointResult> two_placements(double best_ms, double worst_ms) {
  std::vector<PointResult> points = {a_point(1, 9.9), a_point(2, best_ms), a_point(2, worst_ms), a_point(4, 3.9)};
  points[0].group = {.placement = Placement::kBest, .also = {Placement::kWorst}, .places = {0}};
  points[1].group = {.placement = Placement::kBest, .places = {0, 1}};
  points[2].group = {.placement = Placement::kWorst, .places = {0, 2}};
  points[3].group = {.placement = Placement::kBest, .also = {Placement::kWorst}, .places = {0, 1, 2, 3}};
  return with_speedups(points);
}

}  // namespace

TEST_CASE("speedup_advice: a sentence for each placement that shows something of its own") {
  const Sentences advice = speedup_advice(two_placements(4.9, 7.9));
  REQUIRE(advice.size() == 2);
  CHECK(advice[0].rfind("At batch 1 with 8 + 4 tokens and best placement, TP=4 is 2.50x faster than TP=1", 0) == 0);
  CHECK(advice[1].rfind("At batch 1 with 8 + 4 tokens and worst placement, TP=4 is 2.50x faster than TP=1", 0) == 0);
  // Without a base that all share, each sentence has the ratio of its own pair.
  std::vector<PointResult> without = two_placements(5.9, 7.9);
  without.erase(without.begin());
  const Sentences own = speedup_advice(with_speedups(without));
  REQUIRE(own.size() == 2);
  CHECK(own[0].find("TP=4 is 1.50x faster than TP=2") != std::string::npos);
  CHECK(own[1].find("TP=4 is 2.00x faster than TP=2") != std::string::npos);
  std::vector<PointResult> same = {a_point(1, 9.9), a_point(2, 4.9)};
  for (PointResult& point : same) point.group.also = {Placement::kBest, Placement::kWorst};
  const Sentences one = speedup_advice(with_speedups(same));
  REQUIRE(one.size() == 1);
  CHECK(one[0].rfind("At batch 1 with 8 + 4 tokens, TP=2 is", 0) == 0);
}

TEST_CASE("wiring_advice: what the wiring is worth, where it is more than noise") {
  CHECK(wiring_advice(two_placements(4.9, 7.4)) ==
        Sentences{"At batch 1 with 8 + 4 tokens, TP=2: the wiring is worth 50 % (45 to 55 % within their noise): the "
                  "best placement is that much faster than the worst (devices 0-1, and 0,2 for the worst)."});
  CHECK(wiring_advice(two_placements(4.9, 5.0)) ==
        Sentences{"At batch 1 with 8 + 4 tokens, TP=2: the best placement is not faster than the worst beyond the "
                  "noise (devices 0-1, and 0,2 for the worst)."});
  CHECK(wiring_advice(two_placements(7.4, 4.9)) ==
        Sentences{"At batch 1 with 8 + 4 tokens, TP=2: the best placement is slower than the worst (devices 0-1, and "
                  "0,2 for the worst)."});
  CHECK(wiring_advice(with_speedups({a_point(1, 9.9), a_point(2, 4.9)})).empty());
  std::vector<PointResult> points = two_placements(4.9, 7.4);
  points[2].oversubscribed = true;
  CHECK(wiring_advice(points).empty());
  CHECK(scale_advice(two_placements(4.9, 7.4)).size() == 3);
}
