#include "runtime/report/loss_advice.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "runtime/report/loss.hpp"
#include "runtime/report/loss_remedies.hpp"
#include "runtime/report/rivals.hpp"
#include "runtime/report/table_text.hpp"

namespace shardscope::runtime {
namespace {

using topology::Placement;

/// "waiting for rank 3", where one is evident.
std::string words_here(Part part, const PointResult& row) {
  if (part == Part::kAllreduceWait) {
    if (const std::optional<SlowestRank> slowest = slowest_rank(row)) {
      return fmt::format("waiting for rank {}", slowest->rank);
    }
  }
  return loss_words(part);
}

/// "58 % is all-reduce transfer, 23 % small matrices, 12 % not explained (won back: 20 % launch gaps)": won back is
/// what takes less than its share of the base's.
std::string shares_text(const ShownLoss& loss) {
  std::vector<std::string> lost, gained;
  const auto add_lost = [&](double share, const std::string& words) {
    lost.push_back(fmt::format("{:.0f} %{} {}", share * 100, lost.empty() ? " is" : "", words));
  };
  for (const auto& [part, share] : loss.shares) {
    const std::string words = words_here(part, *loss.row);
    if (share >= kLeastNamed) {
      add_lost(share, words);
    } else if (share <= -kLeastNamed) {
      gained.insert(gained.begin(), fmt::format("{:.0f} % {}", -share * 100, words));  // the largest first, too
    }
  }
  if (loss.unexplained >= kLeastNamed) add_lost(loss.unexplained, "not explained");
  const std::string back = gained.empty() ? "" : fmt::format(" (won back: {})", fmt::join(gained, ", "));
  return fmt::format("{}{}", fmt::join(lost, ", "), back);
}

std::string loss_sentence(const ShownLoss& loss, Placement placement, bool named) {
  std::string text =
      fmt::format("Of the {} ms that TP={} loses against ideal (TP={} as base) at {}{}, {}.",
                  figure_text(loss.total_ms), loss.row->tp, loss.base->tp, workload_text(loss.row->workload),
                  named ? fmt::format(" and {} placement", name_of(placement)) : "", shares_text(loss));
  if (loss.unexplained <= -kLeastNamed) {
    text += fmt::format(" The parts together come to {:.0f} % more than that loss.", -loss.unexplained * 100);
  }
  for (const auto& [part, share] : loss.shares) {
    if (share < kLeastNamed) break;  // the largest come first
    if (const std::string seen = seen_in_ranks(loss, part); !seen.empty()) text += fmt::format(" {}", seen);
  }
  return text;
}

/// The base of each workload, with each placement that shows something of its own.
template <typename Visit>
void each_base(const std::vector<PointResult>& points, const Visit& visit) {
  const std::vector<Placement> placements = distinct_placements(points);
  for (const PointResult& base : points) {
    if (!supports_advice(base) || base.tp_base != base.tp) continue;
    for (const Placement placement : placements) {
      if (base.group.stands_for(placement)) visit(base, placement, placements.size() > 1);
    }
  }
}

}  // namespace

std::vector<std::string> loss_advice(const std::vector<PointResult>& points) {
  std::vector<std::string> advice;
  std::map<Part, std::vector<ShownLoss>> dominated;
  each_base(points, [&](const PointResult& base, Placement placement, bool named) {
    const Rivals rivals = rivals_of(base, placement, points);
    if (rivals.judged.empty()) return;
    const PointResult* best = best_of(base, rivals.judged);
    const std::optional<ShownLoss> loss = shown_loss(best != nullptr ? *best : *rivals.judged.front(), points);
    if (!loss || loss->base != &base) return;
    advice.push_back(loss_sentence(*loss, placement, named));
    if (const std::optional<Part> part = loss->dominant()) dominated[*part].push_back(*loss);
  });
  for (const auto& [part, losses] : dominated) {
    if (std::string sentence = remedy_of(part, losses, points); !sentence.empty())
      advice.push_back(std::move(sentence));
  }
  return advice;
}

}  // namespace shardscope::runtime
