#include "runtime/measure/sweep.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "parallel/world.hpp"
#include "runtime/measure/bandwidth.hpp"
#include "runtime/measure/verdicts.hpp"
#include "runtime/model/slice.hpp"

using namespace shardscope;
using namespace shardscope::runtime;

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

namespace {

/// A sweep of the tiny model on this process alone.
std::vector<PointResult> sweep_tiny(SweepOptions options, const SweepProgress& progress = {}) {
  parallel::World world({});
  const auto backend = kernels::make_cpu_backend({.threads = 1});
  const OpenedModel model = open_model({.model = "tiny"});
  options.degrees = {1};
  options.valid_vocab = model.config.vocab;
  return run_sweep(world, *backend, model, options, progress);
}

}  // namespace

TEST_CASE("run_sweep: one rank measures every workload and its figures hang together") {
  const topology::ActivityProbe probe({0});
  const SweepOptions options{
      .workloads = {{.batch = 1, .prompt_tokens = 5, .output_tokens = 6},
                    {.batch = 3, .prompt_tokens = 4, .output_tokens = 2},
                    {.batch = 1, .prompt_tokens = 3, .output_tokens = 1}},
      .protocol = {.warmup = 1, .iterations = 3},
      .place_of_group = [](const topology::PlacedGroup&) { return GroupPlace{.cache_bytes = int64_t{1} << 40U}; },
      .activity = &probe,
      .peaks = {.gb_per_s = 100, .tflops = 1000}};
  std::vector<std::vector<size_t>> changes;
  std::vector<PointStatus> first_states;
  std::vector<double> fractions;
  const auto points =
      sweep_tiny(options, {.say = [](const std::string&) {},
                           .points =
                               [&](const std::vector<PointResult>& known, const std::vector<size_t>& changed) {
                                 if (changes.empty()) {
                                   for (const PointResult& point : known) first_states.push_back(point.status);
                                 }
                                 changes.push_back(changed);
                               },
                           .tick = [&](double fraction, const std::string&) { fractions.push_back(fraction); }});
  REQUIRE(points.size() == 3);
  CHECK(changes == std::vector<std::vector<size_t>>{{0, 1, 2}, {0, 1, 2}});  // a visit up, a visit down
  CHECK(first_states == std::vector<PointStatus>(3, PointStatus::kIncomplete));
  CHECK(std::is_sorted(fractions.begin(), fractions.end()));
  CHECK(fractions.back() <= 1);
  CHECK(points[0].status == PointStatus::kOk);
  CHECK(points[0].generations == 3);
  CHECK(points[0].tpot_ms.n == 3);
  CHECK(points[0].itl_ms.n == 3 * 5);
  REQUIRE(points[0].samples.size() == 3);
  CHECK(points[0].samples[1].pass == 0);
  CHECK(points[0].samples[2].pass == 1);
  CHECK(points[0].warm_ups.size() == 2);
  CHECK(points[0].noise.pass_shift.has_value());
  CHECK(points[0].cache_resident == true);  // everything fits a tebibyte
  CHECK_FALSE(points[0].mbu.has_value());   // then no figure against memory
  CHECK_FALSE(points[0].mbu_nominal.has_value());
  REQUIRE(points[0].mbu_achievable.has_value());
  CHECK(points[0].mbu_achievable->min > 0);
  CHECK(points[0].mfu_prefill > 0);
  CHECK(points[0].latency_ms.p50 >= points[0].ttft_ms.p50);
  CHECK(points[0].cold_ttft_ms > 0);
  CHECK_FALSE(points[0].text_cost.has_value());  // the tiny model has no tokenizer
  CHECK(points[1].throughput_tokens_per_s > 0);
  CHECK_FALSE(points[2].tpot_ms.p50.has_value());  // one output token: undefined
  CHECK_FALSE(points[2].speedup.has_value());
}

TEST_CASE("run_sweep: a single generation is one visit") {
  const auto points = sweep_tiny({.workloads = {{.batch = 1, .prompt_tokens = 5, .output_tokens = 3}},
                                  .protocol = {.warmup = 1, .iterations = 1}});
  CHECK(points[0].status == PointStatus::kOk);
  CHECK(points[0].generations == 1);
  CHECK(points[0].warm_ups.size() == 1);
  CHECK(points[0].verdicts.front().rfind("too_few: ", 0) == 0);
}

