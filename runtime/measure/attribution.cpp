#include "runtime/measure/attribution.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/base/error.hpp"

namespace shardscope::runtime {
namespace {

/// Those whose TPOT lies between the quartiles (at least one): their mean is a centre that single disturbed generations
/// do not move, and unlike a median of each part it keeps the parts' sum.
std::vector<const InstrumentedSample*> middle_half(const std::vector<InstrumentedSample>& samples) {
  std::vector<const InstrumentedSample*> sorted;
  sorted.reserve(samples.size());
  for (const InstrumentedSample& sample : samples) sorted.push_back(&sample);
  std::sort(sorted.begin(), sorted.end(),
            [](const InstrumentedSample* a, const InstrumentedSample* b) { return a->tpot_ms < b->tpot_ms; });
  const size_t cut = (sorted.size() - 1) / 4;  // on either side
  return {sorted.begin() + static_cast<std::ptrdiff_t>(cut), sorted.end() - static_cast<std::ptrdiff_t>(cut)};
}

StepTimes mean_of_rank(const std::vector<const InstrumentedSample*>& samples, size_t rank) {
  StepTimes mean;
  for (const InstrumentedSample* sample : samples) {
    const StepTimes& times = sample->ranks.at(rank);
    for (double StepTimes::*field : kStepTimes) mean.*field += times.*field / static_cast<double>(samples.size());
  }
  return mean;
}

/// bytes / (10^9 bytes/s) in ms
double milliseconds(double bytes, double gb_per_s) {
  return bytes / gb_per_s * 1e-6;
}

Parts parts_of_rank(const StepTimes& times, const OperationBytes& bytes, double gb_per_s, double tpot_ms) {
  const auto ideal = [&](double of) { return milliseconds(of, gb_per_s); };
  Parts parts;
  parts[Part::kIdealMemory] = ideal(bytes.sum());
  parts[Part::kMatrixLoss] = times.products - ideal(bytes.products);
  parts[Part::kAttention] = times.attention - ideal(bytes.attention);
  parts[Part::kElementwise] = times.elementwise - ideal(bytes.elementwise);
  parts[Part::kAllreduceTransfer] = times.transfer;
  parts[Part::kAllreduceWait] = times.wait;
  parts[Part::kHeadAndSampling] = times.head - ideal(bytes.head);
  parts[Part::kGaps] = times.gaps;
  parts[Part::kResidual] = tpot_ms - parts.sum();
  return parts;
}

/// The base of a row, as set_speedups found it.
const PointResult* base_of(const PointResult& point, const std::vector<PointResult>& points) {
  if (!point.tp_base) return nullptr;
  if (*point.tp_base == point.tp) return &point;
  for (const PointResult& other : points) {
    if (other.tp == *point.tp_base && other.workload == point.workload && other.kind == point.kind &&
        other.group.stands_for(point.group.placement)) {
      return &other;
    }
  }
  return nullptr;
}

}  // namespace

void set_attribution(PointResult& point, const std::vector<OperationBytes>& bytes) {
  point.attribution.reset();
  point.comm_share.reset();
  point.instrumented_tpot_ms.reset();
  for (RankFigures& figures : point.ranks) figures.attribution.reset();
  if (!point.tpot_ms.p50 || point.instrumented.empty()) return;
  require(bytes.size() == point.ranks.size(), "set_attribution: not the bytes of each rank");
  std::vector<double> tpots_ms;
  for (const InstrumentedSample& sample : point.instrumented) tpots_ms.push_back(sample.tpot_ms);
  point.instrumented_tpot_ms = median(std::move(tpots_ms));
  const bool known = std::all_of(point.ranks.begin(), point.ranks.end(), [](const RankFigures& figures) {
    return figures.achievable_gb_per_s > 0 && std::isfinite(figures.achievable_gb_per_s);
  });
  if (!known) return;
  const std::vector<const InstrumentedSample*> samples = middle_half(point.instrumented);
  Parts mean;
  for (size_t rank = 0; rank < point.ranks.size(); ++rank) {
    RankFigures& figures = point.ranks[rank];
    figures.attribution =
        parts_of_rank(mean_of_rank(samples, rank), bytes[rank], figures.achievable_gb_per_s, *point.tpot_ms.p50);
    for (const Part part : kParts) mean[part] += (*figures.attribution)[part] / static_cast<double>(point.ranks.size());
  }
  point.attribution = mean;
  point.comm_share = (mean[Part::kAllreduceTransfer] + mean[Part::kAllreduceWait]) / *point.tpot_ms.p50;
}

void set_losses(std::vector<PointResult>& points) {
  for (PointResult& point : points) {
    point.loss.reset();
    const PointResult* base = base_of(point, points);
    if (base == nullptr || !base->attribution || !point.attribution) continue;
    if (!point.knows(Part::kAllreduceTransfer) || !base->knows(Part::kAllreduceTransfer)) continue;
    Parts loss;
    for (const Part part : kParts) {
      loss[part] = (*point.attribution)[part] - (*base->attribution)[part] * base->tp / point.tp;
    }
    point.loss = loss;
  }
}

std::optional<double> residual_share(const PointResult& point) {
  if (!point.attribution || !point.tpot_ms.p50) return std::nullopt;
  return std::abs((*point.attribution)[Part::kResidual]) / *point.tpot_ms.p50;
}

}  // namespace shardscope::runtime
