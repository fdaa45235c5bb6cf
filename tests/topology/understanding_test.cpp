#include "topology/understanding.hpp"

#include "tests/topology/topologies.hpp"

using namespace shardscope;
using namespace shardscope::test;
using topology::Gpu;
using topology::NvLinkPort;
using topology::Topology;

namespace {

std::string class_of(const Topology& topology) {
  return std::string(name_of(understood(topology).topology_class));
}

void name_all(Topology& topology, const char* name) {
  for (Gpu& gpu : topology.gpus) gpu.name = name;
}

/// DGX-1V: each GPU has six links; 0-3 and 4-7 are meshes, and each GPU has one peer in the other four.
Topology cube_mesh() {
  Topology topology = joined(8, "SYS");
  const std::tuple<int, int, const char*> pairs[] = {{0, 1, "NV1"}, {0, 2, "NV1"}, {0, 3, "NV2"}, {0, 4, "NV2"},
                                                     {1, 2, "NV2"}, {1, 3, "NV1"}, {1, 5, "NV2"}, {2, 3, "NV2"},
                                                     {2, 6, "NV1"}, {3, 7, "NV1"}, {4, 5, "NV1"}, {4, 6, "NV1"},
                                                     {4, 7, "NV2"}, {5, 6, "NV2"}, {5, 7, "NV1"}, {6, 7, "NV2"}};
  for (const auto& [a, b, path] : pairs) join(topology, a, b, path);
  return topology;
}

Topology pairs(int gpus, const char* path) {
  Topology topology = joined(gpus, "SYS");
  for (int gpu = 0; gpu + 1 < gpus; gpu += 2) join(topology, gpu, gpu + 1, path);
  return topology;
}

}  // namespace

TEST_CASE("understand: the class of whole matrices") {
  CHECK(class_of(joined(8, "NV12")) == "nvswitch");
  CHECK(class_of(joined(8, "NV8")) == "nvswitch");
  CHECK(class_of(joined(16, "NV6")) == "nvswitch");
  CHECK(class_of(joined(4, "NV18")) == "nvswitch");
  CHECK(class_of(joined(4, "NV4")) == "nvlink-mesh");
  CHECK(class_of(joined(4, "NV6")) == "nvlink-mesh");
  CHECK(class_of(cube_mesh()) == "nvlink-cube-mesh");
  CHECK(class_of(pairs(4, "NV12")) == "nvlink-pairs");
  CHECK(class_of(pairs(5, "NV4")) == "nvlink-pairs");
  CHECK(class_of(joined(8, "SYS")) == "pcie");
  CHECK(class_of(joined(8, "PIX")) == "pcie");
  Topology mixed = joined(4, "SYS");  // three linked, one not
  for (const auto& [a, b] : {std::pair(0, 1), std::pair(1, 2), std::pair(0, 2)}) join(mixed, a, b, "NV2");
  CHECK(class_of(mixed) == "mixed");
}

TEST_CASE("understand: two linked GPUs are a pair, unless a switch is shown or they have 18 links") {
  CHECK(class_of(joined(2, "NV12")) == "nvlink-pairs");
  CHECK(class_of(joined(2, "NV18")) == "nvswitch");
  Topology switched = joined(2, "NV12");
  switched.switched = true;
  CHECK(class_of(switched) == "nvswitch");
  CHECK(class_of(joined(2, "PHB")) == "pcie");
}

TEST_CASE("understand: the class without a matrix") {
  Topology topology = joined(1, "X");
  CHECK(class_of(topology) == "single");
  topology = joined(0, "X");
  CHECK(class_of(topology) == "none");
  topology.gpu_count.reset();
  CHECK(class_of(topology) == "unknown");
  for (const int gpus : {0, 1}) {  // of what was cut
    topology = joined(gpus, "X");
    topology.complete = false;
    CHECK(class_of(topology) == "unknown");
  }
  topology = joined(4, "SYS");
  topology.links.reset();
  CHECK(class_of(topology) == "unknown");
}

TEST_CASE("understand: unknown cells are left out, and said, as long as every GPU stands in a known one") {
  Topology topology = joined(4, "SYS");
  join(topology, 2, 3, "");
  topology = understood(topology);
  CHECK(name_of(topology.topology_class) == "pcie");
  CHECK(warned(topology, {"1 of 6 GPU pairs is unknown (2-3)"}));
  join(topology, 0, 3, "");
  join(topology, 1, 3, "");
  CHECK(class_of(topology) == "unknown");
}

