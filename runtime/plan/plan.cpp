#include "runtime/plan/plan.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "runtime/measure/attribution.hpp"
#include "runtime/measure/compute.hpp"
#include "runtime/measure/figures.hpp"
#include "runtime/model/slice.hpp"
#include "runtime/plan/recommend.hpp"
#include "runtime/report/table.hpp"
#include "topology/placement.hpp"

namespace shardscope::runtime {
namespace {

constexpr double kGB = 1e9;
constexpr double kMsOfSecond = 1e3;
constexpr double kBytesPerMsOfGb = 1e6;
constexpr double kFlopsPerMsOfT = 1e9;
/// CUDA context, libraries, NCCL's buffers: allowances, as the device backend makes them.
constexpr double kReservedBytes = 1024.0 * 1024 * 1024;

std::vector<int> group_of(const topology::Topology& topology, int degree, topology::Placement placement) {
  const auto found = topology.groups.find(degree);
  if (placement == topology::Placement::kLinear || degree == 1 || found == topology.groups.end()) {
    std::vector<int> first(static_cast<size_t>(degree));
    std::iota(first.begin(), first.end(), 0);
    return first;
  }
  return placement == topology::Placement::kBest ? found->second.best : found->second.worst;
}

Distribution predicted(double value) {
  Distribution distribution;
  distribution.mean = value;
  distribution.p50 = value;
  return distribution;
}

Parts mean_of(const std::vector<Parts>& ranks) {
  Parts mean;
  for (const Parts& rank : ranks) {
    for (size_t part = 0; part < mean.ms.size(); ++part)
      mean.ms[part] += rank.ms[part] / static_cast<double>(ranks.size());
  }
  return mean;
}

Spread spread_of(const std::vector<double>& values) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return {.min = *low,
          .mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size()),
          .max = *high};
}

/// Each thing that nothing backs widens the range once more.
Bounds range_of(double value, double spread, size_t uncalibrated) {
  const double factor = std::pow(1 + spread, 1 + static_cast<double>(uncalibrated));
  return {.low = value / factor, .high = value * factor};
}

/// What the GPU of one stage moves of a step: its share of all layers, and weights once for each piece of the batch.
StepBytes of_a_stage(StepBytes bytes, int stages, int64_t pieces) {
  const double weights = static_cast<double>(pieces) / stages;
  bytes.weights *= weights;
  bytes.kv_read /= stages;
  bytes.kv_write /= stages;
  bytes.replicated *= weights;  // most of it weights, where stages are many
  bytes.activations /= stages;
  return bytes;
}

/// One plan's common knowledge.
class Planner {
 public:
  Planner(const OpenedModel& model, const PlanMachine& machine, const PlanOptions& options,
          const PlanConstants& constants, const Calibration& calibration, const OwnMeasurements& own)
      : model_(model),
        machine_(machine),
        options_(options),
        constants_(constants),
        calibration_(calibration),
        own_(own),
        software_(constants.software_named(options.software)) {
    reach_ = reach_of(constants, calibration, *machine.gpu, software_, options.precision.activations);
    if (own.overhead_us) reach_.overhead_us = *own.overhead_us;
    if (own.memory_share) reach_.memory_share = *own.memory_share;
  }

  const Reach& reach() const { return reach_; }
  std::string reach_text() const;
  std::vector<PredictedRow> rows_of(int degree, int stages, topology::Placement placement) const;

 private:
  SumModel sums_of(const std::vector<int>& group) const;
  std::vector<std::string> uncalibrated(const SumModel& sums, int degree) const;
  std::vector<std::string> uncalibrated_prompts() const;
  void set_memory(PredictedRow& row, const parallel::ShardPlan& plan, int stages) const;
  void set_figures(PredictedRow& row, const PlannedModel& planned, const SumModel& sums, int stages) const;

  const OpenedModel& model_;
  const PlanMachine& machine_;
  const PlanOptions& options_;
  const PlanConstants& constants_;
  const Calibration& calibration_;
  const OwnMeasurements& own_;
  const Software& software_;
  Reach reach_;
};

std::string Planner::reach_text() const {
  const GpuLike like = table_gpu(constants_, machine_.gpu->name);
  return like.gpu == machine_.gpu->name ? fmt::format("tables of {}", like.gpu)
                                        : fmt::format("tables of {}: {}", like.gpu, like.why);
}

SumModel Planner::sums_of(const std::vector<int>& group) const {
  GroupLinks links{.path = GroupPath::kNvLink, .gb_per_s = 1};  // of one rank: never asked
  if (group.size() > 1) links = links_of_group(machine_.topology, group, machine_.gpu->name);
  return {constants_, machine_.gpu->name, links, software_.way, own_.sums};
}

