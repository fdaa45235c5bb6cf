// `nvidia-smi topo -m`: every recorded machine as INDEX.md describes it.
#include <array>
#include <cstdio>
#include <map>

#include <fmt/format.h>

#include "tests/topology/topologies.hpp"

using namespace shardscope;
using namespace shardscope::test;
using topology::Topology;

namespace {

struct Recorded {
  const char* file;
  int gpus;
  int nics;
  const char* topology_class;
  bool complete;
  const char* pairs;  // "?": unknown, for it was cut away
  const char* numa;   // of each GPU; empty: unknown
  const char* cores;  // of GPU 0; empty: unknown
};

/// "Pairs to check" and "NUMA and affinity" of INDEX.md.
constexpr std::array<Recorded, 26> kMachines = {{
    {"aws-p4-8xa100-sxm4-nv12", 8, 0, "nvswitch", true, "0-1=NV12 0-2=NV12 0-4=NV12 0-7=NV12 6-7=NV12",
     "0,0,0,0,1,1,1,1", "0-23,48-71"},
    {"hpc-8xa100-2nic-hca-names-indented", 8, 2, "nvswitch", true, "0-1=NV12 0-2=NV12 0-4=NV12 0-7=NV12 6-7=NV12",
     "0,0,0,0,1,1,1,1", "0-31,64-95"},
    {"onprem-8xa800-nv8-4nic", 8, 4, "nvswitch", true, "0-1=NV8 0-2=NV8 0-4=NV8 0-7=NV8 6-7=NV8", "0,0,0,0,1,1,1,1",
     "0-31,64-95"},
    {"dgx-h100-12nic-cut-after-nic5", 8, 12, "nvswitch", false, "0-1=NV18 0-2=NV18 0-4=NV18 0-7=NV18 6-7=NV18",
     "0,0,0,0,1,1,1,1", "0-55,112-167"},
    {"onprem-8xh200-8nic-trailing-tabs", 8, 8, "nvswitch", true, "0-1=NV18 0-2=NV18 0-4=NV18 0-7=NV18 6-7=NV18",
     "0,0,0,0,1,1,1,1", "0-63,128-191"},
    {"gb200-compute-tray-4gpu-8nic-gpu-numa-ids", 4, 8, "nvswitch", true, "0-1=NV18 0-2=NV18 0-3=NV18 2-3=NV18",
     "0,0,1,1", "0-71"},
    {"doc-8xa100-two-space-aligned", 8, 0, "nvswitch", true, "0-1=NV12 0-2=NV12 0-4=NV12 0-7=NV12 6-7=NV12",
     "0,0,0,0,1,1,1,1", "0-23"},
    {"dgx2-16xv100-nv6-10hca-truncated", 16, 10, "nvswitch", false, "0-1=NV6 0-15=NV6 3-4=NV6 4-15=NV6 5-6=? 14-15=?",
     "", "0-23,48-71"},
    {"azure-nd40rs-v2-8xv100", 8, 0, "nvlink-cube-mesh", true, "0-1=NV2 0-2=NV1 0-4=NODE 0-7=NODE 6-7=NV2",
     "0,0,0,0,0,0,0,0", "0-19"},
    {"slurm-8xv100-hcm-srun-noise", 8, 2, "nvlink-cube-mesh", true, "0-1=NV1 0-2=NV2 0-4=SYS 0-7=NV2 6-7=NV1",
     "0,0,0,0,1,1,1,1", "0-11,24-35"},
    {"onprem-8xv100-16gb-hcm-no-numa-column", 8, 0, "nvlink-cube-mesh", true,
     "0-1=NV1 0-2=NV1 0-4=SYS 0-7=SYS 6-7=NV1 0-3=NV2", "", "0-95"},
    {"power8-s822lc-4xp100-soc-legend", 4, 2, "nvlink-pairs", true, "0-1=NV2 0-2=SOC 0-3=SOC 2-3=NV2", "",
     "0-0,8-8,16-16,24-24,32-32,40-40,48-48,56-56,64-64,72-72"},
    {"leonardo-booster-4xa100-64gb-nv4", 4, 4, "nvlink-mesh", true, "0-1=NV4 0-2=NV4 0-3=NV4 2-3=NV4", "0,0,0,0",
     "0-15"},
    {"azure-nc96ads-a100-v4-4xa100-pcie-pairs", 4, 0, "nvlink-pairs", true, "0-1=NV12 0-2=SYS 0-3=SYS 2-3=NV12",
     "0,1,2,3", "0-23"},
    {"onprem-8xa40-pairs-abbreviated-dots", 8, 0, "nvlink-pairs", false, "0-1=NV4 0-2=NODE 0-4=SYS 0-7=SYS 6-7=NV4", "",
     ""},
    {"envdump-8x-hopper-pcie-nv12-pairs-2nic", 8, 2, "nvlink-pairs", true, "0-1=NV12 0-2=NODE 0-4=SYS 0-7=SYS 6-7=NV12",
     "0,0,0,0,1,1,1,1", "0-63,128-191"},
    {"ws-2gpu-nv12-bridge-mlx4-nic", 2, 1, "nvlink-pairs", true, "0-1=NV12", "0,0", "0-95"},
    {"ws-2gpu-nv3-partial-bridge", 2, 0, "nvlink-pairs", true, "0-1=NV3", "", "0-47"},
    {"onprem-8x-rtx4090-all-sys-2nic", 8, 2, "pcie", true, "0-1=SYS 0-2=SYS 0-4=SYS 0-7=SYS 6-7=SYS", "0,0,0,0,1,1,1,1",
     "0-55,112-167"},
    {"onprem-4xl40s-2-numa", 4, 2, "pcie", true, "0-1=NODE 0-2=SYS 0-3=SYS 2-3=NODE", "0,0,1,1", "0-95,192-287"},
    {"ws-5gpu-rtx4090-mixed-sys-phb-node", 5, 0, "pcie", true, "0-1=SYS 0-2=SYS 0-4=SYS 3-4=PHB 1-2=PHB 1-3=NODE",
     "1,0,0,0,0", "8-15,24-31"},
    {"ws-2x-rtx5090-phb", 2, 0, "pcie", true, "0-1=PHB", "0,0", "0-63"},
    {"asus-esc8000a-8x-rtxpro6000-ansi-underline", 8, 0, "pcie", true, "0-1=PIX 0-2=NODE 0-4=SYS 0-7=SYS 6-7=PIX",
     "0,0,0,0,1,1,1,1", "0-63,128-191"},
    {"wrx90-8x-rtxpro6000-pix-pxb-node", 8, 0, "pcie", true, "0-1=PIX 0-2=PXB 0-4=NODE 0-7=NODE 6-7=PIX", "", ""},
    {"dual-turin-8x-rtxpro6000-phb-sys", 8, 0, "pcie", true, "0-1=PHB 0-2=PHB 0-4=SYS 0-7=SYS 6-7=PHB", "", ""},
    {"envdump-8gpu-pix-pxb-truncated-mid-row", 8, 0, "pcie", false, "0-1=PIX 0-2=PXB 2-3=PXB 0-4=SYS 4-5=PIX 6-7=?", "",
     "0-95"},
}};

std::string link(const Topology& topology, int a, int b) {
  const auto& path = (*topology.links)[static_cast<size_t>(a)][static_cast<size_t>(b)];
  return path ? text_of(*path) : "?";
}

}  // namespace

