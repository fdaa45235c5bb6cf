#include <algorithm>

#include <fmt/format.h>

#include "launch/doctor_checks.hpp"
#include "topology/host.hpp"

namespace shardscope::launch {

std::string ranks_text(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", topology::core_list_text(ranks));
}

std::string grouped(Ranks ranks, const std::function<std::string(const RankFacts&)>& answer) {
  std::vector<std::pair<std::string, std::vector<int>>> groups;
  bool all = true;
  for (const RankFacts& rank : ranks) {
    const std::string text = answer(rank);
    all = all && !text.empty();
    if (text.empty()) continue;
    auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& known) { return known.first == text; });
    if (group == groups.end()) group = groups.insert(group, {text, {}});
    group->second.push_back(rank.rank);
  }
  if (groups.size() == 1 && all) return groups.front().first;
  std::vector<std::string> parts;
  for (const auto& [text, who] : groups) parts.push_back(fmt::format("{} ({})", text, ranks_text(who)));
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string memory_text(int64_t bytes) {
  constexpr int64_t kKibi = 1024;
  constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= kKibi && unit + 1 < std::size(kUnits)) {
    value /= kKibi;
    ++unit;
  }
  const bool whole = value == static_cast<double>(static_cast<int64_t>(value));
  return whole ? fmt::format("{:.0f} {}", value, kUnits[unit]) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string count_text(int64_t count, const std::string& thing) {
  return fmt::format("{} {}{}", count, thing, count == 1 ? "" : "s");
}

std::string variable_of(Ranks ranks, const std::string& name) {
  for (const RankFacts& rank : ranks) {
    if (const auto found = rank.variables.find(name); found != rank.variables.end()) return found->second;
  }
  return "";
}

Findings merged(const std::vector<std::string>& hosts, const std::vector<Findings>& of_hosts) {
  Findings all;
  std::vector<std::vector<std::string>> who;
  for (size_t i = 0; i < of_hosts.size(); ++i) {
    for (const Finding& finding : of_hosts[i]) {
      const auto same = static_cast<size_t>(std::find(all.begin(), all.end(), finding) - all.begin());
      if (same == all.size()) {
        all.push_back(finding);
        who.emplace_back();
      }
      who[same].push_back(hosts[i]);
    }
  }
  for (size_t i = 0; i < all.size(); ++i) {
    if (who[i].size() == hosts.size()) continue;
    all[i].evidence = fmt::format("{}: {}", fmt::join(who[i], ", "), all[i].evidence);
  }
  return all;
}

}  // namespace shardscope::launch
