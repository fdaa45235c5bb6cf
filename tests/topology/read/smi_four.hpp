// For tests of `nvidia-smi topo -m`: a small matrix, and ways to change it.
#pragma once

#include <sstream>
#include <string>

#include "tests/topology/topologies.hpp"

namespace shardscope::test {

inline std::string link(const topology::Topology& topology, int a, int b) {
  const auto& path = (*topology.links)[static_cast<size_t>(a)][static_cast<size_t>(b)];
  return path ? text_of(*path) : "";
}

inline topology::Topology read(const std::string& text) {
  return topology::read_topology({.text = text, .file = "machine.txt"});
}

/// With every `from` replaced.
inline std::string with(std::string text, const std::string& from, const std::string& to) {
  REQUIRE(text.find(from) != std::string::npos);
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

/// With a line (from 1) replaced.
inline std::string with_line(const std::string& text, int number, const std::string& line) {
  std::istringstream stream(text);
  std::string out;
  int at = 0;
  for (std::string each; std::getline(stream, each);) out += (++at == number ? line : each) + "\n";
  REQUIRE(at >= number);
  return out;
}

/// Two linked pairs on two sockets, and a NIC: what the tests damage.
inline const std::string kFour =
    "\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
    "GPU0\t X \tNV12\tSYS\tSYS\tPXB\t0-31\t0\t\tN/A\n"
    "GPU1\tNV12\t X \tSYS\tSYS\tNODE\t0-31\t0\t\tN/A\n"
    "GPU2\tSYS\tSYS\t X \tNV12\tSYS\t32-63\t1\t\tN/A\n"
    "GPU3\tSYS\tSYS\tNV12\t X \tSYS\t32-63\t1\t\tN/A\n"
    "NIC0\tPXB\tNODE\tSYS\tSYS\t X \t\t\t\t\n"
    "\n"
    "Legend:\n\n  X    = Self\n  NV#  = Connection traversing a bonded set of # NVLinks\n\n"
    "NIC Legend:\n\n  NIC0: mlx5_7\n";

/// All that kFour says.
inline void check_four(const topology::Topology& topology) {
  REQUIRE(topology.gpu_count == 4);
  REQUIRE(topology.links);
  CHECK(link(topology, 0, 1) == "NV12");
  CHECK(link(topology, 1, 0) == "NV12");
  CHECK(link(topology, 2, 3) == "NV12");
  CHECK(link(topology, 1, 2) == "SYS");
  CHECK(link(topology, 3, 3) == "X");
  REQUIRE(topology.nics.size() == 1);
  CHECK(text_of(*(*topology.nic_links)[0][0]) == "PXB");
  CHECK(text_of(*(*topology.nic_links)[1][0]) == "NODE");
  CHECK(text_of(*(*topology.nic_links)[3][0]) == "SYS");
  CHECK(topology.gpus[1].numa_nodes == std::vector<int>{0});
  CHECK(topology.gpus[3].numa_nodes == std::vector<int>{1});
  CHECK(topology.gpus[3].cpu_affinity == "32-63");
  CHECK(!topology.gpus[0].gpu_numa_id);
}

}  // namespace shardscope::test
