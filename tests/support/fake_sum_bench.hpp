// A SumBench with a fake clock: each sample takes what the script says, and nothing else takes time.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "parallel/sum_bench.hpp"

namespace shardscope::test {

class FakeSumBench final : public parallel::SumBench {
 public:
  /// us of sample number `index` (warm-up included) of a way.
  using Script = std::function<double(const std::string& way, int64_t index)>;
  FakeSumBench(std::vector<Way> ways, Script script) : ways_(std::move(ways)), script_(std::move(script)) {}

  std::span<const Way> ways() const override { return ways_; }
  bool on_devices() const override { return false; }

  parallel::SumTimes time(const parallel::SumTask& task) override {
    tasks.push_back(task);
    parallel::SumTimes times{.calls_a_sample = calls_a_sample, .wrong = wrong[task.way]};
    for (int64_t i = -task.warm_up; i < task.samples; ++i) {
      const double time_us = script_(task.way, counts_[task.way]++);
      seconds += time_us * 1e-6;
      if (i < 0) continue;
      times.sample_us.push_back(time_us);
      times.inside_us.push_back(time_us);
      if (own_wait_us) times.own_wait_us.push_back(*own_wait_us);
    }
    return times;
  }

  std::vector<parallel::SumTask> tasks;  // as they came
  double seconds = 0;                    // that have gone by
  int64_t calls_a_sample = 1;
  std::map<std::string, int64_t> wrong;
  std::optional<double> own_wait_us;  // of each call; none: not noted

 private:
  std::vector<Way> ways_;
  Script script_;
  std::map<std::string, int64_t> counts_;
};

}  // namespace shardscope::test
