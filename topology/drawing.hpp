// A topology for people: as text for a terminal, and as an SVG picture.
#pragma once

#include <string>

#include "topology/topology.hpp"

namespace shardscope::topology {

/// The matrix, the class and what it means, the groups of each degree with the narrowest link inside, NUMA nodes and
/// NICs, measurements in short, warnings. Lines of at most `width` columns where the matrix allows; ends with a
/// newline.
std::string topology_text(const Topology& topology, int width = 100);

/// A self-contained <svg> element with its own style: GPUs by NUMA node, links by kind and width, NICs, a legend, and a
/// title for screen readers. Readable in light and dark, and without colours.
std::string topology_svg(const Topology& topology);

}  // namespace shardscope::topology
