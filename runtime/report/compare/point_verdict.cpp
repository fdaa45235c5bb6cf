#include "runtime/report/compare/point_verdict.hpp"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "runtime/measure/attribution.hpp"
#include "runtime/measure/verdicts.hpp"
#include "runtime/report/loss.hpp"
#include "runtime/report/names.hpp"
#include "runtime/report/table_text.hpp"

namespace shardscope::runtime {
namespace {

/// Why a point bears no verdict, beside its noise; empty: it does.
std::string thin_evidence(const PointResult& point) {
  if (point.status != PointStatus::kOk) return fmt::format("its status is {}", status_name(point.status));
  if (point.kind != FigureKind::kMeasured) return fmt::format("its figures are {}", kind_name(point.kind));
  if (!point.tpot_ms.p50) return "it has no TPOT";
  if (!(*point.tpot_ms.p50 > 0)) return "its TPOT is no time";
  if (point.tpot_ms.n < kLeastCompared) {
    return fmt::format("{} generations, {} are needed", point.tpot_ms.n, kLeastCompared);
  }
  const std::optional<ClosedInterval> interval = tpot_interval(point);
  const double median = *point.tpot_ms.p50;
  const bool around = interval && interval->low > 0 && interval->low <= median && interval->high >= median &&
                      std::isfinite(interval->high);
  if (!around) return "its median has no closed interval";
  return "";
}

/// Whether the TPOTs hold the collectives of both, or of neither.
bool know_alike(const PointResult& first, const PointResult& other) {
  return std::all_of(kParts.begin(), kParts.end(),
                     [&](const Part part) { return first.knows(part) == other.knows(part); });
}

/// Why the pair bears no verdict; empty: it does.
std::string thin_evidence(const PointResult& first, const PointResult& other) {
  if (!know_alike(first, other)) {
    return fmt::format("the {}'s TPOT leaves out collectives, of which nothing is known",
                       first.knows(Part::kAllreduceTransfer) ? "other" : "first");
  }
  const std::string here = thin_evidence(first);
  const std::string there = thin_evidence(other);
  if (!here.empty() && here == there) return fmt::format("both: {}", here);
  if (!here.empty()) return fmt::format("the first: {}", here);
  if (!there.empty()) return fmt::format("the other: {}", there);
  if (first.oversubscribed != other.oversubscribed) {
    return fmt::format("the {} had more threads than cores", first.oversubscribed ? "first" : "other");
  }
  return "";
}

/// The interval with its ends kApart times as far from the median.
ClosedInterval spread_out(const PointResult& point) {
  const ClosedInterval interval = *tpot_interval(point);
  const double median = *point.tpot_ms.p50;
  return {median - (median - interval.low) * kApart, median + (interval.high - median) * kApart};
}

/// Sets the verdict, and the reason of an unclear one, of a pair with evidence.
void judge(ComparedPoint& pair, double noise_bound) {
  const ClosedInterval first = spread_out(*pair.first);
  const ClosedInterval other = spread_out(*pair.other);
  const double smaller = std::min(*pair.first->tpot_ms.p50, *pair.other->tpot_ms.p50);
  const double larger = std::max(*pair.first->tpot_ms.p50, *pair.other->tpot_ms.p50);
  const bool beyond = larger - smaller > noise_bound * larger;
  if (beyond && other.high < first.low) {
    pair.verdict = PointVerdict::kFaster;
  } else if (beyond && other.low > first.high) {
    pair.verdict = PointVerdict::kSlower;
  } else if (pair.ratio_bounds->low >= 1 / (1 + kSameMargin) && pair.ratio_bounds->high <= 1 + kSameMargin) {
    pair.verdict = PointVerdict::kSame;
  } else {
    pair.reason = fmt::format("the noise leaves {:.2f}x to {:.2f}x", pair.ratio_bounds->low, pair.ratio_bounds->high);
  }
}

/// "waiting for rank 3", where the other has one that is late and the first has not.
std::string words_of_pair(Part part, const ComparedPoint& pair) {
  if (part == Part::kAllreduceWait) {
    const std::optional<SlowestRank> now = slowest_rank(*pair.other);
    const std::optional<SlowestRank> before = slowest_rank(*pair.first);
    if (now && (!before || before->rank != now->rank)) return fmt::format("waiting for rank {}", now->rank);
  }
  return difference_words(part);
}

/// The ways of summing, where they differ: "nccl against one-shot".
std::string sums_text(const ComparedPoint& pair) {
  const auto ways = [](const PointResult& point) {
    std::vector<std::string> names;
    for (const auto& choice : point.sum_choices.choices) names.push_back(choice.way);
    return names.empty() ? point.communicator : fmt::format("{}", fmt::join(names, ", "));
  };
  const std::string first = ways(*pair.first);
  const std::string other = ways(*pair.other);
  return first == other ? "" : fmt::format("; sums by {}, then by {}", first, other);
}

/// The parts of at least a tenth of the difference, the largest first.
std::string shares_text(const ComparedPoint& pair, double difference_ms) {
  std::vector<std::pair<double, Part>> shares;
  for (const Part part : kParts) shares.emplace_back((*pair.explained)[part] / difference_ms, part);
  // As they are printed: parts of the same share keep their order.
  const auto percent = [](const auto& entry) { return std::round(entry.first * 100); };
  std::stable_sort(shares.begin(), shares.end(), [&](const auto& a, const auto& b) { return percent(a) > percent(b); });
  std::vector<std::string> named, against;
  for (const auto& [share, part] : shares) {
    const std::string text = fmt::format("{:.0f} % {}", std::abs(share) * 100, words_of_pair(part, pair));
    if (share >= kLeastNamed) named.push_back(text);
    if (share <= -kLeastNamed) against.push_back(text);
  }
  return fmt::format("{}{}{}", fmt::join(named, ", "),
                     against.empty() ? "" : "; the other way: ", fmt::join(against, ", "));
}

std::string words_on(const ComparedPoint& pair) {
  if (!pair.difference_ms || (pair.verdict != PointVerdict::kFaster && pair.verdict != PointVerdict::kSlower))
    return "";
  const double sign = *pair.difference_ms < 0 ? -1 : 1;
  std::string text = fmt::format("{}{} ms", sign < 0 ? "-" : "+", figure_text(std::abs(*pair.difference_ms)));
  if (!pair.explained) return text + sums_text(pair);
  text += fmt::format(": {}", shares_text(pair, *pair.difference_ms));
  const double unexplained = std::max(*residual_share(*pair.first), *residual_share(*pair.other));
  if (!(unexplained <= kLargestResidual)) {
    text += fmt::format(" (uncertain: {:.0f} % of a TPOT is not explained)", unexplained * 100);
  }
  return text + sums_text(pair);
}

}  // namespace

std::string_view name_of(PointVerdict verdict) {
  switch (verdict) {
    case PointVerdict::kSame:
      return "same";
    case PointVerdict::kFaster:
      return "faster";
    case PointVerdict::kSlower:
      return "slower";
    case PointVerdict::kUnclear:
      return "unclear";
  }
  return "unclear";
}

std::string difference_words(Part part) {
  switch (part) {
    case Part::kIdealMemory:
      return "reading memory at full speed";
    case Part::kMatrixLoss:
      return "products of weights";
    case Part::kAttention:
    case Part::kElementwise:
    case Part::kAllreduceTransfer:
    case Part::kAllreduceWait:
    case Part::kHeadAndSampling:
    case Part::kGaps:
    case Part::kResidual:
      return std::string(words_of(part));
  }
  return "";
}

ComparedPoint compare_points(const PointResult& first, const PointResult& other, size_t report, double noise_bound) {
  ComparedPoint pair{.report = report, .first = &first, .other = &other};
  const auto positive = [](const PointResult& point) { return point.tpot_ms.p50 && *point.tpot_ms.p50 > 0; };
  if (positive(first) && positive(other)) {
    pair.ratio = *other.tpot_ms.p50 / *first.tpot_ms.p50;
    pair.difference_ms = *other.tpot_ms.p50 - *first.tpot_ms.p50;
    const std::optional<ClosedInterval> a = tpot_interval(first);
    const std::optional<ClosedInterval> b = tpot_interval(other);
    if (a && b && a->low > 0 && a->high > 0) pair.ratio_bounds = ClosedInterval{b->low / a->high, b->high / a->low};
    if (first.attribution && other.attribution && know_alike(first, other)) {
      pair.explained.emplace();
      for (const Part part : kParts) (*pair.explained)[part] = (*other.attribution)[part] - (*first.attribution)[part];
    }
  }
  pair.reason = thin_evidence(first, other);
  if (pair.reason.empty()) judge(pair, noise_bound);
  pair.words = words_on(pair);
  return pair;
}

}  // namespace shardscope::runtime
