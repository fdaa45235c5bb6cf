#include "runtime/measure/rehearsal.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "kernels/base/error.hpp"
#include "runtime/model/slice.hpp"
#include "runtime/report/document.hpp"
#include "runtime/report/table.hpp"
#include "tests/support/lone_member.hpp"

using namespace shardscope;
using namespace shardscope::runtime;
using Catch::Matchers::Contains;

namespace {

/// All-reduces of so many ranks take 10 us up to 1 KiB and 40 us at 16 KiB.
topology::CollectiveTimes some_times(int ranks) {
  topology::Topology topology;
  const auto add = [&](int64_t bytes, double us) {
    topology.measurements.push_back(
        {.kind = topology::Measurement::Kind::kAllReduce, .gpu_count = ranks, .bytes = bytes, .time_us = us});
  };
  add(1024, 10);
  add(16384, 40);
  return topology::CollectiveTimes(topology);
}

struct Rehearsed {
  parallel::World world{parallel::WorldOptions{}};
  std::unique_ptr<kernels::Backend> backend = kernels::make_cpu_backend({.threads = 1});
  OpenedModel model = open_model({.model = "tiny"});
  std::vector<int> places;  // of the co-runners, as they began
  SweepOptions options;

  explicit Rehearsed(topology::CollectiveTimes times = {}) {
    options.degrees = {1, 2, 4};
    options.workloads = {{.batch = 1, .prompt_tokens = 5, .output_tokens = 6}};
    options.protocol = {.warmup = 1, .iterations = 6, .instrumented = true};
    options.valid_vocab = model.config.vocab;
    options.rehearsal = RehearsalOptions{.times = std::move(times), .topology = "", .backend_at = {}};
  }
  void with_co_runners() {
    options.rehearsal->backend_at = [this](int place) {
      places.push_back(place);  // one loads after another
      return kernels::make_cpu_backend({.threads = 1});
    };
  }
  std::vector<PointResult> run() { return run_sweep(world, *backend, model, options, {}); }
  Rehearsal of(const Workload& workload, int tp, int64_t max_step_tokens = 512) const {
    return rehearsal_of(*options.rehearsal, model.config, *backend, workload, tp, max_step_tokens);
  }
};

}  // namespace

TEST_CASE("rehearsal_of: as many all-reduces of a step as the decoder makes") {
  Rehearsed rehearsed;
  const parallel::ShardPlan plan = plan_shards(shard_dimensions(rehearsed.model.config), 2);
  test::LoneMember member(0, 2);
  Decoder decoder(rehearsed.model.config, *rehearsed.model.weights, plan, {.slots = 1, .max_positions = 8},
                  {*rehearsed.backend, member, rehearsed.world});
  const std::vector<int32_t> ids = {1};
  const std::vector<kernels::StepSequence> sequences = {{.slot = 0, .first_position = 0, .count = 1}};
  const std::vector<int32_t> rows = {0};
  decoder.forward(ids, sequences, rows);
  CHECK(member.sums() == all_reduces_of_pass(rehearsed.model.config));
}

TEST_CASE("rehearsal_of: sums at their sizes, in steps and in the passes of a prompt") {
  Rehearsed rehearsed(some_times(2));
  rehearsed.options.rehearsal->topology = "machine.txt";
  const ModelConfig& config = rehearsed.model.config;
  const int64_t row = config.hidden * 4;
  REQUIRE(1024 % row == 0);
  const int64_t tokens = 1024 / row;  // whose sum is of 1 KiB
  const auto sums = static_cast<double>(all_reduces_of_pass(config));
  const Rehearsal exact = rehearsed.of({.batch = tokens, .prompt_tokens = 16, .output_tokens = 2}, 2, 16 * tokens);
  REQUIRE(exact.step_collectives_ms);
  CHECK(*exact.step_collectives_ms == Approx(sums * 0.010));
  CHECK(*exact.prefill_collectives_ms == Approx(sums * 0.040));
  CHECK_THAT(exact.collective_model,
             Contains("of 1024 B a step, 10 us each (machine.txt, all-reduces measured on 2") && !Contains("smallest"));
  const Rehearsal halves = rehearsed.of({.batch = tokens, .prompt_tokens = 16, .output_tokens = 2}, 2, 8 * tokens);
  CHECK(*halves.prefill_collectives_ms == Approx(2 * sums * 0.0282843));  // twice 8 KiB: 10 us x 4^(3/4)
  if (tokens > 1) {
    CHECK_THAT(rehearsed.of({.batch = 1, .prompt_tokens = 1, .output_tokens = 2}, 2).collective_model,
               Contains("as for its smallest message"));
  }
}

