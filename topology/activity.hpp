// What else happens on this host while we measure: time that the hypervisor took, time that our threads waited for a
// core, the cores' clock. Reads /proc and /sys; cheap enough for once a generation, not for once a step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace shardscope::topology {

/// Counters since some start: only differences mean something. nullopt: cannot be read here.
struct Activity {
  std::optional<double> stolen_seconds;  // summed over the cores; /proc/stat, field steal
  std::optional<double> waited_seconds;  // summed over this process's threads; /proc/self/task/*/schedstat, field 2
  std::optional<double> mhz;             // mean current clock of the cores; cpufreq/scaling_cur_freq
};

/// Difference of two readings as shares of the time between them. nullopt where either reading lacks the counter, or
/// without time, cores or threads to be a share of.
struct ActivityShares {
  std::optional<double> stolen_share;  // of the cores' time, 0 to 1
  std::optional<double> waited_share;  // of `threads` threads' time, 0 to 1: cut there if more threads waited
  std::optional<double> mhz;           // at the end
};

/// A counter that went down counts as unchanged: a thread that ended in between took its waiting with it.
ActivityShares shares_between(const Activity& before, const Activity& after, double seconds, int cores, int threads);

/// cores: those that are watched, each counted once. `root` stands before every path that is read: a test's directory.
class ActivityProbe {
 public:
  explicit ActivityProbe(std::vector<int> cores, std::string root = "");
  /// Never throws for a missing or strange file: that field is nullopt.
  Activity read() const;
  int cores() const { return static_cast<int>(cores_.size()); }

 private:
  std::vector<int> cores_;  // ascending, distinct
  std::string root_;
};

}  // namespace shardscope::topology
