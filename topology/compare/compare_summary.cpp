// A comparison in words: which machine is better for which degree, and why.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

#include "topology/compare/compare_parts.hpp"
#include "topology/draw/islands.hpp"
#include "topology/draw/plain_text.hpp"

namespace shardscope::topology {
namespace {

size_t at(int position) {
  return static_cast<size_t>(position);
}

std::string number_in_words(int number) {
  switch (number) {
    case 2:
      return "two";
    case 4:
      return "four";
    case 8:
      return "eight";
    default:
      return fmt::format("{}", number);
  }
}

/// "A", "A and B", "A, B and C".
std::string listed(const std::vector<std::string>& items) {
  if (items.size() < 2) return items.empty() ? "" : items.front();
  const std::vector<std::string> first(items.begin(), items.end() - 1);
  return fmt::format("{} and {}", fmt::join(first, ", "), items.back());
}

bool through_switches(const Topology& machine, const std::vector<int>& gpus) {
  for (const NvIsland& island : nvlink_islands(machine)) {
    if (std::includes(island.gpus.begin(), island.gpus.end(), gpus.begin(), gpus.end())) return island.switched;
  }
  return false;
}

/// Linked pairs within a group: "0-1", "2-3", and their numbers of links.
struct LinkedPairs {
  std::vector<std::string> names;
  std::set<int> links;
  bool all = true;
};

LinkedPairs linked_pairs(const Topology& machine, const std::vector<int>& gpus) {
  LinkedPairs pairs;
  for (const int a : gpus) {
    for (const int b : gpus) {
      if (a >= b) continue;
      const std::optional<Path> path = path_between(machine, a, b);
      if (!path || path->kind != PathKind::kNvLink) {
        pairs.all = false;
        continue;
      }
      pairs.names.push_back(fmt::format("{}-{}", machine.gpus[at(a)].index, machine.gpus[at(b)].index));
      pairs.links.insert(path->nvlinks);
    }
  }
  return pairs;
}

std::string links_in_words(const std::set<int>& links, std::string_view noun = "NVLink") {
  if (links.size() == 1) return counted(*links.begin(), noun);
  return fmt::format("{} to {} {}s", *links.begin(), *links.rbegin(), noun);
}

/// What the best group of that degree has, as a clause: "every pair of the best four has 12 NVLinks through switches".
std::string group_in_words(const Topology& machine, int degree) {
  const std::vector<int>& gpus = machine.groups.at(degree).best;
  const std::optional<Path> narrowest = narrowest_of(machine, degree);
  const LinkedPairs pairs = linked_pairs(machine, gpus);
  if (pairs.all) {
    const std::string subject =
        degree == 2 ? "the best pair" : fmt::format("every pair of the best {}", number_in_words(degree));
    const bool switched = through_switches(machine, gpus);
    return fmt::format("{} has {}{}", subject, links_in_words(pairs.links, switched ? "NVLink" : "direct NVLink"),
                       switched ? " through switches" : "");
  }
  const std::string crosses = fmt::format("TP={} crosses {} twice a layer", degree, crossing_in_words(*narrowest));
  if (pairs.names.empty()) return fmt::format("no pair has NVLinks, and {}", crosses);
  constexpr size_t kNamed = 8;
  if (pairs.names.size() > kNamed) {
    return fmt::format("only {} of {} pairs of the best {} are linked, and {}", pairs.names.size(),
                       gpus.size() * (gpus.size() - 1) / 2, number_in_words(degree), crosses);
  }
  return fmt::format("only {} {} linked ({}{}), and {}", listed(pairs.names), pairs.names.size() == 1 ? "is" : "are",
                     links_in_words(pairs.links), pairs.names.size() == 1 ? "" : " each", crosses);
}

/// Larger is better; equal values are equally good. Links of the same name are told apart by what they carry, if known.
struct Standing {
  Path narrowest;
  std::optional<Rate> rate;
};

bool equally_good(const Standing& a, const Standing& b) {
  constexpr double kTolerance = 1.1;
  if (nearer(a.narrowest, b.narrowest) || nearer(b.narrowest, a.narrowest)) return false;
  if (!a.rate || !b.rate || a.rate->measured != b.rate->measured) return true;
  return std::max(a.rate->gb_per_s, b.rate->gb_per_s) <= kTolerance * std::min(a.rate->gb_per_s, b.rate->gb_per_s);
}

bool better(const Standing& a, const Standing& b) {
  if (equally_good(a, b)) return false;
  // More links of a slower kind may carry less: where both rates are data-sheet values, these decide.
  const bool comparable = a.rate && b.rate && a.rate->measured == b.rate->measured;
  if (comparable && a.narrowest.kind == b.narrowest.kind) return a.rate->gb_per_s > b.rate->gb_per_s;
  return nearer(a.narrowest, b.narrowest);
}

/// Whether NVLinks were counted, but not what they carry.
bool only_by_count(const Standing& a, const Standing& b) {
  const bool linked = a.narrowest.kind == PathKind::kNvLink && b.narrowest.kind == PathKind::kNvLink;
  const bool comparable = a.rate && b.rate && a.rate->measured == b.rate->measured;
  return linked && a.narrowest.nvlinks != b.narrowest.nvlinks && !comparable;
}

class Summary {
 public:
  Summary(const std::vector<Topology>& machines, const Comparison& comparison)
      : machines_(machines), comparison_(comparison) {}

