// Where GPUs sit: NUMA nodes, PCIe, NICs, CPUs.
#pragma once

#include <string>

#include "topology/topology.hpp"

namespace shardscope::topology {

/// One row a GPU, with the columns of which something is known; CPUs last, cut with "..." where they leave `width`.
/// Empty where nothing is known.
std::string places_text(const Topology& topology, size_t width);

}  // namespace shardscope::topology
