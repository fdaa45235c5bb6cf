// A Machine with a fake clock: each generation takes what its point's script says, and nothing else takes time.
#pragma once

#include <functional>
#include <vector>

#include "runtime/measure/protocol.hpp"

namespace shardscope::test {

class FakeMachine : public runtime::Machine {
 public:
  /// Seconds of generation number `index` (warm-up included) of point `point`, in this visit.
  using Script = std::function<double(size_t point, int64_t index)>;
  explicit FakeMachine(size_t points, Script script) : script_(std::move(script)), counts(points, 0) {}

  runtime::GenerationSample generate(size_t point) override {
    const double seconds = script_(point, counts[point]++);
    now += seconds;
    order.push_back(point);
    // A fifth is the first token; the rest four gaps.
    return {.ttft_ms = seconds * 200, .tpot_ms = seconds * 200, .latency_ms = seconds * 1000};
  }
  std::optional<runtime::InstrumentedSample> generate_instrumented(size_t point) override {
    if (!instruments) return std::nullopt;
    instrumented_at.push_back({point, order.size()});
    return instruments(point);
  }
  void measure_bandwidth(size_t point, bool after) override {
    (after ? after_at : before_at).push_back({point, order.size()});
  }
  double now_seconds() override { return now; }
  bool agree(bool mine) override {
    ++agreements;
    return decide ? decide(mine) : mine;
  }
  void tell(size_t, const char*, int64_t, double fraction) override { fractions.push_back(fraction); }

  struct At {
    size_t point;
    size_t generations;  // that had run by then
  };
  double now = 100;
  std::vector<size_t> order;  // of points, a generation each
  std::vector<At> before_at, after_at, instrumented_at;
  std::function<runtime::InstrumentedSample(size_t point)> instruments;  // empty: it has none
  std::vector<double> fractions;
  int64_t agreements = 0;
  std::function<bool(bool mine)> decide;  // what rank 0 says; empty: this is rank 0

 private:
  Script script_;

 public:
  std::vector<int64_t> counts;  // generations of each point
};

}  // namespace shardscope::test
