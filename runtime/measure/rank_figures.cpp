#include "runtime/measure/rank_figures.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/base/error.hpp"

namespace shardscope::runtime {
namespace {

std::optional<double> mean_of_known(const std::optional<double>& a, const std::optional<double>& b) {
  if (a && b) return (*a + *b) / 2;
  return a ? a : b;
}

std::optional<double> known(double value) {
  return std::isnan(value) ? std::nullopt : std::optional(value);
}

}  // namespace

std::array<double, kRankDoubles> to_doubles(const OwnFigures& own, const MemoryBytes& memory) {
  return {std::max(own.before.best_gb_per_s, own.after.best_gb_per_s),
          (own.before.median_gb_per_s + own.after.median_gb_per_s) / 2,
          own.after.best_gb_per_s / own.before.best_gb_per_s - 1,
          own.tpot_ms.empty() ? std::nan("") : median(own.tpot_ms),
          own.seconds > 0 ? own.waited_seconds / own.seconds : std::nan(""),
          static_cast<double>(memory.weights),
          static_cast<double>(memory.kv),
          static_cast<double>(memory.workspace),
          own.load_seconds,
          own.timer_step_ns.value_or(std::nan(""))};
}

RankFigures rank_figures_of(std::span<const double> doubles, int rank) {
  require(doubles.size() == kRankDoubles, "rank_figures_of: not the figures of one rank");
  return {
      .rank = rank,
      .memory = {static_cast<int64_t>(doubles[5]), static_cast<int64_t>(doubles[6]), static_cast<int64_t>(doubles[7])},
      .achievable_gb_per_s = doubles[0],
      .achievable_median_gb_per_s = doubles[1],
      .bandwidth_drift = doubles[2],
      .tpot_ms = known(doubles[3]),
      .waited_share = known(doubles[4]),
      .timer_step_ns = known(doubles[9]),
      .load_seconds = doubles[8]};
}

RankFigures both_visits(const RankFigures& first, const RankFigures& second) {
  RankFigures both = second;
  both.achievable_gb_per_s = std::max(first.achievable_gb_per_s, second.achievable_gb_per_s);
  both.achievable_median_gb_per_s = (first.achievable_median_gb_per_s + second.achievable_median_gb_per_s) / 2;
  if (std::abs(first.bandwidth_drift) > std::abs(second.bandwidth_drift)) {
    both.bandwidth_drift = first.bandwidth_drift;
  }
  both.tpot_ms = mean_of_known(first.tpot_ms, second.tpot_ms);
  both.waited_share = mean_of_known(first.waited_share, second.waited_share);
  if (first.timer_step_ns) {
    both.timer_step_ns = std::max(*first.timer_step_ns, second.timer_step_ns.value_or(*first.timer_step_ns));
  }
  both.load_seconds = first.load_seconds;
  return both;
}

}  // namespace shardscope::runtime
