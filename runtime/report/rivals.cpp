#include "runtime/report/rivals.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "runtime/measure/figures.hpp"
#include "runtime/measure/verdicts.hpp"

namespace shardscope::runtime {

using topology::Placement;

bool figures_bear(const PointResult& point) {
  return point.status == PointStatus::kOk && point.kind == FigureKind::kMeasured && !point.oversubscribed &&
         point.tpot_ms.p50 && tpot_interval(point);
}

bool supports_advice(const PointResult& point) {
  return figures_bear(point) && point.group.replicas == 1;
}

bool surely_below(const PointResult& point, const PointResult& other) {
  return tpot_interval(point)->high < tpot_interval(other)->low;
}

Rivals rivals_of(const PointResult& base, Placement placement, const std::vector<PointResult>& points) {
  Rivals rivals;
  for (const PointResult& other : points) {
    if (other.group.replicas > 1 || !other.group.stands_for(placement)) continue;
    if (!(other.workload == base.workload) || other.tp <= base.tp || !other.tpot_ms.p50) continue;
    if (supports_advice(other) && is_resumed(other) == is_resumed(base)) {
      rivals.judged.push_back(&other);
    } else {
      rivals.unjudged.push_back(other.tp);
    }
  }
  std::sort(rivals.judged.begin(), rivals.judged.end(),
            [](const PointResult* a, const PointResult* b) { return a->tp < b->tp; });
  return rivals;
}

const PointResult* best_of(const PointResult& base, const std::vector<const PointResult*>& judged) {
  const PointResult* fastest = nullptr;
  for (const PointResult* rival : judged) {
    if (!surely_below(*rival, base)) continue;
    if (fastest == nullptr || *rival->tpot_ms.p50 < *fastest->tpot_ms.p50) fastest = rival;
  }
  if (fastest == nullptr) return nullptr;
  return *std::find_if(judged.begin(), judged.end(), [&](const PointResult* rival) {
    return surely_below(*rival, base) && !surely_below(*fastest, *rival);
  });
}

std::string workload_text(const Workload& workload) {
  return fmt::format("batch {} with {} + {} tokens", workload.batch, workload.prompt_tokens, workload.output_tokens);
}

std::vector<Placement> distinct_placements(const std::vector<PointResult>& points) {
  const auto rows_of = [&](Placement placement) {
    std::vector<bool> rows;
    for (const PointResult& point : points) {
      rows.push_back(point.group.replicas == 1 && point.group.stands_for(placement));
    }
    return rows;
  };
  std::vector<Placement> distinct;
  for (const Placement placement : topology::kPlacements) {
    const std::vector<bool> rows = rows_of(placement);
    if (std::find(rows.begin(), rows.end(), true) == rows.end()) continue;
    const bool same =
        std::any_of(distinct.begin(), distinct.end(), [&](Placement earlier) { return rows_of(earlier) == rows; });
    if (!same) distinct.push_back(placement);
  }
  return distinct;
}

}  // namespace shardscope::runtime
