#include "runtime/plan/published.hpp"

#include "kernels/base/error.hpp"
#include "runtime/model/named.hpp"
#include "runtime/model/slice.hpp"
#include "runtime/model/weights.hpp"

namespace shardscope::runtime {
namespace {

constexpr kernels::Precision kHalf = {.activations = kernels::DType::kF16, .kv = kernels::DType::kF16};
constexpr double kMsOfSecond = 1e3;

kernels::DType half(WeightId /*id*/) {
  return kernels::DType::kF16;
}

/// NVLinks of the machines that were published about: all of them HGX boards.
GroupLinks switched_links(std::string_view gpu) {
  constexpr double kA100GbPerS = 300;
  constexpr double kH100GbPerS = 450;
  return {.path = GroupPath::kNvLink,
          .gb_per_s = gpu.starts_with("h100") ? kH100GbPerS : kA100GbPerS,
          .topology_class = topology::TopologyClass::kNvSwitch,
          .known = true,
          .narrowest = gpu.starts_with("h100") ? "NV18" : "NV12"};
}

/// Bytes over TPOT x tp x data-sheet bandwidth.
double utilisation(double bytes, double tpot_ms, int tp, double gb_per_s) {
  constexpr double kBytesPerMsOfGb = 1e6;
  return bytes / (tpot_ms * tp * gb_per_s * kBytesPerMsOfGb);
}

/// Weights that a step reads, all ranks together: published figures of gpt-fast's kind leave the KV cache out.
double weights_read(const PlannedModel& model) {
  double bytes = 0;
  for (const RankLedger& rank : model.ranks) {
    bytes += rank.head.bytes;
    for (const PlannedLayer& layer : rank.layers) {
      bytes += static_cast<double>(layer.count) *
               (layer.qkv.bytes + layer.attention_out.bytes + layer.gate_up.bytes + layer.down.bytes);
    }
  }
  return bytes;
}

}  // namespace

PlannedModel planned_named_model(const std::string& name, int tp) {
  const std::optional<ModelConfig> config = named_configuration(name);
  require(config.has_value(), "planned_named_model: no such configuration");
  return planned_model(*config, half, plan_shards(shard_dimensions(*config), tp), {}, kHalf);
}

bool of_the_step(const PublishedRow& row) {
  return row.figure == PublishedFigure::kTpotMs || row.figure == PublishedFigure::kMbuNominal ||
         row.figure == PublishedFigure::kMbuWeights;
}

const PlannedModel& PublishedModels::model(const PublishedCase& one) {
  const auto key = std::make_pair(one.model, one.tp);
  const auto found = models_.find(key);
  if (found != models_.end()) return found->second;
  return models_.emplace(key, planned_named_model(one.model, one.tp)).first->second;
}

double PublishedModels::figure(const PublishedRow& row, const PublishedCase& one, const Calibration& calibration) {
  const topology::DevicePeaks* gpu = topology::find_device_peaks(one.gpu);
  require(gpu != nullptr, "PublishedModels: no such GPU");
  const Software& software = constants_.software_named(row.software);
  const Reach reach = reach_of(constants_, calibration, *gpu, software);
  const SumModel sums(constants_, one.gpu, switched_links(one.gpu), row.way.empty() ? software.way : row.way);
  const PlannedModel& planned = model(one);
  const PredictedTimes times = predicted_times(planned, reach, sums, one.workload, 1);
  switch (row.figure) {
    case PublishedFigure::kTpotMs:
      return times.tpot_ms;
    case PublishedFigure::kTtftMs:
      return times.ttft_ms.value();
    case PublishedFigure::kLatencyMs:
      return times.latency_ms.value();
    case PublishedFigure::kRequestsPerSecond:
      return static_cast<double>(one.workload.batch) / times.latency_ms.value() * kMsOfSecond;
    case PublishedFigure::kMbuNominal:
      return utilisation(nominal_step_bytes(*named_configuration(one.model), half, one.workload, kHalf), times.tpot_ms,
                         one.tp, gpu->gb_per_s);
    case PublishedFigure::kMbuWeights:
      return utilisation(weights_read(planned), times.tpot_ms, one.tp, gpu->gb_per_s);
  }
  throw BugError("PublishedModels: a figure outside the enumeration");
}

double PublishedModels::predicted(const PublishedRow& row, const Calibration& calibration) {
  const double of = figure(row, row.of, calibration);
  return row.against ? of / figure(row, *row.against, calibration) : of;
}

}  // namespace shardscope::runtime