TEST_CASE("topo -m: every recorded machine as its description says") {
  for (const Recorded& machine : kMachines) {
    INFO(machine.file);
    const Topology topology = recorded(fmt::format("nvidia-smi/{}.txt", machine.file));
    CHECK(topology.source == topology::SourceKind::kNvidiaSmiTopo);
    CHECK(topology.gpu_count == machine.gpus);
    REQUIRE(topology.gpus.size() == static_cast<size_t>(machine.gpus));
    CHECK(topology.nics.size() == static_cast<size_t>(machine.nics));
    CHECK(name_of(topology.topology_class) == machine.topology_class);
    CHECK(topology.complete == machine.complete);
    if (!machine.complete) CHECK(!topology.warnings.empty());
    REQUIRE(topology.links);
    std::istringstream pairs(machine.pairs);
    for (std::string pair; pairs >> pair;) {
      INFO(pair);
      int one = -1;
      int two = -1;
      REQUIRE(std::sscanf(pair.c_str(), "%d-%d=", &one, &two) == 2);
      CHECK(link(topology, one, two) == pair.substr(pair.find('=') + 1));
      CHECK(link(topology, two, one) == pair.substr(pair.find('=') + 1));
    }
    std::string numa;
    for (size_t gpu = 0; gpu < topology.gpus.size(); ++gpu) {
      CHECK(topology.gpus[gpu].index == static_cast<int>(gpu));
      for (const int node : topology.gpus[gpu].numa_nodes) numa += fmt::format("{}{}", numa.empty() ? "" : ",", node);
    }
    CHECK(numa == machine.numa);
    CHECK(topology.gpus[0].cpu_affinity == machine.cores);
  }
}

