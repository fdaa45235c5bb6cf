#include <catch2/catch.hpp>

#include "runtime/measure/verdicts.hpp"
#include "runtime/report/advice.hpp"
#include "runtime/report/loss.hpp"
#include "runtime/report/loss_advice.hpp"
#include "tests/support/parted_points.hpp"

using namespace shardscope::runtime;
using shardscope::test::a_parted_point;
using shardscope::test::an_even_point;
using shardscope::test::PartMs;
using shardscope::test::with_losses;
using shardscope::topology::Placement;
using Sentences = std::vector<std::string>;

namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// TP=2, and TP=4 that loses what is given for one of the parts, on top of half of TP=2's.
std::vector<PointResult> losing(const PartMs& lost) {
  PartMs half{.ideal = 3, .matrices = 0.5};
  half.ideal += lost.ideal;
  half.matrices += lost.matrices;
  half.attention = lost.attention;
  half.elementwise = lost.elementwise;
  half.transfer = lost.transfer;
  half.wait = lost.wait;
  half.head = lost.head;
  half.gaps = lost.gaps;
  half.residual = lost.residual;
  return with_losses({an_even_point(2, {.ideal = 6, .matrices = 1}), an_even_point(4, half)});
}

}  // namespace

TEST_CASE("loss_advice: the parts of what the advised degree loses, and what takes less of the largest") {
  auto points = losing({.matrices = 0.19, .transfer = 0.49, .gaps = 0.1, .residual = 0.06});
  points[1].communicator = points[1].sum_choices.choices.emplace_back().way = "nccl";
  points[1].sum_choices.left_out = {"one-shot: no peer access"};
  CHECK(loss_advice(points) ==
        Sentences{
            "Of the 0.840 ms that TP=4 loses against ideal (TP=2 as base) at batch 1 with 8 + 4 tokens, 58 % is "
            "all-reduce transfer, 23 % small matrices, 12 % launch gaps.",
            "Where most is lost to all-reduce transfer (TP=4 at batch 1): what can take less of it: fewer ranks, with "
            "replicas beside each other; a larger batch, which sums more tokens at once; the all-reduces that "
            "this group could not use (one-shot: no peer access)."});
}

TEST_CASE("loss_advice: transfer's remedies are those that were not tried") {
  auto points = losing({.transfer = 0.8});
  const auto remedy = [&] { return loss_advice(points).at(1); };
  CHECK_FALSE(contains(remedy(), "--allreduce"));
  CHECK_FALSE(contains(remedy(), "--placement"));  // all devices
  points[1].sum_choices.choices = {{0, "nccl"}};
  CHECK(contains(remedy(), "another all-reduce than nccl (--allreduce auto measures them)"));
  points[1].sum_choices.measured = {{8, "nccl", 10}, {8, "one-shot", 9}};
  CHECK_FALSE(contains(remedy(), "--allreduce"));
  points.push_back(an_even_point(8, {.ideal = 1.5, .transfer = 5}));
  points = with_losses(points);
  CHECK(contains(remedy(), "(--placement best,worst shows what that is worth)"));
  for (PointResult& point : points) point.group.also = {Placement::kBest};
  points = with_losses(points);
  CHECK_FALSE(contains(remedy(), "--placement"));
}

