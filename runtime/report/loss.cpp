#include "runtime/report/loss.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "runtime/measure/attribution.hpp"
#include "runtime/measure/figures.hpp"
#include "runtime/measure/verdicts.hpp"
#include "runtime/report/rivals.hpp"
#include "runtime/report/table_text.hpp"

namespace shardscope::runtime {

const PointResult* base_row(const PointResult& point, const std::vector<PointResult>& points) {
  if (!point.tp_base || *point.tp_base == point.tp) return nullptr;
  for (const PointResult& other : points) {
    if (other.tp == *point.tp_base && other.group.replicas == 1 && other.workload == point.workload &&
        other.kind == point.kind && other.group.stands_for(point.group.placement)) {
      return &other;
    }
  }
  return nullptr;
}

bool loss_beyond_noise(const PointResult& point, const std::vector<PointResult>& points) {
  const PointResult* base = base_row(point, points);
  if (base == nullptr) return false;
  const std::optional<ClosedInterval> here = tpot_interval(point);
  const std::optional<ClosedInterval> there = tpot_interval(*base);
  return here && there && here->low - there->high * base->tp / point.tp > 0;
}

std::optional<Part> ShownLoss::dominant() const {
  if (shares.empty() || shares.front().second < kDominant) return std::nullopt;
  return shares.front().first;
}

std::optional<ShownLoss> shown_loss(const PointResult& point, const std::vector<PointResult>& points) {
  const PointResult* base = base_row(point, points);
  if (base == nullptr || !point.loss || !loss_beyond_noise(point, points)) return std::nullopt;
  for (const PointResult* one : {&point, base}) {
    const std::optional<double> residual = residual_share(*one);
    if (!supports_advice(*one) || !residual || !(*residual <= kLargestResidual)) return std::nullopt;
  }
  if (is_resumed(point) != is_resumed(*base)) return std::nullopt;
  ShownLoss shown{.row = &point, .base = base, .total_ms = point.loss->sum(), .shares = {}};
  if (!(shown.total_ms > 0)) return std::nullopt;
  for (const Part part : kParts) {
    const double share = (*point.loss)[part] / shown.total_ms;
    if (part == Part::kResidual) {
      shown.unexplained = share;
    } else {
      shown.shares.emplace_back(part, share);
    }
  }
  if (!(std::abs(shown.unexplained) <= kMostUnexplained)) return std::nullopt;
  std::stable_sort(shown.shares.begin(), shown.shares.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  return shown;
}

std::string SlowestRank::waits(size_t ranks) const {
  return fmt::format("waits {} ms of a step, {}", figure_text(wait_ms),
                     ranks == 2 ? fmt::format("the other {} ms", figure_text(others_ms))
                                : fmt::format("each other {} ms or more", figure_text(others_ms)));
}

std::optional<SlowestRank> slowest_rank(const PointResult& point) {
  const std::optional<double> residual = residual_share(point);
  if (point.ranks.size() < 2 || !residual || !(*residual <= kLargestResidual)) return std::nullopt;
  std::vector<std::pair<double, int>> waits;
  for (const RankFigures& figures : point.ranks) {
    if (!figures.attribution) return std::nullopt;
    waits.emplace_back((*figures.attribution)[Part::kAllreduceWait], figures.rank);
  }
  std::sort(waits.begin(), waits.end());
  const auto& [least, rank] = waits[0];
  const double next = waits[1].first;
  if (!(least < kWaitsMuchLess * next) || !(next - least >= kWorthNaming * *point.tpot_ms.p50)) return std::nullopt;
  return SlowestRank{.rank = rank, .wait_ms = least, .others_ms = next};
}

}  // namespace shardscope::runtime
