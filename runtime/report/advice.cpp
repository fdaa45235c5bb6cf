#include "runtime/report/advice.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "runtime/measure/figures.hpp"
#include "runtime/measure/verdicts.hpp"
#include "runtime/report/loss_advice.hpp"
#include "runtime/report/replica_advice.hpp"
#include "runtime/report/rivals.hpp"

namespace shardscope::runtime {
namespace {

using topology::Placement;

/// "TP=2, 4"
std::string degrees_text(const std::vector<int>& degrees) {
  return fmt::format("TP={}", fmt::join(degrees, ", "));
}

std::string advice_on(const PointResult& base, const PointResult& best) {
  const ClosedInterval slow = *tpot_interval(base);
  const ClosedInterval quick = *tpot_interval(best);
  // Of this pair: a row that stands for several placements has the speed-up of one of them.
  const double speedup = *base.tpot_ms.p50 / *best.tpot_ms.p50;
  const double efficiency = speedup * base.tp / best.tp;
  constexpr double kSuspicious = 1.05;
  const char* caveat =
      efficiency > kSuspicious ? " That is more than ideal: a cache that the shards fit, or a disturbed base." : "";
  return fmt::format("TP={} is {:.2f}x faster than TP={} ({:.0f} % of ideal; {:.2f}x to {:.2f}x within their noise).{}",
                     best.tp, speedup, base.tp, efficiency * 100, slow.low / quick.high, slow.high / quick.low, caveat);
}

/// What can be said of a workload and a placement whose smallest degree is `base`; empty: nothing. placement: with its
/// name in the sentence, where there are several.
std::string sentence_on(const PointResult& base, Placement placement, bool named,
                        const std::vector<PointResult>& points) {
  const Rivals rivals = rivals_of(base, placement, points);
  if (rivals.judged.empty()) return "";
  std::string text = fmt::format("At {}{}, ", workload_text(base.workload),
                                 named ? fmt::format(" and {} placement", name_of(placement)) : "");
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

/// What the wiring of a degree's devices is worth; empty: worst is not there, or one of the two bears no statement.
std::string wiring_sentence(const PointResult& best, const std::vector<PointResult>& points) {
  for (const PointResult& worst : points) {
    const bool rival = worst.group.stands_for(Placement::kWorst) && worst.tp == best.tp &&
                       worst.workload == best.workload && !(worst.group == best.group);
    if (!rival || !supports_advice(worst) || is_resumed(worst) != is_resumed(best)) continue;
    const std::string where = fmt::format("At {}, TP={}", workload_text(best.workload), best.tp);
    const ClosedInterval slow = *tpot_interval(worst);
    const ClosedInterval quick = *tpot_interval(best);
    const std::string devices = fmt::format("devices {}, and {} for the worst", topology::core_list_text(best.places()),
                                            topology::core_list_text(worst.places()));
    if (surely_below(best, worst)) {
      const auto percent = [](double ratio) { return (ratio - 1) * 100; };
      return fmt::format(
          "{}: the wiring is worth {:.0f} % ({:.0f} to {:.0f} % within their noise): the best placement "
          "is that much faster than the worst ({}).",
          where, percent(*worst.tpot_ms.p50 / *best.tpot_ms.p50), percent(slow.low / quick.high),
          percent(slow.high / quick.low), devices);
    }
    return fmt::format("{}: the best placement is {} the worst{} ({}).", where,
                       surely_below(worst, best) ? "slower than" : "not faster than",
                       surely_below(worst, best) ? "" : " beyond the noise", devices);
  }
  return "";
}

}  // namespace

std::vector<std::string> wiring_advice(const std::vector<PointResult>& points) {
  std::vector<std::string> advice;
  for (const PointResult& best : points) {
    if (!best.group.stands_for(Placement::kBest) || !supports_advice(best)) continue;
    std::string sentence = wiring_sentence(best, points);
    if (!sentence.empty()) advice.push_back(std::move(sentence));
  }
  return advice;
}

std::vector<std::string> scale_advice(const std::vector<PointResult>& points) {
  std::vector<std::string> advice;
  for (auto* of : {speedup_advice, loss_advice, replica_advice, wiring_advice}) {
    for (std::string& sentence : of(points)) advice.push_back(std::move(sentence));
  }
  return advice;
}

std::vector<std::string> speedup_advice(const std::vector<PointResult>& points) {
  std::vector<std::string> advice;
  const std::vector<Placement> placements = distinct_placements(points);
  for (const PointResult& base : points) {
    if (!supports_advice(base) || base.tp_base != base.tp) continue;
    for (const Placement placement : placements) {
      if (!base.group.stands_for(placement)) continue;
      std::string sentence = sentence_on(base, placement, placements.size() > 1, points);
      if (!sentence.empty()) advice.push_back(std::move(sentence));
    }
  }
  return advice;
}

}  // namespace shardscope::runtime