TEST_CASE("loss_advice: one rank that waits least is named, with what sets it apart") {
  const PartMs early{.ideal = 3, .matrices = 0.5, .wait = 0.8};
  PartMs late = early;
  late.wait = 0.02;
  late.matrices += 0.78;
  std::vector<PointResult> points = {an_even_point(2, {.ideal = 6, .matrices = 1}),
                                     a_parted_point({early, early, early, late})};
  const auto sentence = [&] { return loss_advice(with_losses(points)).at(0); };
  const std::string begin =
      "Of the 0.800 ms that TP=4 loses against ideal (TP=2 as base) at batch 1 with 8 + 4 tokens, 76 % is waiting for "
      "rank 3, 24 % small matrices. Rank 3 waits 0.020 ms of a step, each other 0.800 ms or more";
  CHECK(sentence() == begin +
                          ", though its shard is no heavier and its memory no slower: see what else runs there, "
                          "its clock and its links (doctor, topo).");
  points[1].ranks[3].shard.query_heads.end += 1;
  points[1].ranks[3].bytes.weights *= 1.1;
  CHECK(sentence() == begin + ": its shard is the heaviest by 10 % (9 query heads against 8 at most).");
  points[1].ranks[3].achievable_gb_per_s = 8;
  CHECK(sentence() == begin +
                          ": its shard is the heaviest by 10 % (9 query heads against 8 at most), and it reads its "
                          "memory at 8.00 GB/s, each other at 10.00 GB/s or more.");
  points[1].group.places = {0, 1, 2, 5};
  CHECK(contains(sentence(), "Rank 3 (at rank 5's place) waits 0.020 ms"));
}

TEST_CASE("loss_advice: where the ranks are late in turn, none is named") {
  const auto points = losing({.wait = 0.5});
  CHECK(loss_advice(points).at(0) ==
        "Of the 0.500 ms that TP=4 loses against ideal (TP=2 as base) at batch 1 with 8 + 4 tokens, 100 % is waiting "
        "for the slowest. No one rank is late all the time: they wait 0.500 to 0.500 ms of a step.");
  CHECK(contains(loss_advice(points).at(1), "Where most is lost to waiting for the slowest (TP=4 at batch 1):"));
}

TEST_CASE("loss_advice: a rank that waits least, but not by enough to be named, does not make all late in turn") {
  const auto rank = [](double wait) { return PartMs{.ideal = 3.5 - wait + 0.08, .wait = wait}; };
  const auto points =
      with_losses({an_even_point(2, {.ideal = 7}), a_parted_point({rank(0.08), rank(0.08), rank(0.08), rank(0.03)})});
  REQUIRE_FALSE(slowest_rank(points[1]));  // 1.4 % of TPOT
  CHECK(contains(loss_advice(points).at(0), "waiting for the slowest"));
  CHECK(contains(loss_advice(points).at(0), " The ranks wait 0.030 to 0.080 ms of a step."));
}

TEST_CASE("slowest_rank: only where it waits much less than each other, and enough to matter") {
  const auto waits = [](double a, double b, double c) {
    const auto rank = [](double wait) { return PartMs{.ideal = 10 - wait, .wait = wait}; };
    return slowest_rank(a_parted_point({rank(a), rank(b), rank(c)}));
  };
  REQUIRE(waits(1, 0.1, 2));
  CHECK(waits(1, 0.1, 2)->rank == 1);
  CHECK(waits(1, 0.1, 2)->wait_ms == Approx(0.1));
  CHECK(waits(1, 0.1, 2)->others_ms == Approx(1));
  CHECK_FALSE(waits(1, 0.6, 2));         // more than half of the next
  CHECK_FALSE(waits(0.1, 0.1, 2));       // two of them
  CHECK_FALSE(waits(0.15, 0.01, 0.15));  // 1.4 % of TPOT
  CHECK_FALSE(slowest_rank(an_even_point(1, {.ideal = 10})));
  PointResult unknown = a_parted_point({{.ideal = 9, .wait = 1}, {.ideal = 10}});
  REQUIRE(slowest_rank(unknown));
  unknown.ranks[0].attribution.reset();
  CHECK_FALSE(slowest_rank(unknown));
}