TEST_CASE("understand: degraded NVSwitch machines keep their class, and the culprit is named") {
  Topology off = joined(8, "NV18");  // vllm#16336
  for (int gpu = 0; gpu < 8; ++gpu) {
    if (gpu != 2) join(off, gpu, 2, gpu < 4 ? "NODE" : "SYS");
  }
  off = understood(off);
  CHECK(name_of(off.topology_class) == "nvswitch");
  CHECK(warned(off, {"GPU2 has no NVLink", "dropped from the NVLink fabric"}));
  CHECK(off.groups.at(4).best == std::vector<int>{0, 1, 3, 4});
  CHECK(meaning_of(off).find("TP=7 on GPU0, GPU1, GPU3") == 0);
  CHECK(meaning_of(off).find("TP=8 crosses SYS") != std::string::npos);
  Topology fewer = joined(8, "NV12");
  for (int gpu = 0; gpu < 8; ++gpu) {
    if (gpu != 5) join(fewer, gpu, 5, "NV10");
  }
  fewer = understood(fewer);
  CHECK(name_of(fewer.topology_class) == "nvswitch");
  CHECK(warned(fewer, {"GPU5 has 10 of 12 NVLinks"}));
  CHECK(fewer.warnings.size() == 1);
  Topology broken = joined(8, "NV18");
  join(broken, 1, 6, "SYS");
  broken = understood(broken);
  CHECK(name_of(broken.topology_class) == "nvswitch");
  CHECK(warned(broken, {"GPU1-GPU6 is SYS"}));
  CHECK(understood(joined(8, "NV18")).warnings.empty());
  Topology all_short = joined(8, "NV10");
  name_all(all_short, "NVIDIA A100-SXM4-80GB");
  CHECK(warned(understood(all_short), {"GPU7 has 10 of 12 NVLinks"}));
}

TEST_CASE("forget_conclusions: what understand() said goes, what the source said stays") {
  Topology topology = pairs(2, "NV3");
  topology.warnings = {"From the source."};
  topology = understood(topology);
  REQUIRE(topology.warnings.size() == 2);
  forget_conclusions(topology);
  CHECK(topology.warnings == std::vector<std::string>{"From the source."});
}

TEST_CASE("understand: two fabrics side by side are no NVSwitch machine") {
  Topology topology = joined(8, "SYS");
  for (int a = 0; a < 8; ++a) {
    for (int b = a + 1; b < 8; ++b) {
      if (a / 4 == b / 4) join(topology, a, b, "NV18");
    }
  }
  CHECK(class_of(topology) == "mixed");
}

TEST_CASE("understand: direct links that do not add up are named") {
  Topology one = joined(2, "NV3");  // NVIDIA/nccl#557
  one = understood(one);
  CHECK(name_of(one.topology_class) == "nvlink-pairs");
  CHECK(warned(one, {"GPU0 and GPU1 have 3 of 4", "0-1=NV3", "badly seated"}));
  CHECK(one.warnings.size() == 1);
  CHECK(understood(pairs(8, "NV4")).warnings.empty());
  Topology uneven = pairs(4, "NV12");
  join(uneven, 2, 3, "NV10");
  uneven = understood(uneven);
  CHECK(warned(uneven, {"GPU2 and GPU3 have 10 of 12", "2-3=NV10"}));
  Topology mesh = cube_mesh();
  CHECK(understood(mesh).warnings.empty());
  join(mesh, 0, 3, "NV1");
  mesh = understood(mesh);
  CHECK(name_of(mesh.topology_class) == "nvlink-cube-mesh");
  CHECK(warned(mesh, {"GPU0 has 5 of 6"}));
  CHECK(warned(mesh, {"GPU3 has 5 of 6"}));
  Topology named = pairs(2, "NV8");
  name_all(named, "NVIDIA A100 80GB PCIe");
  CHECK(warned(understood(named), {"GPU0 and GPU1 have 8 of 12"}));
}

