// Boards of GPUs that many vendors build into machines, as the catalogue takes them: a Machine without names. Links
// are those of NVIDIA's whitepapers of each generation (link_facts.cpp).
#pragma once

#include <string_view>

#include "topology/catalogue.hpp"

namespace shardscope::topology::boards {

inline constexpr std::string_view kTwoNodes = "00001111";

// NVIDIA's DGX-1 with V100 (system architecture whitepaper).
inline constexpr std::string_view kDgx1 =
    "01122000"
    "10210200"
    "12020010"
    "21200001"
    "20000112"
    "02001021"
    "00101202"
    "00012120";

/// Eight GPUs (or four, of a tray with Grace CPUs) behind NVSwitches.
constexpr Machine switched(std::string_view gpu, int nvlinks, int pcie_generation, std::string_view numa = kTwoNodes) {
  return {.gpu = gpu,
          .gpus = static_cast<int>(numa.size()),
          .fabric = TopologyClass::kNvSwitch,
          .nvlinks = nvlinks,
          .pcie_generation = pcie_generation,
          .numa = numa};
}

constexpr Machine cube_mesh(std::string_view gpu, std::string_view wiring = kDgx1, std::string_view numa = kTwoNodes) {
  return {
      .gpu = gpu, .gpus = 8, .fabric = TopologyClass::kCubeMesh, .pcie_generation = 3, .numa = numa, .wiring = wiring};
}

/// near: between GPUs of one NUMA node. Virtual machines show a host bridge there, whatever the hardware has.
constexpr Machine cards(std::string_view gpu, int pcie_generation, std::string_view numa = kTwoNodes,
                        PathKind near = PathKind::kNode) {
  return {.gpu = gpu,
          .gpus = static_cast<int>(numa.size()),
          .fabric = TopologyClass::kPcie,
          .pcie_generation = pcie_generation,
          .numa = numa,
          .near = near};
}

constexpr Machine bridged_pairs(std::string_view gpu, int pcie_generation, std::string_view numa = kTwoNodes) {
  Machine machine = cards(gpu, pcie_generation, numa);
  machine.fabric = TopologyClass::kPairs;
  machine.nvlinks = 12;
  return machine;
}

inline constexpr Machine kA100Small = switched("a100-40gb", 12, 4);
inline constexpr Machine kA100Large = switched("a100-80gb-sxm", 12, 4);
inline constexpr Machine kH100 = switched("h100-sxm", 18, 5);
inline constexpr Machine kH200 = switched("h200", 18, 5);
inline constexpr Machine kB200 = switched("b200", 18, 5);
inline constexpr Machine kGb200Tray = switched("gb200", 18, 0, "0011");
inline constexpr Machine kLeonardo = {.gpu = "a100-64gb",
                                      .gpus = 4,
                                      .fabric = TopologyClass::kNvLinkMesh,
                                      .nvlinks = 4,
                                      .pcie_generation = 4,
                                      .numa = "0000"};

}  // namespace shardscope::topology::boards
