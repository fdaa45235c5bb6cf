// How long an all-reduce takes on a machine that need not be here: from the figures that were measured on it, or from a
// public table for machines of its class. A value; who sums what, and when, is the caller's matter.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "topology/topology.hpp"

namespace shardscope::topology {

struct CollectiveTime {
  double us = 0;
  bool below = false;  // fewer bytes than the table has: the time of its smallest message, which is no less
};

class CollectiveTimes {
 public:
  /// No figures: nothing is known.
  CollectiveTimes() = default;

  /// Of each number of GPUs for which the topology has all-reduce figures, these; where several are of one size, the
  /// fastest, since that is what a choice by measuring takes (and those without peer access only where there are no
  /// others). Of other numbers, where all GPUs are of a kind and class that the public table covers, that table.
  explicit CollectiveTimes(const Topology& topology);

  /// Logarithmic interpolation between sizes. nullopt: nothing is known of that number of ranks, or of messages so
  /// large. Throws BugError for fewer than two ranks or no bytes.
  std::optional<CollectiveTime> time(int ranks, int64_t bytes) const;

  /// Where the figures of that number of ranks come from: "all-reduces measured on 8 GPUs (NCCL)". Empty: unknown.
  std::string source(int ranks) const;

 private:
  struct Table {
    std::string source;
    std::map<int64_t, double> us;  // by bytes; never falling
  };

  std::map<int, Table> tables_;  // by number of ranks
};

}  // namespace shardscope::topology
