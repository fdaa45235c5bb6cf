#include "runtime/measure/attribution.hpp"

#include <catch2/catch.hpp>
#include <cmath>

#include "kernels/base/error.hpp"
#include "runtime/measure/figures.hpp"
#include "runtime/measure/verdicts.hpp"
#include "tests/support/points.hpp"
#include "tests/support/scripted_steps.hpp"

using namespace shardscope;
using namespace shardscope::runtime;
using test::Script;

namespace {

constexpr double kGbPerS = 10;
constexpr OperationBytes kBytes{.products = 20000, .attention = 3000, .elementwise = 100, .head = 9000};

/// A point whose generations, with instruments and without, all go by the script.
PointResult point_by(const Script& script) {
  const double tpot_ms = test::scripted_tpot_ms(script);
  const auto tp = static_cast<int>(script.ranks.size());
  PointResult point = test::a_point(tp, tpot_ms);
  point.tpot_ms.p50 = tpot_ms;
  for (RankFigures& figures : point.ranks) figures.achievable_gb_per_s = kGbPerS;
  for (int i = 0; i < 4; ++i) {
    point.instrumented.push_back(
        {.tpot_ms = tpot_ms, .ranks = *step_times_of(test::scripted_times(script), script.ranks.size(), true)});
  }
  set_attribution(point, std::vector<OperationBytes>(script.ranks.size(), kBytes));
  return point;
}

Script pair_script() {
  return {.layers = 2, .steps = 4, .ranks = {{}, {}}};
}

/// Checks that only `changed` differ between two attributions of a rank, each by its ms, and TPOT by what they sum to.
void check_change(const Parts& before, const Parts& after, const Parts& change) {
  for (const Part part : kParts) {
    INFO(name_of(part));
    CHECK(after[part] - before[part] == Approx(change[part]).margin(1e-9));
  }
}

}  // namespace

TEST_CASE("attribution: parts of a rank are own times less what memory at full speed takes, and sum to TPOT") {
  const PointResult point = point_by(pair_script());
  REQUIRE(point.attribution);
  const auto ideal_ms = [](double bytes) { return bytes / (kGbPerS * 1e9) * 1e3; };
  for (const RankFigures& figures : point.ranks) {
    REQUIRE(figures.attribution);
    const Parts& parts = *figures.attribution;
    CHECK(parts[Part::kIdealMemory] == Approx(ideal_ms(kBytes.sum())));
    CHECK(parts[Part::kMatrixLoss] == Approx(8 * 1e-3 - ideal_ms(kBytes.products)));
    CHECK(parts[Part::kAttention] == Approx(2 * 0.7e-3 - ideal_ms(kBytes.attention)));
    CHECK(parts[Part::kElementwise] == Approx(0.3e-3 + 2 * 0.2e-3 - ideal_ms(kBytes.elementwise)));
    CHECK(parts[Part::kAllreduceTransfer] == Approx(5 * 0.5e-3));
    CHECK(parts[Part::kAllreduceWait] == Approx(0).margin(1e-12));
    CHECK(parts[Part::kHeadAndSampling] == Approx(4e-3 + 0.15e-3 + 0.09e-3 - ideal_ms(kBytes.head)));
    CHECK(parts[Part::kGaps] == Approx(8 * 0.04e-3));
    CHECK(parts[Part::kResidual] == Approx(0).margin(1e-9));
    CHECK(parts.sum() == Approx(*point.tpot_ms.p50));
  }
  CHECK(point.attribution->sum() == Approx(*point.tpot_ms.p50));
  CHECK(*point.comm_share == Approx(2.5e-3 / *point.tpot_ms.p50));
  CHECK(*point.instrumented_tpot_ms == Approx(*point.tpot_ms.p50));
}

TEST_CASE("attribution: injected time lands in its own part, to the nanosecond") {
  const PointResult before = point_by(pair_script());
  const auto changed = [&](const std::function<void(Script&)>& inject, Part part, double ms) {
    Script script = pair_script();
    inject(script);
    const PointResult after = point_by(script);
    Parts change;
    change[part] = ms;
    for (size_t rank = 0; rank < 2; ++rank) {
      check_change(*before.ranks[rank].attribution, *after.ranks[rank].attribution, change);
    }
    CHECK(*after.tpot_ms.p50 - *before.tpot_ms.p50 == Approx(ms).margin(1e-9));
  };
  const auto both = [](int64_t test::ScriptedRank::*field, int64_t more) {
    return [=](Script& script) {
      for (test::ScriptedRank& rank : script.ranks) rank.*field += more;
    };
  };
  changed(both(&test::ScriptedRank::product_ns, 250), Part::kMatrixLoss, 8 * 250e-6);
  changed(both(&test::ScriptedRank::gap_ns, 90), Part::kGaps, 8 * 90e-6);
  changed(both(&test::ScriptedRank::attention_ns, 111), Part::kAttention, 2 * 111e-6);
  changed(both(&test::ScriptedRank::norm_ns, 33), Part::kElementwise, 2 * 33e-6);
  changed(both(&test::ScriptedRank::head_ns, 777), Part::kHeadAndSampling, 777e-6);
  changed([](Script& script) { script.transfer_ns += 60; }, Part::kAllreduceTransfer, 5 * 60e-6);
}

