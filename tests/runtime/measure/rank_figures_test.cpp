#include "runtime/measure/rank_figures.hpp"

#include <catch2/catch.hpp>

using namespace shardscope::runtime;

TEST_CASE("rank_figures_of: what to_doubles sent") {
  const OwnFigures own{.tpot_ms = {9, 1, 5},
                       .before = {.best_gb_per_s = 20, .median_gb_per_s = 18},
                       .after = {.best_gb_per_s = 22, .median_gb_per_s = 16},
                       .waited_seconds = 0.5,
                       .seconds = 10,
                       .load_seconds = 3,
                       .timer_step_ns = 32.0};
  const auto doubles = to_doubles(own, {.weights = 100, .kv = 20, .workspace = 3});
  const RankFigures figures = rank_figures_of(doubles, 7);
  CHECK(figures.rank == 7);
  CHECK(figures.achievable_gb_per_s == 22);
  CHECK(figures.achievable_median_gb_per_s == 17);
  CHECK(figures.bandwidth_drift == Approx(0.1));
  CHECK(figures.tpot_ms == 5);
  CHECK(figures.waited_share == 0.05);
  CHECK(figures.memory.weights == 100);
  CHECK(figures.memory.kv == 20);
  CHECK(figures.memory.workspace == 3);
  CHECK(figures.load_seconds == 3);
  CHECK(figures.timer_step_ns == 32);
}

TEST_CASE("rank_figures_of: what is not known stays so") {
  const RankFigures figures = rank_figures_of(to_doubles({}, {}), 0);
  CHECK_FALSE(figures.tpot_ms.has_value());
  CHECK_FALSE(figures.waited_share.has_value());
  CHECK_FALSE(figures.timer_step_ns.has_value());
}

TEST_CASE("both_visits: the better bandwidth, the larger drift and timer step, means of the rest") {
  const RankFigures first{.rank = 1,
                          .achievable_gb_per_s = 30,
                          .achievable_median_gb_per_s = 20,
                          .bandwidth_drift = -0.2,
                          .tpot_ms = 10.0,
                          .load_seconds = 5};
  const RankFigures second{.rank = 1,
                           .achievable_gb_per_s = 25,
                           .achievable_median_gb_per_s = 24,
                           .bandwidth_drift = 0.1,
                           .tpot_ms = 12.0,
                           .waited_share = 0.25,
                           .load_seconds = 1};
  const RankFigures both = both_visits(first, second);
  CHECK(both.achievable_gb_per_s == 30);
  CHECK(both.achievable_median_gb_per_s == 22);
  CHECK(both.bandwidth_drift == -0.2);
  CHECK(both.tpot_ms == 11);
  CHECK(both.waited_share == 0.25);
  CHECK(both.load_seconds == 5);
  CHECK_FALSE(both.timer_step_ns);
  const RankFigures fine{.timer_step_ns = 32.0}, coarse{.timer_step_ns = 1000.0};
  CHECK(both_visits(fine, coarse).timer_step_ns == 1000);
  CHECK(both_visits(coarse, fine).timer_step_ns == 1000);
  CHECK(both_visits(coarse, second).timer_step_ns == 1000);  // the second visit had no instruments
  CHECK(both_visits(second, coarse).timer_step_ns == 1000);
}