std::vector<std::string> Planner::uncalibrated(const SumModel& sums, int degree) const {
  std::vector<std::string> things;
  const GpuLike like = table_gpu(constants_, machine_.gpu->name);
  if (!like.same && !own_.memory_share) {
    things.push_back(fmt::format("no products were measured on {}: those of {} are taken ({})", machine_.gpu->name,
                                 like.gpu, like.why));
  }
  if (const SumModel::Backing backing = sums.backing(degree); !backing.calibrated) {
    things.push_back(fmt::format("no all-reduces of {} such GPUs were measured: {}", degree, backing.text));
  }
  if (!reach_.tflops) {
    things.push_back(fmt::format("no dense peak of {} in {} is known: no TTFT, and what a step computes is left out",
                                 machine_.gpu->name, kernels::facts(options_.precision.activations).name));
  }
  if (!software_.as.empty() && !own_.overhead_us)
    things.push_back(fmt::format("{}: {}", software_.name, software_.why));
  return things;
}

std::vector<std::string> Planner::uncalibrated_prompts() const {
  std::vector<std::string> things;
  const GpuLike like = table_gpu(constants_, machine_.gpu->name);
  if (software_.name != "fastertransformer" || !like.same || !like.gpu.starts_with("a100")) {
    things.push_back("TTFT rests on prompts of FasterTransformer on A100, the only ones that were published");
  }
  if (reach_.tflops && !dense_peak(constants_, *machine_.gpu, options_.precision.activations).backed) {
    things.push_back(fmt::format("no dense peak of {} in {} is known: {:.0f} TFLOPS are taken", machine_.gpu->name,
                                 kernels::facts(options_.precision.activations).name, *reach_.tflops));
  }
  return things;
}

void Planner::set_memory(PredictedRow& row, const parallel::ShardPlan& plan, int stages) const {
  const PointResult& point = row.point;
  const DecoderOptions shape{
      .slots = point.workload.batch, .max_positions = point.workload.positions(), .precision = options_.precision};
  const DTypeOf dtype_of = [&](WeightId id) { return model_.weights->dtype(id); };
  row.gpu_bytes = usable_bytes(*machine_.gpu);
  for (int rank = 0; rank < point.tp; ++rank) {
    RankFigures figures{.rank = rank, .shard = plan.ranks[static_cast<size_t>(rank)]};
    figures.memory = planned_stage_memory(model_.config, *model_.weights, plan, shape, rank, options_.format, stages);
    figures.bytes = of_a_stage(
        planned_step_bytes(model_.config, dtype_of, plan, rank, point.workload, options_.format, options_.precision),
        stages, pieces_of(point.workload.batch, stages));
    const auto needed = static_cast<double>(figures.memory.weights + figures.memory.kv + figures.memory.workspace);
    row.needed_bytes = std::max(row.needed_bytes, needed);
    row.point.ranks.push_back(std::move(figures));
  }
}

void Planner::set_figures(PredictedRow& row, const PlannedModel& planned, const SumModel& sums, int stages) const {
  PointResult& point = row.point;
  const Workload& workload = point.workload;
  const PredictedTimes times = predicted_times(planned, reach_, sums, workload, stages);
  const auto batch = static_cast<double>(workload.batch);
  point.communicator = point.tp == 1 ? "none" : std::string(software_.way);
  if (workload.output_tokens > 1) {
    point.tpot_ms = predicted(times.tpot_ms);
    point.itl_ms = predicted(times.tpot_ms);
    point.attribution = mean_of(times.step.ranks);
    const Parts& parts = *point.attribution;
    point.comm_share = (parts[Part::kAllreduceTransfer] + parts[Part::kAllreduceWait]) / times.tpot_ms;
    const DTypeOf dtype_of = [&](WeightId id) { return model_.weights->dtype(id); };
    const double gpus = point.tp * stages;
    const double nominal =
        planned_nominal_bytes(model_.config, dtype_of, workload, options_.format, options_.precision) /
        (times.tpot_ms * gpus * reach_.gb_per_s * kBytesPerMsOfGb);
    if (nominal <= 1) {
      point.mbu_nominal = nominal;
    } else {  // of a model of few layers
      point.verdicts.push_back(
          "nominal: mbu_nominal counts the embedding table, which a step does not read, and would be over "
          "100 %");
    }
    std::vector<double> mbu;
    std::vector<double> useful;
    for (size_t rank = 0; rank < point.ranks.size(); ++rank) {
      RankFigures& figures = point.ranks[rank];
      const double most = times.tpot_ms * reach_.gb_per_s * kBytesPerMsOfGb;
      figures.tpot_ms = times.tpot_ms;
      figures.attribution = times.step.ranks[rank];
      figures.mbu = figures.bytes.headline() / most;
      figures.mbu_useful = (figures.bytes.headline() - figures.bytes.replicated - figures.bytes.padded) / most;
      figures.achievable_gb_per_s = reach_.gb_per_s * reach_.memory_share;
      figures.achievable_median_gb_per_s = figures.achievable_gb_per_s;
      figures.mbu_achievable = *figures.mbu / reach_.memory_share;
      mbu.push_back(*figures.mbu);
      useful.push_back(*figures.mbu_useful);
    }
    point.mbu = spread_of(mbu);
    point.mbu_useful = spread_of(useful);
    point.mbu_achievable = Spread{.min = point.mbu->min / reach_.memory_share,
                                  .mean = point.mbu->mean / reach_.memory_share,
                                  .max = point.mbu->max / reach_.memory_share};
    row.tpot_ms = range_of(times.tpot_ms, own_.spread.step > 0 ? own_.spread.step : calibration_.spread.step,
                           row.uncalibrated.size());
  }
  if (!times.ttft_ms) return;
  point.ttft_ms = predicted(*times.ttft_ms);
  point.latency_ms = predicted(*times.latency_ms);
  point.requests_per_s = batch / *times.latency_ms * kMsOfSecond;
  point.throughput_tokens_per_s = *point.requests_per_s * static_cast<double>(workload.output_tokens);
  const double flops = prefill_flops(model_.config, workload);
  point.prefill_tflops_per_s = flops / *times.ttft_ms / kFlopsPerMsOfT;
  if (reach_.tflops) point.mfu_prefill = *point.prefill_tflops_per_s / (point.tp * stages * *reach_.tflops);
  const size_t unbacked = row.uncalibrated.size() + row.uncalibrated_prompts.size();
  row.ttft_ms = range_of(*times.ttft_ms, calibration_.spread.whole, unbacked);
  const double steps_ms = *times.latency_ms - *times.ttft_ms;
  const Bounds tpot = row.tpot_ms.value_or(Bounds{times.tpot_ms, times.tpot_ms});
  row.latency_ms = Bounds{.low = row.ttft_ms->low + steps_ms * tpot.low / times.tpot_ms,
                          .high = row.ttft_ms->high + steps_ms * tpot.high / times.tpot_ms};
  const double tokens = batch * static_cast<double>(workload.output_tokens) * kMsOfSecond;
  row.tokens_per_s = Bounds{.low = tokens / row.latency_ms->high, .high = tokens / row.latency_ms->low};
}