TEST_CASE("topo -m: the nearest NICs as described") {
  const std::map<std::string, std::vector<std::string>> expected = {
      {"hpc-8xa100-2nic-hca-names-indented", {"PXB:mlx5_0", "PXB:mlx5_0", "", "", "PXB:mlx5_1", "PXB:mlx5_1", "", ""}},
      {"onprem-8xa800-nv8-4nic", {"", "PIX:NIC0", "", "PIX:NIC1", "", "", "", "PIX:NIC2,NIC3"}},
      {"dgx-h100-12nic-cut-after-nic5",
       {"PXB:NIC0", "PXB:NIC3", "PXB:NIC4", "PXB:NIC5", "PXB:NIC6", "PXB:NIC9", "PXB:NIC10", "PXB:NIC11"}},
      {"onprem-8xh200-8nic-trailing-tabs",
       {"PIX:NIC4", "PIX:NIC1", "PIX:NIC0", "PIX:NIC3", "PIX:NIC6", "PIX:NIC7", "PIX:NIC5", "PIX:NIC2"}},
      {"gb200-compute-tray-4gpu-8nic-gpu-numa-ids", {"", "", "", ""}},
      {"slurm-8xv100-hcm-srun-noise", {"", "", "PIX:mlx5_0", "PIX:mlx5_0", "", "", "PIX:mlx5_1", "PIX:mlx5_1"}},
      {"power8-s822lc-4xp100-soc-legend", {"", "", "", ""}},
      {"leonardo-booster-4xa100-64gb-nv4", {"PXB:NIC0", "PXB:NIC1", "PXB:NIC2", "PXB:NIC3"}},
      {"envdump-8x-hopper-pcie-nv12-pairs-2nic", {"", "PHB:NIC0,NIC1", "", "", "", "", "", ""}},
      {"ws-2gpu-nv12-bridge-mlx4-nic", {"", ""}},
      {"onprem-8x-rtx4090-all-sys-2nic", {"", "", "", "", "", "", "PHB:NIC0,NIC1", ""}},
      {"onprem-4xl40s-2-numa", {"", "", "", ""}},
  };
  for (const auto& [file, nearest] : expected) {
    INFO(file);
    const Topology topology = recorded(fmt::format("nvidia-smi/{}.txt", file));
    REQUIRE(topology.nearest_nics.size() == nearest.size());
    for (size_t gpu = 0; gpu < nearest.size(); ++gpu) {
      std::string names;
      for (const std::string& name : topology.nearest_nics[gpu]) names += (names.empty() ? "" : ",") + name;
      const auto& path = topology.nearest_nic_links[gpu];
      CHECK((path ? fmt::format("{}:{}", text_of(*path), names) : names) == nearest[gpu]);
    }
  }
  const Topology dgx2 = recorded("nvidia-smi/dgx2-16xv100-nv6-10hca-truncated.txt");
  CHECK(dgx2.nearest_nics[1] == std::vector<std::string>{"mlx5_0"});
  CHECK(dgx2.nearest_nics[3] == std::vector<std::string>{"mlx5_1"});
  CHECK(dgx2.nearest_nics[4] == std::vector<std::string>{"mlx5_2"});
  CHECK(dgx2.nearest_nics[5].empty());
}

