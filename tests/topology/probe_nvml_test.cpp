// What NVML says of GPUs and of itself, and what the probe makes of a driver that does not answer.
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/emulation/fakes/machine_table.hpp"
#include "tests/topology/fake_pci.hpp"
#include "tests/topology/fake_root.hpp"
#include "tests/topology/nvml_machine.hpp"
#include "topology/nvml.hpp"
#include "topology/probe.hpp"
#include "topology/probe/probe_parts.hpp"

namespace shardscope::topology {

using Catch::Contains;
using emulation::MachineTable;
using test::all_warnings;
using test::answers_for;
using test::FakeRoot;
using test::Machine;
using test::probe;
using test::table_of;

TEST_CASE("probe of NVML: a healthy GPU, whole") {
  MachineTable table = emulation::make_table("h100", 2);
  table.gpus[1].cpu_affinity = "0-3,64-67";
  table.gpus[1].numa_node = 1;
  table.gpus[1].pcie_generation = 1;
  table.gpus[1].memory_clock_khz = 1'593'000;
  table.gpus[1].clock_khz = 345'000;
  table.gpus[1].clock_reasons = 0x1;  // idle
  const NvmlAnswers answers = answers_for(table);
  REQUIRE(answers.gpus.size() == 2);
  const Gpu& gpu = answers.gpus[1];
  CHECK(gpu.index == 1);
  CHECK(gpu.name == "NVIDIA H100 80GB HBM3");
  CHECK(gpu.uuid == table.gpus[1].uuid);
  CHECK(gpu.pci_bus_id == "0000:43:00.0");
  CHECK(gpu.numa_nodes == std::vector<int>{1});
  CHECK(gpu.cpu_affinity == "0-3,64-67");
  CHECK_FALSE(gpu.gpu_numa_id);
  CHECK(gpu.compute == "9.0");
  CHECK(gpu.nvlinks == 18);
  REQUIRE(gpu.ports.size() == 18);
  CHECK(gpu.ports[17] == NvLinkPort{.link = 17,
                                    .active = true,
                                    .remote = NvLinkPort::Remote::kSwitch,
                                    .remote_bus_id = "0000:06:00.0",
                                    .gb_per_s = 26.562,
                                    .generation = 4});
  CHECK(gpu.pcie_generation == 1);
  CHECK(gpu.pcie_width == 16);
  CHECK(gpu.pcie_generation_most == 5);
  CHECK(gpu.pcie_width_most == 16);
  CHECK(gpu.memory_bytes == int64_t{81'559} << 20);
  CHECK(gpu.memory_clock_mhz == 2619);  // at most
  CHECK(gpu.memory_bus_bits == 5120);
  CHECK(gpu.clock_mhz == 345);
  CHECK(gpu.clock_mhz_most == 1980);
  CHECK(gpu.slowed_by.empty());
  CHECK(gpu.temperature_celsius == 34);
  CHECK(gpu.power_watts == 70);
  CHECK(gpu.power_limit_watts == 700);
  CHECK(gpu.persistence == true);
  CHECK(gpu.mig == false);
  CHECK(gpu.fabric == "completed");
  CHECK(gpu.processes == 0);
  CHECK(answers.troubles[1].empty());
  CHECK(answers.pcie[0][1] == PathKind::kNode);
  CHECK(answers.p2p[0][1] == "OK");
  CHECK(answers.reached_by_nvlink[0][1] == true);
}

TEST_CASE("probe of NVML: the library's own facts") {
  MachineTable table = table_of("mixed-cloud.json");
  const Machine machine(table);
  std::string why_not = "?";
  const std::unique_ptr<Nvml> nvml = Nvml::open(why_not);
  REQUIRE(nvml != nullptr);
  CHECK(why_not.empty());
  CHECK(nvml->gpu_count() == 3);
  CHECK(nvml->driver_version() == "550.163.01");
  CHECK(nvml->cuda_version() == 12040);
  CHECK(nvml->gpu(3) == Gpu{.index = 3});  // there is none
  CHECK(nvml->gpu(-1) == Gpu{.index = -1});
  CHECK_FALSE(nvml->pcie_path(0, 3));
  CHECK(nvml->pcie_path(2, 2) == PathKind::kSelf);
  CHECK(nvml->p2p_read(0, 0).empty());
}

TEST_CASE("probe of NVML: a driver that does not start says why and what to do") {
  const FakeRoot root;
  const test::FakePci pci(root);
  pci.add_gpu("pci0000:16/0000:1b:00.0");
  MachineTable table = emulation::make_table("h100", 1);
  const std::pair<const char*, const char*> errors[] = {{"DRIVER_NOT_LOADED", "load the NVIDIA driver"},
                                                        {"LIB_RM_VERSION_MISMATCH", "reboot"},
                                                        {"NO_PERMISSION", "/dev/nvidia"},
                                                        {"UNKNOWN", "nvidia-smi"}};
  for (const auto& [error, remedy] : errors) {
    table.failing["nvmlInit_v2"] = error;
    const Machine machine(table);
    const Topology topology = probe_topology(root.path());
    CHECK(topology.gpu_count == 1);
    CHECK(topology.gpus[0].pci_bus_id == "0000:1b:00.0");
    CHECK_THAT(all_warnings(topology), Contains("libnvidia-ml.so.1 does not start") && Contains(remedy));
  }
}

TEST_CASE("probe of NVML: without a library there is no probe of it") {
  std::string why_not;
  CHECK(Nvml::open(why_not, "/nowhere/libnvidia-ml.so.1") == nullptr);
  CHECK_THAT(why_not, Contains("/nowhere/libnvidia-ml.so.1"));
}

TEST_CASE("probe of NVML: functions that an old library lacks are questions without an answer") {
  std::string why_not;
  const std::unique_ptr<Nvml> nvml = Nvml::open(why_not, SHARDSCOPE_OLD_NVML);
  INFO(why_not);
  REQUIRE(nvml != nullptr);
  CHECK(nvml->gpu_count() == 1);
  CHECK(nvml->gpu(0) == Gpu{.index = 0, .name = "Tesla K40m", .memory_bytes = 12'079'136'768});
  CHECK(nvml->trouble(0).empty());
  CHECK_FALSE(nvml->driver_version());
  CHECK_FALSE(nvml->cuda_version());
  CHECK_FALSE(nvml->reached_by_nvlink(0, 0));
}

TEST_CASE("probe of NVML: a driver that does not answer is left alone after a while") {
  const NvmlOutcome outcome = ask_nvml(std::chrono::milliseconds(200), SHARDSCOPE_SLOW_NVML);
  CHECK_FALSE(outcome.answers);
  CHECK_THAT(outcome.why_not, Contains("has not answered within 0.2 s"));
}

TEST_CASE("probe of NVML: clocks' reasons and fabric states of older drivers") {
  MachineTable table = table_of("h100-degraded.json");
  table.failing["nvmlDeviceGetCurrentClocksEventReasons"] = "FUNCTION_NOT_FOUND";
  table.failing["nvmlDeviceGetGpuFabricInfoV"] = "FUNCTION_NOT_FOUND";
  const NvmlAnswers answers = answers_for(table);
  CHECK(answers.gpus[4].slowed_by == std::vector<std::string>{"hw-slowdown", "hw-thermal-slowdown"});
  CHECK(answers.gpus[5].fabric == "in progress");
  CHECK(answers.gpus[0].fabric == "completed");
}

TEST_CASE("probe of NVML: of processes that hold memory our own does not count") {
  MachineTable table = emulation::make_table("h100", 1);
  for (int i = 0; i < 40; ++i) table.gpus[0].processes.push_back({.pid = 1'000'000 + i, .used_mib = 1});
  CHECK(answers_for(table).gpus[0].processes == 40);
  table.gpus[0].processes[17].pid = getpid();
  CHECK(answers_for(table).gpus[0].processes == 39);
}

TEST_CASE("reread_pcie: the greater generation and width, and nothing else") {
  MachineTable table = emulation::make_table("h100", 2);
  for (emulation::Gpu& gpu : table.gpus) gpu.pcie_generation = 1;
  const FakeRoot nothing;
  Topology topology = probe(table);
  CHECK(topology.gpus[1].pcie_generation == 1);
  const Topology before = topology;
  table.gpus[1].pcie_generation = 5;
  table.gpus[1].pcie_width = 8;
  table.gpus[1].temperature_celsius = 80;
  {
    const Machine machine(table);
    reread_pcie(topology, nothing.path());
  }
  CHECK(topology.gpus[0] == before.gpus[0]);
  CHECK(topology.gpus[1].pcie_generation == 5);
  CHECK(topology.gpus[1].pcie_width == 16);  // as before, when it was more
  CHECK(topology.gpus[1].temperature_celsius == 34);
  table.failing["nvmlInit_v2"] = "UNKNOWN";
  const Machine machine(table);
  reread_pcie(topology, nothing.path());
  CHECK(topology.gpus[1].pcie_generation == 5);
}

}  // namespace shardscope::topology