  std::string compose() {
    std::vector<int> equal;
    std::vector<std::string> different;
    for (const int degree : kComparedDegrees) {
      const std::map<size_t, Standing> standings = standings_of(degree);
      if (standings.size() < 2) continue;
      if (all_equal(standings)) {
        equal.push_back(degree);
      } else {
        different.push_back(difference_at(degree, standings));
      }
    }
    if (!equal.empty()) add(equal_at(equal));
    for (const std::string& sentence : different) add(sentence);
    if (!different.empty()) add(replicas());
    add_rest(!equal.empty() || !different.empty());
    return text_;
  }

 private:
  void add(const std::string& sentence) {
    if (!sentence.empty()) text_ += fmt::format("{}{}", text_.empty() ? "" : " ", sentence);
  }

  std::map<size_t, Standing> standings_of(int degree) const {
    std::map<size_t, Standing> standings;
    for (size_t i = 0; i < machines_.size(); ++i) {
      if (const std::optional<Path> path = narrowest_of(machines_[i], degree)) {
        standings[i] = {*path, rate_of(machines_[i], degree)};
      }
    }
    return standings;
  }

  static bool all_equal(const std::map<size_t, Standing>& standings) {
    return std::all_of(standings.begin(), standings.end(),
                       [&](const auto& standing) { return equally_good(standing.second, standings.begin()->second); });
  }

  std::string equal_at(const std::vector<int>& degrees) const {
    std::vector<std::string> texts;
    for (const int degree : degrees) texts.push_back(fmt::format("TP={}", degree));
    std::set<std::string> links;
    std::set<size_t> concerned;
    for (const int degree : degrees) {
      for (const auto& [i, standing] : standings_of(degree)) {
        links.insert(text_of(standing.narrowest));
        concerned.insert(i);
      }
    }
    std::string who = "all machines";
    if (concerned.size() < machines_.size()) {
      std::vector<std::string> names;
      for (const size_t i : concerned) names.push_back(comparison_.names[i]);
      who = listed(names);
    } else if (machines_.size() == 2) {
      who = "both";
    }
    return fmt::format("Equal on {}: {} inside the best group (narrowest link {}).", who, listed(texts),
                       fmt::join(links, ", "));
  }

  std::string difference_at(int degree, const std::map<size_t, Standing>& standings) const {
    size_t first = standings.begin()->first;
    for (const auto& [i, standing] : standings) {
      if (better(standing, standings.at(first))) first = i;
    }
    std::vector<std::string> leaders;
    std::vector<std::pair<std::string, std::vector<std::string>>> clauses;  // each with the machines it is true of
    bool by_count = false;
    for (const auto& [i, standing] : standings) {
      if (!better(standings.at(first), standing)) leaders.push_back(comparison_.names[i]);
      by_count = by_count || only_by_count(standings.at(first), standing);
      std::string clause = group_in_words(machines_[i], degree);
      if (standing.rate) {
        clause += fmt::format(" ({} GB/s each way{})", short_figure(standing.rate->gb_per_s),
                              standing.rate->measured ? ", measured" : "");
      }
      const auto same = std::find_if(clauses.begin(), clauses.end(), [&](const auto& c) { return c.first == clause; });
      if (same == clauses.end()) {
        clauses.push_back({clause, {comparison_.names[i]}});
      } else {
        same->second.push_back(comparison_.names[i]);
      }
    }
    std::vector<std::string> sentences;
    for (const auto& [clause, names] : clauses) sentences.push_back(fmt::format("on {} {}", listed(names), clause));
    return fmt::format("For TP={} {} {} ahead{}: {}.", degree, listed(leaders), leaders.size() == 1 ? "is" : "are",
                       by_count ? " by the number of links (the speed of one is not told of all)" : "",
                       fmt::join(sentences, "; "));
  }

  /// For machines on which a smaller degree stays on NVLink and a larger one does not.
  std::string replicas() const {
    std::vector<std::string> advice;
    for (size_t i = 0; i < machines_.size(); ++i) {
      const std::optional<int> linked = largest_linked_degree(machines_[i]);
      const int gpus = machines_[i].gpu_count.value_or(0);
      if (!linked || *linked < 2 || 2 * *linked > gpus) continue;
      advice.push_back(fmt::format("on {} replicas of TP={} stay on NVLink", comparison_.names[i], *linked));
    }
    if (advice.empty()) return "";
    std::string sentence = fmt::format("{}.", fmt::join(advice, "; "));
    sentence.front() = 'O';  // of "on"
    return sentence;
  }

  void add_rest(bool links_told) {
    std::vector<std::string> others;
    std::vector<std::string> untold;
    for (const Difference& difference : comparison_.differences) {
      if (difference.weight <= 0) {
        untold.push_back(difference.what);
        continue;
      }
      const bool told = difference.what == "class" || difference.what.starts_with("narrowest link") ||
                        difference.what.starts_with("what it carries");
      if (told) continue;
      others.push_back(fmt::format("{} ({})", difference.what, fmt::join(difference.values, " against ")));
    }
    const bool nothing = others.empty() && untold.size() == comparison_.differences.size();
    if (nothing) add("The machines do not differ in anything that their sources tell.");
    if (!others.empty())
      add(fmt::format("{}: {}.", links_told ? "Also differ" : "What differs", fmt::join(others, "; ")));
    if (!untold.empty()) add(fmt::format("Not told of all machines: {}.", fmt::join(untold, "; ")));
  }

  const std::vector<Topology>& machines_;
  const Comparison& comparison_;
  std::string text_;
};

}  // namespace

std::string summary_of(const std::vector<Topology>& machines, const Comparison& comparison) {
  return Summary(machines, comparison).compose();
}

}  // namespace shardscope::topology
