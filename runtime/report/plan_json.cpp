// A plan as a report (shardscope.report/1): the fields of what bench and scale write, and what only predictions have.
#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "runtime/model/slice.hpp"
#include "runtime/report/comparable.hpp"
#include "runtime/report/json_values.hpp"
#include "runtime/report/names.hpp"
#include "runtime/report/plan_report.hpp"

namespace shardscope::runtime {
namespace {

constexpr double kByteBits = 8;

Json bounds_json(const std::optional<Bounds>& bounds) {
  return bounds ? Json::array({bounds->low, bounds->high}) : Json(nullptr);
}

Json row_json(const PredictedRow& row) {
  Json json = point_json(row.point, false);
  for (Json& rank : json["ranks"]) {  // what nobody measured
    rank["bandwidth_drift"] = nullptr;
    rank["load_seconds"] = nullptr;
    if (row.fits()) continue;
    rank["achievable_gb_per_s"] = nullptr;
    rank["achievable_median_gb_per_s"] = nullptr;
  }
  json["fits"] = row.fits();
  json["range"] = {{"tpot_ms", bounds_json(row.tpot_ms)},
                   {"ttft_ms", bounds_json(row.ttft_ms)},
                   {"latency_ms", bounds_json(row.latency_ms)},
                   {"throughput_tokens_per_s", bounds_json(row.tokens_per_s)}};
  json["uncalibrated"] = row.uncalibrated;
  json["uncalibrated_prompts"] = row.uncalibrated_prompts;
  json["needed_bytes_per_gpu"] = row.needed_bytes;
  json["usable_bytes_per_gpu"] = row.gpu_bytes;
  json["allreduce_times"] = text_or_null(row.point.tp > 1 ? row.all_reduces : "");
  return json;
}

/// The model as it would be stored: quantised, where --quant says so.
Json model_as_planned(const PlanReport& report) {
  const PlanOptions& options = report.options;
  Json json = model_json(report.model, options.precision);
  if (!options.format.kv_name.empty()) json["kv_dtype"] = options.format.kv_name;
  if (!options.format.weight_bits) return json;
  const ModelConfig& config = report.model.config;
  double removed = 0;  // bytes of plain types
  double added = 0;
  for (const WeightId id : expected_weights(config)) {
    const WeightRule& rule = rule_of(id.role);
    if (!rule.per_layer || rule.vector) continue;
    const WeightShape shape = shape_of(config, id.role);
    const auto elements = static_cast<double>(shape.rows * shape.columns);
    const double plain = elements * static_cast<double>(kernels::facts(report.model.weights->dtype(id)).block_bytes);
    const double quantised = elements * *options.format.weight_bits / kByteBits;
    removed += plain;
    added += quantised;
    Json& of_dtype = json["bytes"]["by_dtype"][std::string(kernels::facts(report.model.weights->dtype(id)).name)];
    of_dtype = static_cast<int64_t>(std::llround(of_dtype.get<double>() - plain));
    const bool attention =
        id.role == Role::kQuery || id.role == Role::kKey || id.role == Role::kValue || id.role == Role::kAttentionOut;
    Json& of_class = json["bytes"]["by_class"][attention ? "attention" : "ffn"];
    of_class = static_cast<int64_t>(std::llround(of_class.get<double>() + quantised - plain));
  }
  Json& bytes = json["bytes"];
  const double total = bytes["total"].get<double>() + added - removed;
  bytes["total"] = static_cast<int64_t>(std::llround(total));
  bytes["by_dtype"][options.format.name] = static_cast<int64_t>(std::llround(added));
  const double effective = kByteBits * total / static_cast<double>(parameter_count(config));
  json["quantisation"] = {{"scheme", options.format.name},
                          {"bits_nominal", options.format.nominal_bits},
                          {"bits_effective", effective},
                          {"group", options.format.group > 0 ? Json(options.format.group) : Json(nullptr)},
                          {"granularity", options.format.group > 0 ? "block" : "row"},
                          {"algorithm", nullptr}};
  json["bits_per_weight_effective"] = effective;
  return json;
}

Json planned_workload(const PlanOptions& options) {
  Json points = Json::array();
  for (const Workload& workload : options.workloads) points.push_back(workload_point_json(workload));
  return {{"points", std::move(points)},
          {"prompt", "none: nothing ran"},
          {"prompt_hash", nullptr},
          {"arrival", "static batch"},
          {"seed", 0}};
}

/// How it was measured: it was not.
Json planned_protocol(const PlanReport& report) {
  const PlanOptions& options = report.options;
  constexpr const char* kNothing = "nothing ran";
  return {{"warmup_generations", 0},
          {"least_warmup_generations", 0},
          {"longest_warmup_generations", 0},
          {"steady_change", 0},
          {"iterations", 0},
          {"least_generations", 0},
          {"noise_bound", 0},
          {"max_seconds", 0},
          {"stop_rule", kNothing},
          {"passes", 0},
          {"instrumented", false},
          {"order", kNothing},
          {"order_seed", 0},
          {"steady", nullptr},
          {"allreduce", report.constants.software_named(options.software).way},
          {"activations", "auto"},
          {"activation_dtype", kernels::facts(options.precision.activations).name},
          {"graphs", true},
          {"kind", kind_name(FigureKind::kPredicted)},
          {"rehearsed_topology", nullptr},
          {"rehearsed_collectives", nullptr},
          {"timer", "none: the cost model of plan"},
          {"percentile_method", "none"}};
}

/// What the constants rest on, each source once.
class Sources {
 public:
  void add(const std::string& of, const std::string& source, const std::string& date) {
    if (!seen_.insert(of + "\n" + source).second) return;
    json_.push_back({{"of", of}, {"source", source}, {"date", text_or_null(date)}});
  }
  Json take() { return std::move(json_); }