TEST_CASE("loss_advice: bytes and bandwidth behind a loss of memory's time") {
  auto points = losing({.ideal = 1});
  CHECK(loss_advice(points).at(0) ==
        "Of the 1.00 ms that TP=4 loses against ideal (TP=2 as base) at batch 1 with 8 + 4 tokens, 100 % is more bytes "
        "or slower memory.");
  for (RankFigures& rank : points[1].ranks) rank.achievable_gb_per_s = 7.5;
  CHECK(
      contains(loss_advice(points).at(0), " While all its ranks read, each can read 7.50 GB/s; with TP=2 10.00 GB/s."));
  for (RankFigures& rank : points[1].ranks) rank.bytes.weights *= 1.25;
  CHECK(contains(loss_advice(points).at(0),
                 " Its ranks together read 25 % more bytes a step than with TP=2: some are replicated. While all"));
  CHECK(contains(loss_advice(points).at(1), "Where most is lost to more bytes or slower memory"));
}

TEST_CASE("loss_advice: each other part that dominates has its remedy") {
  CHECK(contains(loss_advice(losing({.matrices = 1})).at(1), "too small to read memory at full speed"));
  CHECK(contains(loss_advice(losing({.elementwise = 1})).at(1), "every rank does them whole"));
  CHECK(contains(loss_advice(losing({.head = 1})).at(1), "every token needs the ranks' candidates"));
  auto points = losing({.attention = 1});
  CHECK(contains(loss_advice(points).at(1), "a shorter context, or fewer ranks, with replicas"));
  CHECK_FALSE(contains(loss_advice(points).at(0), "KV heads"));
  for (RankFigures& rank : points[1].ranks) rank.shard.kv_heads = {0, 1};
  CHECK(contains(loss_advice(points).at(0), "Several ranks hold the same KV heads"));
}

TEST_CASE("loss_advice: gaps, by what launches") {
  auto points = losing({.gaps = 1});
  const auto remedy = [&] { return loss_advice(points).at(1); };
  CHECK(contains(remedy(),
                 "the threads of a rank meet between operations: fewer of them (--threads), or fewer ranks, "
                 "with replicas beside each other."));
  points[1].disturbance.waited_share = 0.07;
  CHECK(contains(remedy(), "Threads waited 7 % of the time for a core, too"));
  points[1].communicator = "one-shot";
  CHECK(contains(remedy(), "captured graphs (--graphs on) launch a step at once."));
  points[1].sum_choices.graphs = true;
  CHECK(contains(remedy(), "its operations do not follow each other closely: fewer ranks, with replicas"));
}

TEST_CASE("loss_advice: a part under a third has no remedy, and one under a tenth no name") {
  const auto points = losing({.matrices = 0.3, .attention = 0.27, .transfer = 0.25, .head = 0.1, .gaps = 0.08});
  CHECK(loss_advice(points) ==
        Sentences{"Of the 1.00 ms that TP=4 loses against ideal (TP=2 as base) at batch 1 with 8 + 4 tokens, 30 % is "
                  "small matrices, 27 % attention, 25 % all-reduce transfer, 10 % LM head and sampling."});
}

TEST_CASE("loss_advice: what is won back and what is unexplained are said, too") {
  CHECK(contains(loss_advice(losing({.matrices = -0.2, .transfer = 1.2})).at(0),
                 "120 % is all-reduce transfer (won back: 20 % small matrices)."));
  CHECK(contains(loss_advice(losing({.matrices = -0.2, .transfer = 1.31, .gaps = -0.11})).at(0),
                 "(won back: 20 % small matrices, 11 % launch gaps)."));
  CHECK(contains(loss_advice(losing({.transfer = 0.88, .residual = 0.12})).at(0),
                 "88 % is all-reduce transfer, 12 % not explained."));
  CHECK(contains(loss_advice(losing({.transfer = 1.12, .residual = -0.12})).at(0),
                 "112 % is all-reduce transfer. The parts together come to 12 % more than that loss."));
  const std::string little = loss_advice(losing({.transfer = 1.08, .residual = -0.08})).at(0);
  CHECK(contains(little, "108 % is all-reduce transfer."));
  CHECK_FALSE(contains(little, "together"));
}

