// What `plan` shows around its tables: what is predicted and how wrong that may be, what marks mean, what to take, and
// what all that rests on.
#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "runtime/model/weights.hpp"
#include "runtime/report/plan_tables.hpp"
#include "runtime/report/table_text.hpp"

namespace shardscope::runtime {
namespace {

constexpr double kMillion = 1e6;
constexpr double kBillion = 1e9;

bool any(const std::vector<PredictedRow>& rows, bool (*holds)(const PredictedRow&)) {
  return std::any_of(rows.begin(), rows.end(), holds);
}

/// "all rows", "TP 4, 8"
std::string degrees_text(const std::set<int>& degrees, const PlanReport& report) {
  std::set<int> all;
  for (const PredictedRow& row : report.plan.rows) all.insert(row.point.tp);
  return degrees == all ? "all rows" : fmt::format("TP {}", fmt::join(degrees, ", "));
}

/// What texts say of which degrees, in the order of their first.
class ByDegree {
 public:
  void add(const std::string& text, int degree) {
    const auto found = std::find_if(texts_.begin(), texts_.end(), [&](const auto& one) { return one.first == text; });
    if (found == texts_.end()) {
      texts_.emplace_back(text, std::set<int>{degree});
    } else {
      found->second.insert(degree);
    }
  }
  const std::vector<std::pair<std::string, std::set<int>>>& texts() const { return texts_; }

