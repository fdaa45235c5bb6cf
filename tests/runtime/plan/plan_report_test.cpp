#include "runtime/report/plan_report.hpp"

#include <algorithm>
#include <sstream>

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "runtime/report/table_text.hpp"
#include "topology/catalogue.hpp"
#include "topology/gpu_names.hpp"

using namespace shardscope;
using namespace shardscope::runtime;
using Catch::Matchers::Contains;

namespace {

constexpr int kSomeGpus = 8;

/// A plan of `tiny` on aws-p4d whose figures are made up, so that each can be told in the text.
struct MadeUp {
  OpenedModel model = open_model({.model = "tiny", .headers_only = true});
  PlanMachine machine{.name = "aws-p4d",
                      .gpu = topology::find_device_peaks("a100-40gb"),
                      .topology = topology::topology_of(*topology::find_machine("aws-p4d"))};
  PlanOptions options{.degrees = {1, 2}, .workloads = {{.batch = 4, .prompt_tokens = 8, .output_tokens = 16}}};
  Calibration calibration;
  OwnMeasurements own;
  Plan plan;
  std::string against;

  MadeUp() {
    calibration.spread = {.step = 0.25, .whole = 0.5};
    plan.reach = {.gb_per_s = 1555, .tflops = 312, .memory_share = 0.8, .compute_share = 0.7, .overhead_us = 17};
    plan.reach_text = "tables of another";
    plan.rows = {row(1, 8.125), row(2, 4.25)};
    plan.rows[1].all_reduces = "a table of sums";
  }

  PredictedRow row(int tp, double tpot_ms) const {
    PredictedRow row{.gpu_bytes = 40e9, .needed_bytes = 10e9};
    row.point = {.kind = FigureKind::kPredicted, .tp = tp, .workload = options.workloads.front()};
    row.point.group = topology::linear_group(tp);
    row.point.tpot_ms.mean = row.point.tpot_ms.p50 = tpot_ms;
    row.point.attribution = Parts{.ms = {tpot_ms / 2, tpot_ms / 2}};
    row.tpot_ms = Bounds{.low = tpot_ms / 1.25, .high = tpot_ms * 1.25};
    for (int rank = 0; rank < tp; ++rank) row.point.ranks.push_back({.rank = rank});
    return row;
  }

  PlanReport report() const { return {model, machine, options, plan_constants(), calibration, own, plan, against}; }
};

std::string line_with(const std::string& text, const std::string& part) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.find(part) != std::string::npos) return line;
  }
  return "";
}

/// What make_plan says of a named model there.
struct Real {
  OpenedModel model;
  PlanMachine machine;
  PlanOptions options;
  OwnMeasurements own;
  Plan plan;

  Real(const std::string& name, const char* gpu, PlanOptions asked)
      : model(open_model({.model = name, .headers_only = true})), options(std::move(asked)) {
    machine.gpu = topology::find_device_peaks(gpu);
    machine.topology = topology::usual_topology(*machine.gpu);
    machine.name = gpu;
    options.precision = {.activations = kernels::DType::kBF16, .kv = kernels::DType::kBF16};
    plan = make_plan(model, machine, options, plan_constants(), plan_calibration());
  }
  PlanReport report() const { return {model, machine, options, plan_constants(), plan_calibration(), own, plan}; }
};

}  // namespace

TEST_CASE("plan_text: says first that nothing ran, of which model on what, and how wrong that may be") {
  const MadeUp made;
  std::string text = plan_text(made.report());
  for (size_t at = text.find("\n  "); at != std::string::npos; at = text.find("\n  ")) text.replace(at, 3, " ");
  const std::string head = text.substr(0, text.find("ranges: "));
  CHECK_THAT(head, Contains("tiny") && Contains("bf16") && Contains("8 + 16 tokens") &&
                       Contains("aws-p4d (8 x a100-40gb)") && Contains("predicted, nothing ran"));
  CHECK_THAT(text, Contains("published TPOTs 9 of 10 lay from -20 to +25 %") && Contains("from -33 to +50 %"));
}

