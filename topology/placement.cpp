#include "topology/placement.hpp"

#include <algorithm>
#include <numeric>
#include <set>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "topology/groups.hpp"
#include "topology/near_gpu.hpp"

namespace shardscope::topology {
namespace {

Places only_linear(Places places, std::string why, std::string remedy) {
  places.why_linear = std::move(why);
  places.remedy = std::move(remedy);
  return places;
}

/// "a", "a and b", "a, b and c"
std::string in_words(const std::vector<std::string>& words) {
  if (words.size() < 2) return words.empty() ? "" : words.front();
  return fmt::format("{} and {}", fmt::join(words.begin(), words.end() - 1, ", "), words.back());
}

bool all_known(const PathMatrix& links) {
  return std::all_of(links.begin(), links.end(), [](const auto& row) {
    return std::all_of(row.begin(), row.end(), [](const std::optional<Path>& path) { return path.has_value(); });
  });
}

/// Why a group is measured once for several placements.
std::string note_of(const Places& places, const PlacedGroup& group) {
  std::vector<std::string> names = {std::string(name_of(group.placement))};
  for (const Placement also : group.also) names.emplace_back(name_of(also));
  const std::string where = fmt::format("tp {}: {} are", group.places.size(), in_words(names));
  if (static_cast<int>(group.places.size()) == places.count) {
    return fmt::format("{} the same group of all ranks: measured once", where);
  }
  const bool alike =
      group.stands_for(Placement::kBest) && group.stands_for(Placement::kWorst) && all_known(*places.topology.links);
  return fmt::format("{} the same {} ({}){}: measured once", where, places.noun, core_list_text(group.places),
                     alike ? fmt::format(", since all groups of {} are joined alike", group.places.size()) : "");
}

/// Throws UserError unless best and worst can be told apart at that degree.
std::vector<int> chosen(const Places& places, int degree, Placement placement) {
  const std::string where = fmt::format("--placement {}", name_of(placement));
  if (!places.why_linear.empty()) throw UserError(places.why_linear, where, places.remedy);
  const std::map<int, Group> groups = best_and_worst_groups(places.topology);
  const auto found = groups.find(degree);
  require(found != groups.end(), "place_groups: a degree without a group");
  const Group& group = found->second;
  const bool best = placement == Placement::kBest;
  if (!(best ? group.best_narrowest : group.worst_narrowest)) {
    throw UserError(fmt::format("tp {}: what joins the {} is not known for enough of them", degree, places.noun), where,
                    "see shardscope topo, or use --placement linear");
  }
  return best ? group.best : group.worst;
}

int64_t numa_node_of(std::span<const NumaNode> nodes, int core) {
  for (const NumaNode& node : nodes) {
    if (std::find(node.cores.begin(), node.cores.end(), core) != node.cores.end()) return node.id;
  }
  return -1;
}

/// The one NUMA node of all of them; nullopt: unknown or several.
std::optional<int> one_node(std::span<const NumaNode> nodes, const std::vector<int>& cores) {
  std::set<int64_t> found;
  for (const int core : cores) found.insert(numa_node_of(nodes, core));
  if (found.size() != 1 || *found.begin() < 0) return std::nullopt;
  return static_cast<int>(*found.begin());
}

bool share_cache(const HostCpu& host, const std::vector<int>& a, const std::vector<int>& b) {
  const auto reaches = [](const Cache& cache, const std::vector<int>& cores) {
    return std::any_of(cores.begin(), cores.end(), [&](int core) {
      return std::find(cache.cores.begin(), cache.cores.end(), core) != cache.cores.end();
    });
  };
  return std::any_of(host.last_level_caches.begin(), host.last_level_caches.end(),
                     [&](const Cache& cache) { return reaches(cache, a) && reaches(cache, b); });
}

}  // namespace

std::string_view name_of(Placement placement) {
  return kPlacementNames[static_cast<size_t>(placement)];
}

bool PlacedGroup::stands_for(Placement one) const {
  return replicas == 1 && (placement == one || std::find(also.begin(), also.end(), one) != also.end());
}

PlacedGroup linear_group(int degree) {
  PlacedGroup group{.places = std::vector<int>(static_cast<size_t>(degree))};
  std::iota(group.places.begin(), group.places.end(), 0);
  return group;
}

Places places_of_gpus(const Topology& machine, std::span<const std::string> bus_ids) {
  Places places{.count = static_cast<int>(bus_ids.size()), .noun = "devices"};
  const std::string linear = "use --placement linear";
  if (!machine.links) {
    const std::string why = machine.warnings.empty() ? "" : fmt::format(" ({})", machine.warnings.front());
    return only_linear(std::move(places), fmt::format("what joins the GPUs is not known{}", why), linear);
  }
  std::vector<size_t> positions;
  for (const std::string& bus_id : bus_ids) {
    const std::optional<size_t> position = position_of(machine, bus_id);
    if (!position) {
      return only_linear(std::move(places), fmt::format("NVML does not list the GPU {}, on which a rank works", bus_id),
                         linear);
    }
    if (std::find(positions.begin(), positions.end(), *position) != positions.end()) {
      return only_linear(std::move(places), fmt::format("ranks share the GPU {}", bus_id),
                         "give each rank a GPU of its own, or use --placement linear");
    }
    positions.push_back(*position);
  }
  PathMatrix links;
  for (const size_t a : positions) {
    places.topology.gpus.push_back(machine.gpus[a]);
    links.emplace_back();
    for (const size_t b : positions) links.back().push_back((*machine.links)[a][b]);
  }
  places.topology.links = std::move(links);
  return places;
}

Places places_of_cores(const HostCpu& host, std::span<const NumaNode> nodes, std::span<const std::vector<int>> cores) {
  Places places{.count = static_cast<int>(cores.size()), .noun = "cores of ranks"};
  PathMatrix links;
  for (size_t a = 0; a < cores.size(); ++a) {
    Gpu& place = places.topology.gpus.emplace_back(Gpu{.index = static_cast<int>(a)});
    const std::optional<int> node = one_node(nodes, cores[a]);
    if (node) place.numa_nodes = {*node};
    links.emplace_back();
    for (size_t b = 0; b < cores.size(); ++b) {
      const std::optional<int> other = one_node(nodes, cores[b]);
      std::optional<Path> path = Path{.kind = PathKind::kSys};
      if (a == b) {
        path = Path{};
      } else if (share_cache(host, cores[a], cores[b])) {
        path = Path{.kind = PathKind::kPix};
      } else if (nodes.empty()) {
        path = std::nullopt;
      } else if (node && node == other) {
        path = Path{.kind = PathKind::kNode};
      }
      links.back().push_back(path);
    }
  }
  places.topology.links = std::move(links);
  return places;
}

std::vector<PlacedGroup> place_groups(const Places& places, int degree, std::span<const Placement> asked,
                                      std::vector<std::string>& notes) {
  std::vector<PlacedGroup> groups;
  const bool choice = degree > 1 && degree < places.count;
  for (const Placement placement : asked) {
    PlacedGroup group = linear_group(degree);
    group.placement = placement;
    if (choice && placement != Placement::kLinear) group.places = chosen(places, degree, placement);
    const auto same = std::find_if(groups.begin(), groups.end(),
                                   [&](const PlacedGroup& earlier) { return earlier.places == group.places; });
    if (same == groups.end()) {
      groups.push_back(std::move(group));
    } else {
      same->also.push_back(placement);
    }
  }
  for (const PlacedGroup& group : groups) {
    if (degree > 1 && !group.also.empty()) notes.push_back(note_of(places, group));
  }
  return groups;
}

std::vector<int> all_places(const PlacedGroup& group, int ranks) {
  std::vector<int> places = group.places;
  const auto taken = [&](int place) { return std::find(places.begin(), places.end(), place) != places.end(); };
  std::vector<int> homeless;
  for (int rank = static_cast<int>(group.places.size()); rank < ranks; ++rank) {
    if (taken(rank)) homeless.push_back(rank);
  }
  places.resize(static_cast<size_t>(ranks), -1);
  for (int rank = static_cast<int>(group.places.size()); rank < ranks; ++rank) {
    if (std::find(homeless.begin(), homeless.end(), rank) == homeless.end()) places[static_cast<size_t>(rank)] = rank;
  }
  int left = 0;
  for (const int rank : homeless) {
    while (taken(left)) ++left;
    places[static_cast<size_t>(rank)] = left;
  }
  return places;
}

}  // namespace shardscope::topology
