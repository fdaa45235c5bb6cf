#include "tests/runtime/report_page/made_up_points.hpp"

#include <cmath>
#include <utility>
#include <vector>

#include "runtime/measure/attribution.hpp"
#include "runtime/measure/figures.hpp"

namespace shardscope::test {
namespace {

using namespace runtime;

constexpr double kAchievableGbPerS = 1770;
constexpr double kWeightBytes = 13.5e9;
constexpr double kKvBytesPerToken = 524288;

/// What rank `rank` of `tp` does in a step, without the residual. The last rank is slow: the others wait for it.
Parts step_parts(int tp, int rank, const Workload& workload) {
  const double ranks = tp;
  const auto batch = static_cast<double>(workload.batch);
  const double tokens = batch * (static_cast<double>(workload.prompt_tokens) + 0.5 * workload.output_tokens);
  const double ideal = (kWeightBytes + tokens * kKvBytesPerToken) / ranks / (kAchievableGbPerS * 1e9) * 1e3;
  const bool slow = tp > 2 && rank + 1 == tp;
  Parts parts;
  parts[Part::kIdealMemory] = ideal;
  parts[Part::kMatrixLoss] = 0.35 * std::sqrt(ranks) + 0.004 * batch + (slow ? 0.31 : 0);
  parts[Part::kAttention] = workload.batch == 1 ? -0.04 : 0.05 + 0.0015 * batch;  // overlaps with what runs before
  parts[Part::kElementwise] = 0.09;
  parts[Part::kAllreduceTransfer] = tp == 1 ? 0 : 0.28 + 0.09 * ranks + 0.006 * batch;
  parts[Part::kAllreduceWait] = tp == 1 ? 0 : slow ? 0.012 : tp > 2 ? 0.33 + 0.01 * rank : 0.05;
  parts[Part::kHeadAndSampling] = 0.11;
  parts[Part::kGaps] = 0.06;
  return parts;
}

RankFigures a_rank(int tp, int rank, const Workload& workload, double tpot_ms) {
  RankFigures figures{.rank = rank};
  const int64_t width = 11008 / tp;
  figures.shard.query_heads = {rank * 32 / tp, (rank + 1) * 32 / tp};
  figures.shard.kv_heads = figures.shard.query_heads;
  figures.shard.ffn = {rank * width, (rank + 1) * width};
  figures.shard.vocab = {rank * 32000 / tp, (rank + 1) * 32000 / tp};
  const auto batch = static_cast<double>(workload.batch);
  const double positions =
      static_cast<double>(workload.prompt_tokens) + 0.5 * static_cast<double>(workload.output_tokens);
  figures.bytes = {.weights = kWeightBytes / tp,
                   .kv_read = batch * positions * kKvBytesPerToken / tp,
                   .kv_write = batch * kKvBytesPerToken / tp,
                   .replicated = 0,
                   .padded = 0,
                   .activations = batch * 1e6};
  figures.memory = {static_cast<int64_t>(kWeightBytes / tp), static_cast<int64_t>(1e9 * batch / tp), 200'000'000};
  figures.achievable_gb_per_s = kAchievableGbPerS - 4 * rank;
  figures.achievable_median_gb_per_s = figures.achievable_gb_per_s - 3;
  figures.tpot_ms = tpot_ms;
  return figures;
}

parallel::SumChoices choices_of(int tp) {
  parallel::SumChoices choices{.graphs = true, .choices = {{0, "one-shot"}, {262144, "nccl"}}};
  for (int64_t bytes = 8192; bytes <= 4'194'304; bytes *= 4) {
    const double size = static_cast<double>(bytes);
    choices.measured.push_back({bytes, "one-shot", 4.0 + tp + size * (tp - 1) / 2.2e5});
    choices.measured.push_back({bytes, "two-shot", 6.5 + tp + size / 1.3e5});
    choices.measured.push_back({bytes, "nccl", 11.0 + 1.5 * tp + size / 1.6e5});
  }
  choices.left_out = {"nccl-symmetric: this NCCL has no symmetric windows"};
  return choices;
}

}  // namespace

PointResult made_up_point(int tp, const Workload& workload, const MadeUpPoint& options, Noise& noise) {
  PointResult point{.tp = tp, .workload = workload};
  point.communicator = tp == 1 ? "none" : "auto";
  if (tp > 1) point.sum_choices = choices_of(tp);
  std::vector<Parts> parts;
  Parts mean;
  for (int rank = 0; rank < tp; ++rank) {
    parts.push_back(step_parts(tp, rank, workload));
    for (const Part part : kParts) mean[part] += parts.back()[part] / tp;
  }
  const double tpot = mean.sum() * 1.015;
  const auto batch = static_cast<double>(workload.batch);
  const double ttft = 8 + 0.045 * static_cast<double>(workload.prompt_tokens) * batch / tp;
  const int64_t gaps = workload.output_tokens - 1;
  VisitRecord first, second;
  for (int i = 0; i < options.generations; ++i) {
    GenerationSample sample{.pass = i < options.generations / 2 ? 0 : 1};
    const double factor = 1 + 0.006 * noise.next();
    sample.ttft_ms = ttft * (1 + 0.01 * noise.next());
    double sum = 0;
    for (int64_t gap = 0; gap < gaps; ++gap) {
      sample.itl_ms.push_back(tpot * factor * (0.985 + 0.03 * static_cast<double>(gap) / static_cast<double>(gaps)) *
                              (1 + 0.01 * noise.next() + (gap == 40 ? 0.1 : 0)));
      sum += sample.itl_ms.back();
    }
    if (gaps > 0) sample.tpot_ms = sum / static_cast<double>(gaps);
    sample.latency_ms = *sample.ttft_ms + sum;
    (sample.pass == 0 ? first : second).samples.push_back(std::move(sample));
  }
  set_times(point, {first, second});
  for (int rank = 0; rank < tp; ++rank) {
    point.ranks.push_back(a_rank(tp, rank, workload, point.tpot_ms.p50.value_or(0)));
  }
  set_utilisation(point, kWeightBytes, {.cache_bytes = 40'000'000}, {.gb_per_s = kMadeUpPeakGbPerS, .tflops = 312.0});
  if (options.attribution && point.tpot_ms.p50) {
    for (int rank = 0; rank < tp; ++rank) {
      Parts& own = parts[static_cast<size_t>(rank)];
      own[Part::kResidual] = *point.tpot_ms.p50 - own.sum();
      point.ranks[static_cast<size_t>(rank)].attribution = own;
    }
    mean[Part::kResidual] = *point.tpot_ms.p50 - mean.sum();
    point.attribution = mean;
    point.instrumented_tpot_ms = *point.tpot_ms.p50 * 1.02;
    point.comm_share = (mean[Part::kAllreduceTransfer] + mean[Part::kAllreduceWait]) / *point.tpot_ms.p50;
  }
  if (!options.samples) point.samples.clear();
  return point;
}

}  // namespace shardscope::test