 private:
  std::vector<std::pair<std::string, std::set<int>>> texts_;
};

/// What marks below the table mean.
std::string marks_text(const PlanReport& report) {
  const std::vector<PredictedRow>& rows = report.plan.rows;
  ByDegree things, prompts;
  for (const PredictedRow& row : rows) {
    for (const std::string& thing : row.uncalibrated) things.add(thing, row.point.tp);
    for (const std::string& thing : row.uncalibrated_prompts) prompts.add(thing, row.point.tp);
  }
  std::string text;
  if (!things.texts().empty()) text += "* uncalibrated; each of these widens the range once more:\n";
  for (const auto& [thing, degrees] : things.texts()) {
    text += wrapped(fmt::format("  {}: {}", degrees_text(degrees, report), thing));
  }
  if (!prompts.texts().empty()) text += "of TTFT, and of what contains it (tokens/s, too):\n";
  for (const auto& [thing, degrees] : prompts.texts()) {
    text += wrapped(fmt::format("  {}: {}", degrees_text(degrees, report), thing));
  }
  if (any(rows, [](const PredictedRow& row) { return row.fits() && !row.point.tpot_ms.p50; })) {
    text += "TPOT n/a: with one output token there is no time per token after it\n";
  }
  return text;
}

std::string parameters_text(const ModelConfig& config) {
  const auto count = static_cast<double>(parameter_count(config));
  return count < kBillion ? fmt::format("{:.3g} million", count / kMillion)
                          : fmt::format("{:.3g} billion", count / kBillion);
}

std::string head_text(const PlanReport& report) {
  const ModelConfig& config = report.model.config;
  const PlanOptions& options = report.options;
  const std::string_view dtype = kernels::facts(report.model.dtype).name;
  std::string format = options.format.weight_bits ? options.format.name : std::string(dtype);
  if (!config.quantisation.empty() && config.quantisation != "none") format = config.quantisation;
  if (!options.format.kv_name.empty()) format += fmt::format(", KV cache {}", options.format.kv_name);
  if (config.layers != config.layers_in_file) {
    format += fmt::format(", cut to {} of {} layers", config.layers, config.layers_in_file);
  }
  std::set<std::pair<int64_t, int64_t>> lengths;
  for (const Workload& workload : options.workloads) lengths.insert({workload.prompt_tokens, workload.output_tokens});
  const std::string tokens =
      lengths.size() == 1 ? fmt::format(", {} + {} tokens", lengths.begin()->first, lengths.begin()->second) : "";
  const PlanMachine& machine = report.machine;
  const std::string gpus = fmt::format("{} x {}", machine.gpus(), machine.gpu->name);
  return wrapped(fmt::format(
      "{} ({} parameters, {}){} on {} with {}: predicted, nothing ran", config.name, parameters_text(config), format,
      tokens, machine.name == gpus ? gpus : fmt::format("{} ({})", machine.name, gpus), options.software));
}

/// "from -13 to +15 %", of a factor of 1 + spread.
std::string span_text(double spread) {
  return fmt::format("from -{:.0f} to +{:.0f} %", 100 * spread / (1 + spread), 100 * spread);
}

std::string error_text(const PlanReport& report) {
  const Spread90 spread = report.spread();
  return wrapped(fmt::format(
      "ranges: against its prediction, of {} 9 of 10 lay {}; of published TTFTs, latencies and throughputs {}{}",
      report.own.spread.step > 0 ? "your TPOTs" : "published TPOTs", span_text(spread.step), span_text(spread.whole),
      "; each predicted without its own system in the calibration"));
}

std::string rests_text(const PlanReport& report) {
  const topology::DevicePeaks& gpu = *report.machine.gpu;
  const Reach& reach = report.plan.reach;
  const std::string peak = reach.tflops ? fmt::format(" and {:.0f} TFLOP/s", *reach.tflops) : "";
  std::string text = wrapped(fmt::format(
      "rests on: {} with {:.0f} GB/s{} by its data sheet; products: {:.1f} us and their bytes at {:.0f} % of that "
      "({}); {:.0f} us a layer of {}",
      gpu.name, gpu.gb_per_s, peak, reach.launch_us, 100 * reach.memory_share, report.plan.reach_text,
      reach.overhead_us, report.options.software));
  ByDegree sums;
  for (const PredictedRow& row : report.plan.rows) {
    if (row.point.tp > 1) sums.add(row.all_reduces, row.point.tp);
  }
  for (const auto& [sum, degrees] : sums.texts()) {
    text += wrapped(fmt::format("all-reduces of TP {}: {}", fmt::join(degrees, ", "), sum));
  }
  for (const std::string& note : report.own.notes) text += wrapped(fmt::format("your measurements: {}", note));
  return text + "how wrong that is: shardscope plan --self-check\n";
}

}  // namespace

Spread90 PlanReport::spread() const {
  return {.step = own.spread.step > 0 ? own.spread.step : calibration.spread.step, .whole = calibration.spread.whole};
}

std::vector<std::string> PlanReport::warnings() const {
  std::vector<std::string> all = machine.topology.warnings;
  all.insert(all.end(), against_warnings.begin(), against_warnings.end());
  return all;
}

std::vector<std::string> PlanReport::advice() const {
  std::vector<std::string> all;
  if (std::string missed = bound_missed(); !missed.empty()) all.push_back(std::move(missed));
  all.insert(all.end(), plan.advice.begin(), plan.advice.end());
  if (!against.empty()) all.push_back(against);
  return all;
}

namespace {

bool any_fits(const Plan& plan) {
  return std::any_of(plan.rows.begin(), plan.rows.end(), [](const PredictedRow& row) { return row.fits(); });
}

/// Why there is no recommendation.
const char* nothing_to_take(const Plan& plan) {
  return any_fits(plan) ? "no recommendation: with one output token there is no TPOT to choose by\n"
                        : "nothing fits: more GPUs, --quant, shorter lengths or smaller batches would take less\n";
}

}  // namespace

std::string PlanReport::bound_missed() const {
  const auto of_goal = [&](PlanGoal goal) {
    return std::find_if(plan.recommendations.begin(), plan.recommendations.end(),
                        [&](const Recommendation& one) { return one.goal == goal; });
  };
  if (!options.slo_tpot_ms || of_goal(PlanGoal::kBound) != plan.recommendations.end()) return "";
  std::string text = fmt::format("TPOT of at most {:.4g} ms: nothing here keeps it", *options.slo_tpot_ms);
  const auto nearest = of_goal(PlanGoal::kLatency);
  if (nearest == plan.recommendations.end())
    return text + (any_fits(plan) ? ", since no row has a TPOT" : ", since nothing fits");
  return fmt::format("{}; the nearest is TP {}{} at batch {} with {:.3g} ms", text, nearest->tp,
                     nearest->pp > 1 ? fmt::format(" x PP {}", nearest->pp) : "", nearest->batch, nearest->tpot_ms);
}

std::string plan_text(const PlanReport& report) {
  std::string text = head_text(report) + error_text(report) + "\n" + plan_row_table(report) + marks_text(report) + "\n";
  text += plan_parts_tables(report);
  const std::vector<std::string> advice = report.advice();
  for (const std::string& line : advice) text += wrapped(line);
  if (advice.empty()) text += nothing_to_take(report.plan);
  for (const std::string& warning : report.warnings()) text += wrapped("note: " + warning);
  return text + "\n" + rests_text(report);
}

}  // namespace shardscope::runtime
