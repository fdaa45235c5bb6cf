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

bool faster(const PointResult& point, const PointResult& base) {
  return tpot_interval(point)->high < tpot_interval(base)->low;
}

/// "TP=2, 4"
std::string degrees_text(const std::vector<int>& degrees) {
  return fmt::format("TP={}", fmt::join(degrees, ", "));
}

std::string advice_on(const PointResult& base, const PointResult& best) {
  const ClosedInterval slow = *tpot_interval(base);
  const ClosedInterval quick = *tpot_interval(best);
  return fmt::format("TP={} is {:.2f}x faster than TP={} ({:.0f} % of ideal; {:.2f}x to {:.2f}x within their noise).",
                     best.tp, *best.speedup, base.tp, *best.efficiency * 100, slow.low / quick.high,
                     slow.high / quick.low);
}

/// What can be said of a workload whose smallest degree is `base`; empty: nothing.
std::string sentence_on(const PointResult& base, const std::vector<PointResult>& points) {
  const PointResult* best = nullptr;
  std::vector<int> judged, unjudged;
  for (const PointResult& other : points) {
    if (!(other.workload == base.workload) || other.tp <= base.tp || !other.tpot_ms.p50) continue;
    if (!supports_advice(other)) {
      unjudged.push_back(other.tp);
      continue;
    }
    judged.push_back(other.tp);
    if (faster(other, base) && (!best || *other.tpot_ms.p50 < *best->tpot_ms.p50)) best = &other;
  }
  if (judged.empty()) return "";
  std::string text = fmt::format("At batch {} with {} + {} tokens, ", base.workload.batch, base.workload.prompt_tokens,
                                 base.workload.output_tokens);
  text += best ? advice_on(base, *best)
               : fmt::format("{} {} not faster than TP={} beyond the noise.", degrees_text(judged),
                             judged.size() == 1 ? "is" : "are", base.tp);
  if (!unjudged.empty()) text += fmt::format(" {} could not be judged.", degrees_text(unjudged));
  return text;
}

}  // namespace

std::vector<std::string> speedup_advice(const std::vector<PointResult>& points) {
  std::vector<std::string> advice;
  for (const PointResult& base : points) {
    if (!supports_advice(base) || base.tp_base != base.tp) continue;
    std::string sentence = sentence_on(base, points);
    if (!sentence.empty()) advice.push_back(std::move(sentence));
  }
  return advice;
}

}  // namespace shardscope::runtime
