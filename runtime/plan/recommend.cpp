#include "runtime/plan/recommend.hpp"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "runtime/report/table_text.hpp"

namespace shardscope::runtime {
namespace {

/// A division of the GPUs with a workload.
struct Candidate {
  PredictedRow row;
  int replicas = 1;

  double tpot_ms() const { return *row.point.tpot_ms.p50; }
  int64_t sequences() const { return row.point.workload.batch * replicas; }
  bool rated() const { return row.point.throughput_tokens_per_s.has_value(); }
  /// Of all replicas; of steps alone where prompts' times are unknown.
  double tokens_per_s() const {
    constexpr double kMsOfSecond = 1e3;
    return rated() ? *row.point.throughput_tokens_per_s * replicas
                   : static_cast<double>(sequences()) / tpot_ms() * kMsOfSecond;
  }
};

std::vector<Candidate> candidates(const topology::Topology& topology, int gpus, int layers, const PlanOptions& options,
                                  const RowsOf& rows_of) {
  std::vector<Candidate> found;
  for (const int degree : options.degrees) {
    std::set<int> tried = {options.stages};
    for (int stages = 1; stages <= gpus; stages *= 2) tried.insert(stages);
    for (const int stages : tried) {
      if (degree * stages > gpus || stages > layers) continue;
      const int replicas = gpus / (degree * stages);
      const bool equal = degree == 1 || equal_groups(topology, degree, replicas * stages);
      const topology::Placement placement = equal ? options.placement : topology::Placement::kWorst;
      for (PredictedRow& row : rows_of(degree, stages, placement)) {
        if (row.fits() && row.point.tpot_ms.p50) found.push_back({std::move(row), replicas});
      }
    }
  }
  return found;
}

std::string division(const Candidate& one) {
  const PointResult& point = one.row.point;
  return fmt::format("TP {}{}{}", point.tp, point.pp > 1 ? fmt::format(" x PP {}", point.pp) : "",
                     one.replicas > 1 ? fmt::format(" x {} replicas", one.replicas) : "");
}

std::string figures(const Candidate& one) {
  const std::string sequences = one.replicas > 1
                                    ? fmt::format("{} x {} sequences", one.replicas, one.row.point.workload.batch)
                                    : fmt::format("{} sequence{}", one.sequences(), one.sequences() == 1 ? "" : "s");
  return fmt::format("{} ms a token, {} tokens/s{} with {}", figure_text(one.tpot_ms()),
                     figure_text(one.tokens_per_s()), one.rated() ? "" : " (prompts left out)", sequences);
}

bool not_told_apart(PlanGoal goal, const Candidate& a, const Candidate& b, const Spread90& spread) {
  const bool latency = goal == PlanGoal::kLatency;
  const double ratio = latency ? b.tpot_ms() / a.tpot_ms() : a.tokens_per_s() / b.tokens_per_s();
  return ratio < 1 + (latency ? spread.step : spread.whole);
}

/// The best of other divisions by the same order; nullptr: there is none.
template <typename Better>
const Candidate* runner_up(const std::vector<const Candidate*>& all, const Candidate& best, Better better) {
  const Candidate* second = nullptr;
  for (const Candidate* one : all) {
    const bool same = one->row.point.tp == best.row.point.tp && one->row.point.pp == best.row.point.pp;
    if (!same && (second == nullptr || better(*one, *second))) second = one;
  }
  return second;
}

template <typename Better>
std::optional<Recommendation> recommended(PlanGoal goal, const std::string& words,
                                          const std::vector<const Candidate*>& all, const Spread90& spread,
                                          Better better) {
  if (all.empty()) return std::nullopt;
  const Candidate& best = **std::min_element(all.begin(), all.end(),
                                             [&](const Candidate* a, const Candidate* b) { return better(*a, *b); });
  const PointResult& point = best.row.point;
  std::string why = fmt::format("{}: {}, predicted {}", words, division(best), figures(best));
  if (goal == PlanGoal::kBound)
    why += fmt::format(" (up to {} ms within the stated error)", figure_text(best.row.tpot_ms->high));
  if (const Candidate* second = runner_up(all, best, better)) {
    why += fmt::format("; next {}: {}", division(*second), figures(*second));
    if (not_told_apart(goal, best, *second, spread)) why += ", which the stated error does not tell apart";
  } else {
    why += "; no other division that was asked for fits";
  }
  return Recommendation{.goal = goal,
                        .tp = point.tp,
                        .replicas = best.replicas,
                        .pp = point.pp,
                        .batch = point.workload.batch,
                        .tpot_ms = best.tpot_ms(),
                        .tokens_per_s = best.rated() ? std::optional(best.tokens_per_s()) : std::nullopt,
                        .why = std::move(why)};
}

/// Takes groups of `degree` whose pairs are all as near as `narrowest` out of `left`, as many as `groups`; the first
/// GPU that is left is always in the next group or in none.
bool deal(const topology::Topology& topology, const topology::Path& narrowest, std::vector<int> left, size_t degree,
          int groups) {
  if (groups == 0) return true;
  const auto joined = [&](int a, int b) {
    const std::optional<topology::Path>& path = (*topology.links)[static_cast<size_t>(a)][static_cast<size_t>(b)];
    return path && !topology::nearer(narrowest, *path);
  };
  while (left.size() >= degree * static_cast<size_t>(groups)) {
    std::vector<int> group = {left.front()};
    for (size_t i = 1; i < left.size() && group.size() < degree; ++i) {
      if (std::all_of(group.begin(), group.end(), [&](int one) { return joined(one, left[i]); }))
        group.push_back(left[i]);
    }
    if (group.size() == degree) {
      std::vector<int> rest;
      for (const int one : left) {
        if (std::find(group.begin(), group.end(), one) == group.end()) rest.push_back(one);
      }
      if (deal(topology, narrowest, std::move(rest), degree, groups - 1)) return true;
    }
    left.erase(left.begin());
  }
  return false;
}

}  // namespace

bool equal_groups(const topology::Topology& topology, int degree, int groups) {
  const auto best = topology.groups.find(degree);
  if (groups <= 1) return true;
  if (!topology.links || best == topology.groups.end() || !best->second.best_narrowest) return false;
  std::vector<int> all;
  for (int gpu = 0; gpu < static_cast<int>(topology.links->size()); ++gpu) all.push_back(gpu);
  return deal(topology, *best->second.best_narrowest, std::move(all), static_cast<size_t>(degree), groups);
}

std::vector<Recommendation> recommendations(const topology::Topology& topology, int gpus, int layers,
                                            const PlanOptions& options, const Spread90& spread, const RowsOf& rows_of) {
  const std::vector<Candidate> all = candidates(topology, gpus, layers, options, rows_of);
  const auto those = [&](auto wanted) {
    std::vector<const Candidate*> some;
    for (const Candidate& one : all) {
      if (wanted(one)) some.push_back(&one);
    }
    return some;
  };
  const auto any = [](const Candidate&) { return true; };
  const auto slower = [](const Candidate& a, const Candidate& b) { return a.tpot_ms() < b.tpot_ms(); };
  const auto more = [](const Candidate& a, const Candidate& b) { return a.tokens_per_s() > b.tokens_per_s(); };
  std::vector<Recommendation> result;
  const auto add = [&](std::optional<Recommendation> one) {
    if (one) result.push_back(std::move(*one));
  };
  if (options.slo_tpot_ms) {
    add(recommended(PlanGoal::kBound, fmt::format("TPOT of at most {:.4g} ms", *options.slo_tpot_ms),
                    those([&](const Candidate& one) { return one.tpot_ms() <= *options.slo_tpot_ms; }), spread, more));
  }
  add(recommended(PlanGoal::kLatency, "lowest TPOT", those(any), spread, slower));
  add(recommended(PlanGoal::kThroughput, "highest throughput", those(any), spread, more));
  return result;
}

}  // namespace shardscope::runtime
