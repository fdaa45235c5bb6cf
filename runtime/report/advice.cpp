#include "runtime/report/advice.hpp"

#include <fmt/format.h>

#include "runtime/measure/figures.hpp"

namespace shardscope::runtime {
namespace {

/// Whether the figures bear a statement: measured whole, without sharing cores, and with a closed interval.
bool supports_advice(const PointResult& point) {
  return point.status == PointStatus::kOk && !point.oversubscribed && point.tpot_ms.p50 && point.speedup &&
         point.efficiency && tpot_interval(point);
}

std::string advice_on(const PointResult& base, const PointResult& best) {
  const std::string where = fmt::format("At batch {} with {} + {} tokens, ", base.workload.batch,
                                        base.workload.prompt_tokens, base.workload.output_tokens);
  const bool faster = tpot_interval(best)->high < tpot_interval(base)->low;
  if (!faster) return where + fmt::format("no degree is faster than TP={} beyond its noise.", base.tp);
  return where + fmt::format("TP={} is {:.2f}x faster than TP={} ({:.0f} % of ideal).", best.tp, *best.speedup, base.tp,
                             *best.efficiency * 100);
}

}  // namespace

std::vector<std::string> speedup_advice(const std::vector<PointResult>& points) {
  std::vector<std::string> advice;
  for (const PointResult& base : points) {
    if (!supports_advice(base) || base.tp_base != base.tp) continue;
    const PointResult* best = nullptr;
    for (const PointResult& other : points) {
      const bool rival = supports_advice(other) && other.workload == base.workload && other.tp > base.tp;
      if (rival && (!best || *other.tpot_ms.p50 < *best->tpot_ms.p50)) best = &other;
    }
    if (best) advice.push_back(advice_on(base, *best));
  }
  return advice;
}

}  // namespace shardscope::runtime
