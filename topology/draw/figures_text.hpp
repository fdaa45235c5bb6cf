// Measured figures in short: for people, and to compare machines by.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "topology/topology.hpp"

namespace shardscope::topology {

/// Tables of copies between GPUs by kind of path, and of all-reduces by number of GPUs and algorithm; empty without
/// figures.
std::string figures_text(const Topology& topology);

/// Position of the GPU that a measurement calls `gpu`; nullopt: none of that index.
std::optional<int> position_of(const Topology& topology, int gpu);

/// The middle of the sorted values, of an even number the mean of the two. NaN of none.
double median_of(std::vector<double> values);

}  // namespace shardscope::topology
