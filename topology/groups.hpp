// Which GPUs make the best and the worst group of a tensor-parallel degree. Every pair of a group exchanges data in
// every all-reduce, so that the farthest pair inside sets the pace.
#pragma once

#include <map>

#include "topology/topology.hpp"

namespace shardscope::topology {

/// Of every degree from 2 to the number of GPUs, by topology.links alone (and NUMA nodes where links are equal): exact
/// for up to 16 GPUs, beyond that grown one by one from each GPU. None without links.
std::map<int, Group> best_and_worst_groups(const Topology& topology);

}  // namespace shardscope::topology
