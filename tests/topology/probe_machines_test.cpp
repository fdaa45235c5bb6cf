// The matrices of machines that the stand-in for NVML presents: recorded ones, degraded ones, hidden ones.
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/emulation/fakes/machine_table.hpp"
#include "tests/emulation/fakes/machine_words.hpp"
#include "tests/topology/nvml_machine.hpp"
#include "tests/topology/recorded_matrix.hpp"

namespace shardscope::topology {

using Catch::Contains;
using emulation::MachineTable;
using test::all_warnings;
using test::Cells;
using test::cells_of;
using test::probe;
using test::table_of;

TEST_CASE("probe of NVML: what is wrong with each GPU of a degraded machine") {
  MachineTable table = table_of("h100-degraded.json");
  table.gpus[1].persistence = false;
  const Topology topology = probe(table);
  CHECK(topology.gpus[2].nvlinks == 17);
  CHECK(topology.gpus[2].ports.size() == 18);
  CHECK(topology.gpus[2].ports[17] == NvLinkPort{.link = 17, .active = false, .generation = 4});
  CHECK(topology.gpus[4].slowed_by == std::vector<std::string>{"hw-slowdown", "hw-thermal-slowdown"});
  CHECK(topology.gpus[4].temperature_celsius == 91);
  CHECK(topology.gpus[5].fabric == "in progress");
  CHECK(topology.gpus[6].processes == 1);
  CHECK(topology.gpus[7].pcie_generation == 1);
  CHECK(topology.gpus[7].pcie_width == 8);
  CHECK(topology.gpus[1].persistence == false);
  CHECK(topology.complete);
  const Cells cells = cells_of(topology);
  for (size_t i = 0; i < 8; ++i) {
    for (size_t j = 0; j < 8; ++j) {
      const char* const expected = i == j ? "X" : i == 2 || j == 2 ? "NV17" : "NV18";
      CHECK(cells[i][j] == expected);
    }
  }
  CHECK(topology.switched == true);
  CHECK(topology.topology_class == TopologyClass::kNvSwitch);
}

TEST_CASE("probe of NVML: MIG, a fabric that never started, and questions that a cloud refuses") {
  const Topology topology = probe(table_of("mixed-cloud.json"));
  CHECK(topology.gpus[0].mig == false);
  CHECK(topology.gpus[1].mig == true);
  CHECK(topology.gpus[2].fabric == "not started");
  CHECK(topology.gpus[0].fabric == "not supported");
  CHECK_FALSE(topology.p2p);
  CHECK(topology.gpus[0].numa_nodes.empty());
  CHECK(topology.gpus[0].nvlinks == 0);
  CHECK(topology.gpus[2].nvlinks == 18);
  CHECK(cells_of(topology)[0] == std::vector<std::string>{"X", "NODE", "NODE"});
}

TEST_CASE("probe of NVML: bridges with a link down, and peer access one way") {
  MachineTable table = table_of("bridge-pairs.json");
  table.peers[0][1] = emulation::PeerAccess::kNone;
  const Topology topology = probe(table);
  CHECK(cells_of(topology) == Cells{{"X", "NV2", "SYS", "SYS"},
                                    {"NV2", "X", "SYS", "SYS"},
                                    {"SYS", "SYS", "X", "NV1"},
                                    {"SYS", "SYS", "NV1", "X"}});
  CHECK(topology.p2p == Cells{{"X", "CNS", "CNS", "CNS"},
                              {"OK", "X", "CNS", "CNS"},
                              {"CNS", "CNS", "X", "OK"},
                              {"CNS", "CNS", "OK", "X"}});
  CHECK(topology.switched == false);
  CHECK(topology.topology_class == TopologyClass::kPairs);
}

TEST_CASE("probe of NVML: recorded machines give the matrix that nvidia-smi printed") {
  struct Row {
    const char* file;
    MachineTable table;
    size_t affinity_column;  // CPU affinity, NUMA affinity after it
    TopologyClass topology_class;
  };
  MachineTable p4 = emulation::make_table("a100", 8);
  MachineTable h200 = emulation::make_table("h200", 8);
  for (size_t i = 0; i < 8; ++i) {
    p4.gpus[i].cpu_affinity = i < 4 ? "0-23,48-71" : "24-47,72-95";
    h200.gpus[i].cpu_affinity = i < 4 ? "0-63,128-191" : "64-127,192-255";
  }
  for (const Row& row :
       {Row{"aws-p4-8xa100-sxm4-nv12.txt", p4, 8, TopologyClass::kNvSwitch},
        Row{"onprem-8xh200-8nic-trailing-tabs.txt", h200, 16, TopologyClass::kNvSwitch},
        Row{"azure-nc96ads-a100-v4-4xa100-pcie-pairs.txt", table_of("azure-nc-a100-pairs.json"), 4,
            TopologyClass::kPairs},
        Row{"slurm-8xv100-hcm-srun-noise.txt", table_of("v100-cube-mesh.json"), 10, TopologyClass::kCubeMesh},
        Row{"onprem-8x-rtx4090-all-sys-2nic.txt", table_of("rtx-4090-eight.json"), 10, TopologyClass::kPcie},
        Row{"leonardo-booster-4xa100-64gb-nv4.txt", table_of("a100-mesh.json"), 8, TopologyClass::kNvLinkMesh}}) {
    INFO(row.file);
    const Topology topology = probe(row.table);
    const Cells recorded = test::recorded_rows(row.file);
    CHECK(cells_of(topology) == test::columns_of(recorded, 0, topology.gpus.size()));
    Cells affinity;
    for (const Gpu& gpu : topology.gpus) {
      REQUIRE(gpu.numa_nodes.size() == 1);
      affinity.push_back({gpu.cpu_affinity, std::to_string(gpu.numa_nodes[0])});
    }
    CHECK(affinity == test::columns_of(recorded, row.affinity_column, row.affinity_column + 2));
    CHECK(topology.topology_class == row.topology_class);
    CHECK(topology.complete);
  }
}

TEST_CASE("probe of NVML: links of a virtual machine, whose ends are hidden") {
  const auto hide = [](MachineTable table) {
    for (emulation::Gpu& gpu : table.gpus) {
      for (emulation::NvLink& link : gpu.links) link.hidden = true;
    }
    return table;
  };
  const Topology switched = probe(hide(emulation::make_table("h200", 8)));
  CHECK(cells_of(switched)[3][5] == "NV18");
  CHECK_FALSE(switched.switched);
  CHECK_THAT(all_warnings(switched), Contains("taken for an NVSwitch"));
  CHECK(switched.topology_class == TopologyClass::kNvSwitch);

  MachineTable pairs = hide(table_of("azure-nc-a100-pairs.json"));
  CHECK(cells_of(probe(pairs))[0] == std::vector<std::string>{"X", "NV12", "SYS", "SYS"});
  pairs.failing["nvmlDeviceGetP2PStatus"] = "NOT_SUPPORTED";
  const Topology untold = probe(pairs);
  CHECK(cells_of(untold)[0] == std::vector<std::string>{"X", "?", "?", "?"});
  CHECK(untold.topology_class == TopologyClass::kUnknown);
}

TEST_CASE("probe of NVML: a lost GPU is named, the others are whole") {
  MachineTable table = emulation::make_table("h100", 4);
  const bool without_handle = GENERATE(true, false);
  for (const std::string_view function : emulation::kNvmlFunctions) {
    const bool finds = function.starts_with("nvmlDeviceGetHandle");
    if (function.starts_with("nvmlDeviceGet") && (without_handle || !finds)) {
      table.gpus[2].failing[std::string(function)] = "GPU_IS_LOST";
    }
  }
  const Topology topology = probe(table);
  CHECK(topology.gpu_count == 4);
  CHECK_FALSE(topology.complete);
  CHECK(
      cells_of(topology) ==
      Cells{{"X", "NV18", "?", "NV18"}, {"NV18", "X", "?", "NV18"}, {"?", "?", "X", "?"}, {"NV18", "NV18", "?", "X"}});
  CHECK_THAT(all_warnings(topology), Contains("GPU2 does not answer as it should: GPU is lost"));
  CHECK(topology.gpus[2].name.empty());
  CHECK_FALSE(topology.gpus[2].nvlinks);
  CHECK(topology.gpus[3].name == "NVIDIA H100 80GB HBM3");
}

TEST_CASE("probe of NVML: whatever function fails, and how, no cell of the matrix is wrong") {
  for (const char* name : {"", "bridge-pairs.json", "azure-nc-a100-pairs.json", "a100-mesh.json"}) {
    const MachineTable whole = *name == '\0' ? emulation::make_table("h100", 4) : table_of(name);
    const Cells truth = cells_of(probe(whole));
    for (const std::string_view function : emulation::kNvmlFunctions) {
      for (const emulation::Word<int>& error : emulation::kNvmlErrorWords) {
        // The one answer that is one: no NVLinks.
        const bool says_none = function == "nvmlDeviceGetNvLinkState" && error.text == "NOT_SUPPORTED";
        if (says_none) continue;
        INFO(name << ' ' << function << ' ' << error.text);
        MachineTable table = whole;
        table.failing[std::string(function)] = error.text;
        const Topology topology = probe(table);
        if (function == "nvmlInit_v2" || function == "nvmlDeviceGetCount_v2") {
          CHECK(topology.gpu_count == 0);
          continue;
        }
        CHECK(topology.gpus.size() == truth.size());
        const Cells cells = cells_of(topology);
        for (size_t i = 0; i < truth.size(); ++i) {
          for (size_t j = 0; j < truth.size(); ++j) CHECK((cells[i][j] == truth[i][j] || cells[i][j] == "?"));
        }
      }
    }
  }
}

}  // namespace shardscope::topology