TEST_CASE("run_sweep: points of an earlier run are taken over as they are") {
  PointResult earlier{.tp = 1, .workload = {.batch = 2, .prompt_tokens = 5, .output_tokens = 3}};
  earlier.tpot_ms.p50 = 123;
  earlier.verdicts = {"noise: from before"};
  const std::vector<Workload> workloads = {{.batch = 1, .prompt_tokens = 5, .output_tokens = 3}, earlier.workload};
  std::set<size_t> changed;
  const auto points = sweep_tiny(
      {.workloads = workloads, .protocol = {.warmup = 1, .iterations = 2}, .done = {earlier}},
      {.points = [&](const auto&, const std::vector<size_t>& which) { changed.insert(which.begin(), which.end()); }});
  REQUIRE(points.size() == 2);
  CHECK(points[0].generations == 2);
  CHECK(points[1].tpot_ms.p50 == 123);
  REQUIRE(points[1].verdicts.size() == 2);
  CHECK(points[1].verdicts[0] == earlier.verdicts[0]);
  CHECK(is_resumed(points[1]));
  CHECK_FALSE(is_resumed(points[0]));
  CHECK(changed == std::set<size_t>{0});
}

TEST_CASE("run_sweep: of an incomplete point only the second visit is made, and both count") {
  const Workload workload{.batch = 1, .prompt_tokens = 5, .output_tokens = 3};
  PointResult half{.tp = 1, .workload = workload, .status = PointStatus::kIncomplete};
  half.communicator = "none";
  half.cold_ttft_ms = 77;
  half.warm_ups = {{.generations = 4, .change = 0.001, .steady = true}};
  half.ranks = {{.rank = 0, .achievable_gb_per_s = 1e6, .bandwidth_drift = 0.5, .load_seconds = 123}};
  for (int i = 0; i < 3; ++i) {
    half.samples.push_back({.pass = 0, .ttft_ms = 5e4, .tpot_ms = 1e4, .latency_ms = 7e4, .itl_ms = {1e4, 1e4}});
  }
  std::vector<std::string> said;
  const auto points = sweep_tiny({.workloads = {workload}, .protocol = {.warmup = 1}, .done = {half}},
                                 {.say = [&](const std::string& line) { said.push_back(line); }});
  REQUIRE(said.size() == 1);
  CHECK(said[0].find("second visit") != std::string::npos);
  CHECK(points[0].status == PointStatus::kOk);
  CHECK(points[0].generations == 6);  // as many again
  CHECK(points[0].tpot_ms.max == 1e4);
  CHECK(points[0].cold_ttft_ms == 77);
  REQUIRE(points[0].warm_ups.size() == 2);
  CHECK(points[0].warm_ups[0].generations == 4);
  CHECK(points[0].ranks[0].achievable_gb_per_s == 1e6);
  CHECK(points[0].ranks[0].load_seconds == 123);
  CHECK(points[0].noise.pass_shift < -0.9);
}

TEST_CASE("run_sweep: text is timed where there is text") {
  parallel::World world({});
  const auto backend = kernels::make_cpu_backend({.threads = 1});
  const OpenedModel model = open_model({.model = SHARDSCOPE_TEST_DATA "/reference/tiny/llama-mha"});
  const Tokenizer tokenizer(*model.tokenizer);
  SweepOptions options{.degrees = {1},
                       .workloads = {{.batch = 2, .prompt_tokens = 5, .output_tokens = 3}},
                       .protocol = {.warmup = 1, .iterations = 2},
                       .valid_vocab = model.config.vocab,
                       .tokenizer = &tokenizer};
  CHECK_FALSE(run_sweep(world, *backend, model, options, {})[0].end_to_end_ms.has_value());  // random ids
  options.prompt_ids = {70, 71, 72};
  const PointResult point = run_sweep(world, *backend, model, options, {})[0];
  REQUIRE(point.text_cost.has_value());
  CHECK(*point.end_to_end_ms ==
        Approx(*point.latency_ms.p50 + 2 * (point.text_cost->tokenise_ms + point.text_cost->detokenise_ms)));
}

