// What NVML is said to have answered, made up; and topologies as text.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "topology/probe/probe_parts.hpp"

namespace shardscope::test {

using namespace topology;  // NOLINT(google-build-using-namespace)

using Cells = std::vector<std::vector<std::string>>;

inline Cells text_of(const std::optional<PathMatrix>& matrix) {
  REQUIRE(matrix);
  Cells cells;
  for (const auto& row : *matrix) {
    auto& texts = cells.emplace_back();
    for (const std::optional<Path>& path : row) texts.push_back(path ? topology::text_of(*path) : "?");
  }
  return cells;
}

inline std::string bus_of(int gpu) {
  return "0000:0" + std::to_string(gpu) + ":00.0";
}

/// GPUs without links, each on a PCI bus of its own number, SYS from each other; the driver knows no NVLink.
inline NvmlAnswers answers(size_t count) {
  NvmlAnswers it;
  for (size_t i = 0; i < count; ++i) {
    it.gpus.push_back(Gpu{.index = static_cast<int>(i), .pci_bus_id = bus_of(static_cast<int>(i)), .nvlinks = 0});
  }
  it.troubles.resize(count);
  it.pcie.assign(count, std::vector<std::optional<PathKind>>(count, PathKind::kSys));
  it.p2p.assign(count, std::vector<std::string>(count, "OK"));
  it.reached_by_nvlink.assign(count, std::vector<std::optional<bool>>(count, false));
  return it;
}

/// `links` more ports, which are up.
inline void link(Gpu& gpu, int links, NvLinkPort::Remote remote, const std::string& bus_id = "") {
  for (int i = 0; i < links; ++i) {
    gpu.ports.push_back(
        {.link = static_cast<int>(gpu.ports.size()), .active = true, .remote = remote, .remote_bus_id = bus_id});
  }
  gpu.nvlinks = gpu.nvlinks.value_or(0) + links;
}

inline void reach(NvmlAnswers& it, std::initializer_list<size_t> gpus) {
  for (const size_t i : gpus) {
    for (const size_t j : gpus) it.reached_by_nvlink[i][j] = true;
  }
}

inline Topology joined(const NvmlAnswers& it) {
  Topology topology{.gpus = it.gpus};
  join_gpus(topology, it, {});
  return topology;
}

inline std::string all_warnings(const Topology& topology) {
  std::string text;
  for (const std::string& warning : topology.warnings) text += warning + "\n";
  return text;
}

}  // namespace shardscope::test