TEST_CASE("loss_advice: one sentence a workload and placement, one remedy for all") {
  auto points = losing({.transfer = 0.8});
  for (const PointResult& point : losing({.transfer = 1.2})) {
    points.push_back(point);
    points.back().workload.batch = 4;
  }
  Sentences advice = loss_advice(with_losses(points));
  REQUIRE(advice.size() == 3);
  CHECK(contains(advice[0], "Of the 0.800 ms"));
  CHECK(contains(advice[1], "Of the 1.20 ms"));
  CHECK(contains(advice[1], "batch 4 with"));
  CHECK(contains(advice[2], "Where most is lost to all-reduce transfer (TP=4 at batch 1, 4):"));
  points.resize(2);
  points.push_back(points[1]);
  points[0].group.also = {Placement::kWorst};
  points[2].group = {.placement = Placement::kWorst, .places = {0, 1, 2, 5}};
  advice = loss_advice(with_losses(points));
  REQUIRE(advice.size() == 3);
  CHECK(contains(advice[0], " and linear placement, 100 %"));
  CHECK(contains(advice[1], " and worst placement, 100 %"));
}

TEST_CASE("loss_advice: where no degree is faster, of the smallest") {
  const auto points = with_losses({an_even_point(1, {.ideal = 4}), an_even_point(2, {.ideal = 2, .transfer = 3}),
                                   an_even_point(4, {.ideal = 1, .transfer = 6})});
  const Sentences advice = loss_advice(points);
  REQUIRE(advice.size() == 2);
  CHECK(contains(advice[0], "Of the 3.00 ms that TP=2 loses against ideal (TP=1 as base)"));
}

TEST_CASE("loss_advice: nothing where the evidence is thin") {
  auto points = losing({.transfer = 0.8});
  REQUIRE(loss_advice(points).size() == 2);
  const size_t spoiled = GENERATE(0, 1);
  SECTION("a residual") {
    Parts& parts = *points[spoiled].attribution;
    const double moved = 0.06 * *points[spoiled].tpot_ms.p50;
    parts[Part::kResidual] += moved;
    parts[Part::kIdealMemory] -= moved;
    points = with_losses(points);
  }
  SECTION("a loss within the noise") {
    points[spoiled].noise.low_ms = *points[spoiled].tpot_ms.p50 - 2;
    points[spoiled].noise.high_ms = *points[spoiled].tpot_ms.p50 + 2;
  }
  SECTION("an open interval") {
    points[spoiled].noise.high_ms.reset();
  }
  SECTION("rehearsed") {
    points[spoiled].kind = FigureKind::kRehearsed;
    points = with_losses(points);
  }
  SECTION("shared cores") {
    points[spoiled].oversubscribed = true;
  }
  SECTION("resumed") {
    mark_resumed(points[spoiled]);
  }
  SECTION("not a number") {
    (*points[spoiled].attribution)[Part::kResidual] = NAN;
    points = with_losses(points);
  }
  SECTION("no attribution") {
    points[spoiled].attribution.reset();
    points = with_losses(points);
  }
  CHECK(loss_advice(points).empty());
}

TEST_CASE("loss_advice: nothing where much of the loss is unexplained, or nothing is lost") {
  CHECK(loss_advice(losing({.transfer = 0.42, .residual = 0.15})).empty());
  CHECK(loss_advice(losing({.ideal = -0.5})).empty());
}

TEST_CASE("scale_advice: speed-up, loss, replicas, wiring, in this order") {
  auto points = losing({.transfer = 0.8});
  points.push_back(an_even_point(4, {.ideal = 8}));
  points.back().workload.batch = 2;
  const Sentences advice = scale_advice(with_losses(points));
  REQUIRE(advice.size() == 4);
  CHECK(contains(advice[0], "TP=4 is 1.63x faster than TP=2"));
  CHECK(contains(advice[1], "Of the 0.800 ms"));
  CHECK(contains(advice[2], "Where most is lost to all-reduce transfer"));
  CHECK(contains(advice[3], "2 replicas at TP=2"));
}
