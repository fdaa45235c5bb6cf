// hwloc's XML: the recorded files as INDEX.md describes them, and made-up machines.
#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "tests/topology/read/links_of.hpp"

using namespace shardscope;
using namespace shardscope::test;
using topology::NvLinkPort;
using topology::Topology;

namespace {

Topology taken(const std::string& text) {
  return test::taken(topology::read_xml, text, "given.xml");
}

}  // namespace

TEST_CASE("read_xml: recorded hwloc topologies are what INDEX.md says", "[hwloc-xml]") {
  const Topology power = recorded("nccl-xml/hwloc-power8-4xp100-cuda-nvml-nvlinkbandwidth.xml");
  CHECK(name_of(power.source) == "hwloc-xml");
  CHECK(power.complete);
  REQUIRE(power.gpu_count == 4);
  CHECK(power.gpus[0].name == "Tesla P100-SXM2-16GB");
  CHECK(power.gpus[3].uuid == "GPU-93f5db36-624e-1453-40ab-85cc675aa903");
  CHECK(power.gpus[2].pci_bus_id == "000a:01:00.0");
  CHECK(power.gpus[1].numa_nodes == std::vector<int>{0});
  CHECK(power.gpus[2].numa_nodes == std::vector<int>{1});
  CHECK(power.gpus[2].cpu_affinity == "80-81,88-89,96-97,104-105");
  CHECK(power.platform == "PowerNV 8335-GTB");
  CHECK(power.switched == false);
  // 40000 MB/s: two links of 20 GB/s.
  CHECK(link(power, 0, 1) == "NV2");
  CHECK(link(power, 3, 2) == "NV2");
  CHECK(link(power, 0, 2) == "SYS");
  CHECK(link(power, 1, 3) == "SYS");
  CHECK(name_of(power.topology_class) == "nvlink-pairs");
  for (const topology::Gpu& gpu : power.gpus) {
    CHECK(gpu.nvlinks == 4);
    REQUIRE(gpu.ports.size() == 4);
    CHECK(gpu.ports[0].remote == NvLinkPort::Remote::kGpu);
    CHECK(gpu.ports[3].remote == NvLinkPort::Remote::kCpu);
    CHECK(gpu.ports[3].gb_per_s == 20.0);
  }
  const Topology spark = recorded("nccl-xml/hwloc-dgx-spark-gb10-no-nvlink.xml");
  CHECK(spark.gpu_count == 1);
  CHECK(spark.platform == "NVIDIA_DGX_Spark");
  CHECK_FALSE(spark.links);
  CHECK(warned(spark, {"no PCI devices", "NVIDIA_DGX_Spark"}));
  CHECK(name_of(spark.topology_class) == "single");
}

namespace {

std::string pci(int number, const std::string& kind, const std::string& inside = "") {
  return fmt::format(
      R"(<object type="PCIDev" gp_index="{0}" pci_busid="0000:{0:02x}:00.0" pci_type="{1} [0000:0000] a1 00">{2}</object>)"
      "\n",
      number, kind, inside);
}

std::string nvml(int number, const std::string& model) {
  return fmt::format(
      R"(<object type="OSDev" gp_index="{}" name="nvml{}" subtype="NVML"><info name="GPUModel" value="{}"/></object>)",
      100 + number, number, model);
}

std::string port(int number, const std::string& type, const std::string& inside) {
  return fmt::format("<object type=\"Bridge\" gp_index=\"{}\" bridge_type=\"{}\">\n{}</object>\n", number, type,
                     inside);
}

/// Two NUMA nodes; `first` hangs below the first, `second` below the second.
std::string machine(const std::string& first, const std::string& second, const std::string& matrix) {
  return fmt::format(R"(<?xml version="1.0"?><topology version="2.0">
<object type="Machine" cpuset="0x0000ffff" nodeset="0x00000007" gp_index="1">
<object type="Package" cpuset="0x000000ff" nodeset="0x00000005" gp_index="2">
<object type="NUMANode" os_index="0" cpuset="0x000000ff" nodeset="0x00000001" gp_index="3"/>
<object type="NUMANode" os_index="2" subtype="GPUMemory" cpuset="0x000000ff" nodeset="0x00000004" gp_index="4"/>
{}</object>
<object type="Package" cpuset="0x0000ff00" nodeset="0x00000002" gp_index="5">
<object type="NUMANode" os_index="1" cpuset="0x0000ff00" nodeset="0x00000002" gp_index="6"/>
{}</object></object>{}</topology>)",
                     first, second, matrix);
}

}  // namespace

