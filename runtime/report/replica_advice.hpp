// Whether several groups of a smaller degree make more of the same devices than one group of them all.
#pragma once

#include <string>
#include <vector>

#include "runtime/measure/point.hpp"

namespace shardscope::runtime {

/// Per pair of lengths and placement: whether replicas of a smaller degree on the devices of the largest give more
/// tokens per second than that does, by more than their noise, and at which batches. Of replicas that worked at once
/// where those were measured (--replicas), else what a lone group would make of it, with that doubt. The large group is
/// given its best batch up to one that holds the requests of all replicas together; of batches beyond its largest
/// nothing is said.
std::vector<std::string> replica_advice(const std::vector<PointResult>& points);

}  // namespace shardscope::runtime