TEST_CASE("plan_text: a row has its TPOT with range and its memory") {
  const MadeUp made;
  const std::string line = line_with(plan_text(made.report()), "8.12 (6.50..10.2)");
  CHECK_THAT(line, Contains("10.0"));
  CHECK(line.starts_with("1 "));
}

TEST_CASE("plan_text: a row that does not fit has no figures but says how much is lacking") {
  MadeUp made;
  made.plan.rows[0].needed_bytes = 140e9;
  made.plan.rows[0].point.status = PointStatus::kOutOfMemory;
  const std::string text = plan_text(made.report());
  const std::string line = line_with(text, "does not fit");
  CHECK(line.starts_with("1 "));
  CHECK_THAT(line, Contains("140 GB a GPU") && Contains("40 GB may be used") && Contains("100 GB too much"));
  CHECK(text.find("8.12") == std::string::npos);
}

TEST_CASE("plan_text: what is uncalibrated is marked in its rows and explained once") {
  MadeUp made;
  made.plan.rows[1].uncalibrated = {"no sums of 2 were measured"};
  const std::string some = plan_text(made.report());
  CHECK_THAT(line_with(some, "4.25 ("), Catch::StartsWith("2*"));
  CHECK_THAT(line_with(some, "8.12 ("), Catch::StartsWith("1 "));
  CHECK_THAT(some, Contains("TP 2: no sums of 2 were measured"));
  for (PredictedRow& row : made.plan.rows) row.uncalibrated = {"a strange GPU"};
  const std::string all = plan_text(made.report());
  CHECK_THAT(all, Contains("all rows: a strange GPU"));
  CHECK(all.find("a strange GPU") == all.rfind("a strange GPU"));
}

TEST_CASE("plan_text: what is uncalibrated of prompts stands apart, and marks no row") {
  MadeUp made;
  for (PredictedRow& row : made.plan.rows) row.uncalibrated_prompts = {"prompts of another GPU"};
  const std::string text = plan_text(made.report());
  CHECK_THAT(text, Contains("of TTFT") && Contains("all rows: prompts of another GPU"));
  CHECK_THAT(line_with(text, "4.25 ("), Catch::StartsWith("2 "));
}

TEST_CASE("plan_text: of very many rows only those of the first workload show their parts") {
  MadeUp made;
  const Workload other{.batch = 77, .prompt_tokens = 8, .output_tokens = 16};
  const auto lines_of_batch = [&](int64_t batch) {  // in the table of rows and in that of parts
    std::istringstream lines(plan_text(made.report()));
    int count = 0;
    for (std::string line; std::getline(lines, line);) {
      count +=
          line.find(fmt::format(" {} ", batch)) != std::string::npos && line.find('(') == std::string::npos ? 1 : 0;
    }
    return count;
  };
  made.plan.rows.push_back(made.plan.rows[0]);
  made.plan.rows.back().point.workload = other;
  CHECK(lines_of_batch(77) == 1);
  for (int i = 0; i < 40; ++i) made.plan.rows.push_back(made.plan.rows.back());
  CHECK(lines_of_batch(77) == 0);
  CHECK(lines_of_batch(4) == 2);
  CHECK_THAT(plan_text(made.report()), Contains("those of 41 more rows are in the report"));
}

TEST_CASE("plan_text: a bound that nothing keeps, with the nearest") {
  MadeUp made;
  CHECK(made.report().bound_missed().empty());
  made.options.slo_tpot_ms = 3;
  CHECK_THAT(made.report().bound_missed(), Contains("at most 3 ms") && Contains("no row has a TPOT"));
  for (PredictedRow& row : made.plan.rows) row.needed_bytes = 2 * row.gpu_bytes;
  CHECK_THAT(made.report().bound_missed(), Contains("nothing fits"));
  made.plan.recommendations = {{.goal = PlanGoal::kLatency, .tp = 2, .replicas = 4, .batch = 4, .tpot_ms = 4.25}};
  CHECK_THAT(made.report().bound_missed(), Contains("the nearest is TP 2 at batch 4 with 4.25 ms"));
  CHECK_THAT(plan_text(made.report()), Contains("the nearest is TP 2"));
  made.plan.recommendations.insert(made.plan.recommendations.begin(), {.goal = PlanGoal::kBound});
  CHECK(made.report().bound_missed().empty());
}

