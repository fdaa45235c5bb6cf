// For tests: cells of a topology's matrices as text.
#pragma once

#include <string>

#include "tests/topology/topologies.hpp"

namespace shardscope::test {

inline std::string link(const topology::Topology& topology, size_t a, size_t b) {
  REQUIRE(topology.links);
  const std::optional<topology::Path>& path = topology.links->at(a).at(b);
  return path ? text_of(*path) : "unknown";
}

inline std::string nic_link(const topology::Topology& topology, size_t gpu, size_t nic) {
  REQUIRE(topology.nic_links);
  const std::optional<topology::Path>& path = topology.nic_links->at(gpu).at(nic);
  return path ? text_of(*path) : "unknown";
}

}  // namespace shardscope::test