TEST_CASE("rehearsal_of: what is not known is not made up") {
  Rehearsed rehearsed(some_times(2));
  const Workload small{.batch = 1, .prompt_tokens = 1, .output_tokens = 2};
  rehearsed.options.rehearsal->topology = "machine.txt";
  const Rehearsal other = rehearsed.of(small, 4);
  CHECK_FALSE(other.step_collectives_ms);
  CHECK_THAT(other.collective_model, Contains("compute only (machine.txt tells no all-reduce times of 4 ranks)"));
  const Rehearsal large = rehearsed.of({.batch = 4096, .prompt_tokens = 1, .output_tokens = 2}, 2, 4096);
  CHECK_FALSE(large.step_collectives_ms);
  CHECK_THAT(large.collective_model, Contains("compute only") && Contains("none in TTFT"));
  const Rehearsal steps_alone = rehearsed.of({.batch = 1, .prompt_tokens = 512, .output_tokens = 2}, 2);
  CHECK(steps_alone.step_collectives_ms);
  CHECK_FALSE(steps_alone.prefill_collectives_ms);
  rehearsed.options.rehearsal = RehearsalOptions{};
  CHECK_THAT(rehearsed.of(small, 2).collective_model, Contains("--topology FILE"));
  const Rehearsal alone = rehearsed.of(small, 1);
  CHECK(alone.step_collectives_ms == 0);
  CHECK(alone.prefill_collectives_ms == 0);
}

TEST_CASE("add_collectives: every gap, and the latency once for each") {
  const Rehearsal rehearsal{.step_collectives_ms = 2, .prefill_collectives_ms = 10};
  GenerationSample sample{.ttft_ms = 100, .tpot_ms = 5, .latency_ms = 115, .itl_ms = {4, 5, 6}};
  add_collectives(rehearsal, sample);
  CHECK(sample.ttft_ms == 110);
  CHECK(sample.tpot_ms == 7);
  CHECK(sample.latency_ms == 131);
  CHECK(sample.itl_ms == std::vector<double>{6, 7, 8});
  InstrumentedSample with{.tpot_ms = 5, .ranks = {{.products = 4, .transfer = 0.5, .wait = 0.25, .gaps = 0.25}}};
  add_collectives(rehearsal, with);
  CHECK(with.tpot_ms == 7);
  CHECK(with.ranks[0] == StepTimes{.products = 4, .transfer = 2, .gaps = 1});
}

TEST_CASE("heaviest_rank: the one that moves most, the lowest of equals") {
  const OpenedModel model = open_model({.model = "tiny"});
  const DTypeOf dtype_of = [&](WeightId id) { return model.weights->dtype(id); };
  const std::vector<Workload> workloads = {{.batch = 1, .prompt_tokens = 5, .output_tokens = 6}};
  for (int tp = 1; tp <= 8; ++tp) {
    const parallel::ShardPlan plan = plan_shards(shard_dimensions(model.config), tp);
    const int heaviest = heaviest_rank(model.config, dtype_of, plan, workloads, {});
    const auto bytes = [&](int rank) {
      return step_traffic(model.config, dtype_of, plan, rank, workloads[0], {}).headline();
    };
    double all = 0;
    for (int rank = 0; rank < tp; ++rank) {
      CHECK((rank < heaviest ? bytes(rank) < bytes(heaviest) : bytes(rank) <= bytes(heaviest)));
      all += bytes(rank);
    }
    CHECK(group_step_bytes(model.config, dtype_of, plan, workloads[0], {}) == Approx(all));
  }
}

TEST_CASE("run_sweep: rehearsed rows have one rank, what was reckoned, and say so") {
  Rehearsed rehearsed(some_times(2));
  rehearsed.options.rehearsal->topology = "machine.txt";
  rehearsed.with_co_runners();
  const std::vector<PointResult> points = rehearsed.run();
  REQUIRE(points.size() == 3);
  for (const PointResult& point : points) {
    INFO(point.tp);
    CHECK(point.kind == FigureKind::kRehearsed);
    CHECK(point.status == PointStatus::kOk);
    CHECK(point.generations == 6);
    REQUIRE(point.ranks.size() == 1);
    REQUIRE(point.rehearsal);
    CHECK(point.ranks[0].rank == point.rehearsal->rank);
    CHECK(point.rehearsal->co_runners == point.tp - 1);
    const std::string stated =
        fmt::format("stated error of {} at most 20 %", point.tp == 4 ? "computing" : "TPOT");  // see below
    CHECK(std::any_of(point.verdicts.begin(), point.verdicts.end(), [&](const std::string& verdict) {
      return verdict.starts_with("rehearsed: ") && verdict.find(stated) != std::string::npos;
    }));
    REQUIRE(point.attribution);
    CHECK(point.attribution->sum() == Approx(*point.tpot_ms.p50));
    CHECK((*point.attribution)[Part::kAllreduceWait] == 0);
    CHECK(point.knows(Part::kAllreduceWait) == (point.tp == 1));
    CHECK(point.ranks[0].timer_step_ns == 1);  // a steady clock's
    // One rank's own clock is the row's, and sees what is modelled, too.
    CHECK(*point.ranks[0].tpot_ms > point.rehearsal->step_collectives_ms.value_or(0));
    CHECK(*point.ranks[0].tpot_ms >= *point.tpot_ms.min);
    CHECK(*point.ranks[0].tpot_ms <= *point.tpot_ms.max);
    const Json document = point_json(point, false);
    for (const Json& parts : {document["attribution"], document["ranks"][0]["attribution"], document["loss"]}) {
      if (!parts.is_null()) CHECK(parts["allreduce_wait"].is_null() == (point.tp > 1));
    }
    CHECK(point.comm_share == (point.tp == 1 ? std::optional(0.0) : std::nullopt));
    for (const InstrumentedSample& sample : point.instrumented) CHECK(sample.ranks.size() == 1);
    const bool whole = point.tp != 4;  // of whose collectives nothing is known
    CHECK(point.tp_base == 1);
    CHECK(point.loss.has_value() == whole);
    CHECK(point.speedup.has_value() == whole);
    CHECK(point.efficiency.has_value() == whole);
    if (whole) CHECK(*point.speedup == Approx(*points[0].tpot_ms.p50 / *point.tpot_ms.p50));
    CHECK(point_json(point_from_json(point_json(point, true), "here"), true) == point_json(point, true));
  }
  // Up 2, 4, down 4, 2: each rank but the rehearsed one, at its place; the rehearsed one is at that of rank 0.
  CHECK(rehearsed.places.size() == 1 + 3 + 3 + 1);
  for (const int place : rehearsed.places) CHECK(place > 0);
  const PointResult& modelled = points[1];
  REQUIRE(modelled.rehearsal->step_collectives_ms);
  CHECK((*modelled.attribution)[Part::kAllreduceTransfer] == Approx(*modelled.rehearsal->step_collectives_ms));
  CHECK(*modelled.tpot_ms.min > *modelled.rehearsal->step_collectives_ms);
  const PointResult& computed = points[2];
  CHECK(point_json(computed, false)["attribution"]["allreduce_transfer"].is_null());
  CHECK(point_json(computed, false)["loss"].is_null());
  CHECK_THAT(computed.verdicts.back(), Contains("compute_only: "));
  const std::string table = scale_table(points);
  CHECK_THAT(table, Catch::Matchers::StartsWith("rehearsed, not measured: ") &&
                        Contains("stated error of TPOT at most 20 %") && Contains("stated error of computing") &&
                        Contains("\nTP 4: compute only"));
  CHECK_THAT(scale_table({points[0], modelled}), Contains("stated error of TPOT at most 20 %\n\n"));
}

