// From when operations ran to how long each kind took: one rank's ledger of the decode steps of a generation, and what
// the ledgers of all ranks say about who waited for whom. Knows no clock and no rank; leaves bytes to attribution.hpp.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/operation_times.hpp"
#include "runtime/measure/parts.hpp"

namespace shardscope::runtime {

/// A collective of one rank in a decode step.
struct CollectiveCall {
  int64_t begin_ns = 0;     // of its own time: when it started, or its predecessor's end where that was later
  int64_t arrived_ns = -1;  // when the last rank had come, on this rank's clock; -1: it does not know
  int64_t end_ns = 0;
  bool exchange = false;  // of candidates; else an all-reduce
  bool operator==(const CollectiveCall&) const = default;
};

class StepLedger {
 public:
  /// Before a generation.
  void clear();

  /// The operations of one step, in order. decodes: its times count; of another one only its end, from which the next
  /// step's first gap begins. Allocates where there are more collectives than in any generation before.
  void add(std::span<const kernels::OperationTimes> times, bool decodes);

  int64_t steps() const { return steps_; }
  int64_t gap_ns() const { return gap_ns_; }
  /// Sum of own times, end - max(begin, previous end), of operations of that kind that are no collectives.
  int64_t own_ns(kernels::Operation operation) const { return own_ns_[static_cast<size_t>(operation)]; }
  std::span<const CollectiveCall> calls() const { return calls_; }

  /// As doubles, to travel to other ranks.
  std::vector<double> to_doubles() const;

 private:
  std::array<int64_t, kernels::kOperations.size()> own_ns_{};
  int64_t gap_ns_ = 0;
  int64_t steps_ = 0;
  std::optional<int64_t> previous_end_ns_;
  std::vector<CollectiveCall> calls_;
};

/// What the ranks' ledgers (to_doubles of each, rank after rank, of equal length) say of a mean step. one_clock: the
/// ranks' clocks are one, so that a collective's last rank has arrived at the latest of its begins. Else, where a rank
/// does not know when the last one arrived, the shortest of the ranks' durations is all ranks' transfer, the rest of a
/// rank's own is its wait. nullopt: no step decoded, nothing was noted, or the ledgers do not belong together.
std::optional<std::vector<StepTimes>> step_times_of(std::span<const double> ledgers, size_t ranks, bool one_clock);

}  // namespace shardscope::runtime
