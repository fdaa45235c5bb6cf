#include "runtime/report/loss_remedies.hpp"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "runtime/measure/verdicts.hpp"
#include "runtime/report/table_text.hpp"

namespace shardscope::runtime {
namespace {

/// Alone it would give back the speed-up that another sentence has just told of.
constexpr const char* kFewerRanks = "fewer ranks, with replicas beside each other";

/// A figure of each rank but `rank`; there is at least one.
template <typename Figure>
auto of_others(const PointResult& row, int rank, const Figure& figure) {
  std::vector<decltype(figure(row.ranks.front()))> figures;
  for (const RankFigures& other : row.ranks) {
    if (other.rank != rank) figures.push_back(figure(other));
  }
  return figures;
}

template <typename Figure>
auto most_of_others(const PointResult& row, int rank, const Figure& figure) {
  const auto figures = of_others(row, rank, figure);
  return *std::max_element(figures.begin(), figures.end());
}

template <typename Figure>
auto least_of_others(const PointResult& row, int rank, const Figure& figure) {
  const auto figures = of_others(row, rank, figure);
  return *std::min_element(figures.begin(), figures.end());
}

double headline_bytes(const RankFigures& figures) {
  return figures.bytes.headline();
}

double read_speed(const RankFigures& figures) {
  return figures.achievable_gb_per_s;
}

double sum_over_ranks(const PointResult& row, double (*figure)(const RankFigures&)) {
  double sum = 0;
  for (const RankFigures& figures : row.ranks) sum += figure(figures);
  return sum;
}

/// "5 query heads against 4 at most, 2048 FFN columns against 1792": what the rank has more of than any other.
std::string larger_shard(const PointResult& row, const RankFigures& late) {
  std::vector<std::string> more;
  const auto add = [&](Range parallel::RankShard::*range, const char* noun) {
    const int64_t mine = (late.shard.*range).size();
    const int64_t others =
        most_of_others(row, late.rank, [&](const RankFigures& other) { return (other.shard.*range).size(); });
    if (mine > others) more.push_back(fmt::format("{} {} against {} at most", mine, noun, others));
  };
  add(&parallel::RankShard::query_heads, "query heads");
  add(&parallel::RankShard::kv_heads, "KV heads");
  add(&parallel::RankShard::ffn, "FFN columns");
  add(&parallel::RankShard::vocab, "words of the vocabulary");
  return fmt::format("{}", fmt::join(more, ", "));
}

/// What sets the rank apart from all others: its shard, its memory; empty: neither.
std::string apart(const PointResult& row, const RankFigures& late) {
  std::vector<std::string> why;
  const double heaviest_other = most_of_others(row, late.rank, headline_bytes);
  if (late.bytes.headline() > heaviest_other * (1 + kUneven)) {
    why.push_back(fmt::format("its shard is the heaviest by {:.0f} % ({})",
                              (late.bytes.headline() / heaviest_other - 1) * 100, larger_shard(row, late)));
  }
  const double slowest_other = least_of_others(row, late.rank, read_speed);
  if (late.achievable_gb_per_s < slowest_other * (1 - kSlowerMemory)) {
    why.push_back(fmt::format("it reads its memory at {} GB/s, each other at {} GB/s or more",
                              figure_text(late.achievable_gb_per_s), figure_text(slowest_other)));
  }
  return fmt::format("{}", fmt::join(why, ", and "));
}

/// Where no rank is named: that there is none only if the least wait is not far below the next one.
std::string waits_of_all(const PointResult& row) {
  std::vector<double> waits_ms;
  for (const RankFigures& figures : row.ranks) waits_ms.push_back((*figures.attribution)[Part::kAllreduceWait]);
  std::sort(waits_ms.begin(), waits_ms.end());
  const bool in_turn = waits_ms.size() > 1 && waits_ms[0] >= kWaitsMuchLess * waits_ms[1];
  return fmt::format("{} {} to {} ms of a step.",
                     in_turn ? "No one rank is late all the time: they wait" : "The ranks wait",
                     figure_text(waits_ms.front()), figure_text(waits_ms.back()));
}

/// Which rank is waited for, and what sets it apart.
std::string waited_for(const PointResult& row) {
  const std::optional<SlowestRank> slowest = slowest_rank(row);
  if (!slowest) return waits_of_all(row);
  const auto late = std::find_if(row.ranks.begin(), row.ranks.end(),
                                 [&](const RankFigures& figures) { return figures.rank == slowest->rank; });
  const int place = row.places().at(static_cast<size_t>(slowest->rank));
  const std::string where = place == slowest->rank ? "" : fmt::format(" (at rank {}'s place)", place);
  const std::string why = apart(row, *late);
  return fmt::format("Rank {}{} {}{}", slowest->rank, where, slowest->waits(row.ranks.size()),
                     why.empty() ? ", though its shard is no heavier and its memory no slower: see what else runs "
                                   "there, its clock and its links (doctor, topo)."
                                 : fmt::format(": {}.", why));
}

/// Why the ranks' reads at full speed take longer than the base's share.
std::string memory_reasons(const ShownLoss& loss) {
  const double more = sum_over_ranks(*loss.row, headline_bytes) / sum_over_ranks(*loss.base, headline_bytes) - 1;
  const double here = sum_over_ranks(*loss.row, read_speed) / static_cast<double>(loss.row->ranks.size());
  const double there = sum_over_ranks(*loss.base, read_speed) / static_cast<double>(loss.base->ranks.size());
  std::vector<std::string> reasons;
  if (more > kUneven) {
    reasons.push_back(
        fmt::format("Its ranks together read {:.0f} % more bytes a step than with TP={}: some are "
                    "replicated.",
                    more * 100, loss.base->tp));
  }
  if (here < there * (1 - kSlowerMemory)) {
    reasons.push_back(fmt::format("While all its ranks read, each can read {} GB/s; with TP={} {} GB/s.",
                                  figure_text(here), loss.base->tp, figure_text(there)));
  }
  return fmt::format("{}", fmt::join(reasons, " "));
}

/// Whether some KV heads are held by several ranks.
bool replicates_kv(const PointResult& row) {
  int64_t held = 0, heads = 0;
  for (const RankFigures& rank : row.ranks) {
    held += rank.shard.kv_heads.size();
    heads = std::max(heads, rank.shard.kv_heads.end);
  }
  return held > heads;
}

/// "TP=4 at batch 1; TP=8 at batch 1, 4"
std::string rows_text(const std::vector<ShownLoss>& losses) {
  std::vector<std::pair<int, std::set<int64_t>>> batches;  // of each degree
  for (const ShownLoss& loss : losses) {
    auto degree =
        std::find_if(batches.begin(), batches.end(), [&](const auto& entry) { return entry.first == loss.row->tp; });
    if (degree == batches.end()) degree = batches.insert(batches.end(), {loss.row->tp, {}});
    degree->second.insert(loss.row->workload.batch);
  }
  std::vector<std::string> texts;
  for (const auto& [tp, of] : batches) texts.push_back(fmt::format("TP={} at batch {}", tp, fmt::join(of, ", ")));
  return fmt::format("{}", fmt::join(texts, "; "));
}

/// Ways of summing that were not used: those that the group cannot use with their reasons, or that one was asked for.
std::string other_ways(const PointResult& row) {
  const parallel::SumChoices& choices = row.sum_choices;
  if (!choices.left_out.empty()) {
    return fmt::format("the all-reduces that this group could not use ({})", fmt::join(choices.left_out, ", "));
  }
  // Between hosts there is only mpi, and nothing to measure either.
  const bool asked_for = choices.measured.empty() && choices.choices.size() == 1 && choices.choices[0].way != "mpi";
  return asked_for ? fmt::format("another all-reduce than {} (--allreduce auto measures them)", choices.choices[0].way)
                   : "";
}

/// Whether that degree could work on other devices, and no row shows the best ones.
bool best_placement_unknown(const PointResult& row, const std::vector<PointResult>& points) {
  bool more_devices = false;
  for (const PointResult& other : points) {
    if (other.tp == row.tp && other.group.stands_for(topology::Placement::kBest)) return false;
    more_devices = more_devices || other.tp > row.tp;
  }
  return more_devices;
}

std::string transfer_remedy(const PointResult& row, const std::vector<PointResult>& points) {
  std::vector<std::string> ways = {kFewerRanks, "a larger batch, which sums more tokens at once"};
  if (std::string other = other_ways(row); !other.empty()) ways.push_back(std::move(other));
  if (best_placement_unknown(row, points)) {
    ways.emplace_back("devices that are joined better (--placement best,worst shows what that is worth)");
  }
  return fmt::format("what can take less of it: {}.", fmt::join(ways, "; "));
}

/// Whether the row's ranks worked on devices: hosts sum through shm and mpi alone.
bool on_device(const PointResult& row) {
  const auto& choices = row.sum_choices.choices;
  const std::string& way = choices.empty() ? row.communicator : choices.front().way;
  return !way.starts_with("shm") && !way.starts_with("mpi");
}

std::string gaps_remedy(const PointResult& row) {
  if (on_device(row) && !row.sum_choices.graphs) return "captured graphs (--graphs on) launch a step at once.";
  std::string text =
      on_device(row)
          ? fmt::format("its operations do not follow each other closely: {}, leave each more to do.", kFewerRanks)
          : fmt::format("the threads of a rank meet between operations: fewer of them (--threads), or {}.",
                        kFewerRanks);
  if (row.disturbance.waited_share.value_or(0) > kWaitedWarning) {
    text += fmt::format(" Threads waited {:.0f} % of the time for a core, too: less other work on this host.",
                        *row.disturbance.waited_share * 100);
  }
  return text;
}

/// What takes less of that part; empty: nothing is known to.
std::string remedy_text(Part part, const PointResult& row, const std::vector<PointResult>& points) {
  switch (part) {
    case Part::kAllreduceTransfer:
      return transfer_remedy(row, points);
    case Part::kAllreduceWait:
      return "what can take less of it: even shards (a degree that divides heads and FFN), equal devices, and nothing "
             "else to do for any rank's cores (doctor).";
    case Part::kMatrixLoss:
      return fmt::format("the shards' products are too small to read memory at full speed: a larger batch, or {}.",
                         kFewerRanks);
    case Part::kElementwise:
      return fmt::format("every rank does them whole: a larger batch, or {}.", kFewerRanks);
    case Part::kAttention:
      return fmt::format("what can take less of it: a shorter context, or {}.", kFewerRanks);
    case Part::kHeadAndSampling:
      return fmt::format("every token needs the ranks' candidates: a larger batch, or {}.", kFewerRanks);
    case Part::kGaps:
      return gaps_remedy(row);
    case Part::kIdealMemory:
      return fmt::format("what can take less of it: ranks that share no memory; fewer bytes (a quantised model); {}.",
                         kFewerRanks);
    case Part::kResidual:
      return "";
  }
  return "";
}

}  // namespace

std::string loss_words(Part part) {
  return part == Part::kIdealMemory ? "more bytes or slower memory" : std::string(words_of(part));
}

std::string seen_in_ranks(const ShownLoss& loss, Part part) {
  switch (part) {
    case Part::kAllreduceWait:
      return waited_for(*loss.row);
    case Part::kIdealMemory:
      return memory_reasons(loss);
    case Part::kAttention:
      return replicates_kv(*loss.row) ? "Several ranks hold the same KV heads, and each reads their cache." : "";
    case Part::kMatrixLoss:
    case Part::kElementwise:
    case Part::kAllreduceTransfer:
    case Part::kHeadAndSampling:
    case Part::kGaps:
    case Part::kResidual:
      return "";
  }
  return "";
}

std::string remedy_of(Part part, const std::vector<ShownLoss>& losses, const std::vector<PointResult>& points) {
  const std::string text = remedy_text(part, *losses.front().row, points);
  if (text.empty()) return "";
  return fmt::format("Where most is lost to {} ({}): {}", loss_words(part), rows_text(losses), text);
}

}  // namespace shardscope::runtime
