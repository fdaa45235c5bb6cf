// A group's worth, in the order of what counts: its farthest pair; how many pairs are as far; its NVLinks in all; how
// many NUMA nodes it spans. Of equal ones the first by number. An unknown pair is farther than all when the best is
// sought; the worst is sought among groups without one, where there are any.
#include "topology/groups.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <tuple>

namespace shardscope::topology {
namespace {

constexpr int kMostExact = 16;  // 2^16 groups
constexpr int kFarthest = 1000;

/// Larger is farther: 0 to 99 NVLinks (more are nearer), then PCIe.
int distance_of(const std::optional<Path>& path) {
  if (!path) return kFarthest;
  if (path->kind == PathKind::kNvLink) return 100 - std::min(path->nvlinks, 100);
  const PathKind kind = path->kind == PathKind::kSoc ? PathKind::kSys : path->kind;
  return 100 + static_cast<int>(kind);
}

struct Worth {
  int unknown_pairs = 0;
  int farthest = 0;  // of the known pairs
  int as_far = 0;    // pairs
  int nvlinks = 0;
  uint64_t numa_nodes = 0;  // a bit each

  /// Smaller is better.
  auto order() const {
    return std::tuple(unknown_pairs > 0 ? kFarthest : farthest, unknown_pairs, as_far, -nvlinks,
                      std::popcount(numa_nodes));
  }
};

class Pairs {
 public:
  explicit Pairs(const Topology& topology) : links_(*topology.links) {
    for (const Gpu& gpu : topology.gpus) {
      const bool known = !gpu.numa_nodes.empty() && gpu.numa_nodes.front() >= 0 && gpu.numa_nodes.front() < 64;
      numa_.push_back(known ? uint64_t{1} << gpu.numa_nodes.front() : 0);
    }
  }

  Worth with(Worth worth, const std::vector<int>& members, int added) const {
    for (const int member : members) add_pair(worth, member, added);
    worth.numa_nodes |= numa_[static_cast<size_t>(added)];
    return worth;
  }

 private:
  void add_pair(Worth& worth, int a, int b) const {
    const std::optional<Path>& path = links_[static_cast<size_t>(a)][static_cast<size_t>(b)];
    if (!path) {
      ++worth.unknown_pairs;
      return;
    }
    const int distance = distance_of(path);
    if (distance > worth.farthest) {
      worth.farthest = distance;
      worth.as_far = 0;
    }
    if (distance == worth.farthest) ++worth.as_far;
    worth.nvlinks += path->nvlinks;
  }

  const PathMatrix& links_;
  std::vector<uint64_t> numa_;
};

struct Candidate {
  Worth worth;
  std::vector<int> members;
};

bool better(const Candidate& a, const Candidate& b) {
  return std::tuple(a.worth.order(), a.members) < std::tuple(b.worth.order(), b.members);
}
bool worse(const Candidate& a, const Candidate& b) {
  if ((a.worth.unknown_pairs > 0) != (b.worth.unknown_pairs > 0)) return b.worth.unknown_pairs > 0;
  if (a.worth.order() != b.worth.order()) return a.worth.order() > b.worth.order();
  return a.members < b.members;
}

/// The best and the worst so far, of each degree.
class Found {
 public:
  explicit Found(const Topology& topology) : topology_(topology) {}

  void offer(const Candidate& candidate) {
    const int degree = static_cast<int>(candidate.members.size());
    if (degree < 2) return;
    const auto [best, first] = best_.try_emplace(degree, candidate);
    if (!first && better(candidate, best->second)) best->second = candidate;
    const auto [worst, first_too] = worst_.try_emplace(degree, candidate);
    if (!first_too && worse(candidate, worst->second)) worst->second = candidate;
  }

  std::map<int, Group> groups() const {
    std::map<int, Group> groups;
    for (const auto& [degree, best] : best_) {
      const std::vector<int>& worst = worst_.at(degree).members;
      groups[degree] = {.best = best.members,
                        .worst = worst,
                        .best_narrowest = narrowest(best.members),
                        .worst_narrowest = narrowest(worst)};
    }
    return groups;
  }

 private:
  std::optional<Path> narrowest(const std::vector<int>& members) const {
    std::optional<Path> farthest;
    for (size_t i = 0; i < members.size(); ++i) {
      for (size_t j = i + 1; j < members.size(); ++j) {
        const std::optional<Path>& path =
            (*topology_.links)[static_cast<size_t>(members[i])][static_cast<size_t>(members[j])];
        if (!path) return std::nullopt;
        if (!farthest || nearer(*farthest, *path)) farthest = path;
      }
    }
    return farthest;
  }

  const Topology& topology_;
  std::map<int, Candidate> best_, worst_;
};

/// All groups, each built from the one without its last member.
void visit_all(const Pairs& pairs, int gpus, const Candidate& group, Found& found) {
  const int next = group.members.empty() ? 0 : group.members.back() + 1;
  for (int gpu = next; gpu < gpus; ++gpu) {
    Candidate larger{pairs.with(group.worth, group.members, gpu), group.members};
    larger.members.push_back(gpu);
    found.offer(larger);
    visit_all(pairs, gpus, larger, found);
  }
}

/// From `start` on, always the GPU that makes the best (or the worst) group of one more.
void grow(const Pairs& pairs, int gpus, int start, bool best, Found& found) {
  Candidate group{{}, {start}};
  group.worth = pairs.with({}, {}, start);
  while (static_cast<int>(group.members.size()) < gpus) {
    std::optional<Candidate> chosen;
    for (int gpu = 0; gpu < gpus; ++gpu) {
      if (std::find(group.members.begin(), group.members.end(), gpu) != group.members.end()) continue;
      Candidate larger{pairs.with(group.worth, group.members, gpu), group.members};
      larger.members.insert(std::upper_bound(larger.members.begin(), larger.members.end(), gpu), gpu);
      if (!chosen || (best ? better(larger, *chosen) : worse(larger, *chosen))) chosen = larger;
    }
    group = *chosen;
    found.offer(group);
  }
}

}  // namespace

std::map<int, Group> best_and_worst_groups(const Topology& topology) {
  const int gpus = static_cast<int>(topology.gpus.size());
  if (!topology.links || gpus < 2) return {};
  const Pairs pairs(topology);
  Found found(topology);
  if (gpus <= kMostExact) {
    visit_all(pairs, gpus, {}, found);
  } else {
    for (int start = 0; start < gpus; ++start) {
      grow(pairs, gpus, start, /*best=*/true, found);
      grow(pairs, gpus, start, /*best=*/false, found);
    }
  }
  return found.groups();
}

}  // namespace shardscope::topology