TEST_CASE("attribution: of uneven shards the larger one's products grow, and the other rank waits") {
  const PointResult before = point_by(pair_script());
  Script uneven = pair_script();
  uneven.ranks[1].product_ns += 400;
  const PointResult after = point_by(uneven);
  const double more_ms = 8 * 400e-6;
  Parts waiting, working;
  waiting[Part::kAllreduceWait] = more_ms;
  working[Part::kMatrixLoss] = more_ms;
  check_change(*before.ranks[0].attribution, *after.ranks[0].attribution, waiting);
  check_change(*before.ranks[1].attribution, *after.ranks[1].attribution, working);
  Parts row;  // the mean of both
  row[Part::kAllreduceWait] = row[Part::kMatrixLoss] = more_ms / 2;
  check_change(*before.attribution, *after.attribution, row);
}

TEST_CASE("attribution: what instruments and TPOT do not share is the residual, printed beyond its bound") {
  PointResult point = point_by(pair_script());
  const double tpot_ms = *point.tpot_ms.p50;
  const std::vector<OperationBytes> bytes(2, kBytes);
  point.tpot_ms.p50 = tpot_ms * 1.04;
  set_attribution(point, bytes);
  CHECK((*point.attribution)[Part::kResidual] == Approx(tpot_ms * 0.04));
  CHECK(*residual_share(point) == Approx(0.04 / 1.04));
  add_verdicts(point, {});
  for (const std::string& verdict : point.verdicts) CHECK(verdict.find("residual") == std::string::npos);
  point.tpot_ms.p50 = tpot_ms * 0.9;  // the instruments were slower
  set_attribution(point, bytes);
  CHECK((*point.attribution)[Part::kResidual] == Approx(-tpot_ms * 0.1));
  add_verdicts(point, {});
  CHECK(point.verdicts.back().find("residual: the parts of TPOT leave -11.1 % of it unexplained") == 0);
}

TEST_CASE("attribution: single disturbed generations do not move it, and all ranks take the same generations") {
  PointResult point = point_by(pair_script());
  const Parts before = *point.attribution;
  InstrumentedSample slow = point.instrumented.front();
  slow.tpot_ms *= 10;
  for (StepTimes& times : slow.ranks) times.gaps += 9 * *point.tpot_ms.p50;
  InstrumentedSample quick = point.instrumented.front();
  quick.tpot_ms *= 0.5;
  for (StepTimes& times : quick.ranks) times.products *= 0.1;
  point.instrumented.push_back(slow);
  point.instrumented.push_back(quick);
  set_attribution(point, std::vector<OperationBytes>(2, kBytes));
  for (const Part part : kParts) CHECK((*point.attribution)[part] == Approx(before[part]).margin(1e-9));
}

TEST_CASE("attribution: none without a TPOT, an instrumented generation or a bandwidth") {
  const std::vector<OperationBytes> bytes(2, kBytes);
  const auto has = [&](const std::function<void(PointResult&)>& spoil) {
    PointResult point = point_by(pair_script());
    spoil(point);
    set_attribution(point, bytes);
    return point.attribution.has_value() || point.comm_share.has_value() || point.ranks[0].attribution.has_value();
  };
  CHECK(has([](PointResult&) {}));
  CHECK_FALSE(has([](PointResult& point) { point.tpot_ms.p50.reset(); }));
  CHECK_FALSE(has([](PointResult& point) { point.instrumented.clear(); }));
  CHECK_FALSE(has([](PointResult& point) { point.ranks[1].achievable_gb_per_s = 0; }));
  CHECK_FALSE(has([](PointResult& point) { point.ranks[1].achievable_gb_per_s = std::nan(""); }));
  PointResult point = point_by(pair_script());
  CHECK_THROWS_AS(set_attribution(point, {kBytes}), BugError);
}

TEST_CASE("losses: against perfect scaling from the base, and they sum to what it would have saved") {
  Script single = pair_script();
  single.ranks.resize(1);
  single.transfer_ns = 0;
  for (test::ScriptedRank& rank : single.ranks) rank.product_ns = 2000;
  std::vector<PointResult> points = {point_by(single), point_by(pair_script())};
  set_speedups(points);
  set_losses(points);
  REQUIRE(points[1].loss);
  const Parts& loss = *points[1].loss;
  for (const Part part : kParts) {
    CHECK(loss[part] == Approx((*points[1].attribution)[part] - (*points[0].attribution)[part] / 2).margin(1e-12));
    CHECK((*points[0].loss)[part] == Approx(0).margin(1e-12));
  }
  CHECK(loss.sum() == Approx(*points[1].tpot_ms.p50 - *points[0].tpot_ms.p50 / 2));
  CHECK(loss[Part::kAllreduceTransfer] == Approx(5 * 500e-6));

  for (const size_t one : {0, 1}) {
    std::vector<PointResult> computed = points;
    computed[one].rehearsal = Rehearsal{};  // without its collectives
    set_losses(computed);
    CHECK_FALSE(computed[1].loss);
    computed[one].rehearsal->step_collectives_ms = 0.1;
    set_losses(computed);
    CHECK(computed[1].loss == points[1].loss);
  }

  points[0].attribution.reset();
  set_losses(points);
  CHECK_FALSE(points[1].loss);  // nothing is known of the base
}