std::vector<PredictedRow> Planner::rows_of(int degree, int stages, topology::Placement placement) const {
  const std::vector<int> group = group_of(machine_.topology, degree, placement);
  const SumModel sums = sums_of(group);
  const parallel::ShardPlan plan = plan_shards(shard_dimensions(model_.config), degree);
  const DTypeOf dtype_of = [&](WeightId id) { return model_.weights->dtype(id); };
  const PlannedModel planned = planned_model(model_.config, dtype_of, plan, options_.format, options_.precision);
  std::vector<PredictedRow> rows;
  for (const Workload& workload : options_.workloads) {
    PredictedRow row;
    row.point.kind = FigureKind::kPredicted;
    row.point.tp = degree;
    row.point.pp = stages;
    row.point.group = {.placement = placement, .also = {}, .places = group, .replicas = 1};
    row.point.workload = workload;
    row.all_reduces = sums.backing(degree).text;
    row.uncalibrated = uncalibrated(sums, degree);
    row.uncalibrated_prompts = uncalibrated_prompts();
    set_memory(row, plan, stages);
    row.point.verdicts.push_back("predicted: nothing ran");
    if (row.fits()) {
      set_figures(row, planned, sums, stages);
    } else {
      row.point.status = PointStatus::kOutOfMemory;
      row.point.verdicts.push_back(
          fmt::format("does_not_fit: a GPU would need {}, and {} of its {:.0f} GB may be used: {} too much",
                      bytes_text(row.needed_bytes), bytes_text(row.gpu_bytes), machine_.gpu->memory_gb,
                      bytes_text(row.needed_bytes - row.gpu_bytes)));
    }
    for (const std::string& thing : row.uncalibrated) row.point.verdicts.push_back("uncalibrated: " + thing);
    for (const std::string& thing : row.uncalibrated_prompts) row.point.verdicts.push_back("uncalibrated: " + thing);
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

double usable_bytes(const topology::DevicePeaks& gpu) {
  return gpu.memory_gb * kGB - kReservedBytes;
}

Plan make_plan(const OpenedModel& model, const PlanMachine& machine, const PlanOptions& options,
               const PlanConstants& constants, const Calibration& calibration, const OwnMeasurements& own) {
  require(machine.gpu != nullptr && !options.degrees.empty() && !options.workloads.empty(),
          "make_plan: nothing to plan");
  const Planner planner(model, machine, options, constants, calibration, own);
  Plan plan{.reach = planner.reach(), .reach_text = planner.reach_text()};
  for (const int degree : options.degrees) {
    for (PredictedRow& row : planner.rows_of(degree, options.stages, options.placement))
      plan.rows.push_back(std::move(row));
  }
  std::vector<PointResult> points;
  for (const PredictedRow& row : plan.rows) points.push_back(row.point);
  set_speedups(points);
  set_losses(points);
  for (size_t i = 0; i < points.size(); ++i) plan.rows[i].point = points[i];
  Spread90 known = calibration.spread;
  if (own.spread.step > 0) known.step = own.spread.step;
  plan.recommendations = recommendations(machine.topology, machine.gpus(), static_cast<int>(model.config.layers),
                                         options, known, [&](int degree, int stages, topology::Placement placement) {
                                           return planner.rows_of(degree, stages, placement);
                                         });
  for (const Recommendation& one : plan.recommendations) plan.advice.push_back(one.why);
  return plan;
}

}  // namespace shardscope::runtime
