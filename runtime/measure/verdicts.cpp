#include "runtime/measure/verdicts.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "runtime/measure/attribution.hpp"

namespace shardscope::runtime {
namespace {

constexpr double kMildFence = 1.5;  // interquartile ranges beyond the quartiles.  Source: Tukey 1977
constexpr double kSevereFence = 3.0;
constexpr const char* kResumed = "resumed: ";

/// Medians over the samples that know them: an outlier's cause must stand out from what goes on all the time.
Disturbance usual_disturbance(const std::vector<GenerationSample>& samples) {
  const auto usual = [&](std::optional<double> Disturbance::*field) -> std::optional<double> {
    std::vector<double> values;
    for (const GenerationSample& sample : samples) {
      if (const std::optional<double> value = sample.disturbance.*field) values.push_back(*value);
    }
    return values.empty() ? std::nullopt : std::optional(median(std::move(values)));
  };
  return {usual(&Disturbance::stolen_share), usual(&Disturbance::waited_share), usual(&Disturbance::mhz)};
}

OutlierCause cause_of(const Disturbance& seen, const Disturbance& usual) {
  const auto excess = [](const std::optional<double>& value, const std::optional<double>& base) {
    return value.value_or(0) - base.value_or(0);
  };
  if (excess(seen.stolen_share, usual.stolen_share) > kStolenWarning) return OutlierCause::kStolen;
  if (excess(seen.waited_share, usual.waited_share) > kWaitedWarning) return OutlierCause::kWaited;
  if (seen.mhz && usual.mhz && *seen.mhz * (1 + kClockWarning) < *usual.mhz) return OutlierCause::kSlowClock;
  return OutlierCause::kUnexplained;
}

const char* cause_text(OutlierCause cause) {
  switch (cause) {
    case OutlierCause::kStolen:
      return "with stolen time";
    case OutlierCause::kWaited:
      return "waiting for a core";
    case OutlierCause::kSlowClock:
      return "at a slow clock";
    case OutlierCause::kUnexplained:
      return "unexplained";
  }
  return "unexplained";
}

const char* headline_name(const PointResult& point) {
  return point.tpot_ms.n > 0 ? "TPOT" : "TTFT";
}

using Verdicts = std::vector<std::string>;

void too_few(const PointResult& point, Verdicts& verdicts) {
  if (point.generations >= kLeastForIntervals) return;
  verdicts.push_back(fmt::format("too_few: {} generation{}: the median has a closed interval from {} on",
                                 point.generations, point.generations == 1 ? "" : "s", kLeastForIntervals));
}

void unsteady(const PointResult& point, const Protocol& protocol, Verdicts& verdicts) {
  const WarmUp* worst = nullptr;
  for (const WarmUp& warm_up : point.warm_ups) {
    if (warm_up.steady.value_or(true)) continue;
    if (worst == nullptr || std::abs(warm_up.change.value_or(0)) > std::abs(worst->change.value_or(0))) {
      worst = &warm_up;
    }
  }
  if (worst == nullptr) return;
  const std::string compared = worst->change ? fmt::format("the last {} differ by {:+.1f} % from the {} before",
                                                           kSteadyWindow, *worst->change * 100, kSteadyWindow)
                                             : "too few to compare";
  verdicts.push_back(fmt::format("unsteady: warm-up never became steady within {}: {} generations, {}",
                                 protocol.warmup ? "--warmup" : "its limits", worst->generations, compared));
}

void noise(const PointResult& point, const Protocol& protocol, Verdicts& verdicts) {
  std::string text;
  if (point.noise.relative && !(*point.noise.relative <= protocol.noise_bound)) {
    text = fmt::format("{} p50 is known to ±{:.3g} %, wanted ±{:g} %", headline_name(point),
                       *point.noise.relative * 100, protocol.noise_bound * 100);
  }
  if (point.noise.pass_shift && !(std::abs(*point.noise.pass_shift) <= kShiftWarning)) {
    text += fmt::format("{}the second visit's median differs by {:+.1f} % from the first's", text.empty() ? "" : "; ",
                        *point.noise.pass_shift * 100);
  }
  if (!text.empty()) verdicts.push_back("noise: " + text);
}

void interference(const PointResult& point, Verdicts& verdicts) {
  Verdicts parts;
  const Disturbance& seen = point.disturbance;
  if (seen.stolen_share.value_or(0) > kStolenWarning) {
    parts.push_back(fmt::format("the hypervisor took {:.1f} % of the cores' time", *seen.stolen_share * 100));
  }
  // Ranks that share cores wait for each other: that is no neighbour.
  if (!point.oversubscribed && seen.waited_share.value_or(0) > kWaitedWarning) {
    parts.push_back(fmt::format("threads of a rank waited {:.1f} % of the time for a core", *seen.waited_share * 100));
  }
  if (seen.mhz && point.highest_mhz && *point.highest_mhz > *seen.mhz * (1 + kClockWarning)) {
    parts.push_back(fmt::format("the clock moved between {:.0f} and {:.0f} MHz", *seen.mhz, *point.highest_mhz));
  }
  if (!parts.empty()) verdicts.push_back(fmt::format("interference: {}", fmt::join(parts, "; ")));
}

void outliers(const PointResult& point, Verdicts& verdicts) {
  const Outliers& seen = point.outliers;
  const int64_t slow = seen.high_mild + seen.high_severe;
  const int64_t fast = seen.low_mild + seen.low_severe;
  if (slow + fast == 0) return;
  Verdicts parts;
  if (slow > 0) {
    Verdicts causes;
    for (size_t i = 0; i < kOutlierCauses.size(); ++i) {
      if (seen.causes[i] > 0) causes.push_back(fmt::format("{} {}", seen.causes[i], cause_text(kOutlierCauses[i])));
    }
    parts.push_back(fmt::format("{} slow ({} severe; {})", slow, seen.high_severe, fmt::join(causes, ", ")));
  }
  if (fast > 0) parts.push_back(fmt::format("{} fast ({} severe)", fast, seen.low_severe));
  verdicts.push_back(
      fmt::format("outliers: of {} generations {}; none is dropped", point.generations, fmt::join(parts, ", ")));
}

void bandwidth_drift(const PointResult& point, Verdicts& verdicts) {
  const auto moved = [](const RankFigures& figures) { return !(std::abs(figures.bandwidth_drift) <= kDriftWarning); };
  if (std::none_of(point.ranks.begin(), point.ranks.end(), moved)) return;
  const auto [lowest, highest] = std::minmax_element(
      point.ranks.begin(), point.ranks.end(),
      [](const RankFigures& a, const RankFigures& b) { return a.bandwidth_drift < b.bandwidth_drift; });
  std::string range = fmt::format("{:+.0f}", lowest->bandwidth_drift * 100);
  const std::string top = fmt::format("{:+.0f}", highest->bandwidth_drift * 100);
  if (top != range) range += fmt::format(" to {} (by rank)", top);
  verdicts.push_back(fmt::format(
      "bandwidth_drift: read bandwidth moved by {} % while this was measured; MBU is that uncertain", range));
}

/// The parts come from other generations than TPOT: where they do not meet, the two saw different machines, or the
/// instruments cost time.
void residual(const PointResult& point, Verdicts& verdicts) {
  const std::optional<double> share = residual_share(point);
  if (!share || *share <= kLargestResidual) return;
  verdicts.push_back(fmt::format(
      "residual: the parts of TPOT leave {:+.1f} % of it unexplained, over {:.0f} %; generations with instruments took "
      "{:.3g} ms a token, the others {:.3g} ms: the parts are that uncertain",
      (*point.attribution)[Part::kResidual] / *point.tpot_ms.p50 * 100, kLargestResidual * 100,
      *point.instrumented_tpot_ms, *point.tpot_ms.p50));
}

}  // namespace

Outliers classify_outliers(const std::vector<GenerationSample>& samples) {
  Outliers result;
  std::vector<double> values;
  for (const GenerationSample& sample : samples) {
    if (const std::optional<double> value = headline_ms(sample)) values.push_back(*value);
  }
  if (static_cast<int64_t>(values.size()) < kLeastForIntervals) return result;
  std::sort(values.begin(), values.end());
  const double first = quantile_sorted(values, 0.25);
  const double third = quantile_sorted(values, 0.75);
  const double range = third - first;
  const Disturbance usual = usual_disturbance(samples);
  for (const GenerationSample& sample : samples) {
    const std::optional<double> value = headline_ms(sample);
    if (!value) continue;
    if (*value < first - kSevereFence * range) {
      ++result.low_severe;
    } else if (*value < first - kMildFence * range) {
      ++result.low_mild;
    } else if (*value > third + kMildFence * range) {
      ++(*value > third + kSevereFence * range ? result.high_severe : result.high_mild);
      ++result.causes[static_cast<size_t>(cause_of(sample.disturbance, usual))];
    }
  }
  return result;
}

bool is_resumed(const PointResult& point) {
  return std::any_of(point.verdicts.begin(), point.verdicts.end(),
                     [](const std::string& verdict) { return verdict.starts_with(kResumed); });
}

void mark_resumed(PointResult& point) {
  if (is_resumed(point)) return;
  point.verdicts.push_back(std::string(kResumed) +
                           "measured by an earlier run; against this run's points no advice is given");
}

void add_verdicts(PointResult& point, const Protocol& protocol) {
  Verdicts& verdicts = point.verdicts;
  too_few(point, verdicts);
  unsteady(point, protocol, verdicts);
  if (point.unmet) verdicts.push_back("limit: " + *point.unmet);
  noise(point, protocol, verdicts);
  interference(point, verdicts);
  outliers(point, verdicts);
  bandwidth_drift(point, verdicts);
  residual(point, verdicts);
  if (point.oversubscribed) {
    verdicts.push_back("oversubscribed: more threads than cores: this shows overhead, not scaling");
  }
}

}  // namespace shardscope::runtime