TEST_CASE("read_xml: hwloc's bridges, NICs and memory nodes of GPUs", "[hwloc-xml]") {
  const std::string gpu = "0302 [10de:1eb8]";
  const std::string fabric =
      R"(<object type="OSDev" name="ib0"><info name="Address" value="00"/></object><object type="OSDev" name="mlx5_0"><info name="NodeGUID" value="1"/></object>)";
  const std::string one_switch =
      port(50, "0-1",
           port(51, "1-1",
                port(52, "1-1", pci(0x10, gpu, nvml(1, "Tesla V100"))) +
                    port(53, "1-1", pci(0x11, gpu, nvml(0, "Tesla V100"))) +
                    port(54, "1-1", port(55, "1-1", pci(0x12, gpu, nvml(2, "Tesla V100"))))) +
               port(56, "1-1", pci(0x13, "0207 [15b3:1017]", fabric)));
  const std::string other =
      port(60, "0-1", pci(0x20, gpu, nvml(3, "Tesla V100"))) + port(61, "0-1", pci(0x21, gpu, nvml(4, "Tesla V100")));
  const std::string matrix =
      R"(<distances2 type="OSDev" nbobjs="5" kind="9" name="NVLinkBandwidth" indexing="gp"><indexes length="9">100 101 102 103 104</indexes><u64values>
1000000 50000 0 0 0 50000 1000000 0 0 0 0 0 1000000 0 0 0 0 0 1000000 0 0 0 0 0 1000000</u64values></distances2>)";
  const Topology topology = taken(machine(one_switch, other, matrix));
  CHECK(topology.complete);
  REQUIRE(topology.gpus.size() == 5);
  CHECK(topology.gpus[0].pci_bus_id == "0000:11:00.0");  // nvml0
  CHECK(topology.gpus[0].numa_nodes == std::vector<int>{0});
  CHECK(topology.gpus[0].cpu_affinity == "0-7");
  CHECK(link(topology, 0, 1) == "NV2");
  CHECK(link(topology, 0, 2) == "PXB");
  CHECK(link(topology, 0, 3) == "SYS");
  CHECK(link(topology, 3, 4) == "NODE");
  REQUIRE(topology.nics.size() == 1);
  CHECK(topology.nics[0].name == "mlx5_0");
  CHECK(topology.nics[0].numa_node == 0);
  CHECK(nic_link(topology, 0, 0) == "PHB");
  CHECK(nic_link(topology, 3, 0) == "SYS");
}

TEST_CASE("read_xml: hwloc's PCI devices without a whole pci_type are no GPUs", "[hwloc-xml]") {
  for (const char* kind : {"", "pci_type=\"\"", "pci_type=\"030\"", "pci_type=\"0302\"", "pci_type=\"0302 [10de\""}) {
    const Topology topology = taken(machine(fmt::format("<object type=\"PCIDev\" {}/>\n", kind), "", ""));
    CHECK(topology.gpu_count == 0);
  }
}

TEST_CASE("read_xml: hwloc's NVSwitches, odd figures and missing matrices", "[hwloc-xml]") {
  const std::string gpus = port(50, "0-1",
                                pci(0x10, "0302 [10de:1db8]", nvml(0, "Tesla V100-SXM3-32GB")) +
                                    pci(0x11, "0302 [10de:1db8]", nvml(1, "Tesla V100-SXM3-32GB")) +
                                    pci(0x12, "0680 [10de:1ac1]") + pci(0x13, "0680 [10de:1ac1]"));
  const auto matrix = [](const std::string& last) {
    return fmt::format(
        R"(<distances2hetero nbobjs="4" kind="25" name="NVLinkBandwidth"><indexes>OSDev:100 OSDev:101 PCIDev:18 PCIDev:19</indexes>
<u64values>1000000 0 75000 75000 0 1000000 75000 {}</u64values><u64values>75000 75000 1000000 0 75000 75000 0 1000000</u64values></distances2hetero>)",
        last);
  };
  const Topology switched = taken(machine(gpus, "", matrix("75000")));
  CHECK(switched.complete);
  CHECK(switched.switched == true);
  CHECK(link(switched, 0, 1) == "NV6");
  CHECK(switched.gpus[0].ports.at(5).remote_bus_id == "0000:13:00.0");
  const Topology odd = taken(machine(gpus, "", matrix("75001")));
  CHECK_FALSE(odd.complete);
  CHECK(link(odd, 0, 1) == "unknown");
  CHECK(odd.gpus[0].nvlinks == 6);
  CHECK_FALSE(odd.gpus[1].nvlinks);
  CHECK(warned(odd, {"75001 MB/s", "no whole number"}));
  const Topology short_matrix = taken(machine(gpus, "", matrix("")));
  CHECK_FALSE(short_matrix.complete);
  CHECK_FALSE(short_matrix.links);
  const Topology without = taken(machine(gpus, "", ""));
  CHECK(without.complete);
  CHECK_FALSE(without.links);
  CHECK(warned(without, {"no matrix NVLinkBandwidth"}));
  const Topology no_gpu = taken(machine(port(50, "0-1", pci(0x10, "0200 [8086:1572]")), "", ""));
  CHECK(no_gpu.gpu_count == 0);
  CHECK(no_gpu.nics.size() == 1);
  const Topology no_devices = taken(machine("", "", ""));
  CHECK_FALSE(no_devices.gpu_count);
  CHECK(warned(no_devices, {"does not tell whether there are GPUs"}));
}