 private:
  std::set<std::string> seen_;
  Json json_ = Json::array();
};

Json sources_json(const PlanReport& report) {
  const PlanConstants& constants = report.constants;
  const GpuLike like = table_gpu(constants, report.machine.gpu->name);
  Sources sources;
  sources.add(fmt::format("peaks of {}", report.machine.gpu->name), std::string(report.machine.gpu->source), "");
  for (const ProductTable& table : constants.products) {
    if (table.gpu == like.gpu) sources.add("products of one token", table.origin.source, table.origin.date);
  }
  for (const LargeProducts& table : constants.large_products) {
    const bool own = table.gpu == report.machine.gpu->name;
    if (own || table.gpu == like.gpu) {
      sources.add(fmt::format("products of prompts, {}", table.gpu), table.origin.source, table.origin.date);
    }
  }
  sources.add("attention", constants.attention_origin.source, constants.attention_origin.date);
  if (report.options.stages > 1) {
    sources.add("pipeline stages", constants.stage_hop_origin.source, constants.stage_hop_origin.date);
  }
  for (const PredictedRow& row : report.plan.rows) {
    if (row.point.tp > 1) sources.add(fmt::format("all-reduces of TP {}", row.point.tp), row.all_reduces, "");
  }
  const Software& software = constants.software_named(report.options.software);
  const std::string family = software.as.empty() ? software.name : software.as;
  for (const PublishedRow& row : constants.published) {
    if (row.software == family) sources.add(fmt::format("overhead of {}", family), row.source, "");
  }
  return sources.take();
}

Json calibration_json(const PlanReport& report) {
  const Reach& reach = report.plan.reach;
  const Spread90 spread = report.spread();
  return {
      {"software", report.options.software},  {"overhead_us", reach.overhead_us},
      {"gpu", report.machine.gpu->name},      {"tables_of", table_gpu(report.constants, report.machine.gpu->name).gpu},
      {"peak_gb_per_s", reach.gb_per_s},      {"peak_tflops", value_or_null(reach.tflops)},
      {"launch_us", reach.launch_us},         {"memory_share", reach.memory_share},
      {"compute_share", reach.compute_share}, {"prefill_half_us", reach.prefill_half_us},
      {"attention_us", reach.attention_us},   {"spread", {{"tpot", spread.step}, {"whole", spread.whole}}},
      {"sources", sources_json(report)},      {"own", report.own.notes}};
}

const char* goal_name(PlanGoal goal) {
  switch (goal) {
    case PlanGoal::kLatency:
      return "latency";
    case PlanGoal::kThroughput:
      return "throughput";
    case PlanGoal::kBound:
      return "bound";
  }
  return "";
}

Json sizes_json(const ErrorSizes& sizes) {
  return {{"name", sizes.name},
          {"rows", sizes.rows},
          {"mean_error", sizes.mean},
          {"worst_error", sizes.worst},
          {"left_out_mean_error", sizes.left_out_mean},
          {"left_out_worst_error", sizes.left_out_worst},
          {"covered", sizes.covered}};
}

Json division_json(const Recommendation& one) {
  return {{"tp", one.tp}, {"replicas", one.replicas}, {"pp", one.pp}, {"why", one.why}};
}

Json recommendations_json(const std::vector<Recommendation>& all) {
  Json list = Json::array();
  for (const Recommendation& one : all) {
    Json json = division_json(one);
    json["goal"] = goal_name(one.goal);
    json["batch"] = one.batch;
    json["tpot_ms"] = one.tpot_ms;
    json["tokens_per_s"] = value_or_null(one.tokens_per_s);
    list.push_back(std::move(json));
  }
  return list;
}

}  // namespace

Json plan_json(const PlanReport& report, const ReportHeader& header) {
  const Plan& plan = report.plan;
  Json results = Json::array();
  for (const PredictedRow& row : plan.rows) results.push_back(row_json(row));
  Json document = {
      {"schema", "shardscope.report/1"},
      {"command", header.command},
      {"argv", header.argv},
      {"options", header.options},
      {"complete", true},
      {"environment", environment_json(header.environment)},
      {"topology", header.topology},
      {"model", model_as_planned(report)},
      {"workload", planned_workload(report.options)},
      {"protocol", planned_protocol(report)},
      {"comparable_key", nullptr},
      {"calibration", calibration_json(report)},
      {"recommendation", plan.recommendations.empty() ? Json(nullptr) : division_json(plan.recommendations.front())},
      {"recommendations", recommendations_json(plan.recommendations)},
      {"results", std::move(results)},
      {"advice", report.advice()},
      {"warnings", report.warnings()}};
  document["comparable_key"] = comparable_key(document);
  return document;
}

Json self_check_json(const SelfCheck& check) {
  Json rows = Json::array();
  for (const CheckedRow& row : check.rows) {
    rows.push_back({{"row", row.row},
                    {"unit", row.unit},
                    {"source", row.source},
                    {"note", text_or_null(row.note)},
                    {"software", row.software},
                    {"published", row.published},
                    {"predicted", row.predicted},
                    {"error", row.error()},
                    {"left_out", row.left_out},
                    {"left_out_error", row.left_out_error()},
                    {"low", row.low},
                    {"high", row.high},
                    {"covered", row.covered()}});
  }
  Json rules = Json::array();
  for (const CheckedRule& rule : check.rules) {
    rules.push_back({{"rule", rule.rule}, {"evidence", rule.evidence}, {"holds", rule.holds}});
  }
  Json families = Json::array();
  for (const ErrorSizes& family : check.families) families.push_back(sizes_json(family));
  return {{"schema", "shardscope.selfcheck/1"},
          {"rows", std::move(rows)},
          {"rules", std::move(rules)},
          {"families", std::move(families)},
          {"systems", sizes_json(check.systems)},
          {"all", sizes_json(check.all)}};
}

}  // namespace shardscope::runtime
