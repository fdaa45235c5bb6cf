#include <random>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "runtime/measure/verdicts.hpp"
#include "runtime/report/compare/point_verdict.hpp"
#include "tests/runtime/compare/report_pair.hpp"

using namespace shardscope::runtime;
using shardscope::test::a_known_point;
using shardscope::test::PartMs;

namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

constexpr double kBound = 0.02;

/// A point known to `low` to `high` ms.
PointResult known_to(double p50, double low, double high) {
  PointResult point = a_known_point(1, {.ideal = p50});
  point.noise.low_ms = low;
  point.noise.high_ms = high;
  return point;
}

PointVerdict verdict_of(const PointResult& first, const PointResult& other) {
  return compare_points(first, other, 1, kBound).verdict;
}

/// What a sweep makes of two visits of 12 generations each, with TPOTs from `draw`.
template <typename Draw>
PointResult drawn_point(const Draw& draw, int each = 12) {
  std::vector<VisitRecord> visits(2);
  for (int pass = 0; pass < 2; ++pass) {
    for (int i = 0; i < each; ++i) {
      const double tpot_ms = draw();
      visits[static_cast<size_t>(pass)].samples.push_back(
          {.pass = pass, .ttft_ms = 10, .tpot_ms = tpot_ms, .latency_ms = 10 + 3 * tpot_ms});
    }
  }
  PointResult point{.tp = 2, .workload = {.batch = 1, .prompt_tokens = 8, .output_tokens = 4}};
  set_times(point, visits);
  return point;
}

}  // namespace

TEST_CASE("compare_points: faster and slower where the intervals are well apart") {
  const PointResult first = known_to(10, 9.9, 10.1);
  CHECK(verdict_of(first, known_to(13, 12.9, 13.1)) == PointVerdict::kSlower);
  CHECK(verdict_of(known_to(13, 12.9, 13.1), first) == PointVerdict::kFaster);
  const ComparedPoint pair = compare_points(first, known_to(13, 12.9, 13.1), 2, kBound);
  CHECK(pair.report == 2);
  CHECK(*pair.ratio == Approx(1.3));
  CHECK(*pair.difference_ms == Approx(3));
  CHECK(pair.ratio_bounds->low == Approx(12.9 / 10.1));
  CHECK(pair.ratio_bounds->high == Approx(13.1 / 9.9));
  CHECK(pair.reason.empty());
}

TEST_CASE("compare_points: intervals that merely do not overlap are no verdict") {
  const PointResult first = known_to(10, 9.8, 10.2);
  const ComparedPoint pair = compare_points(first, known_to(10.5, 10.3, 10.7), 1, kBound);
  CHECK(pair.verdict == PointVerdict::kUnclear);
  CHECK(pair.reason == "the noise leaves 1.01x to 1.09x");
  CHECK(verdict_of(first, known_to(10.79, 10.59, 10.99)) == PointVerdict::kUnclear);
  CHECK(verdict_of(first, known_to(10.81, 10.61, 11.01)) == PointVerdict::kSlower);
}

TEST_CASE("compare_points: a difference within the reports' noise bound is none") {
  const PointResult first = known_to(10, 9.999, 10.001);
  CHECK(verdict_of(first, known_to(10.19, 10.189, 10.191)) == PointVerdict::kSame);
  CHECK(verdict_of(first, known_to(10.25, 10.249, 10.251)) == PointVerdict::kSlower);
  CHECK(compare_points(first, known_to(10.19, 10.189, 10.191), 1, 0.005).verdict == PointVerdict::kSlower);
}

TEST_CASE("compare_points: the same only where the whole range of the ratio is near 1") {
  CHECK(verdict_of(known_to(10, 9.95, 10.05), known_to(10, 9.95, 10.05)) == PointVerdict::kSame);
  CHECK(verdict_of(known_to(10, 9.85, 10.15), known_to(10, 9.95, 10.05)) == PointVerdict::kUnclear);
  CHECK(verdict_of(known_to(10, 9.95, 10.05), known_to(10.12, 10.07, 10.17)) == PointVerdict::kUnclear);
}

TEST_CASE("compare_points: thin evidence is unclear, and says why") {
  const PointResult good = known_to(10, 9.9, 10.1);
  PointResult bad = known_to(20, 19.9, 20.1);
  REQUIRE(verdict_of(good, bad) == PointVerdict::kSlower);
  std::string reason;
  SECTION("few generations") {
    bad.tpot_ms.n = 11;
    reason = "the other: 11 generations, 12 are needed";
  }
  SECTION("status") {
    bad.status = PointStatus::kInvalid;
    reason = "the other: its status is invalid";
  }
  SECTION("kind") {
    bad.kind = FigureKind::kEmulated;
    reason = "the other: its figures are emulated";
  }
  SECTION("no TPOT") {
    bad.tpot_ms = {};
    reason = "the other: it has no TPOT";
  }
  SECTION("an open interval") {
    bad.noise.high_ms.reset();
    reason = "the other: its median has no closed interval";
  }
  SECTION("shared cores in one") {
    bad.oversubscribed = true;
    reason = "the other had more threads than cores";
  }
  CHECK(compare_points(good, bad, 1, kBound).verdict == PointVerdict::kUnclear);
  CHECK(compare_points(good, bad, 1, kBound).reason == reason);
  CHECK(compare_points(good, bad, 1, kBound).words.empty());
  CHECK(compare_points(bad, good, 1, kBound).verdict == PointVerdict::kUnclear);
}