TEST_CASE("understand: NVLinks to CPUs count towards the model's number") {
  Topology topology = pairs(2, "NV2");
  name_all(topology, "Tesla P100-SXM2-16GB");
  CHECK(warned(understood(topology), {"2 of 4"}));
  for (Gpu& gpu : topology.gpus) gpu.ports.assign(2, {.remote = NvLinkPort::Remote::kCpu});
  CHECK(understood(topology).warnings.empty());
}

TEST_CASE("understand: bandwidth from the number and the kind of links") {
  const auto bandwidth = [](Topology topology, const char* name) {
    name_all(topology, name);
    const Topology known = understood(topology);
    return known.link_gb_per_s ? known.link_gb_per_s->at(0).at(1) : std::nullopt;
  };
  CHECK(bandwidth(joined(8, "NV12"), "NVIDIA A100-SXM4-40GB") == 300);
  CHECK(bandwidth(joined(8, "NV8"), "NVIDIA A800-SXM4-80GB") == 200);
  CHECK(bandwidth(joined(8, "NV18"), "NVIDIA H100 80GB HBM3") == 450);
  CHECK(bandwidth(joined(4, "NV18"), "NVIDIA GB200") == 900);
  CHECK(bandwidth(pairs(2, "NV4"), "NVIDIA A40") == 56.25);
  CHECK(bandwidth(pairs(2, "NV2"), "Tesla P100-SXM2-16GB") == 40);
  CHECK_FALSE(bandwidth(joined(8, "NV18"), ""));
  CHECK_FALSE(bandwidth(joined(8, "NV18"), "a GPU of the future"));
  Topology pcie = joined(2, "PIX");
  for (Gpu& gpu : pcie.gpus) {
    gpu.pcie_generation = 1;  // idle
    gpu.pcie_generation_most = 5;
    gpu.pcie_width = 16;
  }
  CHECK(understood(pcie).link_gb_per_s->at(0).at(1) == Approx(63.0).epsilon(0.001));
  join(pcie, 0, 1, "SYS");
  CHECK_FALSE(understood(pcie).link_gb_per_s);
}

TEST_CASE("full_link_count: by whole words of the driver's names, bridged H100 cards have 12") {
  using topology::full_link_count;
  CHECK(full_link_count("NVIDIA H100 80GB HBM3") == 18);
  CHECK(full_link_count("NVIDIA H100 PCIe") == 12);
  CHECK(full_link_count("NVIDIA H100 NVL") == 12);
  CHECK(full_link_count("NVIDIA A100-SXM4-80GB") == 12);
  CHECK(full_link_count("Tesla V100-SXM2-32GB") == 6);
  CHECK(full_link_count("NVIDIA GeForce RTX 4090") == 0);
  CHECK(full_link_count("NVIDIA L40S") == 0);
  CHECK(full_link_count("NVIDIA L40") == 0);
  CHECK(full_link_count("NVIDIA L4") == 0);
  CHECK(full_link_count("NVIDIA A10G") == 0);
  CHECK(full_link_count("NVIDIA H200 NVL") == 18);
  CHECK(full_link_count("NVIDIA H100 80GB HBM3 MIG 1g.10gb") == 18);
  CHECK(full_link_count("NVIDIA GB200") == 18);
  CHECK(full_link_count("NVIDIA A40-48Q") == 4);
  CHECK(full_link_count("NVIDIA GeForce RTX 3090") == 4);
  for (const char* name : {"NVIDIA RTX A4000", "NVIDIA RTX A400", "NVIDIA T400", "NVIDIA GeForce RTX 3090 Ti"}) {
    CHECK_FALSE(full_link_count(name));
  }
  CHECK_FALSE(full_link_count(""));
  CHECK_FALSE(full_link_count("GPU"));
}

TEST_CASE("understand: the nearest NICs are those at a host bridge or nearer") {
  Topology topology = joined(2, "NV12");
  topology.nics = {{.name = "a"}, {.name = "b"}, {.name = "c"}};
  const auto path = [](const char* text) { return topology::path_of(text); };
  topology.nic_links = {{path("NODE"), path("PXB"), path("PXB")}, {path("NODE"), path(""), path("SYS")}};
  topology = understood(topology);
  CHECK(topology.nearest_nics.at(0) == std::vector<std::string>{"b", "c"});
  CHECK(narrowest(topology.nearest_nic_links.at(0)) == "PXB");
  CHECK(topology.nearest_nics.at(1).empty());
  CHECK_FALSE(topology.nearest_nic_links.at(1));
}