TEST_CASE("plan_text: one output token is not taken for too little memory") {
  const Real plan("llama2-7b", "h100-sxm", {.degrees = {1}, .workloads = {{1, 64, 1}}});
  CHECK_THAT(plan_text(plan.report()), Contains("no TPOT to choose by") && !Contains("nothing fits"));
}

TEST_CASE("plan_text: where nothing fits it says so") {
  const Real plan("llama3.1-405b", "t4", {.degrees = {1, 8}, .workloads = {{1, 512, 128}}});
  CHECK_THAT(plan_text(plan.report()), Contains("nothing fits"));
  CHECK(plan_json(plan.report(), {.command = "plan"}).at("recommendation").is_null());
}

TEST_CASE("plan_text: lines of at most 100 columns, whatever is asked") {
  for (const char* gpu : {"a100-40gb", "a100-64gb", "gh200-96gb", "rtx-3090"}) {
    for (const int stages : {1, 2}) {
      PlanOptions options{.stages = stages};
      const int gpus = topology::usual_topology(*topology::find_device_peaks(gpu)).gpu_count.value_or(0);
      for (int degree = 1; degree * stages <= gpus; degree *= 2) options.degrees.push_back(degree);
      if (options.degrees.empty()) continue;
      options.workloads = {{1, 512, 128}, {4096, 512, 1}, {4096, 3500, 500}};
      options.slo_tpot_ms = 0.001;
      options.software = "tensorrt-llm";
      for (const char* model : {"llama2-70b", "mpt-7b", "tiny"}) {
        if (std::string(model) != "llama2-70b") options.workloads.back() = {4096, 1500, 500};
        const Real plan(model, gpu, options);
        const std::string text = plan_text(plan.report());
        INFO(text);
        CHECK(widest_line(text) <= kTableColumns);
      }
    }
  }
}

TEST_CASE("plan_json: its rows are predicted, have ranges, and are points that a report's reader takes") {
  const Real plan("llama2-70b", "a100-40gb",
                  {.degrees = {1, 2, 4, kSomeGpus}, .workloads = {{1, 512, 64}, {16, 512, 1}}});
  const Json json = plan_json(plan.report(), {.command = "plan"});
  REQUIRE(json.at("results").size() == plan.plan.rows.size());
  size_t fitting = 0;
  for (size_t i = 0; i < plan.plan.rows.size(); ++i) {
    const Json& result = json.at("results")[i];
    const PredictedRow& row = plan.plan.rows[i];
    const PointResult read = point_from_json(result, "results");
    CHECK(read.kind == FigureKind::kPredicted);
    CHECK(read.tpot_ms.p50 == row.point.tpot_ms.p50);
    CHECK(result.at("fits") == row.fits());
    CHECK(result.at("range").at("tpot_ms").is_null() == !row.tpot_ms.has_value());
    if (row.tpot_ms) CHECK(result.at("range").at("tpot_ms") == Json({row.tpot_ms->low, row.tpot_ms->high}));
    fitting += row.fits() ? 1 : 0;
  }
  CHECK(fitting > 0);
  CHECK(fitting < plan.plan.rows.size());  // 138 GB do not fit one of 40
  CHECK(json.at("recommendation").at("tp") == plan.plan.recommendations.front().tp);
  CHECK(json.at("recommendations").size() == plan.plan.recommendations.size());
  CHECK(json.at("calibration").at("overhead_us") == plan.plan.reach.overhead_us);
  CHECK(json.at("protocol").at("iterations") == 0);
  CHECK_FALSE(json.at("calibration").at("sources").empty());
}

