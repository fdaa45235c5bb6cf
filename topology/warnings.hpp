// What a buyer or user of a machine should know about its topology, in sentences.
#pragma once

#include <string>
#include <vector>

#include "topology/topology.hpp"

namespace shardscope::topology {

/// Of a topology whose class is known already; the same sentences for the same topology, the weightiest first.
std::vector<std::string> warnings_about(const Topology& topology);

/// "GPU0, GPU1 and GPU3": by their indices.
std::string gpu_names(const Topology& topology, const std::vector<int>& positions);

}  // namespace shardscope::topology
