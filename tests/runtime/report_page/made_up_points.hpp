// Points of degrees and workloads on GPUs that nobody has: times follow from a simple model of a step, with a little
// noise, so that figures, attributions and losses hang together as in a real sweep.
#pragma once

#include <cstdint>

#include "runtime/measure/point.hpp"

namespace shardscope::test {

inline constexpr double kMadeUpPeakGbPerS = 2039;

/// Numbers between -1 and 1, the same on every machine.
class Noise {
 public:
  double next() {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<double>(state_ >> 33) / static_cast<double>(1ULL << 30) - 1;
  }

 private:
  uint64_t state_ = 42;
};

struct MadeUpPoint {
  int generations = 24;
  bool attribution = true;
  bool samples = false;
};

/// Measured in two visits; its last rank is slow, and the others wait for it. Without speed-up and loss.
runtime::PointResult made_up_point(int tp, const runtime::Workload& workload, const MadeUpPoint& options, Noise& noise);

}  // namespace shardscope::test