TEST_CASE("run_sweep: what fits only alone gets shards of its own, and both are measured") {
  const OpenedModel model = open_model({.model = "tiny"});
  const parallel::ShardPlan plan = plan_shards(shard_dimensions(model.config), 1);
  const Workload wide{.batch = 16, .prompt_tokens = 2, .output_tokens = 3};
  const Workload longer{.batch = 1, .prompt_tokens = 40, .output_tokens = 3};
  const auto bytes_of = [&](const std::vector<Workload>& together) {
    return planned_group_bytes(model.config, *model.weights, plan, decoder_options(together, 16, {}));
  };
  const int64_t either = std::max(bytes_of({wide}), bytes_of({longer})) + 64'000'000;  // the margin of a rank
  REQUIRE(bytes_of({wide, longer}) + 64'000'000 > either);
  std::vector<std::vector<size_t>> changes;
  const auto points =
      sweep_tiny({.workloads = {wide, longer},
                  .protocol = {.warmup = 1, .iterations = 2},
                  .max_step_tokens = 16,
                  .free_memory_bytes = either},
                 {.points = [&](const auto&, const std::vector<size_t>& which) { changes.push_back(which); }});
  CHECK(points[0].status == PointStatus::kOk);
  CHECK(points[1].status == PointStatus::kOk);
  // Up: the first set, the second; down: the second, the first. Point 1 is not known at first.
  CHECK(changes == std::vector<std::vector<size_t>>{{0}, {1}, {1}, {0}});
}

TEST_CASE("run_sweep: the bytes read for the bandwidth are those of the point, whatever the other batches") {
  parallel::World world({});
  const auto backend = kernels::make_cpu_backend({.threads = 1});
  const OpenedModel model = open_model({.model = "tiny"});
  const parallel::ShardPlan plan = plan_shards(shard_dimensions(model.config), 1);
  const auto communicator = parallel::make_communicator(world, {.group_size = 1});
  const RankContext context{*backend, *communicator, world};
  Decoder decoder(model.config, *model.weights, plan, {.slots = 9, .max_positions = 40}, context);
  const auto one = measure_read_bandwidth(decoder, context, {.kv = {.slots = 1, .positions = 10}, .seconds = 0.01});
  const auto nine = measure_read_bandwidth(decoder, context, {.kv = {.slots = 9, .positions = 10}, .seconds = 0.01});
  CHECK(nine.bytes - one.bytes == 8 * 10 * decoder.kv_cache().bytes_per_position());
  CHECK(one.passes >= 5);
  CHECK(one.best_gb_per_s >= one.median_gb_per_s);
}

TEST_CASE("run_sweep: --max-seconds ends a point and says so") {
  const auto points = sweep_tiny({.workloads = {{.batch = 1, .prompt_tokens = 2, .output_tokens = 3}},
                                  .protocol = {.warmup = 1, .iterations = 1'000'000, .max_seconds = 0.05}});
  CHECK(points[0].unmet.has_value());
  CHECK(points[0].generations < 1'000'000);
  const auto& verdicts = points[0].verdicts;
  CHECK(std::any_of(verdicts.begin(), verdicts.end(), [](const auto& text) { return text.rfind("limit: ", 0) == 0; }));
}

TEST_CASE("run_sweep: a workload that does not fit is a row, not an end") {
  const OpenedModel model = open_model({.model = "tiny"});
  const parallel::ShardPlan plan = plan_shards(shard_dimensions(model.config), 1);
  const Workload small{.batch = 1, .prompt_tokens = 5, .output_tokens = 6};
  const Workload large{.batch = 64, .prompt_tokens = 50, .output_tokens = 6};
  const int64_t room =
      planned_group_bytes(model.config, *model.weights, plan, decoder_options({small}, 512, {})) + 64'000'000;
  size_t calls = 0;
  const auto points =
      sweep_tiny({.workloads = {small, large}, .protocol = {.warmup = 1, .iterations = 2}, .free_memory_bytes = room},
                 {.points = [&](const auto&, const auto&) { ++calls; }});
  REQUIRE(points.size() == 2);
  CHECK(points[0].status == PointStatus::kOk);
  CHECK(points[1].status == PointStatus::kOutOfMemory);
  CHECK(points[1].verdicts.front().rfind("out_of_memory: ", 0) == 0);
  CHECK(calls == 3);  // the refused ones at once, then two visits
}

