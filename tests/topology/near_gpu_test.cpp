// The cores of ranks that work on GPUs: those of the GPU's NUMA node.
#include "topology/near_gpu.hpp"

#include "tests/topology/topologies.hpp"

using namespace shardscope;
using topology::HostCpu;
using topology::NearGpu;
using topology::Topology;

namespace {

using List = std::vector<int>;

List range(int begin, int end) {
  List list;
  for (int i = begin; i < end; ++i) list.push_back(i);
  return list;
}

/// Two nodes of eight cores.
HostCpu a_host() {
  HostCpu host;
  host.allowed_cores = range(0, 16);
  host.numa_nodes = 2;
  return host;
}

NearGpu near(const List& cores) {
  return {.bus_id = "0000:01:00.0", .cores = cores, .numa_node = 0};
}

}  // namespace

TEST_CASE("position_of: bus ids in any of the ways to write them") {
  Topology machine = test::joined(2, "SYS");
  machine.gpus[0].pci_bus_id = "0000:1b:00.0";
  machine.gpus[1].pci_bus_id = "0001:1b:00.0";
  CHECK(topology::position_of(machine, "00000000:1B:00.0") == 0U);
  CHECK(topology::position_of(machine, "0000:1b:00.0") == 0U);
  CHECK(topology::position_of(machine, "00000001:1B:00.0") == 1U);
  CHECK_FALSE(topology::position_of(machine, "0000:1c:00.0"));
  CHECK_FALSE(topology::position_of(machine, ""));
  machine.gpus[0].pci_bus_id.clear();
  CHECK_FALSE(topology::position_of(machine, ""));
}

TEST_CASE("near_gpu: the driver's cores, else those of its NUMA node") {
  Topology machine = test::joined(3, "SYS");
  for (size_t i = 0; i < 3; ++i) machine.gpus[i].pci_bus_id = "0000:0" + std::to_string(i) + ":00.0";
  machine.numa_nodes = {{.id = 0, .cores = {0, 1}}, {.id = 1, .cores = {2, 3}}};
  machine.gpus[0].cpu_affinity = "0-1,8";
  machine.gpus[0].numa_nodes = {0};
  machine.gpus[1].numa_nodes = {1};
  CHECK(topology::near_gpu(machine, "0000:00:00.0").cores == List{0, 1, 8});
  CHECK(topology::near_gpu(machine, "0000:01:00.0").cores == List{2, 3});
  CHECK(topology::near_gpu(machine, "0000:01:00.0").numa_node == 1);
  CHECK(topology::near_gpu(machine, "0000:02:00.0").cores.empty());
  CHECK_FALSE(topology::near_gpu(machine, "0000:02:00.0").numa_node);
  CHECK(topology::near_gpu(machine, "0000:07:00.0").cores.empty());
}

TEST_CASE("cores_near_gpu: split evenly among the ranks of a node") {
  const std::vector<NearGpu> gpus = {near(range(0, 8)), near(range(8, 16)), near(range(0, 8))};
  const HostCpu host = a_host();
  CHECK(topology::cores_near_gpu(host, gpus, 0, 16) == range(0, 4));
  CHECK(topology::cores_near_gpu(host, gpus, 1, 16) == range(8, 16));
  CHECK(topology::cores_near_gpu(host, gpus, 2, 16) == range(4, 8));
  CHECK(topology::cores_near_gpu(host, gpus, 2, 2) == List{4, 5});
}

TEST_CASE("cores_near_gpu: cut with what is allowed, and nothing where that is nothing") {
  HostCpu host = a_host();
  host.allowed_cores = {0, 1, 2, 9};
  const std::vector<NearGpu> gpus = {near(range(0, 8)), near(range(8, 16)), near(range(16, 24)), near({})};
  CHECK(topology::cores_near_gpu(host, gpus, 0, 8) == List{0, 1, 2});
  CHECK(topology::cores_near_gpu(host, gpus, 1, 8) == List{9});
  CHECK(topology::cores_near_gpu(host, gpus, 2, 8).empty());
  CHECK(topology::cores_near_gpu(host, gpus, 3, 8).empty());
}

TEST_CASE("cores_near_gpu: whole cores before their second threads, and more ranks than cores share them") {
  HostCpu host = a_host();
  host.allowed_cores = range(0, 8);
  host.second_threads = range(4, 8);
  const std::vector<NearGpu> two(2, near(range(0, 8)));
  CHECK(topology::cores_near_gpu(host, two, 0, 8) == List{0, 1});
  CHECK(topology::cores_near_gpu(host, two, 1, 8) == List{2, 3});
  const std::vector<NearGpu> many(10, near({0, 1}));
  for (int rank = 0; rank < 10; ++rank) CHECK(topology::cores_near_gpu(host, many, rank, 8).size() == 1);
}