TEST_CASE("compare_points: a row that an earlier run measured bears a verdict: reports are of several runs anyway") {
  PointResult resumed = known_to(20, 19.9, 20.1);
  mark_resumed(resumed);
  CHECK(verdict_of(known_to(10, 9.9, 10.1), resumed) == PointVerdict::kSlower);
  CHECK(verdict_of(resumed, known_to(10, 9.9, 10.1)) == PointVerdict::kFaster);
}

TEST_CASE("compare_points: no parts and no verdict where one TPOT alone leaves out collectives") {
  const PointResult known = a_known_point(2, {.ideal = 6, .transfer = 1});
  PointResult without = a_known_point(2, {.ideal = 6});
  without.kind = FigureKind::kRehearsed;
  without.rehearsal = Rehearsal{.collective_model = "none known: compute only"};
  for (const auto& [first, other, which] :
       {std::tuple(&known, &std::as_const(without), "other"), std::tuple(&std::as_const(without), &known, "first")}) {
    const ComparedPoint pair = compare_points(*first, *other, 1, kBound);
    CHECK(pair.verdict == PointVerdict::kUnclear);
    CHECK(pair.reason == fmt::format("the {}'s TPOT leaves out collectives, of which nothing is known", which));
    CHECK_FALSE(pair.explained);
  }
  CHECK(compare_points(without, without, 1, kBound).explained);
}

TEST_CASE("compare_points: what is not finite is no verdict") {
  const PointResult good = known_to(10, 9.9, 10.1);
  for (const double bad : {double(NAN), double(INFINITY), 0.0, -1.0}) {
    CHECK(verdict_of(good, known_to(bad, bad, bad)) == PointVerdict::kUnclear);
    CHECK(verdict_of(known_to(bad, bad, bad), good) == PointVerdict::kUnclear);
    CHECK(verdict_of(good, known_to(20, bad, bad)) == PointVerdict::kUnclear);
  }
}

TEST_CASE("compare_points: the same code is neither faster nor slower, whatever the noise") {
  std::mt19937_64 random(20260301);
  std::normal_distribution<double> normal;
  std::student_t_distribution<double> heavy(2);
  std::uniform_real_distribution<double> uniform;
  const auto draws = GENERATE(0, 1, 2);
  const auto draw = [&] {
    if (draws == 0) return 10 * std::exp(0.05 * normal(random));
    if (draws == 1) return 10 * std::exp(0.03 * std::clamp(heavy(random), -20.0, 20.0));
    return 10 * std::exp(0.01 * normal(random)) * (uniform(random) < 0.15 ? 1.5 : 1);  // disturbed now and then
  };
  int wrong = 0, same = 0;
  for (int i = 0; i < 2000; ++i) {
    const PointVerdict verdict = verdict_of(drawn_point(draw), drawn_point(draw));
    wrong += static_cast<int>(verdict == PointVerdict::kFaster || verdict == PointVerdict::kSlower);
    same += static_cast<int>(verdict == PointVerdict::kSame);
  }
  CHECK(wrong == 0);
  if (draws == 2) CHECK(same > 100);
}

TEST_CASE("compare_points: a third more is slower, whatever the noise") {
  std::mt19937_64 random(7);
  std::normal_distribution<double> normal;
  const auto draw = [&](double ms) { return [&, ms] { return ms * std::exp(0.03 * normal(random)); }; };
  for (int i = 0; i < 500; ++i) {
    CHECK(verdict_of(drawn_point(draw(10)), drawn_point(draw(13))) == PointVerdict::kSlower);
    CHECK(verdict_of(drawn_point(draw(13)), drawn_point(draw(10))) == PointVerdict::kFaster);
  }
}

TEST_CASE("compare_points: parts that explain a difference sum to it") {
  const PartMs even{.ideal = 6, .matrices = 2, .transfer = 1, .wait = 0.1, .residual = -0.1};
  PartMs early = even;
  PartMs late = even;
  early.wait += 2.4;  // rank 1 takes 30 % longer for its products and reads
  late.matrices += 2.4;
  const PointResult first = a_known_point({even, even});
  const ComparedPoint pair = compare_points(first, a_known_point({early, late}), 1, kBound);
  CHECK(pair.verdict == PointVerdict::kSlower);
  REQUIRE(pair.explained);
  CHECK(pair.explained->sum() == Approx(*pair.difference_ms));
  CHECK((*pair.explained)[Part::kAllreduceWait] == Approx(1.2));
  CHECK(pair.words == "+2.40 ms: 50 % products of weights, 50 % waiting for rank 1");
  const ComparedPoint back = compare_points(a_known_point({early, late}), first, 1, kBound);
  CHECK(back.words == "-2.40 ms: 50 % products of weights, 50 % waiting for the slowest");
}

TEST_CASE("compare_points: words say what goes the other way, how partial sums meet, and what is uncertain") {
  PointResult first = a_known_point(2, {.ideal = 6, .matrices = 2});
  PointResult other = a_known_point(2, {.ideal = 9, .matrices = 1});
  const auto words = [&] { return compare_points(first, other, 1, kBound).words; };
  CHECK(words() == "+2.00 ms: 150 % reading memory at full speed; the other way: 50 % products of weights");
  first.sum_choices.choices = {{0, "nccl"}};
  other.sum_choices.choices = {{0, "one-shot"}, {4096, "nccl"}};
  CHECK(contains(words(), "; sums by nccl, then by one-shot, nccl"));
  other = a_known_point(2, {.ideal = 9, .residual = 1});
  CHECK(contains(words(), "(uncertain: 10 % of a TPOT is not explained)"));
  other.attribution.reset();
  first.sum_choices = {};
  CHECK(words() == "+2.00 ms");
  CHECK_FALSE(compare_points(first, other, 1, kBound).explained);
}
