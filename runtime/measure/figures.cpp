#include "runtime/measure/figures.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "runtime/measure/verdicts.hpp"

namespace shardscope::runtime {
namespace {

/// Mean weighted by time.
class WeightedMean {
 public:
  void add(const std::optional<double>& value, double weight) {
    if (!value) return;
    sum_ += *value * weight;
    weight_ += weight;
  }
  std::optional<double> value() const { return weight_ > 0 ? std::optional(sum_ / weight_) : std::nullopt; }

 private:
  double sum_ = 0;
  double weight_ = 0;
};

void set_disturbance(PointResult& point) {
  WeightedMean stolen, waited;
  for (const GenerationSample& sample : point.samples) {
    const double weight = sample.latency_ms.value_or(0);
    stolen.add(sample.disturbance.stolen_share, weight);
    waited.add(sample.disturbance.waited_share, weight);
    if (const std::optional<double> mhz = sample.disturbance.mhz) {
      point.disturbance.mhz = std::min(*mhz, point.disturbance.mhz.value_or(*mhz));
      point.highest_mhz = std::max(*mhz, point.highest_mhz.value_or(*mhz));
    }
  }
  point.disturbance.stolen_share = stolen.value();
  point.disturbance.waited_share = waited.value();
}

/// Median of the headline figures of one visit.
std::optional<double> median_headline(const std::vector<GenerationSample>& samples, int pass) {
  std::vector<double> values;
  for (const GenerationSample& sample : samples) {
    const std::optional<double> value = headline_ms(sample);
    if (value && sample.pass == pass) values.push_back(*value);
  }
  return values.empty() ? std::nullopt : std::optional(median(std::move(values)));
}

void set_noise(PointResult& point) {
  const Distribution& headline = point.tpot_ms.n > 0 ? point.tpot_ms : point.ttft_ms;
  const std::optional<double> up = median_headline(point.samples, 0);
  const std::optional<double> down = median_headline(point.samples, 1);
  if (up && down && *up > 0) point.noise.pass_shift = *down / *up - 1;
  const Interval& interval = headline.p50_interval;
  if (!interval.low || !interval.high) return;
  const auto [low, high] =
      std::minmax({*interval.low, *interval.high, up.value_or(*interval.low), down.value_or(*interval.low)});
  point.noise.low_ms = low;
  point.noise.high_ms = high;
  if (*headline.p50 > 0) point.noise.relative = (high - low) / 2 / *headline.p50;
}

Spread spread_of(const std::vector<RankFigures>& ranks, std::optional<double> RankFigures::*field) {
  Spread spread{.min = INFINITY, .max = -INFINITY};
  for (const RankFigures& figures : ranks) {
    const double value = (figures.*field).value_or(0);
    spread.min = std::min(spread.min, value);
    spread.max = std::max(spread.max, value);
    spread.mean += value / static_cast<double>(ranks.size());
  }
  return spread;
}

}  // namespace

void set_times(PointResult& point, const std::vector<VisitRecord>& visits) {
  std::vector<double> ttft, tpot, latency, itl;
  double window_ms = 0;
  for (const VisitRecord& visit : visits) {
    point.warm_ups.push_back(visit.warm_up);
    if (visit.unmet) point.unmet = visit.unmet;
    for (const GenerationSample& sample : visit.samples) {
      if (sample.ttft_ms) ttft.push_back(*sample.ttft_ms);
      if (sample.tpot_ms) tpot.push_back(*sample.tpot_ms);
      if (sample.latency_ms) latency.push_back(*sample.latency_ms);
      itl.insert(itl.end(), sample.itl_ms.begin(), sample.itl_ms.end());
      window_ms += sample.latency_ms.value_or(0);
      point.samples.push_back(sample);
    }
    point.instrumented.insert(point.instrumented.end(), visit.instrumented.begin(), visit.instrumented.end());
  }
  if (!visits.empty()) point.cold_ttft_ms = visits.front().cold_ttft_ms;
  point.ttft_ms = distribution_of(ttft);
  point.tpot_ms = distribution_of(tpot);
  point.latency_ms = distribution_of(latency);
  point.itl_ms = dependent_distribution_of(itl);
  point.generations = static_cast<int64_t>(point.samples.size());
  const auto requests = static_cast<double>(point.generations * point.workload.batch * point.group.replicas);
  if (window_ms > 0) {
    point.requests_per_s = requests / (window_ms * 1e-3);
    point.throughput_tokens_per_s = *point.requests_per_s * static_cast<double>(point.workload.output_tokens);
  }
  if (point.text_cost && point.latency_ms.p50) {
    const double text_ms = point.text_cost->tokenise_ms + point.text_cost->detokenise_ms;
    point.end_to_end_ms = *point.latency_ms.p50 + static_cast<double>(point.workload.batch) * text_ms;
  }
  set_disturbance(point);
  set_noise(point);
  point.outliers = classify_outliers(point.samples);
}

void set_utilisation(PointResult& point, double nominal_bytes, const GroupPlace& place, const Peaks& peaks,
                     std::optional<double> whole_group) {
  double group_bytes = 0;
  for (const RankFigures& figures : point.ranks) group_bytes += figures.bytes.headline();
  group_bytes = whole_group.value_or(group_bytes);
  if (place.cache_bytes > 0) point.cache_resident = group_bytes <= static_cast<double>(place.cache_bytes);
  if (point.cache_resident.value_or(false)) {
    point.verdicts.push_back(fmt::format(
        "cache_resident: what a step reads ({:.1f} MB) fits the group's last-level cache ({:.1f} MB): no MBU against "
        "memory",
        group_bytes * 1e-6, static_cast<double>(place.cache_bytes) * 1e-6));
  }
  if (!point.tpot_ms.p50) return;
  const double seconds = *point.tpot_ms.p50 * 1e-3;
  const bool measurable = seconds > 0 && std::all_of(point.ranks.begin(), point.ranks.end(), [](const RankFigures& r) {
                            return r.achievable_gb_per_s > 0 && std::isfinite(r.achievable_gb_per_s);
                          });
  if (!measurable) {
    point.status = PointStatus::kInvalid;
    point.verdicts.push_back("invalid: a time or a read bandwidth that is no positive number");
    return;
  }
  // 0: no memory peak to compare with.
  const double peak = point.cache_resident.value_or(false) ? 0 : peaks.gb_per_s.value_or(0);
  for (RankFigures& figures : point.ranks) {
    const double gb_per_s = figures.bytes.headline() * 1e-9 / seconds;
    figures.mbu_achievable = gb_per_s / figures.achievable_gb_per_s;
    if (peak == 0) continue;
    const double useful = figures.bytes.headline() - figures.bytes.replicated - figures.bytes.padded;
    figures.mbu = gb_per_s / peak;
    figures.mbu_useful = useful * 1e-9 / seconds / peak;
  }
  point.mbu_achievable = spread_of(point.ranks, &RankFigures::mbu_achievable);
  double highest = point.mbu_achievable->max;
  if (peak > 0) {
    point.mbu = spread_of(point.ranks, &RankFigures::mbu);
    point.mbu_useful = spread_of(point.ranks, &RankFigures::mbu_useful);
    point.mbu_nominal = nominal_bytes * 1e-9 / seconds / (peak * point.tp);
    highest = std::max({highest, point.mbu->max, *point.mbu_nominal});
  }
  if (!(highest <= 1)) {
    point.status = PointStatus::kInvalid;
    point.verdicts.push_back(fmt::format(
        "invalid: an MBU of {:.0f} % cannot be; the peak or the measured bandwidth is too low, the bytes are counted "
        "wrongly, or a cache serves them",
        highest * 100));
  }
}

void set_prefill(PointResult& point, double flops, const Peaks& peaks) {
  if (!point.ttft_ms.p50) return;
  point.prefill_tflops_per_s = flops * 1e-12 / (*point.ttft_ms.p50 * 1e-3);
  if (!peaks.tflops) return;
  point.mfu_prefill = *point.prefill_tflops_per_s / (*peaks.tflops * point.tp);
  if (!(*point.mfu_prefill <= 1)) {
    point.status = PointStatus::kInvalid;
    point.verdicts.push_back(
        fmt::format("invalid: an MFU of {:.0f} % cannot be; the peak is too low, or not that of the compute type",
                    *point.mfu_prefill * 100));
  }
}

namespace {

/// The smallest degree that ran the point's workload on that placement.
const PointResult* base_of(const PointResult& point, topology::Placement placement,
                           const std::vector<PointResult>& points) {
  const PointResult* base = &point;
  for (const PointResult& other : points) {
    const bool comparable =
        other.workload == point.workload && other.kind == point.kind && other.group.stands_for(placement);
    if (comparable && other.tpot_ms.p50 && other.tp < base->tp) base = &other;
  }
  return base;
}

}  // namespace

void set_speedups(std::vector<PointResult>& points) {
  for (PointResult& point : points) {
    point.tp_base.reset();
    point.speedup.reset();
    point.efficiency.reset();
    if (!point.tpot_ms.p50 || point.group.replicas > 1) continue;
    const PointResult* base = base_of(point, point.group.placement, points);
    // A row that stands for several placements has a speed-up if their bases are one.
    const bool one = std::all_of(point.group.also.begin(), point.group.also.end(), [&](topology::Placement placement) {
      return base_of(point, placement, points) == base;
    });
    if (!one) continue;
    point.tp_base = base->tp;
    // A TPOT without its collectives would make more of a degree, or less of the others, than any run can.
    if (!point.knows(Part::kAllreduceTransfer) || !base->knows(Part::kAllreduceTransfer)) continue;
    point.speedup = *base->tpot_ms.p50 / *point.tpot_ms.p50;
    point.efficiency = *point.speedup * base->tp / point.tp;
  }
}

std::optional<ClosedInterval> tpot_interval(const PointResult& point) {
  if (point.tpot_ms.n == 0 || !point.noise.low_ms || !point.noise.high_ms) return std::nullopt;
  return ClosedInterval{*point.noise.low_ms, *point.noise.high_ms};
}

}  // namespace shardscope::runtime
