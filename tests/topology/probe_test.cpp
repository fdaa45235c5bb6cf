// Topologies of made-up machines: what NVML is said to have answered, and a made-up /sys.
#include <cstdio>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/topology/fake_pci.hpp"
#include "tests/topology/fake_root.hpp"
#include "tests/topology/nvml_answers.hpp"
#include "tests/topology/recorded_matrix.hpp"
#include "topology/probe.hpp"
#include "topology/probe/probe_parts.hpp"

namespace shardscope::test {
namespace {

using Catch::Contains;
using Remote = NvLinkPort::Remote;

}  // namespace

TEST_CASE("probe: a GPU whose links are not known has unknown pairs, the others have theirs") {
  NvmlAnswers it = answers(3);
  for (Gpu& gpu : it.gpus) link(gpu, 18, Remote::kSwitch, "0000:c5:00.0");
  it.gpus[1] = Gpu{.index = 1};
  it.troubles[1] = "GPU is lost (nvmlDeviceGetHandleByIndex_v2)";
  const FakeRoot root;
  const Topology topology = assemble_topology(&it, "", root.path());
  CHECK(text_of(topology.links) == Cells{{"X", "?", "NV18"}, {"?", "X", "?"}, {"NV18", "?", "X"}});
  CHECK_FALSE(topology.complete);
  CHECK(topology.gpu_count == 3);
  CHECK_THAT(all_warnings(topology), Contains("GPU1 does not answer as it should: GPU is lost"));
}

TEST_CASE("probe: a GPU that does not answer gets its address from PCI, where all others agree") {
  NvmlAnswers it = answers(3);
  it.gpus[1] = Gpu{.index = 1};
  it.troubles[1] = "GPU is lost";
  const FakeRoot root;
  const FakePci pci(root);
  for (const int gpu : {0, 1, 2}) pci.add_gpu("pci0000:00/" + bus_of(gpu));
  CHECK_THAT(all_warnings(assemble_topology(&it, "", root.path())), Contains("GPU1 (0000:01:00.0) does not answer"));
  pci.add_gpu("pci0000:00/0000:00:01.0");  // now one is not NVML's: nobody knows which
  CHECK_THAT(all_warnings(assemble_topology(&it, "", root.path())), Contains("GPU1 does not answer"));
}

TEST_CASE("probe: kinds of ends that an old driver does not tell are read from PCI") {
  NvmlAnswers it = answers(2);
  for (Gpu& gpu : it.gpus) link(gpu, 12, Remote::kUnknown, "0000:c5:00.0");
  const FakeRoot root;
  const FakePci pci(root);
  pci.add("pci0000:c0/0000:c5:00.0", {.device_class = "0x068000", .vendor = "0x10de"});
  const Topology topology = assemble_topology(&it, "", root.path());
  CHECK(topology.switched == true);
  CHECK(text_of(topology.links) == Cells{{"X", "NV12"}, {"NV12", "X"}});
  CHECK(topology.gpus[1].ports[11].remote == Remote::kSwitch);
}

TEST_CASE("probe: what NVML does not say of a GPU's place is read from PCI") {
  NvmlAnswers it = answers(2);
  it.pcie.assign(2, std::vector<std::optional<PathKind>>(2));
  it.gpus[1].numa_nodes = {5};
  it.gpus[1].cpu_affinity = "9";
  it.gpus[1].pcie_generation = 5;
  it.gpus[1].pcie_width = 1;
  const FakeRoot root;
  const FakePci pci(root);
  pci.add_gpu("pci0000:00/" + bus_of(0), 3);
  pci.add_gpu("pci0000:00/" + bus_of(1), 3);
  const Topology topology = assemble_topology(&it, "", root.path());
  CHECK(topology.gpus[0].numa_nodes == std::vector<int>{3});
  CHECK(topology.gpus[0].cpu_affinity == "0-7");
  CHECK(topology.gpus[0].pcie_generation == 4);
  CHECK(topology.gpus[0].pcie_width == 16);
  CHECK(topology.gpus[1].numa_nodes == std::vector<int>{5});
  CHECK(topology.gpus[1].cpu_affinity == "9");
  CHECK(topology.gpus[1].pcie_generation == 5);
  CHECK(topology.gpus[1].pcie_width == 1);
  CHECK(text_of(topology.links) == Cells{{"X", "PHB"}, {"PHB", "X"}});
}

TEST_CASE("probe: peer access is what the driver claims, and unknown where it claims nothing") {
  NvmlAnswers it = answers(2);
  it.p2p = {{"", "GNS"}, {"OK", ""}};
  const FakeRoot root;
  CHECK(assemble_topology(&it, "", root.path()).p2p == Cells{{"X", "GNS"}, {"OK", "X"}});
  it.p2p = {{"", ""}, {"", ""}};
  CHECK_FALSE(assemble_topology(&it, "", root.path()).p2p);
}

TEST_CASE("probe: a machine without GPUs has none, and nothing to warn of") {
  const FakeRoot root;
  const FakePci pci(root);
  pci.add("pci0000:00/0000:00:03.0", {.device_class = "0x020000", .vendor = "0x1af4", .numa_node = 0});
  pci.add_network("pci0000:00/0000:00:03.0", "net", "eth0", "/virtio2");
  root.write("/proc/sys/kernel/hostname", "node7\n");
  root.write("/sys/class/dmi/id/sys_vendor", "QEMU\n");
  root.write("/sys/class/dmi/id/product_name", "Standard PC\n");
  root.write("/proc/cpuinfo", "flags : avx2 hypervisor\n");
  const Topology topology = assemble_topology(nullptr, "there is no library", root.path());
  CHECK(topology.source == SourceKind::kProbe);
  CHECK(topology.gpu_count == 0);
  CHECK(topology.gpus.empty());
  CHECK(topology.complete);
  CHECK(topology.warnings.empty());
  CHECK_FALSE(topology.links);
  CHECK(topology.host == "node7");
  CHECK(topology.platform == "QEMU Standard PC");
  CHECK(topology.virtual_machine == true);
  CHECK(topology.nics_known);
  CHECK(topology.nics == std::vector<Nic>{{.name = "NIC0", .device = "eth0", .numa_node = 0}});
  const FakeRoot nothing;
  CHECK_FALSE(assemble_topology(nullptr, "", nothing.path()).nics_known);
}

TEST_CASE("probe: GPUs whose driver does not answer are listed, and what joins them is unknown") {
  const FakeRoot root;
  const FakePci pci(root);
  pci.add_gpu("pci0000:16/0000:16:01.0/0000:17:00.0", 0);
  pci.add_gpu("pci0000:80/0000:80:01.0/0000:81:00.0", 1, "0x030000");
  const Topology topology = assemble_topology(nullptr, "NVML does not start", root.path());
  CHECK(topology.gpu_count == 2);
  CHECK(topology.gpus[0].pci_bus_id == "0000:17:00.0");
  CHECK(topology.gpus[1].numa_nodes == std::vector<int>{1});
  CHECK_FALSE(topology.gpus[0].nvlinks);
  CHECK_FALSE(topology.links);
  CHECK_FALSE(topology.complete);
  CHECK_THAT(all_warnings(topology), Contains("2 NVIDIA GPUs are on PCIe, but the driver does not answer") &&
                                         Contains("NVML does not start.") && !Contains("container"));
  root.write("/proc/driver/nvidia/version", "NVRM version: …\n");
  CHECK_THAT(all_warnings(assemble_topology(nullptr, "why", root.path())), Contains("NVIDIA runtime"));
}

TEST_CASE("probe: a container that the driver's library was not given to is told so") {
  const FakeRoot root;
  root.write("/proc/driver/nvidia/version", "NVRM version: …\n");
  const Topology topology = assemble_topology(nullptr, "no library", root.path());
  CHECK(topology.gpu_count == 0);
  CHECK_FALSE(topology.complete);
  CHECK_THAT(all_warnings(topology),
             Contains("driver is loaded, but no GPU is visible here: no library.") && Contains("NVIDIA runtime"));
}

TEST_CASE("probe: NICs near GPUs, as a machine of eight GPUs and NICs recorded them") {
  // The recorded machine: PIX between GPU i and NIC kNicOf[i], all others on host bridges of their own.
  constexpr const char* kFile = "onprem-8xh200-8nic-trailing-tabs.txt";
  constexpr int kNicOf[] = {4, 1, 0, 3, 6, 7, 5, 2};
  const FakeRoot root;
  const FakePci pci(root);
  NvmlAnswers it = answers(8);
  for (int gpu = 0; gpu < 8; ++gpu) {
    const int node = gpu / 4;
    const std::string bus = std::to_string(gpu + 1);
    const std::string port = "pci0000:" + bus + "0/0000:" + bus + "0:01.0/0000:" + bus + "1:00.0/0000:" + bus + "2:0";
    pci.add_gpu(port + "0.0/0000:" + bus + "3:00.0", node);
    pci.add_nic(port + "1.0/0000:" + bus + "4:00.0", "mlx5_" + std::to_string(kNicOf[gpu]), node);
    it.gpus[static_cast<size_t>(gpu)].pci_bus_id = "0000:" + bus + "3:00.0";
  }
  const Topology topology = assemble_topology(&it, "", root.path());
  REQUIRE(topology.nics.size() == 8);
  CHECK(topology.nics[3].name == "NIC3");
  CHECK(topology.nics[3].device == "mlx5_3");
  CHECK(topology.nics[2].numa_node == 1);
  CHECK(text_of(topology.nic_links) == test::columns_of(test::recorded_rows(kFile), 8, 16));
}

TEST_CASE("probe: virtual functions and devices that are no NICs are left out") {
  const FakeRoot root;
  const FakePci pci(root);
  NvmlAnswers it = answers(1);
  pci.add_gpu("pci0000:00/" + bus_of(0));
  pci.add_nic("pci0000:00/0000:11:00.0", "mlx5_0");
  pci.add_nic("pci0000:00/0000:11:00.1", "mlx5_1");
  pci.link("/sys/devices/pci0000:00/0000:11:00.1/physfn", "../0000:11:00.0");
  pci.add("pci0000:00/0000:12:00.0", {.device_class = "0x0c0330"});  // USB
  pci.add_network("pci0000:00/0000:12:00.0", "net", "usb0", "/usb1/1-1");
  const Topology topology = assemble_topology(&it, "", root.path());
  REQUIRE(topology.nics.size() == 1);
  CHECK(topology.nics[0].device == "mlx5_0");
  CHECK(text_of(topology.nic_links) == Cells{{"PHB"}});
}

TEST_CASE("probe: of very many NICs the first are shown, and a warning counts the others") {
  const FakeRoot root;
  const FakePci pci(root);
  char name[64];
  for (int i = 0; i < 260; ++i) {
    std::snprintf(name, sizeof name, "pci0000:00/%04x:%02x:00.0", i / 200, i % 200);
    pci.add_nic(name, "efa_" + std::to_string(i));
  }
  const Topology topology = assemble_topology(nullptr, "", root.path());
  CHECK(topology.nics.size() == 256);
  CHECK_THAT(all_warnings(topology), Contains("4 network interfaces are left out"));
}

TEST_CASE("probe_topology: of this machine, whatever it has, a topology that hangs together") {
  const Topology topology = probe_topology();
  CHECK(topology.source == SourceKind::kProbe);
  CHECK(topology.gpu_count == static_cast<int>(topology.gpus.size()));
  CHECK_FALSE(topology.host.empty());
  const bool none = topology.gpus.empty();
  CHECK((topology.topology_class == TopologyClass::kNone) == none);
  if (!topology.links) return;
  REQUIRE(topology.links->size() == topology.gpus.size());
  for (size_t i = 0; i < topology.gpus.size(); ++i) {
    REQUIRE((*topology.links)[i].size() == topology.gpus.size());
    CHECK((*topology.links)[i][i] == Path{});
    for (size_t j = 0; j < i; ++j) CHECK((*topology.links)[i][j] == (*topology.links)[j][i]);
  }
}

}  // namespace shardscope::test
