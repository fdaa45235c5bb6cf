// PCI devices and what lies between them, in made-up trees of sysfs.
#include <map>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/topology/fake_pci.hpp"
#include "tests/topology/fake_root.hpp"
#include "topology/probe/pci.hpp"

namespace shardscope::topology {
namespace {

using test::FakeDevice;
using test::FakePci;
using test::FakeRoot;

std::string between(const std::vector<PciDevice>& devices, const char* a, const char* b, size_t numa_nodes = 2) {
  const PciDevice* const first = find_pci(devices, a);
  const PciDevice* const second = find_pci(devices, b);
  REQUIRE(first != nullptr);
  REQUIRE(second != nullptr);
  const std::optional<PathKind> there = pci_path(*first, *second, numa_nodes);
  const std::optional<PathKind> back = pci_path(*second, *first, numa_nodes);
  CHECK(there == back);
  return there ? text_of(Path{.kind = *there}) : "unknown";
}

TEST_CASE("pci: every kind of path, by the bridges that two devices have in common") {
  const FakeRoot root;
  const FakePci pci(root);
  // A root port with a switch, whose ports lead to two GPUs and, through a second switch, to a NIC of two functions.
  const std::string first = "pci0000:16/0000:16:01.0/0000:17:00.0/";
  pci.add_gpu(first + "0000:18:00.0/0000:19:00.0", 0);
  pci.add_gpu(first + "0000:18:01.0/0000:1a:00.0", 0);
  const std::string second = first + "0000:18:02.0/0000:1b:00.0/0000:1c:00.0/";
  pci.add_nic(second + "0000:1d:00.0", "mlx5_0", 0);
  pci.add_nic(second + "0000:1d:00.1", "mlx5_1", 0);
  pci.add_gpu("pci0000:16/0000:16:03.0/0000:20:00.0", 0);  // another root port of the same host bridge
  pci.add_gpu("pci0000:30/0000:30:01.0/0000:31:00.0", 0);  // another host bridge of the node
  pci.add_gpu("pci0000:80/0000:80:01.0/0000:81:00.0", 1);  // of the other socket
  pci.add_gpu("pci0000:90/0000:90:01.0/0000:91:00.0");     // of nobody knows where
  pci.add_gpu("platform/d0/pci0001:00/0001:00:00.0/0001:01:00.0", 1);
  const auto devices = pci_devices(root.path());
  REQUIRE(devices);
  CHECK(devices->size() == 9);
  CHECK(between(*devices, "0000:19:00.0", "0000:19:00.0") == "X");
  CHECK(between(*devices, "0000:19:00.0", "0000:1a:00.0") == "PIX");
  CHECK(between(*devices, "0000:1d:00.0", "0000:1d:00.1") == "PIX");
  CHECK(between(*devices, "0000:19:00.0", "0000:1d:00.0") == "PXB");
  CHECK(between(*devices, "0000:19:00.0", "0000:20:00.0") == "PHB");
  CHECK(between(*devices, "0000:19:00.0", "0000:31:00.0") == "NODE");
  CHECK(between(*devices, "0000:19:00.0", "0000:81:00.0") == "SYS");
  CHECK(between(*devices, "0000:81:00.0", "0001:01:00.0") == "NODE");
  CHECK(between(*devices, "0000:19:00.0", "0000:91:00.0") == "unknown");
  CHECK(between(*devices, "0000:19:00.0", "0000:91:00.0", 0) == "unknown");
  CHECK(between(*devices, "0000:19:00.0", "0000:91:00.0", 1) == "NODE");
}

TEST_CASE("pci: devices of a virtual machine stand on one host bridge") {
  const FakeRoot root;
  const FakePci pci(root);
  pci.add_gpu("pci0000:00/0000:00:04.0");
  pci.add_gpu("pci0000:00/0000:00:05.0");
  // Hyper-V: each GPU in a domain of its own, below a bus that is none of PCI's.
  pci.add_gpu("LNXSYSTM:00/VMBUS:01/47505500-0001/pci1001:00/1001:00:00.0", 0);
  pci.add_gpu("LNXSYSTM:00/VMBUS:01/47505500-0002/pci1002:00/1002:00:00.0", 0);
  const auto devices = pci_devices(root.path());
  REQUIRE(devices);
  CHECK(between(*devices, "0000:00:04.0", "0000:00:05.0") == "PHB");
  CHECK(between(*devices, "1001:00:00.0", "1002:00:00.0") == "NODE");
}

TEST_CASE("pci: kinds of devices, and what they tell of themselves") {
  const FakeRoot root;
  const FakePci pci(root);
  pci.add("pci0000:16/0000:16:01.0", {.best_speed = "8.0 GT/s PCIe", .best_width = "8"});
  pci.add("pci0000:16/0000:16:01.0/0000:17:00.0", {.device_class = "0x030200",
                                                   .vendor = "0x10de",
                                                   .numa_node = 1,
                                                   .cpus = "0-23,48-71",
                                                   .speed = "2.5 GT/s PCIe",
                                                   .width = "4",
                                                   .best_speed = "32.0 GT/s PCIe"});
  pci.add("pci0000:16/0000:18:00.0", {.device_class = "0x068000", .vendor = "0x10de"});
  pci.add("pci0000:16/0000:19:00.0", {.device_class = "0x030000", .vendor = "0x1002"});
  pci.add("pci0000:16/0000:1a:00.0", {.device_class = "0x040300", .vendor = "0x10de"});  // its sound
  pci.add("pci0000:16/0000:1b:00.0", {.device_class = "0x020000", .vendor = "0x8086"});
  const auto devices = pci_devices(root.path());
  REQUIRE(devices);
  const PciDevice& gpu = *find_pci(*devices, "0000:17:00.0");
  CHECK(gpu.is_nvidia_gpu());
  CHECK(gpu.numa_node == 1);
  CHECK(gpu.local_cpus == "0-23,48-71");
  CHECK(gpu.now.gt_per_s == 2.5);
  CHECK(gpu.now.width == 4);
  CHECK(gpu.most.gt_per_s == 8.0);  // the slot's
  CHECK(gpu.most.width == 8);
  CHECK(find_pci(*devices, "0000:18:00.0")->is_switch());
  CHECK_FALSE(find_pci(*devices, "0000:18:00.0")->is_nvidia_gpu());
  CHECK_FALSE(find_pci(*devices, "0000:19:00.0")->is_nvidia_gpu());
  CHECK_FALSE(find_pci(*devices, "0000:1a:00.0")->is_nvidia_gpu());
  CHECK(find_pci(*devices, "0000:1b:00.0")->is_network());
  CHECK_FALSE(gpu.is_network());
  CHECK(find_pci(*devices, "0000:1c:00.0") == nullptr);
}

TEST_CASE("pci: what files do not hold is unknown, never a number") {
  CHECK_FALSE(pci_devices(FakeRoot().path()));
  const FakeRoot root;
  const FakePci pci(root);
  pci.add("pci0000:00/0000:00:01.0", {.device_class = "yes",
                                      .vendor = "",
                                      .numa_node = -1,
                                      .cpus = "all",
                                      .speed = "Unknown",
                                      .width = "255",
                                      .best_speed = "-8.0 GT/s",
                                      .best_width = "0"});
  pci.add("pci0000:00/0000:00:02.0");
  for (const char* file : {"class", "vendor", "numa_node", "local_cpulist", "current_link_speed"}) {
    root.remove(std::string("/sys/devices/pci0000:00/0000:00:02.0/") + file);
  }
  root.make_folder("/sys/bus/pci/devices/not a bus id");
  root.make_folder("/sys/bus/pci/devices/0000:00:03.0");          // where no link leads to a tree
  pci.link("/sys/bus/pci/devices/0000:00:04.0", "0000:00:04.0");  // a link to itself
  const auto devices = pci_devices(root.path());
  REQUIRE(devices);
  CHECK(devices->size() == 4);
  for (const PciDevice& device : *devices) {
    INFO(device.bus_id);
    CHECK_FALSE(device.is_nvidia_gpu());
    CHECK_FALSE(device.numa_node);
    CHECK(device.local_cpus.empty());
    CHECK_FALSE(device.now.gt_per_s);
  }
  const PciDevice& odd = *find_pci(*devices, "0000:00:01.0");
  CHECK_FALSE(odd.now.width);
  CHECK_FALSE(odd.most.gt_per_s);
  CHECK_FALSE(odd.most.width);
  CHECK(between(*devices, "0000:00:01.0", "0000:00:03.0") == "unknown");
}

TEST_CASE("pci_generation_of: the speeds of generations 1 to 6, and nothing between") {
  const std::map<double, int> speeds = {{2.5, 1}, {5, 2}, {8, 3}, {16, 4}, {32, 5}, {64, 6}};
  for (const auto& [speed, generation] : speeds) CHECK(pci_generation_of(speed) == generation);
  for (const double none : {0.0, 2.0, 15.0, 128.0, -8.0}) CHECK_FALSE(pci_generation_of(none));
}

TEST_CASE("network_names: RDMA's names first, by number, one for each PCI device, and none without PCI") {
  const FakeRoot root;
  const FakePci pci(root);
  for (const int number : {10, 2, 0}) {
    const std::string path = "pci0000:00/0000:" + std::to_string(10 + number) + ":00.0";
    pci.add_nic(path, "mlx5_" + std::to_string(number));
    pci.add_network(path, "net", "ib" + std::to_string(number));
  }
  pci.add("pci0000:00/0000:00:03.0", {.device_class = "0x020000"});
  pci.add_network("pci0000:00/0000:00:03.0", "net", "eth0", "/virtio2");
  root.make_folder("/sys/devices/virtual/net/lo");
  pci.link("/sys/class/net/lo", "../../devices/virtual/net/lo");
  std::vector<std::string> names;
  for (const NetworkName& name : network_names(root.path())) names.push_back(name.name + "@" + name.bus_id);
  CHECK(names == std::vector<std::string>{"mlx5_0@0000:10:00.0", "mlx5_2@0000:12:00.0", "mlx5_10@0000:20:00.0",
                                          "eth0@0000:00:03.0"});
  CHECK(network_names(FakeRoot().path()).empty());
}

}  // namespace
}  // namespace shardscope::topology