TEST_CASE("understand: what is wrong with GPUs, peer access and NUMA nodes is said") {
  Topology topology = joined(8, "NV18");
  name_all(topology, "NVIDIA H100 80GB HBM3");
  for (Gpu& gpu : topology.gpus) gpu.numa_nodes = {0};
  topology.gpus[1].fabric = "in progress";
  topology.gpus[2].mig = true;
  topology.gpus[3].slowed_by = {"hw-thermal-slowdown"};
  topology.gpus[4].pcie_width = 8;
  topology.gpus[4].pcie_width_most = 16;
  topology.gpus[5].processes = 1;
  topology.gpus[6].ports = {{.link = 0, .active = true}, {.link = 1, .active = false}, {.link = 2, .active = true}};
  topology.gpus[7].name = "NVIDIA H200";
  topology.p2p.emplace(8, std::vector<std::string>(8, "OK"));
  topology.p2p->at(0).at(1) = "CNS";
  topology = understood(topology);
  CHECK(warned(topology, {"GPU1", "fabric", "in progress"}));
  CHECK(warned(topology, {"GPU2", "MIG"}));
  CHECK(warned(topology, {"GPU3", "hw-thermal-slowdown"}));
  CHECK(warned(topology, {"GPU4", "8 of 16 lanes"}));
  CHECK(warned(topology, {"GPU5", "1 other process holds"}));
  CHECK(warned(topology, {"GPU6", "NVLink 1 is down", "2 of 3 links"}));
  CHECK(warned(topology, {"different models", "NVIDIA H100 80GB HBM3, NVIDIA H200"}));
  CHECK(warned(topology, {"CNS", "in 1 of 56 directions"}));
  CHECK(warned(topology, {"All 8 GPUs claim NUMA node 0"}));
  CHECK(topology.warnings.size() == 9);
}

TEST_CASE("understand: CPU affinities that are one for all NUMA nodes are a container's") {
  Topology topology = joined(4, "NV4");
  for (size_t gpu = 0; gpu < 4; ++gpu) {
    topology.gpus[gpu].numa_nodes = {gpu < 2 ? 0 : 1};
    topology.gpus[gpu].cpu_affinity = "0-14";
  }
  CHECK(warned(understood(topology), {"CPU affinity 0-14", "2 NUMA nodes"}));
  topology.gpus[3].cpu_affinity = "15-30";
  CHECK(understood(topology).warnings.empty());
}

TEST_CASE("understand: measured peer access that loses to host memory, or is narrow") {
  Topology topology = joined(2, "NODE");
  const auto figure = [](bool p2p, double gb_per_s) {
    return topology::Measurement{.from = 0, .to = 1, .p2p = p2p, .both_ways = false, .gb_per_s = gb_per_s};
  };
  topology.measurements = {figure(true, 9.9), figure(false, 22)};
  CHECK(warned(understood(topology), {"1 of 1 ordered pairs", "NCCL_P2P_DISABLE"}));
  CHECK(warned(understood(topology), {"GPUs 0-1 9.9", "lanes"}));
  topology.measurements = {figure(true, 25), figure(false, 22)};
  CHECK_FALSE(warned(understood(topology), {"ordered pairs"}));
  CHECK_FALSE(warned(understood(topology), {"lanes"}));
}

TEST_CASE("understand: a second time nothing is added") {
  Topology topology = understood(pairs(2, "NV3"));
  const Topology once = topology;
  understand(topology);
  CHECK(topology == once);
}

TEST_CASE("meaning_of: pairs stay on NVLink, all of them cross PCIe") {
  const std::string text = meaning_of(understood(pairs(4, "NV12")));
  CHECK(text.find("TP=2 on GPU0 and GPU1 stays on NVLink (NV12)") == 0);
  CHECK(text.find("TP=4 crosses SYS") != std::string::npos);
  CHECK(meaning_of(understood(joined(8, "PHB"))).find("No NVLink") == 0);
  CHECK(meaning_of(understood(cube_mesh())).find("TP=4 on GPU0, GPU1, GPU2 and GPU3 stays on NVLink (NV1)") == 0);
}