TEST_CASE("plan_json: a quantised model takes the bytes of its format") {
  PlanOptions options{.degrees = {1}, .workloads = {{1, 8, 8}}};
  const Json plain = plan_json(Real("tiny", "l4", options).report(), {.command = "plan"}).at("model");
  options.format = PlanFormat::quantised("int4", 64);
  const Json quantised = plan_json(Real("tiny", "l4", options).report(), {.command = "plan"}).at("model");
  // tiny: 2 layers of q, o [128 x 128], k, v [32 x 128], gate, up [352 x 128], down [128 x 352].
  const double attention = 2.0 * (2 * 128 * 128 + 2 * 32 * 128);
  const double ffn = 2.0 * 3 * 352 * 128;
  const double bytes_per_weight = (4 + 16.0 / 64) / 8;
  const auto of_class = [](const Json& model, const char* name) {
    return model.at("bytes").at("by_class").at(name).get<double>();
  };
  CHECK(of_class(plain, "ffn") == 2 * ffn);
  CHECK(of_class(quantised, "ffn") == ffn * bytes_per_weight);
  CHECK(of_class(quantised, "attention") == attention * bytes_per_weight);
  CHECK(of_class(quantised, "embedding") == of_class(plain, "embedding"));
  const double less = (attention + ffn) * (2 - bytes_per_weight);
  CHECK(quantised.at("bytes").at("total").get<double>() == plain.at("bytes").at("total").get<double>() - less);
  CHECK(quantised.at("quantisation").at("scheme") == "int4 g64");
  double sum = 0;
  for (const auto& [dtype, bytes] : quantised.at("bytes").at("by_dtype").items()) sum += bytes.get<double>();
  CHECK(sum == quantised.at("bytes").at("total").get<double>());
}

TEST_CASE("plan_csv: a header and a line for each row, as many cells in each, with the range") {
  const MadeUp made;
  std::istringstream lines(plan_csv(made.report()));
  std::vector<std::string> all;
  for (std::string line; std::getline(lines, line);) all.push_back(line);
  REQUIRE(all.size() == 3);
  CHECK_THAT(all[0], Catch::StartsWith("host,model,kind") && Contains(",verdicts,fits,tpot_ms_low,tpot_ms_high"));
  CHECK_THAT(all[1], Catch::StartsWith("aws-p4d,tiny,predicted") && Contains(",true,6.5,10.15625,"));
  const auto cells = [](const std::string& line) { return std::count(line.begin(), line.end(), ','); };
  CHECK(cells(all[1]) == cells(all[0]));
  CHECK(cells(all[2]) == cells(all[0]));
}

TEST_CASE("catalogue: machines name GPUs that are listed, and people see each by name") {
  const Json json = catalogue_json(plan_constants());
  std::vector<std::string> gpus;
  for (const Json& gpu : json.at("gpus")) gpus.push_back(gpu.at("name"));
  CHECK(gpus.size() == topology::device_peaks().size());
  const std::string text = catalogue_text(plan_constants());
  CHECK(widest_line(text) <= kTableColumns);
  for (const Json& machine : json.at("machines")) {
    CHECK(std::find(gpus.begin(), gpus.end(), machine.at("gpu")) != gpus.end());
    CHECK_THAT(text, Contains(machine.at("name").get<std::string>()));
  }
  for (const Json& model : json.at("models")) CHECK_THAT(text, Contains(model.at("name").get<std::string>()));
  CHECK(json.at("machines").size() == topology::machines().size());
}

TEST_CASE("self_check_json: errors follow from the figures") {
  SelfCheck check;
  check.rows = {{.row = "a row",
                 .unit = "ms",
                 .source = "somebody",
                 .note = "",
                 .published = 10,
                 .predicted = 11,
                 .left_out = 8,
                 .low = 9,
                 .high = 9.5}};
  check.rules = {{"a rule", "evidence", false}};
  check.all = {.name = "all", .rows = 1, .mean = 0.1, .covered = 0.5};
  const Json json = self_check_json(check);
  const Json& row = json.at("rows")[0];
  CHECK(row.at("error").get<double>() == Approx(0.1));
  CHECK(row.at("left_out_error").get<double>() == Approx(-0.2));
  CHECK(row.at("covered") == false);  // 10 is not within 9 to 9.5
  CHECK(row.at("note").is_null());
  CHECK(json.at("rules")[0].at("holds") == false);
  CHECK(json.at("all").at("covered") == 0.5);
  CHECK(json.at("all").at("mean_error") == 0.1);
}
