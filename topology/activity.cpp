// Formats: Linux Documentation/filesystems/proc.rst (stat), scheduler/sched-stats.rst (schedstat),
// admin-guide/pm/cpufreq.rst.
#include "topology/activity.hpp"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "topology/files.hpp"

namespace shardscope::topology {
namespace {

/// Fields of /proc/stat after a core's name: user nice system idle iowait irq softirq steal …
constexpr size_t kStealWord = 8;

/// cores: ascending, distinct. nullopt unless the file has every one of them: a part would look like less.
std::optional<double> stolen_seconds(const std::string& root, const std::vector<int>& cores) {
  const auto ticks_per_second = static_cast<double>(sysconf(_SC_CLK_TCK));
  if (cores.empty() || ticks_per_second <= 0) return std::nullopt;
  std::ifstream file(root + "/proc/stat");
  double ticks = 0;
  size_t found = 0;
  for (std::string line; std::getline(file, line) && line.starts_with("cpu");) {  // the cores stand first
    const std::optional<int64_t> core = count_of(std::string_view(line).substr(3, line.find(' ') - 3));
    if (!core || !std::binary_search(cores.begin(), cores.end(), *core)) continue;
    const std::vector<std::string> words = words_of(line);
    const std::optional<int64_t> steal = words.size() > kStealWord ? count_of(words[kStealWord]) : std::nullopt;
    if (!steal) return std::nullopt;
    ticks += static_cast<double>(*steal);
    ++found;
  }
  if (found != cores.size()) return std::nullopt;
  return ticks / ticks_per_second;
}

std::optional<double> waited_seconds(const std::string& root) {
  double ran_ns = 0;
  double waited_ns = 0;
  const std::string tasks = root + "/proc/self/task";
  for (const int thread : numbered_entries(tasks, "")) {
    const std::string line = first_line(tasks + "/" + std::to_string(thread) + "/schedstat");
    if (line.empty()) continue;  // ended since it was listed
    const std::vector<std::string> words = words_of(line);
    const std::optional<int64_t> ran = count_of(words.front());
    const std::optional<int64_t> waited = words.size() > 1 ? count_of(words[1]) : std::nullopt;
    if (!ran || !waited) return std::nullopt;
    ran_ns += static_cast<double>(*ran);
    waited_ns += static_cast<double>(*waited);
  }
  // A kernel that keeps no such account writes zeros, but whoever reads this has run.
  if (ran_ns <= 0) return std::nullopt;
  return waited_ns * 1e-9;
}

std::optional<double> mean_mhz(const std::string& root, const std::vector<int>& cores) {
  double khz = 0;
  int found = 0;
  for (const int core : cores) {
    const std::optional<double> own = number_of(
        first_line(root + "/sys/devices/system/cpu/cpu" + std::to_string(core) + "/cpufreq/scaling_cur_freq"));
    if (!own || *own <= 0) continue;
    khz += *own;
    ++found;
  }
  if (found == 0) return std::nullopt;
  return khz / found / 1000;
}

std::optional<double> share(std::optional<double> before, std::optional<double> after, double of_seconds) {
  if (!before || !after || !(of_seconds > 0)) return std::nullopt;
  return std::clamp((*after - *before) / of_seconds, 0.0, 1.0);
}

}  // namespace

ActivityShares shares_between(const Activity& before, const Activity& after, double seconds, int cores, int threads) {
  return {.stolen_share = share(before.stolen_seconds, after.stolen_seconds, seconds * cores),
          .waited_share = share(before.waited_seconds, after.waited_seconds, seconds * threads),
          .mhz = after.mhz};
}

ActivityProbe::ActivityProbe(std::vector<int> cores, std::string root)
    : cores_(std::move(cores)), root_(std::move(root)) {
  std::sort(cores_.begin(), cores_.end());
  cores_.erase(std::unique(cores_.begin(), cores_.end()), cores_.end());
}

Activity ActivityProbe::read() const {
  return {.stolen_seconds = stolen_seconds(root_, cores_),
          .waited_seconds = waited_seconds(root_),
          .mhz = mean_mhz(root_, cores_)};
}

}  // namespace shardscope::topology
