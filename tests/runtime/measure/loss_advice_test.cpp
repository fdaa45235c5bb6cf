#include <catch2/catch.hpp>

#include "runtime/measure/verdicts.hpp"
#include "runtime/report/advice.hpp"
#include "runtime/report/loss.hpp"
#include "runtime/report/loss_advice.hpp"
#include "runtime/report/replica_advice.hpp"
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
  CHECK(
      loss_advice(points) ==
      Sentences{"Of the 0.840 ms that TP=4 loses against ideal (TP=2 as base) at batch 1 with 8 + 4 tokens, 58 % is "
                "all-reduce transfer, 23 % small matrices, 12 % launch gaps.",
                "Where all-reduce transfer weighs most (TP=4 at batch 1): what can take less of it: fewer ranks, with "
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
  CHECK(contains(loss_advice(points).at(1), "Where waiting for the slowest weighs most (TP=4 at batch 1):"));
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
  CHECK(contains(loss_advice(points).at(1), "Where more bytes or slower memory weighs most"));
}

TEST_CASE("loss_advice: each other part that dominates has its remedy") {
  CHECK(contains(loss_advice(losing({.matrices = 1})).at(1), "too small to read memory at full speed"));
  CHECK(contains(loss_advice(losing({.elementwise = 1})).at(1), "every rank does them whole"));
  CHECK(contains(loss_advice(losing({.head = 1})).at(1), "every token needs the ranks' candidates"));
  CHECK(contains(loss_advice(losing({.attention = 1})).at(1), "a shorter context, or fewer ranks."));
  auto points = losing({.attention = 1});
  points[1].communicator = "nccl";
  CHECK(contains(loss_advice(points).at(1), "--kv-dtype"));
  CHECK_FALSE(contains(loss_advice(points).at(0), "KV heads"));
  for (RankFigures& rank : points[1].ranks) rank.shard.kv_heads = {0, 1};
  CHECK(contains(loss_advice(points).at(0), "Several ranks hold the same KV heads"));
}

TEST_CASE("loss_advice: gaps, by what launches") {
  auto points = losing({.gaps = 1});
  const auto remedy = [&] { return loss_advice(points).at(1); };
  CHECK(
      contains(remedy(), "the threads of a rank meet between operations: fewer of them (--threads), or fewer ranks."));
  points[1].disturbance.waited_share = 0.07;
  CHECK(contains(remedy(), "Threads waited 7 % of the time for a core, too"));
  points[1].communicator = "one-shot";
  CHECK(contains(remedy(), "captured graphs (--graphs on) launch a step at once."));
  points[1].sum_choices.graphs = true;
  CHECK(contains(remedy(), "its operations do not follow each other closely"));
}

TEST_CASE("loss_advice: a part under a third has no remedy, and one under a tenth no name") {
  const auto points = losing({.matrices = 0.3, .attention = 0.27, .transfer = 0.25, .head = 0.1, .gaps = 0.08});
  CHECK(loss_advice(points) ==
        Sentences{"Of the 1.00 ms that TP=4 loses against ideal (TP=2 as base) at batch 1 with 8 + 4 tokens, 30 % is "
                  "small matrices, 27 % attention, 25 % all-reduce transfer, 10 % LM head and sampling."});
}

TEST_CASE("loss_advice: what is won back and what is unexplained are said, too") {
  CHECK(contains(loss_advice(losing({.matrices = -0.2, .transfer = 1.2})).at(0),
                 "120 % is all-reduce transfer (20 % by small matrices is won back)."));
  CHECK(contains(loss_advice(losing({.transfer = 0.88, .residual = 0.12})).at(0),
                 "88 % is all-reduce transfer, 12 % not explained."));
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
  CHECK(contains(advice[2], "Where all-reduce transfer weighs most (TP=4 at batch 1, 4):"));
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

TEST_CASE("replica_advice: from which batch on replicas make more tokens per second") {
  std::vector<PointResult> points;
  const auto set_rate = [](PointResult& point, double tokens_per_s) {
    const double ms = static_cast<double>(point.workload.batch * point.workload.output_tokens) / tokens_per_s * 1e3;
    point.latency_ms.p50 = ms;
    point.latency_ms.p50_interval = {0.995 * ms, 1.005 * ms};  // its TPOT is known to 1 %
  };
  const auto add = [&](int tp, int64_t batch, double tokens_per_s) {
    points.push_back(an_even_point(tp, {.ideal = 10}, 0.1));
    points.back().workload.batch = batch;
    set_rate(points.back(), tokens_per_s);
  };
  add(2, 1, 100);
  add(2, 4, 400);
  add(2, 16, 1600);
  add(4, 1, 250);
  add(4, 4, 700);
  add(4, 16, 1580);
  CHECK(replica_advice(points) ==
        Sentences{"2 replicas at TP=2 would give more tokens per second than TP=4 from batch 4 each on (2.03x at batch "
                  "16 each, against batch 16), if replicas do not disturb each other (measure with --replicas)."});
  set_rate(points[3], 180);
  CHECK(contains(replica_advice(points).at(0), "from batch 1 each on"));
  SECTION("the large group may serve all replicas' requests as one batch") {
    add(4, 32, 3170);
    CHECK(replica_advice(points).empty());  // 1.01x at the largest batch, within ± 1 % of each
    set_rate(points.back(), 2800);
    CHECK(contains(replica_advice(points).at(0), "(1.14x at batch 16 each, against batch 32)"));
  }
  SECTION("replicas that were measured at once stand for themselves") {
    const auto add_at_once = [&](int64_t batch, double rate) {
      add(2, batch, rate / 2);  // of one of the two
      points.back().group.replicas = 2;
    };
    add_at_once(1, 190);
    add_at_once(4, 790);
    add_at_once(16, 2000);
    CHECK(replica_advice(points) == Sentences{"2 replicas at TP=2 give more tokens per second than TP=4 from batch 1 "
                                              "each on (1.27x at batch 16 each, against batch 16), measured at once."});
    set_rate(points.back(), 790);
    CHECK(replica_advice(points).empty());
  }
  SECTION("within the noise") {
    set_rate(points[3], 197);
    set_rate(points[4], 788);
    set_rate(points[5], 3152);
    CHECK(replica_advice(points).empty());
  }
  SECTION("a latency that is not known as well") {
    for (PointResult& point : points) point.latency_ms.p50_interval.high = 3 * *point.latency_ms.p50;
    CHECK(replica_advice(points).empty());
    for (PointResult& point : points) point.latency_ms.p50_interval.high.reset();
    CHECK(replica_advice(points).empty());
  }
  SECTION("lengths are named where they vary") {
    add(2, 1, 100);
    points.back().workload.output_tokens = 64;
    CHECK(contains(replica_advice(points).at(0), "each on, with 8 + 4 tokens (2.03x"));
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

TEST_CASE("scale_advice: speed-up, loss, replicas, wiring, in this order") {
  const Sentences advice = scale_advice(losing({.transfer = 0.8}));
  REQUIRE(advice.size() == 4);
  CHECK(contains(advice[0], "TP=4 is 1.63x faster than TP=2"));
  CHECK(contains(advice[1], "Of the 0.800 ms"));
  CHECK(contains(advice[2], "Where all-reduce transfer"));
  CHECK(contains(advice[3], "2 replicas at TP=2"));
}