TEST_CASE("topo -m: NVLinks of each row add up as described") {
  const std::map<std::string, std::pair<int, size_t>> sums = {
      {"azure-nd40rs-v2-8xv100", {6, 8}},
      {"slurm-8xv100-hcm-srun-noise", {6, 8}},
      {"onprem-8xv100-16gb-hcm-no-numa-column", {6, 8}},
      {"power8-s822lc-4xp100-soc-legend", {2, 4}},
      {"leonardo-booster-4xa100-64gb-nv4", {12, 4}},
      {"azure-nc96ads-a100-v4-4xa100-pcie-pairs", {12, 4}},
      {"onprem-8xa40-pairs-abbreviated-dots", {4, 8}},
      {"envdump-8x-hopper-pcie-nv12-pairs-2nic", {12, 8}},
      {"ws-2gpu-nv12-bridge-mlx4-nic", {12, 2}},
      {"ws-2gpu-nv3-partial-bridge", {3, 2}},
  };
  for (const auto& [file, expected] : sums) {
    INFO(file);
    const Topology topology = recorded(fmt::format("nvidia-smi/{}.txt", file));
    REQUIRE(topology.links->size() == expected.second);
    for (const auto& row : *topology.links) {
      int sum = 0;
      for (const auto& path : row) sum += path ? path->nvlinks : 0;
      CHECK(sum == expected.first);
    }
  }
}

TEST_CASE("topo -m: particulars of recorded machines") {
  const Topology gb200 = recorded("nvidia-smi/gb200-compute-tray-4gpu-8nic-gpu-numa-ids.txt");
  CHECK(gb200.gpus[0].gpu_numa_id == 2);
  CHECK(gb200.gpus[1].gpu_numa_id == 10);
  CHECK(gb200.gpus[2].gpu_numa_id == 18);
  CHECK(gb200.gpus[3].gpu_numa_id == 26);
  CHECK(gb200.gpus[2].cpu_affinity == "72-143");
  CHECK(gb200.nics[7].device == "mlx5_7");
  CHECK(recorded("nvidia-smi/ws-2gpu-nv12-bridge-mlx4-nic.txt").nics[0].device == "mlx4_0");
  const Topology indented = recorded("nvidia-smi/hpc-8xa100-2nic-hca-names-indented.txt");
  CHECK(indented.nics[1].name == "mlx5_1");
  CHECK(indented.nics[1].device == "mlx5_1");
  CHECK(recorded("nvidia-smi/aws-p4-8xa100-sxm4-nv12.txt").nics_known);
  CHECK(!recorded("nvidia-smi/onprem-8xa40-pairs-abbreviated-dots.txt").nics_known);

  const Topology dgx2 = recorded("nvidia-smi/dgx2-16xv100-nv6-10hca-truncated.txt");
  CHECK(dgx2.gpus[3].cpu_affinity == "0-23,48-71");
  CHECK(dgx2.gpus[4].cpu_affinity.empty());  // "0-23,4" is cut
  CHECK(warned(dgx2, {"GPU5", "row"}));
  const Topology h100 = recorded("nvidia-smi/dgx-h100-12nic-cut-after-nic5.txt");
  CHECK(warned(h100, {"NIC6", "NIC11"}));
  const Topology cut = recorded("nvidia-smi/envdump-8gpu-pix-pxb-truncated-mid-row.txt");
  CHECK(link(cut, 5, 6) == "PXB");
  CHECK(link(cut, 5, 7) == "PXB");
  CHECK(warned(cut, {"GPU6-GPU7"}));
  CHECK(warned(cut, {"GPU7", "row"}));
}

TEST_CASE("topo -m: the four small machines of the case") {
  const Topology pairs = recorded("a26/bridged-pairs.topo.txt");
  CHECK(name_of(pairs.topology_class) == "nvlink-pairs");
  CHECK(pairs.complete);
  CHECK(pairs.gpus[0].numa_nodes.empty());
  CHECK(pairs.gpus[0].cpu_affinity == "0-63");
  const Topology meshed = recorded("a26/nvlink-4-with-nic.topo.txt");
  CHECK(link(meshed, 0, 3) == "NV12");
  CHECK(meshed.complete);
  CHECK(meshed.gpus[2].numa_nodes == std::vector<int>{1});
  const Topology one = recorded("a26/one-gpu.topo.txt");
  CHECK(one.gpu_count == 1);
  CHECK(one.complete);
  CHECK(name_of(one.topology_class) == "single");
  CHECK(one.gpus[0].cpu_affinity == "0-7");
  const Topology pcie = recorded("a26/pcie-4-two-sockets.topo.txt");
  CHECK(link(pcie, 0, 1) == "PIX");
  CHECK(link(pcie, 2, 3) == "PHB");
  CHECK(name_of(pcie.topology_class) == "pcie");
}
