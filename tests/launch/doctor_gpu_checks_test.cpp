// Checks of driver, devices and health on made-up facts: each verdict of each.
#include <catch2/catch.hpp>

#include "tests/launch/doctor_facts_made_up.hpp"

using namespace shardscope;
using namespace shardscope::launch;
using namespace shardscope::test;
using Catch::Matchers::Contains;

namespace {

Findings gpus_of(const HostFacts& host, const std::vector<RankFacts>& ranks, BackendKind backend = BackendKind::kAuto) {
  Findings findings = gpu_findings(host, ranks, backend);
  check_manners(findings);
  return findings;
}

DeviceUse use_of(int ranks) {
  DeviceUse use{.tried = true, .why_not = "", .ranks = {}};
  for (int rank = 0; rank < ranks; ++rank) use.ranks.push_back({.pci_bus_id = bus_id(rank), .error = ""});
  return use;
}

Finding health_finding(const HostFacts& host, const std::string& check) {
  const Findings findings = health_findings(host.gpus.topology);
  check_manners(findings);
  return only(findings, check);
}

TEST_CASE("doctor: sound GPUs have nothing but ok") {
  const HostFacts host = host_with_gpus(4);
  const std::vector<RankFacts> ranks = ranks_with_gpus(4);
  CHECK(all_ok(gpus_of(host, ranks)));
  CHECK(all_ok(health_findings(host.gpus.topology)));
  CHECK(all_ok(device_findings(use_of(4), ranks, host)));
  CHECK(only(near_findings(use_of(4), ranks, host), "GPU and cores").verdict == Verdict::kOk);
  CHECK(all_ok(peer_findings({.tried = true, .ranks = 4, .nccl_tried = true, .nccl_version = "2.27.7"}, host)));
  CHECK(variable_findings(host, ranks).empty());
}

TEST_CASE("doctor driver: no GPU is fine, unless one was asked for") {
  HostFacts host = sound_host();
  const std::vector<RankFacts> ranks = sound_ranks(2);
  const Finding none = only(gpus_of(host, ranks), "GPU");
  CHECK(none.verdict == Verdict::kOk);
  CHECK_THAT(none.evidence, Contains("no GPU"));
  CHECK(only(gpus_of(host, ranks, BackendKind::kCuda), "GPU").verdict == Verdict::kProblem);
  host.gpus.pci.known = false;
  CHECK(only(gpus_of(host, ranks), "GPU").verdict == Verdict::kUnknown);
  CHECK(health_findings(host.gpus.topology).empty());
  CHECK(peer_findings({.why_not_tried = "there are no ranks with devices"}, host).empty());
}

TEST_CASE("doctor driver: GPUs on the bus without a driver") {
  HostFacts host = sound_host();
  host.gpus.pci.gpus = {{.bus_id = "0000:17:00.0"}, {.bus_id = "0000:65:00.0"}};
  const Finding bare = only(gpus_of(host, sound_ranks(2)), "driver");
  CHECK(bare.verdict == Verdict::kProblem);
  CHECK_THAT(bare.evidence, Contains("2 NVIDIA GPUs") && Contains("0000:17:00.0"));
  CHECK_THAT(bare.remedy, Contains("modprobe nvidia"));
  host.system.container = "docker";
  CHECK_THAT(only(gpus_of(host, sound_ranks(2)), "driver").remedy, Contains("--gpus all"));
  host.system.container = "";
  for (PciGpu& gpu : host.gpus.pci.gpus) gpu.driver = "vfio-pci";
  CHECK_THAT(only(gpus_of(host, sound_ranks(2)), "driver").remedy, Contains("virtual machines"));
  for (PciGpu& gpu : host.gpus.pci.gpus) gpu.driver = "nouveau";
  CHECK_THAT(only(gpus_of(host, sound_ranks(2)), "driver").remedy, Contains("nouveau"));
}

TEST_CASE("doctor driver: one that is loaded and does not answer") {
  HostFacts host = host_with_gpus(2);
  host.gpus.nvml = false;
  host.gpus.why_not = "libnvidia-ml.so.1 does not start: Driver/library version mismatch";
  const Finding mismatch = only(gpus_of(host, sound_ranks(2)), "driver");
  CHECK(mismatch.verdict == Verdict::kProblem);
  CHECK_THAT(mismatch.evidence, Contains("550.54.15") && Contains("version mismatch"));
  CHECK_THAT(mismatch.remedy, Contains("reboot"));
  host.gpus.why_not = "the NVIDIA driver's library cannot be opened";
  host.system.container = "docker";
  CHECK_THAT(only(gpus_of(host, sound_ranks(2)), "driver").remedy, Contains("--gpus all"));
  host.gpus.nvml = true;
  host.gpus.topology.gpus.clear();
  CHECK_THAT(only(gpus_of(host, sound_ranks(2)), "driver").evidence, Contains("shows no GPU"));
}

TEST_CASE("doctor driver: one that takes its time") {
  HostFacts host = host_with_gpus(2);
  host.gpus.seconds = 112;
  const Findings found = of_check(gpus_of(host, ranks_with_gpus(2)), "driver");
  REQUIRE(found.size() == 2);
  CHECK(found[1].verdict == Verdict::kWarning);
  CHECK_THAT(found[1].evidence, Contains("112 s"));
}

TEST_CASE("doctor device files: looked at where devices cannot be used") {
  HostFacts host = host_with_gpus(1);
  std::vector<RankFacts> ranks = ranks_with_gpus(1);
  host.gpus.files[0].usable = false;
  CHECK(of_check(gpus_of(host, ranks), "device files").empty());
  ranks[0].why_no_device = "no CUDA device is visible";
  CHECK_THAT(only(gpus_of(host, ranks), "device files").evidence, Contains("/dev/nvidiactl"));
  host.gpus.files = {{.path = "/dev/nvidiactl", .usable = true}};
  const Finding missing = only(gpus_of(host, ranks), "device files");
  CHECK(missing.verdict == Verdict::kProblem);
  CHECK_THAT(missing.evidence, Contains("/dev/nvidia-uvm"));
}

TEST_CASE("doctor CUDA: a driver older than the build, or a build without CUDA") {
  const HostFacts host = host_with_gpus(1);
  std::vector<RankFacts> ranks = ranks_with_gpus(1);
  ranks[0].build_cuda = 13000;
  const Finding old = only(gpus_of(host, ranks), "CUDA");
  CHECK(old.verdict == Verdict::kProblem);
  CHECK_THAT(old.evidence, Contains("up to CUDA 12.8, this build has 13.0"));
  ranks[0].build_cuda = 12090;  // one toolkit's minor versions run on all drivers of their major one
  CHECK(only(gpus_of(host, ranks), "CUDA").verdict == Verdict::kOk);
  ranks[0].driver_cuda = 0;
  CHECK(only(gpus_of(host, ranks), "CUDA").verdict == Verdict::kUnknown);
  ranks[0] = sound_ranks(1)[0];
  ranks[0].why_no_device = "this build has no CUDA backend";
  const Finding without = only(gpus_of(host, ranks), "CUDA");
  CHECK(without.verdict == Verdict::kProblem);
  CHECK_THAT(without.evidence, Contains("no CUDA backend"));
}

TEST_CASE("doctor devices: ranks that see different ones, names that stand for nothing, and devices that are too old") {
  const HostFacts host = host_with_gpus(4);
  std::vector<RankFacts> ranks = ranks_with_gpus(4);
  for (size_t i = 0; i < ranks.size(); ++i) {
    ranks[i].variables["CUDA_VISIBLE_DEVICES"] = std::to_string(i);
    ranks[i].devices.resize(1);
  }
  const Finding masked = only(gpus_of(host, ranks), "devices");
  CHECK(masked.verdict == Verdict::kOk);
  CHECK_THAT(masked.evidence, Contains("CUDA_VISIBLE_DEVICES=3 (rank 3)"));
  ranks = ranks_with_gpus(4);
  ranks[2].variables["CUDA_VISIBLE_DEVICES"] = "0,1,9,2";
  ranks[2].devices.resize(2);
  const Findings cut = of_check(gpus_of(host, ranks), "devices");
  REQUIRE(cut.size() == 2);
  CHECK(cut[0].verdict == Verdict::kWarning);
  CHECK_THAT(cut[0].evidence, Contains("names 4 devices, CUDA shows 2 (rank 2)"));
  ranks = ranks_with_gpus(4);
  for (RankFacts& rank : ranks) rank.devices[3].refusal = "Tesla V100 (sm_70) is too old";
  CHECK_THAT(of_check(gpus_of(host, ranks), "devices").front().evidence, Contains("too old"));
  ranks = ranks_with_gpus(4);
  ranks[3].why_no_device = "CUDA_VISIBLE_DEVICES is set and empty";
  const Finding blind = only(gpus_of(host, ranks), "devices");
  CHECK(blind.verdict == Verdict::kProblem);
  CHECK_THAT(blind.evidence, Contains("(rank 3)"));
}

TEST_CASE("doctor device per rank: none left, or one that fails") {
  const HostFacts host = host_with_gpus(4);
  const std::vector<RankFacts> ranks = ranks_with_gpus(4);
  DeviceUse use = use_of(4);
  use.ranks[1].error = "cudaErrorSystemNotReady";
  const Finding failing = only(device_findings(use, ranks, host), "device per rank");
  CHECK(failing.verdict == Verdict::kProblem);
  CHECK_THAT(failing.evidence, Contains("cudaErrorSystemNotReady (rank 1)"));
  const Finding none = only(device_findings({.tried = true, .why_not = "4 ranks, 2 devices", .ranks = {}}, ranks, host),
                            "device per rank");
  CHECK(none.verdict == Verdict::kProblem);
  CHECK_THAT(none.evidence, Contains("4 ranks, 2 devices"));
  CHECK(device_findings({}, ranks, host).empty());
  CHECK(near_findings({}, ranks, host).empty());
}

TEST_CASE("doctor GPU and cores: masks far from the GPU, by choice or by the cpuset") {
  HostFacts host = host_with_gpus(4);
  std::vector<RankFacts> ranks = ranks_with_gpus(4);
  ranks[0].cores = {9};
  const Finding far = only(near_findings(use_of(4), ranks, host), "GPU and cores");
  CHECK(far.verdict == Verdict::kWarning);
  CHECK_THAT(far.evidence, Contains("rank 0 runs on core 9, its GPU0 belongs to cores 0-7 of NUMA node 0"));
  CHECK_THAT(far.evidence, !Contains("rank 1 runs"));
  CHECK_THAT(far.remedy, Contains("mask"));
  host.cpu.allowed_cores = {8, 9, 10, 11};
  for (RankFacts& rank : ranks) rank.cores = {8 + rank.rank};
  const Finding cut = only(near_findings(use_of(4), ranks, host), "GPU and cores");
  CHECK_THAT(cut.remedy, Contains("cpuset") && Contains("ranks 0-1"));
  for (topology::Gpu& gpu : host.gpus.topology.gpus) {
    gpu.cpu_affinity.clear();
    gpu.numa_nodes.clear();
  }
  CHECK(only(near_findings(use_of(4), ranks, host), "GPU and cores").verdict == Verdict::kUnknown);
}

TEST_CASE("doctor GPU and cores: the ranks of another host are judged there") {
  HostFacts host = host_with_gpus(2);
  std::vector<RankFacts> ranks = ranks_with_gpus(2);
  ranks[1].host = "node2";
  ranks[1].cores = {0};  // of node2, where GPU1 is near 8-15
  CHECK(only(near_findings(use_of(2), ranks, host), "GPU and cores").verdict == Verdict::kOk);
  host.host = "node2";
  const Finding far = only(near_findings(use_of(2), ranks, host), "GPU and cores");
  CHECK(far.verdict == Verdict::kWarning);
  CHECK_THAT(far.evidence, Contains("rank 1 runs on core 0") && !Contains("rank 0"));
}

TEST_CASE("doctor health: each complaint names its GPUs") {
  HostFacts host = host_with_gpus(4);
  std::vector<topology::Gpu>& gpus = host.gpus.topology.gpus;
  gpus[2].ports[17].active = false;
  gpus[2].nvlinks = 17;
  const Finding link = health_finding(host, "NVLink");
  CHECK(link.verdict == Verdict::kProblem);
  CHECK_THAT(link.evidence, Contains("GPU2: 17 of 18 NVLinks are up, not 17"));

  gpus[1].fabric = gpus[3].fabric = "in progress";
  const Finding fabric = health_finding(host, "NVLink fabric");
  CHECK(fabric.verdict == Verdict::kProblem);
  CHECK_THAT(fabric.evidence, Contains("GPU1 and GPU3: registration is in progress"));
  CHECK_THAT(fabric.remedy, Contains("fabric manager"));

  gpus[0].slowed_by = {"gpu-idle"};
  CHECK(health_finding(host, "clocks").verdict == Verdict::kOk);
  gpus[0].slowed_by = {"gpu-idle", "sw-power-cap"};
  CHECK(health_finding(host, "clocks").verdict == Verdict::kWarning);
  gpus[1].slowed_by = {"hw-thermal-slowdown"};
  gpus[1].clock_mhz = 1155;
  const Finding clocks = health_finding(host, "clocks");
  CHECK(clocks.verdict == Verdict::kProblem);
  CHECK_THAT(clocks.evidence, Contains("GPU1: hw-thermal-slowdown, 1155 of 1980 MHz") && !Contains("idle"));

  gpus[3].power_limit_watts = 500;
  CHECK_THAT(health_finding(host, "power limit").evidence, Contains("500 to 700 W"));
  gpus[3].persistence = false;
  CHECK_THAT(health_finding(host, "persistence").evidence, Contains("GPU3: off"));
  gpus[3].mig = true;
  CHECK(health_finding(host, "MIG").verdict == Verdict::kWarning);
  gpus[0].processes = 2;
  CHECK_THAT(health_finding(host, "other processes").evidence, Contains("GPU0: 2 other processes"));
  gpus[0].pcie_generation = 1;
  CHECK(health_finding(host, "PCIe").verdict == Verdict::kOk);  // an idle link
  CHECK_THAT(health_finding(host, "PCIe").evidence, Contains("generation 1 of 5 now, as idle links are"));
  gpus[0].pcie_width = 8;
  CHECK(health_finding(host, "PCIe").verdict == Verdict::kWarning);
}

TEST_CASE("doctor topology: warnings are findings, once, and none repeats what a check has said") {
  HostFacts host = host_with_gpus(4);
  topology::Topology& topology = host.gpus.topology;
  topology.gpus[2].ports[17].active = false;
  topology.gpus[2].nvlinks = 17;
  topology.gpus[1].fabric = "in progress";
  topology.gpus[1].processes = 1;
  for (int other : {0, 1, 3}) {
    (*topology.links)[2][other]->nvlinks = 17;
    (*topology.links)[other][2]->nvlinks = 17;
  }
  topology.warnings.clear();
  topology::understand(topology);
  topology.warnings.push_back("GPU 3 has fallen off the bus.");
  const Findings found = of_check(health_findings(topology), "topology");
  REQUIRE(found.size() == 1);
  CHECK(found[0].evidence == "GPU 3 has fallen off the bus.");
  // A pair that has lost its links is no single port's fault.
  topology.warnings.clear();
  (*topology.links)[0][1] = (*topology.links)[1][0] = topology::Path{.kind = topology::PathKind::kSys};
  CHECK_THAT(only(health_findings(topology), "topology").evidence, Contains("GPU0-GPU1 is SYS"));
}

}  // namespace
