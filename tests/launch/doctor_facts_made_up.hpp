// Made-up hosts and ranks with nothing to complain of: each test of doctor's checks spoils what it is about.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "launch/doctor_checks.hpp"
#include "topology/understanding.hpp"

namespace shardscope::test {

inline constexpr int64_t kGibi = int64_t{1} << 30;

inline std::vector<launch::RankFacts> sound_ranks(int count) {
  std::vector<launch::RankFacts> ranks;
  for (int rank = 0; rank < count; ++rank) {
    ranks.push_back({.rank = rank,
                     .host_rank = rank,
                     .host = "node1",
                     .launcher_cores = {rank},
                     .cores = {rank},
                     .threads = 1,
                     .locked_bytes = std::nullopt,
                     .seccomp = 0,
                     .variables = {},
                     .copy_errno = count > 1 ? std::optional(0) : std::nullopt,
                     .devices = {},
                     .why_no_device = "no NVIDIA driver"});
  }
  return ranks;
}

/// 16 cores, 64 GiB, no GPU.
inline launch::HostFacts sound_host() {
  launch::HostFacts host;
  host.host = "node1";
  for (int core = 0; core < 16; ++core) host.cpu.allowed_cores.push_back(core);
  host.system.virtual_machine = false;
  host.system.memory_bytes = 64 * kGibi;
  host.system.memory_available_bytes = 60 * kGibi;
  host.system.load_average = 0.1;
  host.system.governor = "performance";
  host.system.transparent_hugepages = "madvise";
  host.system.numa_balancing = false;
  host.system.numa_nodes = {{.id = 0, .cores = {0}, .memory_bytes = {}}, {.id = 1, .cores = {8}, .memory_bytes = {}}};
  host.shared_memory = launch::HostFacts::Room{.bytes = 32 * kGibi, .free_bytes = 32 * kGibi};
  host.swap_used_bytes = 0;
  host.stolen_share = 0.0;
  host.gpus.pci.known = true;
  host.gpus.why_not = "libnvidia-ml.so.1: cannot be opened";
  return host;
}

inline std::string bus_id(int gpu) {
  return "0000:0" + std::to_string(gpu) + ":00.0";
}

/// With `count` healthy H100, all joined by 18 NVLinks through switches; two NUMA nodes.
inline launch::HostFacts host_with_gpus(int count) {
  launch::HostFacts host = sound_host();
  topology::Topology& topology = host.gpus.topology;
  topology::PathMatrix links(static_cast<size_t>(count), std::vector<std::optional<topology::Path>>(count));
  topology::Matrix<std::string> p2p(static_cast<size_t>(count), std::vector<std::string>(count, "OK"));
  for (int i = 0; i < count; ++i) {
    const bool second = count > 1 && i >= count / 2;
    topology::Gpu gpu{.index = i, .name = "NVIDIA H100 80GB HBM3", .pci_bus_id = bus_id(i)};
    gpu.numa_nodes = {second ? 1 : 0};
    gpu.cpu_affinity = second ? "8-15" : "0-7";
    gpu.nvlinks = 18;
    for (int link = 0; link < 18; ++link) {
      topology::NvLinkPort port{.link = link};
      port.active = true;
      port.remote = topology::NvLinkPort::Remote::kSwitch;
      gpu.ports.push_back(port);
    }
    gpu.pcie_generation = gpu.pcie_generation_most = 5;
    gpu.pcie_width = gpu.pcie_width_most = 16;
    gpu.clock_mhz = gpu.clock_mhz_most = 1980;
    gpu.power_limit_watts = 700;
    gpu.persistence = true;
    gpu.mig = false;
    gpu.fabric = "completed";
    gpu.processes = 0;
    topology.gpus.push_back(gpu);
    for (int j = 0; j < count; ++j) {
      links[i][j] = i == j ? topology::Path{} : topology::Path{.kind = topology::PathKind::kNvLink, .nvlinks = 18};
    }
    p2p[i][i] = std::string("X");
    host.gpus.pci.gpus.push_back({.bus_id = bus_id(i), .driver = "nvidia", .iommu = "identity"});
  }
  topology.gpu_count = count;
  topology.links = links;
  topology.p2p = p2p;
  topology.switched = true;
  topology::understand(topology);
  host.gpus.module_text = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024";
  host.gpus.files = {{.path = "/dev/nvidiactl", .usable = true}, {.path = "/dev/nvidia-uvm", .usable = true}};
  host.gpus.nvml = true;
  host.gpus.why_not = "";
  host.gpus.driver = "550.54.15";
  host.gpus.pci.bridges = {{.bus_id = "0000:00:01.0", .acs_control = 0}};
  return host;
}

/// Each sees all GPUs of such a host.
inline std::vector<launch::RankFacts> ranks_with_gpus(int count) {
  std::vector<launch::RankFacts> ranks = sound_ranks(count);
  for (launch::RankFacts& rank : ranks) {
    rank.cores = rank.launcher_cores = {rank.rank < (count + 1) / 2 ? rank.rank : 8 + rank.rank};
    for (int gpu = 0; gpu < count; ++gpu) {
      rank.devices.push_back({.ordinal = gpu,
                              .name = "NVIDIA H100 80GB HBM3",
                              .uuid = "GPU-" + std::to_string(gpu),
                              .pci_bus_id = bus_id(gpu),
                              .refusal = ""});
    }
    rank.why_no_device = "";
    rank.driver_cuda = rank.build_cuda = 12080;
  }
  return ranks;
}

/// Those of one check.
inline launch::Findings of_check(const launch::Findings& findings, const std::string& check) {
  launch::Findings found;
  std::copy_if(findings.begin(), findings.end(), std::back_inserter(found),
               [&](const launch::Finding& finding) { return finding.check == check; });
  return found;
}

/// The only finding of a check.
inline launch::Finding only(const launch::Findings& findings, const std::string& check) {
  const launch::Findings found = of_check(findings, check);
  INFO(check);
  REQUIRE(found.size() == 1);
  return found.front();
}

/// Whatever is wrong has something to do about it or, where nothing is known, at least a reason.
inline void check_manners(const launch::Findings& findings) {
  for (const launch::Finding& finding : findings) {
    INFO(finding.check << ": " << finding.evidence);
    CHECK_FALSE(finding.check.empty());
    CHECK_FALSE(finding.evidence.empty());
    if (finding.verdict == launch::Verdict::kProblem) CHECK_FALSE(finding.remedy.empty());
    if (finding.verdict == launch::Verdict::kOk) CHECK(finding.remedy.empty());
  }
}

inline bool all_ok(const launch::Findings& findings) {
  return std::all_of(findings.begin(), findings.end(),
                     [](const launch::Finding& finding) { return finding.verdict == launch::Verdict::kOk; });
}

}  // namespace shardscope::test
