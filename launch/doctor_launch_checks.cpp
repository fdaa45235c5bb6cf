#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "launch/doctor_checks.hpp"
#include "topology/host.hpp"

namespace shardscope::launch {
namespace {

std::map<std::string, int> ranks_of_hosts(Ranks ranks) {
  std::map<std::string, int> counts;
  for (const RankFacts& rank : ranks) ++counts[rank.host];
  return counts;
}

void check_launch(const LaunchFacts& launch, Ranks ranks, Findings& out) {
  const std::map<std::string, int> hosts = ranks_of_hosts(ranks);
  const auto count = static_cast<int>(ranks.size());
  const std::string started = fmt::format("{} by {} on {}", count_text(count, "rank"), launch.launcher,
                                          count_text(static_cast<int64_t>(hosts.size()), "host"));
  if (launch.announced_ranks && *launch.announced_ranks != count) {
    out.push_back({.check = "launch",
                   .verdict = Verdict::kProblem,
                   .evidence = fmt::format("{}, but it announced {}: they do not see each other", started,
                                           *launch.announced_ranks),
                   .remedy = "start with the mpirun of the MPI that this program is linked to, or srun --mpi=pmix"});
    return;
  }
  if (count == 1) {
    const int wanted = std::max(2, launch.gpus);
    out.push_back(
        {.check = "launch",
         .verdict = Verdict::kUnknown,
         .evidence = launch.gpus > 1
                         ? fmt::format("one rank alone, though this host has {} GPUs: nothing between ranks is checked",
                                       launch.gpus)
                         : "one rank alone: nothing between ranks is checked",
         .remedy = fmt::format("mpirun -np {} shardscope doctor checks that, too", wanted)});
    return;
  }
  const std::string announced =
      launch.announced_ranks ? fmt::format(", as announced ({})", *launch.announced_ranks) : "";
  const auto [least, most] =
      std::minmax_element(hosts.begin(), hosts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  if (least->second != most->second) {
    out.push_back({.check = "launch",
                   .verdict = Verdict::kWarning,
                   .evidence = fmt::format("{}{}, unevenly: {} on {}, {} on {}", started, announced, most->second,
                                           most->first, least->second, least->first),
                   .remedy = "the same number on each host: mpirun --map-by ppr:N:node, srun --ntasks-per-node=N"});
  } else {
    out.push_back({.check = "launch", .verdict = Verdict::kOk, .evidence = started + announced, .remedy = ""});
  }
}

struct SharedCore {
  std::string text;        // who shares one; empty: nobody does
  bool avoidable = false;  // the launcher's masks have cores enough
};

/// A core that more than one rank of a host is bound to. Where there are fewer cores than threads, that is told of by
/// the check of cores.
SharedCore shared_core(Ranks ranks) {
  std::map<std::pair<std::string, int>, std::vector<int>> users;
  std::map<std::string, std::set<int>> offered;
  std::map<std::string, size_t> threads;
  for (const RankFacts& rank : ranks) {
    for (const int core : std::set<int>(rank.cores.begin(), rank.cores.end())) {
      users[{rank.host, core}].push_back(rank.rank);
    }
    offered[rank.host].insert(rank.launcher_cores.begin(), rank.launcher_cores.end());
    threads[rank.host] += static_cast<size_t>(rank.threads);
  }
  for (const auto& [core, who] : users) {
    if (who.size() == 1) continue;
    return {.text = fmt::format("{} share core {} of {}", ranks_text(who), core.second, core.first),
            .avoidable = offered[core.first].size() >= threads[core.first]};
  }
  return {};
}

void check_masks(Ranks ranks, Findings& out) {
  const auto masks = [&](const std::vector<int> RankFacts::*cores) {
    constexpr size_t kNamed = 8;
    std::vector<std::string> parts;
    for (const RankFacts& rank : ranks) {
      if (parts.size() == kNamed) {
        parts.emplace_back("…");
        break;
      }
      parts.push_back(topology::core_list_text(rank.*cores));
    }
    return fmt::format("{}", fmt::join(parts, " | "));
  };
  const std::string evidence = fmt::format("cores by rank: {} from the launcher, {} bound by shardscope",
                                           masks(&RankFacts::launcher_cores), masks(&RankFacts::cores));
  const SharedCore shared = shared_core(ranks);
  out.push_back({.check = "core masks",
                 .verdict = shared.avoidable ? Verdict::kWarning : Verdict::kOk,
                 .evidence = shared.text.empty() ? evidence : fmt::format("{}; {}", shared.text, evidence),
                 .remedy = shared.avoidable ? "one cpuset for all ranks of a host: start them in one container" : ""});
}

void check_variables_agree(Ranks ranks, Findings& out) {
  std::set<std::string> names;
  for (const RankFacts& rank : ranks) {
    for (const auto& [name, value] : rank.variables) names.insert(name);
  }
  // Ranks may each have a device of their own shown; Slurm's and Open MPI's may be a rank's own, too.
  for (const std::string& name : names) {
    if (!name.starts_with("NCCL_")) continue;
    const auto answer = [&](const RankFacts& rank) {
      const auto found = rank.variables.find(name);
      return found == rank.variables.end() ? "not set" : found->second;
    };
    const bool same = std::all_of(ranks.begin(), ranks.end(),
                                  [&](const RankFacts& rank) { return answer(rank) == answer(ranks.front()); });
    if (same) continue;
    out.push_back({.check = "NCCL",
                   .verdict = Verdict::kProblem,
                   .evidence = fmt::format("{} differs among ranks: {}", name, grouped(ranks, answer)),
                   .remedy = fmt::format("give it to all ranks alike: mpirun -x {}=…, or unset it", name)});
  }
}

}  // namespace

Findings launch_findings(const LaunchFacts& launch, Ranks ranks) {
  Findings out;
  check_launch(launch, ranks, out);
  check_masks(ranks, out);
  check_variables_agree(ranks, out);
  return out;
}

}  // namespace shardscope::launch
