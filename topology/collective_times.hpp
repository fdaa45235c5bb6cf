// How long an all-reduce takes on a machine that need not be here: from the figures that were measured on it, or on
// others like it. A value; who sums what, and when, is the caller's matter.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "topology/topology.hpp"

namespace shardscope::topology {

struct CollectiveTime {
  double us = 0;
  bool below = false;  // fewer bytes than the table has: the time of its smallest message, which is no less
};

/// The same times, none longer than that of a larger message: whoever sums a larger message sums the smaller one in
/// that time, too, and what is over it is a disturbance.
std::map<int64_t, double> never_falling(std::map<int64_t, double> us);

/// All-reduces that somebody measured on other machines: of that many GPUs of a kind, behind NVSwitches.
struct KnownTimes {
  std::string gpu;   // a row of device_peaks()
  std::string what;  // "H100 SXM, NCCL 2.29"
  int ranks = 0;
  std::map<int64_t, double> us;  // by bytes
};

class CollectiveTimes {
 public:
  /// No figures: nothing is known.
  CollectiveTimes() = default;

  /// Of each number of GPUs for which the topology has all-reduce figures, these; where several are of one size, the
  /// fastest, since that is what a choice by measuring takes (and those without peer access only where there are no
  /// others). Of other numbers, where all GPUs are of one kind and behind NVSwitches, what is known of such machines.
  explicit CollectiveTimes(const Topology& topology, std::span<const KnownTimes> known = {});

  /// Logarithmic interpolation between sizes. nullopt: nothing is known of that number of ranks, or of messages so
  /// large. Throws BugError for fewer than two ranks or no bytes.
  std::optional<CollectiveTime> time(int ranks, int64_t bytes) const;

  /// Where the figures of that number of ranks come from: "all-reduces measured on 8 GPUs (NCCL)". Empty: unknown.
  std::string source(int ranks) const;

  /// All that is known: of each number of ranks microseconds by bytes of a message, never falling.
  std::map<int, std::map<int64_t, double>> tables() const;

 private:
  struct Table {
    std::string source;
    std::map<int64_t, double> us;  // by bytes; never falling
  };

  std::map<int, Table> tables_;  // by number of ranks
};

}  // namespace shardscope::topology
