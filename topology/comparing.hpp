// Two or more machines side by side, in the order of what matters to tensor parallelism.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "topology/topology.hpp"

namespace shardscope::topology {

/// One thing that differs.
struct Difference {
  std::string what;                 // "links inside the best group of 4"
  std::vector<std::string> values;  // of each machine, in their order; "unknown" where it is
  std::string effect;               // one sentence: what it does to tensor parallelism
  double weight = 0;                // order: the largest first; no unit
};

struct Comparison {
  std::vector<std::string> names;  // of the machines
  std::vector<Difference> differences;
  std::string summary;  // one paragraph that says which machine is better for which degree, and why
};

/// Two or more topologies that understand() has seen; names[i] is that of topologies[i].
Comparison compare_topologies(const std::vector<Topology>& topologies, const std::vector<std::string>& names);

std::string comparison_text(const Comparison& comparison, int width = 100);

}  // namespace shardscope::topology
