// The sweep of the all-reduce: how the ranks' times become figures, how often a sum is measured, and which way of
// summing is the fastest from which size on. Leaves which sizes and ways there are to the caller, and how one is timed
// to parallel/sum_bench.hpp.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/dtype.hpp"
#include "parallel/communicator.hpp"
#include "parallel/sum_bench.hpp"
#include "runtime/measure/statistics.hpp"

namespace shardscope::runtime {

/// GB/s as nccl-tests has them for an all-reduce: algbw = bytes / time; busbw = algbw x 2 (ranks - 1) / ranks, which
/// compares with the speed of a link whatever the number of ranks.
struct SumBandwidth {
  double algbw_gb_per_s = 0;
  double busbw_gb_per_s = 0;
};
SumBandwidth sum_bandwidth(int64_t bytes, double time_us, int ranks);

/// What is summed.
struct SumCase {
  int tp = 1;
  int64_t count = 0;  // elements
  kernels::DType dtype = kernels::DType::kF32;
  bool graph = false;

  int64_t bytes() const { return kernels::row_bytes(dtype, count); }
};

/// How wait and transfer inside a call are told apart: by what each rank noted itself, when the last of the others had
/// come; or, where nobody notes that, by the rank whose call was the shortest, which waited for nobody.
enum class WaitFrom : uint8_t { kOwn, kMinimumOverRanks };
const char* wait_from_name(WaitFrom from);  // "own", "minimum_over_ranks"

/// What was measured of one way of summing it.
struct SumRow {
  SumCase sum;
  std::string way;
  bool emulated = false;
  Distribution time_us;  // of a call; a sample's is that of its slowest rank
  int64_t calls_a_sample = 1;
  // Inside single calls: from the arrival of the last rank, and before it (means over the ranks); medians over calls.
  std::optional<double> transfer_us, wait_us;
  std::optional<WaitFrom> wait_from;      // of those two
  std::optional<double> clock_step_us;    // of a device's clock, by which those two were taken: the coarsest rank's
  std::optional<SumBandwidth> bandwidth;  // at the median time
  int64_t wrong = 0;                      // elements, of all ranks and checked calls
  std::optional<std::string> unmet;       // what a limit left undone
};

/// One row's samples so far.
struct SumSamples {
  std::vector<double> sample_us, transfer_us, wait_us;
  WaitFrom wait_from = WaitFrom::kMinimumOverRanks;
  int64_t calls_a_sample = 1;
  double clock_step_us = 0;
  int64_t wrong = 0;
  double seconds = 0;  // that measuring took

  void append(const SumSamples& more);
};

/// Times of all ranks to those of the group. Where all ranks noted their own wait, wait and transfer are the means of
/// what each has before and after that. Else each call's duration is compared within the call alone: the shortest is
/// that of the last rank to arrive, which waits for nobody. No two clocks are compared. Throws BugError where the
/// ranks' times are not of the same calls.
SumSamples combine(std::span<const parallel::SumTimes> ranks);

SumRow sum_row(const SumCase& sum, const std::string& way, const SumSamples& samples);

/// How often a sum is measured.
struct SumProtocol {
  int64_t warmup = 10;                // samples
  std::optional<int64_t> iterations;  // samples, unless the time ends them; nullopt: until the noise is low
  int64_t least_samples = 400;        // before the noise may end it: p99 has a closed interval from 368 on
  int64_t most_samples = 2000;
  double noise_bound = 0.02;  // of relative_noise
  double max_seconds = 0.5;   // of measuring a row
  uint64_t seed = 0;          // of the order

  std::string stop_rule() const;
};

struct NextSamples {
  int64_t samples = 0;               // to take next; 0: it is enough
  std::optional<std::string> unmet;  // a limit ended it: which, and the condition that was not met
};
NextSamples next_samples(const SumProtocol& protocol, std::span<const double> sample_us, double seconds);

/// The ranks that sum, and their surroundings.
struct SumGroup {
  parallel::SumBench& bench;
  parallel::Communicator& control;  // of the same ranks, for what they tell each other
  std::function<double()> now_seconds;
  std::function<void(const std::string& way, int64_t samples)> tell;  // before each turn; may be empty
};

/// Measures the ways in turns, whose order is drawn anew each time, so that a disturbance meets all. Collective over
/// the group; the rows are the same on all ranks. Throws PeerFailure or SystemError.
std::vector<SumRow> measure_sum(const SumGroup& group, const SumCase& sum, const std::vector<std::string>& ways,
                                const SumProtocol& protocol);

/// From which size on which way is the fastest, for each degree, type and mode: at the smallest size the one with the
/// least median; then the one that takes less than the way so far, by more than the noise of both: the 95 % intervals
/// of the medians lie apart. Rows with wrong sums have no part. rows: in any order.
struct Crossover {
  int tp = 1;
  kernels::DType dtype = kernels::DType::kF32;
  bool graph = false;
  int64_t from_bytes = 0;
  std::string way;
};
std::vector<Crossover> crossovers(std::span<const SumRow> rows);

}  // namespace shardscope::runtime
