#include "runtime/report/advice.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "runtime/measure/figures.hpp"
#include "runtime/measure/verdicts.hpp"

namespace shardscope::runtime {
namespace {

/// Whether the figures bear a statement: measured whole, without sharing cores, and with a closed interval.
bool supports_advice(const PointResult& point) {
  return point.status == PointStatus::kOk && !point.oversubscribed && point.tpot_ms.p50 && point.speedup &&
         point.efficiency && tpot_interval(point);
}

bool surely_below(const PointResult& point, const PointResult& other) {
  return tpot_interval(point)->high < tpot_interval(other)->low;
}

/// "TP=2, 4"
std::string degrees_text(const std::vector<int>& degrees) {
  return fmt::format("TP={}", fmt::join(degrees, ", "));
}

std::string advice_on(const PointResult& base, const PointResult& best) {
  const ClosedInterval slow = *tpot_interval(base);
  const ClosedInterval quick = *tpot_interval(best);
  constexpr double kSuspicious = 1.05;
  const char* caveat = *best.efficiency > kSuspicious
                           ? " That is more than ideal: a cache that the shards fit, or a disturbed base."
                           : "";
  return fmt::format("TP={} is {:.2f}x faster than TP={} ({:.0f} % of ideal; {:.2f}x to {:.2f}x within their noise).{}",
                     best.tp, *best.speedup, base.tp, *best.efficiency * 100, slow.low / quick.high,
                     slow.high / quick.low, caveat);
}

/// The degrees of a workload that can be compared with the smallest one, and those that cannot.
struct Rivals {
  std::vector<const PointResult*> judged;  // ascending by degree
  std::vector<int> unjudged;
};

Rivals rivals_of(const PointResult& base, const std::vector<PointResult>& points) {
  Rivals rivals;
  for (const PointResult& other : points) {
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

/// The smallest degree from which none of the faster ones can be told apart; null: none is faster than the base.
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

/// What can be said of a workload whose smallest degree is `base`; empty: nothing.
std::string sentence_on(const PointResult& base, const std::vector<PointResult>& points) {
  const Rivals rivals = rivals_of(base, points);
  if (rivals.judged.empty()) return "";
  std::string text = fmt::format("At batch {} with {} + {} tokens, ", base.workload.batch, base.workload.prompt_tokens,
                                 base.workload.output_tokens);
  if (const PointResult* best = best_of(base, rivals.judged)) {
    text += advice_on(base, *best);
    std::vector<int> more;
    for (const PointResult* rival : rivals.judged) {
      if (rival->tp > best->tp) more.push_back(rival->tp);
    }
    if (!more.empty()) {
      text += fmt::format(" {} {} not faster than that beyond the noise.", degrees_text(more),
                          more.size() == 1 ? "is" : "are");
    }
  } else {
    std::vector<int> slower, same;
    for (const PointResult* rival : rivals.judged) (surely_below(base, *rival) ? slower : same).push_back(rival->tp);
    if (!slower.empty()) {
      text += fmt::format("{} {} slower than TP={}{}", degrees_text(slower), slower.size() == 1 ? "is" : "are", base.tp,
                          same.empty() ? "." : ", ");
    }
    if (!same.empty()) {
      text += fmt::format("{} {} not faster than TP={} beyond the noise.", degrees_text(same),
                          same.size() == 1 ? "is" : "are", base.tp);
    }
  }
  if (!rivals.unjudged.empty()) text += fmt::format(" {} could not be judged.", degrees_text(rivals.unjudged));
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
