#include "runtime/report/replica_advice.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "runtime/measure/figures.hpp"
#include "runtime/measure/verdicts.hpp"
#include "runtime/report/rivals.hpp"

namespace shardscope::runtime {
namespace {

using topology::Placement;

bool bears_rate(const PointResult& row) {
  const Interval& latency = row.latency_ms.p50_interval;
  return figures_bear(row) && row.latency_ms.p50 && *row.latency_ms.p50 > 0 && latency.low && latency.high;
}

/// Tokens per second of one batch after another, each in the median latency, of all groups of the row: a mean would
/// follow single disturbed generations, which the noise does not tell of.
double tokens_per_s(const PointResult& row) {
  constexpr double kMsPerS = 1e3;
  const int64_t tokens = row.workload.batch * row.workload.output_tokens * row.group.replicas;
  return static_cast<double>(tokens) / *row.latency_ms.p50 * kMsPerS;
}

/// What the time of a batch may be, of what its median says, as its latency and its TPOT are known.
ClosedInterval doubt_of(const PointResult& row) {
  const Interval& latency = row.latency_ms.p50_interval;
  const ClosedInterval tpot = *tpot_interval(row);
  return {std::min(*latency.low / *row.latency_ms.p50, tpot.low / *row.tpot_ms.p50),
          std::max(*latency.high / *row.latency_ms.p50, tpot.high / *row.tpot_ms.p50)};
}

/// Whether that row, that many times, surely makes more than the large group does.
bool surely_more(const PointResult& row, int times, const PointResult& large) {
  return tokens_per_s(row) / doubt_of(row).high * times > tokens_per_s(large) / doubt_of(large).low;
}

/// Rows of one degree, lengths and placement, ascending by batch (of each group).
using ByBatch = std::map<int64_t, const PointResult*>;

/// Replicas of a degree on the devices of the largest.
struct Replicas {
  int tp = 0;
  int count = 0;
  bool measured = false;  // at work at once; else rows of a lone group
  ByBatch rows;
};

/// Where they win: at each of their batches from one to another that can be judged, and by how much at the last.
struct Win {
  const Replicas* replicas = nullptr;
  int64_t from_batch = 0;
  int64_t at_batch = 0;     // the largest of the judged ones
  int64_t rival_batch = 0;  // of the large group's row
  double factor = 0;        // tokens per second against that row's
};

/// The best that the large group makes of so many requests, up to its next batch that holds them all; null: it was
/// given none so large, and what it would make of them is not known.
const PointResult* rival_for(int64_t requests, const ByBatch& large) {
  const auto holds_all = large.lower_bound(requests);
  if (holds_all == large.end()) return nullptr;
  const PointResult* best = holds_all->second;
  for (auto entry = large.begin(); entry != holds_all; ++entry) {
    if (tokens_per_s(*entry->second) > tokens_per_s(*best)) best = entry->second;
  }
  return best;
}

std::optional<Win> win_of(const Replicas& replicas, const ByBatch& large) {
  const int times = replicas.measured ? 1 : replicas.count;
  std::optional<Win> win;
  for (auto entry = replicas.rows.rbegin(); entry != replicas.rows.rend(); ++entry) {
    const auto& [batch, row] = *entry;
    const PointResult* rival = rival_for(batch * replicas.count, large);
    if (rival == nullptr) continue;
    if (is_resumed(*row) != is_resumed(*rival) || !surely_more(*row, times, *rival)) break;
    if (!win) {
      win = Win{.replicas = &replicas,
                .at_batch = batch,
                .rival_batch = rival->workload.batch,
                .factor = tokens_per_s(*row) * times / tokens_per_s(*rival)};
    }
    win->from_batch = batch;
  }
  return win;
}

/// The rows of some lengths and placement, by degree: of lone groups, and of replicas that worked at once.
struct Rows {
  std::map<int, ByBatch> lone;
  std::map<std::pair<int, int>, ByBatch> at_once;  // degree, replicas

  Rows(const std::vector<PointResult>& points, std::pair<int64_t, int64_t> lengths, Placement placement) {
    for (const PointResult& point : points) {
      if (std::pair(point.workload.prompt_tokens, point.workload.output_tokens) != lengths) continue;
      if (!bears_rate(point)) continue;
      if (point.group.replicas > 1) {
        at_once[{point.tp, point.group.replicas}][point.workload.batch] = &point;
      } else if (point.group.stands_for(placement)) {
        lone[point.tp][point.workload.batch] = &point;
      }
    }
  }

  /// On the devices of that degree; what was measured at once stands for what a lone group lets expect.
  std::vector<Replicas> replicas_on(int devices) const {
    std::vector<Replicas> list;
    for (const auto& [tp, rows] : lone) {
      if (tp == devices || devices % tp != 0) continue;
      const auto measured = at_once.find({tp, devices / tp});
      const bool known = measured != at_once.end();
      list.push_back({.tp = tp, .count = devices / tp, .measured = known, .rows = known ? measured->second : rows});
    }
    return list;
  }
};

std::string replica_sentence(const Rows& rows, const std::string& where) {
  if (rows.lone.size() < 2) return "";
  const auto& [devices, large] = *rows.lone.rbegin();
  const std::vector<Replicas> candidates = rows.replicas_on(devices);
  std::optional<Win> best;
  const auto rank = [](const Win& win) { return std::pair(win.at_batch, win.factor); };
  for (const Replicas& replicas : candidates) {
    const std::optional<Win> win = win_of(replicas, large);
    if (win && (!best || rank(*win) > rank(*best))) best = win;
  }
  if (!best) return "";
  const Replicas& replicas = *best->replicas;
  const std::string batches = best->from_batch == best->at_batch
                                  ? fmt::format("batch {}", best->at_batch)
                                  : fmt::format("batch {} to {}", best->from_batch, best->at_batch);
  return fmt::format(
      "{} replicas at TP={} {} more tokens per second than TP={} at {} each{} ({:.2f}x at batch {} each, against batch "
      "{}){}.",
      replicas.count, replicas.tp, replicas.measured ? "give" : "would give", devices, batches, where, best->factor,
      best->at_batch, best->rival_batch,
      replicas.measured ? ", measured at once" : ", if replicas do not disturb each other (measure with --replicas)");
}

}  // namespace

std::vector<std::string> replica_advice(const std::vector<PointResult>& points) {
  std::vector<std::string> advice;
  const std::vector<Placement> placements = distinct_placements(points);
  std::set<std::pair<int64_t, int64_t>> all_lengths;
  for (const PointResult& point : points) {
    all_lengths.emplace(point.workload.prompt_tokens, point.workload.output_tokens);
  }
  for (const std::pair<int64_t, int64_t>& lengths : all_lengths) {
    for (const Placement placement : placements) {
      std::string where =
          all_lengths.size() > 1 ? fmt::format(", with {} + {} tokens", lengths.first, lengths.second) : "";
      if (placements.size() > 1) where += fmt::format(", {} placement", name_of(placement));
      std::string sentence = replica_sentence(Rows(points, lengths, placement), where);
      if (!sentence.empty()) advice.push_back(std::move(sentence));
    }
  }
  return advice;
}

}  // namespace shardscope::runtime
