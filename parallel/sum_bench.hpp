// Times the ways in which a group can sum: what `comm` shows. One implementation for memory of hosts, one for devices
// (parallel/cuda/).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/dtype.hpp"

namespace shardscope::parallel {

/// One row of a sweep, the same on all ranks.
struct SumTask {
  std::string way;
  int64_t count = 0;  // elements
  kernels::DType dtype = kernels::DType::kF32;
  bool graph = false;  // on devices: calls are captured once, then replayed
  int64_t samples = 0;
  int64_t warm_up = 0;  // samples that are not kept
  bool first = true;    // of several turns on this sum: sums are checked, and single calls are taken
};

/// Of this rank.
struct SumTimes {
  // Of each sample, from its begin to its end, us a call. On devices a sample is a row of calls back to back, outside
  // the ranks' clocks: what a call costs a run.
  std::vector<double> sample_us;
  int64_t calls_a_sample = 1;
  // Of single calls, as many on all ranks and in the same order, us: within the collective on this rank. Taken apart
  // from the samples where taking it costs time.
  std::vector<double> inside_us;
  // Of the same calls, us: the part of it before the last of the other ranks had come, where this rank notes that
  // itself; else empty.
  std::vector<double> own_wait_us;
  double clock_step_us = 0;  // of the clock of inside_us, as seen; 0: finer than it matters, or unknown
  int64_t wrong = 0;         // elements of the results that are not the exact sums
};

class SumBench {
 public:
  virtual ~SumBench() = default;

  struct Way {
    std::string name;        // as --allreduce has it
    int64_t most_bytes = 0;  // of a message
    std::string why_not;     // this group cannot use it: why; else ""
  };
  /// All that exist for this kind of memory, the same on all ranks.
  virtual std::span<const Way> ways() const = 0;
  virtual bool on_devices() const = 0;

  /// Collective. On devices a sum is checked, and used, before it is timed: its first turn comes first. Throws
  /// PeerFailure or SystemError.
  virtual SumTimes time(const SumTask& task) = 0;
};

}  // namespace shardscope::parallel