namespace {

/// Two placements of one rank, of which the second has another backend; what was asked for, in order.
struct Movable {
  parallel::World world{parallel::WorldOptions{}};
  std::unique_ptr<kernels::Backend> first = kernels::make_cpu_backend({.threads = 1});
  std::unique_ptr<kernels::Backend> second = kernels::make_cpu_backend({.threads = 1});
  OpenedModel model = open_model({.model = "tiny"});
  topology::ActivityProbe probe{std::vector<int>{0}};
  std::vector<std::string> taken;
  SweepOptions options{.degrees = {1},
                       .groups = {{{.placement = topology::Placement::kBest, .places = {0}},
                                   {.placement = topology::Placement::kWorst, .places = {0}}}},
                       .workloads = {{.batch = 1, .prompt_tokens = 5, .output_tokens = 3}},
                       .protocol = {.warmup = 1, .iterations = 2},
                       .valid_vocab = model.config.vocab};

  Movable() {
    options.take = [this](const topology::PlacedGroup& group) {
      taken.emplace_back(name_of(group.placement));
      const bool best = group.placement == topology::Placement::kBest;
      return Workplace{.backend = best ? first.get() : second.get(), .activity = &probe};
    };
  }
  std::vector<PointResult> run(const SweepProgress& progress = {}) {
    return run_sweep(world, *first, model, options, progress);
  }
};

}  // namespace

TEST_CASE("run_sweep: ranks take their places before each visit, placements up and down") {
  Movable movable;
  std::vector<std::string> said;
  const auto points = movable.run({.say = [&](const std::string& line) { said.push_back(line); }});
  CHECK(movable.taken == std::vector<std::string>{"best", "worst", "worst", "best"});
  REQUIRE(points.size() == 2);
  CHECK(points[0].group.placement == topology::Placement::kBest);
  CHECK(points[1].group.placement == topology::Placement::kWorst);
  for (const PointResult& point : points) {
    CHECK(point.status == PointStatus::kOk);
    CHECK(point.generations == 2);
    CHECK(point.speedup == 1);  // each is the base of its placement
  }
  CHECK(said.front() == "tp 1 (best: 0), first visit: loading shards, then 1 point");
}

TEST_CASE("run_sweep: without placements nobody moves, and nobody says a word of it") {
  Movable movable;
  movable.options.groups.clear();
  movable.options.take = {};
  std::vector<std::string> said;
  const auto points = movable.run({.say = [&](const std::string& line) { said.push_back(line); }});
  REQUIRE(points.size() == 1);
  CHECK(points[0].group == topology::linear_group(1));
  CHECK(said == std::vector<std::string>{"tp 1, first visit: loading shards, then 1 point",
                                         "tp 1, second visit: loading shards, then 1 point"});
}

TEST_CASE("run_sweep: a point of an earlier run is one of its places, whatever they were called") {
  Movable movable;
  PointResult earlier{.tp = 1, .workload = movable.options.workloads[0]};
  earlier.tpot_ms.p50 = 123;
  movable.options.done = {earlier};
  movable.options.groups[0][0].places = {1};
  movable.options.groups[0][1].also = {topology::Placement::kLinear};
  const auto points = movable.run();
  CHECK(movable.taken == std::vector<std::string>{"best", "best"});
  REQUIRE(points.size() == 2);
  CHECK(points[1].tpot_ms.p50 == 123);
  CHECK(points[1].group.also == std::vector{topology::Placement::kLinear});  // of this run
  CHECK(points[0].generations == 2);
}

TEST_CASE("run_sweep: room is that of the devices where the group works") {
  Movable movable;
  movable.options.groups[0][1].places = {1};  // place 1 is too small
  movable.options.device_free_bytes = {int64_t{1} << 40, 1};
  const auto points = movable.run();
  CHECK(movable.taken == std::vector<std::string>{"best", "best"});
  REQUIRE(points.size() == 2);
  CHECK(points[0].status == PointStatus::kOk);
  CHECK(points[1].status == PointStatus::kOutOfMemory);
}

TEST_CASE("SweepOptions: points are groups by workloads") {
  SweepOptions options{.degrees = {1, 2}, .workloads = {{.batch = 1}, {.batch = 2}, {.batch = 3}}};
  CHECK(options.point_count() == 6);
  CHECK(options.all_groups() == std::vector{topology::linear_group(1), topology::linear_group(2)});
  const topology::PlacedGroup worst{.placement = topology::Placement::kWorst, .places = {0, 2}};
  options.groups = {{topology::linear_group(1)}, {topology::linear_group(2), worst}};
  CHECK(options.point_count() == 9);
  CHECK(options.all_groups().back() == worst);
}