TEST_CASE("run_sweep: on devices nobody runs beside a rehearsed rank") {
  Rehearsed rehearsed;
  rehearsed.options.degrees = {2};
  const std::vector<PointResult> points = rehearsed.run();
  REQUIRE(points.size() == 1);
  CHECK(points[0].rehearsal->co_runners == 0);
  CHECK_FALSE(points[0].rehearsal->stated_error);  // which nobody compared with real ranks
  CHECK_THAT(points[0].verdicts.back(), Contains("compute_only: "));
}

TEST_CASE("run_sweep: what a co-runner throws ends the rehearsal") {
  Rehearsed rehearsed;
  rehearsed.options.rehearsal->backend_at = [](int) -> std::unique_ptr<kernels::Backend> {
    throw SystemError("no such core", "core 7", "use another");
  };
  CHECK_THROWS_AS(rehearsed.run(), SystemError);
}

TEST_CASE("run_sweep: a prompt without decode steps is rehearsed, too, and batches with theirs") {
  Rehearsed rehearsed;
  rehearsed.with_co_runners();
  rehearsed.options.degrees = {2};
  rehearsed.options.workloads = {{.batch = 3, .prompt_tokens = 9, .output_tokens = 1},
                                 {.batch = 2, .prompt_tokens = 4, .output_tokens = 3}};
  for (const PointResult& point : rehearsed.run()) {
    CHECK(point.status == PointStatus::kOk);
    CHECK(point.ttft_ms.p50 > 0);
    CHECK(point.tpot_ms.p50.has_value() == (point.workload.output_tokens > 1));
  }
}

TEST_CASE("point_from_json: a rehearsed row without what stands behind it is refused") {
  Rehearsed rehearsed;
  rehearsed.options.degrees = {2};
  rehearsed.options.protocol = {.warmup = 1, .iterations = 1, .instrumented = true};
  const Json document = point_json(rehearsed.run().front(), false);
  const auto refusal = [&](const char* pointer, const Json& value) -> std::string {
    Json changed = document;
    changed[Json::json_pointer(pointer)] = value;
    try {
      point_from_json(changed, "here");
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  };
  CHECK(refusal("/kind", "rehearsed").empty());
  CHECK_THAT(refusal("/rehearsal", nullptr), Contains("what stands behind it"));
  CHECK_THAT(refusal("/kind", "measured"), Contains("no measurement of a group"));
  CHECK_THAT(refusal("/rehearsal/rank", 1 - document["rehearsal"]["rank"].get<int>()),
             Contains("only the rank that ran"));
  CHECK_THAT(refusal("/rehearsal/rank", 5), Contains("a rank that the group does not have"));
  CHECK_THAT(refusal("/rehearsal/step_collectives_ms", 1), Contains("known where the collectives' times are"));
  CHECK_THAT(refusal("/attribution/allreduce_wait", 0), Contains("known where all ranks of a group ran"));
  CHECK_THAT(refusal("/ranks/0/attribution/allreduce_wait", 0), Contains("ranks[0].attribution.allreduce_wait"));
}
