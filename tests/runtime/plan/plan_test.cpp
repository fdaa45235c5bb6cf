#include "runtime/plan/plan.hpp"

#include <algorithm>
#include <cmath>

#include <catch2/catch.hpp>

#include "runtime/plan/group_links.hpp"
#include "runtime/plan/recommend.hpp"
#include "topology/catalogue.hpp"

namespace shardscope::runtime {
namespace {

using Catch::Matchers::Contains;

PlanMachine machine(const char* name) {
  const topology::Machine* found = topology::find_machine(name);
  REQUIRE(found != nullptr);
  return {.name = name, .gpu = topology::find_device_peaks(found->gpu), .topology = topology::topology_of(*found)};
}

PlanOptions options(std::vector<int> degrees, std::vector<Workload> workloads = {{1, 512, 64}}) {
  PlanOptions options{.degrees = std::move(degrees), .workloads = std::move(workloads)};
  options.precision = {.activations = kernels::DType::kBF16, .kv = kernels::DType::kBF16};
  return options;
}

OpenedModel model(const char* name) {
  return open_model({.model = name, .headers_only = true});
}

Plan plan_of(const char* name, const char* where, const PlanOptions& options) {
  return make_plan(model(name), machine(where), options, plan_constants(), plan_calibration());
}

TEST_CASE("make_plan: what fits, what does not and by how much") {
  const Plan plan = plan_of("llama2-70b", "aws-p4d", options({1, 2, 4, 8}));  // 138 GB on 40 GB each
  REQUIRE(plan.rows.size() == 4);
  CHECK_FALSE(plan.rows[0].fits());
  CHECK_FALSE(plan.rows[1].fits());
  CHECK(plan.rows[2].fits());
  CHECK(plan.rows[1].point.status == PointStatus::kOutOfMemory);
  CHECK_FALSE(plan.rows[1].point.tpot_ms.p50);
  CHECK_THAT(plan.rows[1].point.verdicts.at(1), Contains("does_not_fit") && Contains("too much"));
  CHECK_FALSE(plan_of("llama2-70b", "aws-p4de", options({1})).rows[0].fits());
  CHECK(plan_of("llama2-70b", "aws-p4de", options({2})).rows[0].fits());
  PlanOptions four = options({1});
  four.format = PlanFormat::quantised("int4", 0);
  CHECK(plan_of("llama2-70b", "aws-p4de", four).rows[0].fits());
}

TEST_CASE("make_plan: a row is a point of kind predicted, with a range around it and parts that sum to it") {
  const Plan plan = plan_of("llama3-8b", "aws-p5", options({1, 3, 8}, {{1, 512, 64}, {16, 512, 64}}));
  REQUIRE(plan.rows.size() == 6);
  for (const PredictedRow& row : plan.rows) {
    const PointResult& point = row.point;
    INFO("TP " << point.tp << ", batch " << point.workload.batch);
    CHECK(point.kind == FigureKind::kPredicted);
    CHECK(point.tpot_ms.n == 0);
    CHECK(row.tpot_ms->low < *point.tpot_ms.p50);
    CHECK(*point.tpot_ms.p50 < row.tpot_ms->high);
    CHECK(point.attribution->sum() == Approx(*point.tpot_ms.p50));
    CHECK(point.mbu->max < 1);
    CHECK(*point.mbu_nominal < 1);
    CHECK(point.mbu_achievable->max < 1);
    CHECK(*point.throughput_tokens_per_s ==
          Approx(static_cast<double>(point.workload.batch) * 64 / *point.latency_ms.p50 * 1e3));
    CHECK(point.ranks.size() == static_cast<size_t>(point.tp));
    CHECK(point.speedup);
  }
  CHECK(plan.rows[4].point.loss);
  CHECK(*plan.rows[4].point.speedup > 1);
}

TEST_CASE("make_plan: what nothing backs is said, and widens the range") {
  const PredictedRow known = plan_of("llama3-8b", "aws-p5", options({2})).rows[0];
  const PredictedRow unknown = plan_of("llama3-8b", "gcp-g2-standard-96", options({2})).rows[0];
  CHECK(known.uncalibrated.size() == 1);  // ours has not been measured
  CHECK(unknown.uncalibrated.size() == 3);
  const auto width = [](const PredictedRow& row) { return row.tpot_ms->high / row.tpot_ms->low; };
  CHECK(width(unknown) > 1.2 * width(known));
  PlanOptions measured = options({2});
  measured.software = "gpt-fast";
  CHECK(plan_of("llama3-8b", "aws-p5", measured).rows[0].uncalibrated.empty());
}

TEST_CASE("make_plan: the group's narrowest link decides, and a worse placement is never better") {
  PlanOptions best = options({2});
  PlanOptions worst = best;
  worst.placement = topology::Placement::kWorst;
  const double near = *plan_of("llama2-13b", "azure-nc96ads-v4", best).rows[0].point.tpot_ms.p50;
  const double far = *plan_of("llama2-13b", "azure-nc96ads-v4", worst).rows[0].point.tpot_ms.p50;
  CHECK(near < far);
}

TEST_CASE("make_plan: what the user measured takes the place of constants") {
  OwnMeasurements own{.overhead_us = 50.0, .memory_share = 0.5};
  own.spread.step = 0.02;
  const Plan plain = plan_of("llama3-8b", "aws-p5", options({1}));
  const Plan calibrated =
      make_plan(model("llama3-8b"), machine("aws-p5"), options({1}), plan_constants(), plan_calibration(), own);
  CHECK(calibrated.reach.memory_share == 0.5);
  CHECK(*calibrated.rows[0].point.tpot_ms.p50 > *plain.rows[0].point.tpot_ms.p50);
  CHECK(calibrated.rows[0].uncalibrated.empty());
  CHECK(calibrated.rows[0].tpot_ms->high == Approx(*calibrated.rows[0].point.tpot_ms.p50 * 1.02));
  // Nothing of prompts was measured.
  const auto width = [](const PredictedRow& row) { return row.ttft_ms->high / row.ttft_ms->low; };
  CHECK(width(calibrated.rows[0]) == Approx(std::pow(1 + plan_calibration().spread.whole, 4)));
}

TEST_CASE("make_plan: recommendations for latency, throughput and a bound, with what comes next") {
  PlanOptions asked = options({1, 2, 4, 8}, {{1, 512, 64}, {16, 512, 64}});
  asked.slo_tpot_ms = 9;
  const Plan plan = plan_of("llama3-8b", "aws-p4d", asked);
  REQUIRE(plan.recommendations.size() == 3);
  const Recommendation& bound = plan.recommendations[0];
  CHECK(bound.goal == PlanGoal::kBound);
  CHECK(bound.tpot_ms <= 9);
  const Recommendation& latency = plan.recommendations[1];
  CHECK(latency.goal == PlanGoal::kLatency);
  CHECK(latency.tp == 8);
  CHECK(latency.batch == 1);
  CHECK_THAT(latency.why, Contains("lowest TPOT: TP 8") && Contains("next TP 4"));
  CHECK_THAT(latency.why, !Contains("not tell apart"));  // TP 8 is faster by more than a prediction is off
  CHECK_THAT(bound.why, Contains("at most 9 ms") && Contains("within the stated error"));
  const Recommendation& throughput = plan.recommendations[2];
  CHECK(throughput.goal == PlanGoal::kThroughput);
  CHECK(throughput.tp * throughput.pp * throughput.replicas <= 8);
  CHECK(throughput.batch == 16);
  CHECK(*throughput.tokens_per_s >= *bound.tokens_per_s);
  for (const PredictedRow& row : plan.rows) {
    CHECK(*row.point.throughput_tokens_per_s * (8 / row.point.tp) <= *throughput.tokens_per_s * (1 + 1e-9));
    CHECK(*row.point.tpot_ms.p50 >= latency.tpot_ms);
  }
}

TEST_CASE("make_plan: where nothing fits nothing is recommended, and stages make room") {
  CHECK(plan_of("llama3.1-405b", "aws-p4d", options({8})).recommendations.empty());
  PlanOptions staged = options({2});
  staged.stages = 4;
  const Plan plan = plan_of("llama2-70b", "aws-p4d", staged);
  CHECK(plan.rows[0].fits());
  CHECK(plan.rows[0].point.pp == 4);
}

TEST_CASE("make_plan: a stage's GPU reads its layers once for each piece of the batch") {
  PlanOptions staged = options({1}, {{1, 512, 64}, {4, 512, 64}});
  staged.stages = 4;
  const Plan plan = plan_of("llama3-8b", "aws-p5", staged);
  const Plan whole = plan_of("llama3-8b", "aws-p5", options({1}, {{1, 512, 64}, {4, 512, 64}}));
  const auto weights = [](const Plan& one, size_t row) { return one.rows[row].point.ranks[0].bytes.weights; };
  CHECK(weights(plan, 0) == Approx(weights(whole, 0) / 4));
  CHECK(weights(plan, 1) == Approx(weights(whole, 1)));
  CHECK(plan.rows[1].point.mbu->mean > 2.5 * plan.rows[0].point.mbu->mean);  // busy stages, not one at a time
  CHECK(plan.rows[1].point.mbu->mean < 1);
  CHECK(plan.rows[0].point.attribution->sum() == Approx(*plan.rows[0].point.tpot_ms.p50));
}

TEST_CASE("make_plan: without a dense peak a plan has no TTFT, and recommends by steps") {
  PlanMachine cards{.name = "cards", .gpu = topology::find_device_peaks("rtx-pro-6000"), .topology = {}};
  cards.topology = topology::usual_topology(*cards.gpu);
  PlanOptions asked = options({1, 2, 4, 8}, {{1, 512, 64}, {16, 512, 64}});
  asked.slo_tpot_ms = 50;
  const Plan plan = make_plan(model("llama3-8b"), cards, asked, plan_constants(), plan_calibration());
  CHECK_FALSE(plan.rows[0].point.ttft_ms.p50);
  REQUIRE(plan.recommendations.size() == 3);
  CHECK_FALSE(plan.recommendations[0].tokens_per_s);
  CHECK(plan.recommendations[0].batch == 16);
  CHECK_THAT(plan.recommendations[0].why, Contains("prompts left out"));
}

TEST_CASE("make_plan: an MBU over 100 % is never shown, not even the published kind of a cut model") {
  OpenOptions cut{.model = "llama3-8b", .headers_only = true};
  cut.layers = 1;
  const Plan plan = make_plan(open_model(cut), machine("aws-p5"), options({1}), plan_constants(), plan_calibration());
  CHECK_FALSE(plan.rows[0].point.mbu_nominal);
  CHECK(plan.rows[0].point.mbu->max < 1);
  CHECK_THAT(plan.rows[0].point.verdicts.back() + plan.rows[0].point.verdicts.at(1), Contains("embedding"));
}

TEST_CASE("make_plan: a step that leaves out what it computes says so, and is known less well") {
  PlanMachine cards{.name = "cards", .gpu = topology::find_device_peaks("rtx-pro-6000"), .topology = {}};
  cards.topology = topology::usual_topology(*cards.gpu);
  const Plan plan = make_plan(model("llama3-8b"), cards, options({1}), plan_constants(), plan_calibration());
  const std::vector<std::string>& things = plan.rows[0].uncalibrated;
  CHECK(std::any_of(things.begin(), things.end(), [](const std::string& thing) {
    return thing.find("what a step computes is left out") != std::string::npos;
  }));
}

TEST_CASE("make_plan: the stages that were asked for are among the divisions") {
  PlanOptions asked = options({1});
  asked.stages = 3;
  const Plan plan = plan_of("llama2-13b", "gcp-g2-standard-96", asked);  // 26 GB on 24 GB each
  CHECK(plan.rows[0].fits());
  REQUIRE_FALSE(plan.recommendations.empty());
  CHECK(plan.recommendations[0].pp > 1);
}

TEST_CASE("make_plan: one output token has no TPOT, and nothing to recommend by") {
  const Plan plan = plan_of("llama3-8b", "aws-p5", options({1}, {{1, 512, 1}}));
  CHECK(plan.rows[0].fits());
  CHECK_FALSE(plan.rows[0].point.tpot_ms.p50);
  CHECK(plan.rows[0].point.ttft_ms.p50);
  CHECK(plan.recommendations.empty());
}

TEST_CASE("equal_groups: replicas beside each other on links as good as the best group's") {
  const topology::Topology pairs = machine("azure-nc96ads-v4").topology;
  CHECK(equal_groups(pairs, 2, 2));
  CHECK_FALSE(equal_groups(pairs, 3, 2));
  CHECK(equal_groups(machine("aws-p5").topology, 4, 2));
  topology::Topology one_pair = pairs;  // the second pair's bridge is gone
  (*one_pair.links)[2][3] = (*one_pair.links)[3][2] = topology::Path{.kind = topology::PathKind::kSys};
  CHECK_FALSE(equal_groups(one_pair, 2, 2));
  CHECK(equal_groups(one_pair, 2, 1));
}

TEST_CASE("against_text: two clouds in a paragraph") {
  const PlanMachine one = machine("aws-p4d");
  const PlanMachine other = machine("azure-nc96ads-v4");
  const PlanOptions asked = options({2, 4});
  const Plan a = make_plan(model("llama2-70b"), one, asked, plan_constants(), plan_calibration());
  const Plan b = make_plan(model("llama2-70b"), other, asked, plan_constants(), plan_calibration());
  const std::string text = against_text(one, a, other, b, "llama2-70b");
  CHECK_THAT(text, Contains("Not backed by measurements") && Contains("two pieces by path"));
  CHECK_THAT(text, Contains("llama2-70b at TP 4") && Contains("NV12") && Contains("through the CPUs") &&
                       Contains("all-reduce transfer +") && Contains("first token") &&
                       Contains("within the stated error"));
  PlanOptions two = options({2});
  const Plan c = make_plan(model("llama2-70b"), one, two, plan_constants(), plan_calibration());
  const Plan d = make_plan(model("llama2-70b"), other, two, plan_constants(), plan_calibration());
  CHECK_THAT(against_text(one, c, other, d, "llama2-70b"), Contains("on aws-p4d it does not fit: a GPU lacks"));
  const Plan e = make_plan(model("llama2-70b"), other, options({1}), plan_constants(), plan_calibration());
  CHECK_THAT(against_text(one, c, other, e, "llama2-70b"), Contains("no TP degree in common"));
}

TEST_CASE("links_of_group: the narrowest pair decides") {
  const topology::Topology pairs = machine("azure-nc96ads-v4").topology;
  const std::vector<int> pair = {0, 1};
  const std::vector<int> all = {0, 1, 2, 3};
  CHECK(links_of_group(pairs, pair, "a100-80gb-pcie").path == GroupPath::kNvLink);
  CHECK(links_of_group(pairs, all, "a100-80gb-pcie").path == GroupPath::kHostMemory);
  const topology::Topology switched = machine("aws-p5").topology;
  const GroupLinks links = links_of_group(switched, all, "h100-sxm");
  CHECK(links.gb_per_s == Approx(450));
  CHECK(links.topology_class == topology::TopologyClass::kNvSwitch);
  const std::vector<int> eight = {0, 1, 2, 3, 4, 5, 6, 7};
  const GroupLinks ring = links_of_group(machine("aws-p3").topology, eight, "v100-sxm2-16gb");  // a cube mesh
  CHECK(ring.path == GroupPath::kNvLink);
  CHECK_FALSE(ring.all_pairs);
  CHECK(links_of_group(machine("aws-p6-b200").topology, eight, "b200").gb_per_s == Approx(900));
  topology::Topology unknown = switched;
  unknown.links.reset();
  CHECK_FALSE(links_of_group(unknown, all, "h100-sxm").known);
  CHECK(links_of_group(unknown, all, "h100-sxm").path == GroupPath::kHostMemory);
}

}  // namespace
}  // namespace shardscope::runtime
