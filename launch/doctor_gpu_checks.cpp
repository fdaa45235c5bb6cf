// The driver and CUDA on a host, and what each of its ranks sees of the GPUs.
#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "launch/doctor_checks.hpp"
#include "topology/files.hpp"
#include "topology/host.hpp"

namespace shardscope::launch {
namespace {

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

int count_of_gpus(const GpuFacts& gpus) {
  return static_cast<int>(std::max(gpus.topology.gpus.size(), gpus.pci.gpus.size()));
}

/// "2 NVIDIA GPUs on the PCI bus (0000:17:00.0, …)".
std::string on_the_bus(const PciFacts& pci) {
  constexpr size_t kNamed = 4;
  std::vector<std::string> names;
  for (const PciGpu& gpu : pci.gpus) {
    if (names.size() == kNamed) {
      names.emplace_back("…");
      break;
    }
    names.push_back(gpu.driver.empty() ? gpu.bus_id : fmt::format("{} with driver {}", gpu.bus_id, gpu.driver));
  }
  return fmt::format("{} on the PCI bus ({})", count_text(static_cast<int64_t>(pci.gpus.size()), "NVIDIA GPU"),
                     fmt::join(names, ", "));
}

std::string module_version(const std::string& text) {
  for (const std::string& word : topology::words_of(text)) {
    const bool number = word.find('.') != std::string::npos && std::all_of(word.begin(), word.end(), [](char c) {
                          return (c >= '0' && c <= '9') || c == '.';
                        });
    if (number) return word;
  }
  return "";
}

void check_no_driver(const HostFacts& host, Findings& out) {
  const GpuFacts& gpus = host.gpus;
  const bool passed_on = std::any_of(gpus.pci.gpus.begin(), gpus.pci.gpus.end(),
                                     [](const PciGpu& gpu) { return gpu.driver == "vfio-pci"; });
  const bool other = std::any_of(gpus.pci.gpus.begin(), gpus.pci.gpus.end(),
                                 [](const PciGpu& gpu) { return gpu.driver == "nouveau"; });
  std::string remedy = "install NVIDIA's driver, and modprobe nvidia (dmesg says why it does not load)";
  if (!host.system.container.empty()) {
    remedy =
        "start the container with the GPUs: docker --gpus all (NVIDIA Container Toolkit), apptainer --nv, "
        "nvidia.com/gpu in Kubernetes";
  } else if (passed_on) {
    remedy = "the GPUs are reserved for virtual machines (vfio-pci): run there, or give them back to the driver nvidia";
  } else if (other) {
    remedy = "install NVIDIA's driver; nouveau has no CUDA";
  }
  out.push_back({.check = "driver",
                 .verdict = Verdict::kProblem,
                 .evidence = fmt::format("{}, but no NVIDIA driver is loaded", on_the_bus(gpus.pci)),
                 .remedy = remedy});
}

/// Driver and library of different versions are an upgrade without a restart, or a container that brought its own.
void check_silent_driver(const HostFacts& host, Findings& out) {
  const GpuFacts& gpus = host.gpus;
  const bool container = !host.system.container.empty();
  std::string remedy = "see whether nvidia-smi works, and dmesg";
  if (gpus.why_not.find("ersion mismatch") != std::string::npos) {
    remedy = container ? "in this container, no libnvidia-ml and libcuda of its own: the host's are put in at its start"
                       : "reboot, or unload and load the kernel's module: it is still that of before the upgrade";
  } else if (gpus.why_not.find("cannot be opened") != std::string::npos) {
    remedy = container ? "start the container with the driver's libraries: docker --gpus all, apptainer --nv"
                       : "install the driver's libraries (libnvidia-ml.so.1, libcuda.so.1) of that version";
  }
  const std::string version = module_version(gpus.module_text);
  out.push_back({.check = "driver",
                 .verdict = Verdict::kProblem,
                 .evidence = fmt::format("the kernel has NVIDIA's driver{}, but {}",
                                         version.empty() ? "" : " " + version, gpus.why_not),
                 .remedy = remedy});
}

/// Without persistence a driver starts anew with each question; a GPU or bridge that fails makes it wait, too.
void check_slow_driver(const GpuFacts& gpus, Findings& out) {
  constexpr double kSlowSeconds = 10;
  if (gpus.seconds < kSlowSeconds) return;
  out.push_back({.check = "driver",
                 .verdict = Verdict::kWarning,
                 .evidence = fmt::format("took {:.0f} s to answer", gpus.seconds),
                 .remedy = "as root: nvidia-smi -pm 1; if it stays slow, dmesg (Xid messages of a failing GPU) and the "
                           "seats of NVLink bridges"});
}

void check_driver(const HostFacts& host, Ranks ranks, BackendKind backend, Findings& out) {
  const GpuFacts& gpus = host.gpus;
  if (gpus.nvml && !gpus.topology.gpus.empty()) {
    const std::set<std::string> models = [&] {
      std::set<std::string> names;
      for (const topology::Gpu& gpu : gpus.topology.gpus) names.insert(gpu.name);
      return names;
    }();
    out.push_back({.check = "driver",
                   .verdict = Verdict::kOk,
                   .evidence = fmt::format("{}, {} x {}", gpus.driver.empty() ? "of unknown version" : gpus.driver,
                                           gpus.topology.gpus.size(), fmt::join(models, ", ")),
                   .remedy = ""});
    return;
  }
  if (!gpus.module_text.empty()) {
    if (gpus.nvml) {
      out.push_back(
          {.check = "driver",
           .verdict = Verdict::kProblem,
           .evidence = fmt::format("{} is loaded, and shows no GPU here", module_version(gpus.module_text)),
           .remedy = "start the container with GPUs (docker --gpus all), or see dmesg for NVRM and Xid lines"});
    } else {
      check_silent_driver(host, out);
    }
    return;
  }
  if (!gpus.pci.gpus.empty()) {
    check_no_driver(host, out);
    return;
  }
  const bool seen_by_cuda =
      std::any_of(ranks.begin(), ranks.end(), [](const RankFacts& rank) { return !rank.devices.empty(); });
  if (seen_by_cuda) {
    out.push_back({.check = "driver",
                   .verdict = Verdict::kUnknown,
                   .evidence = "CUDA works, but NVIDIA's management library does not: " + gpus.why_not,
                   .remedy = "libnvidia-ml.so.1 of the driver (docker: NVIDIA_DRIVER_CAPABILITIES=compute,utility)"});
    return;
  }
  const bool wanted = backend == BackendKind::kCuda;
  out.push_back(
      {.check = "GPU",
       .verdict = wanted           ? Verdict::kProblem
                  : gpus.pci.known ? Verdict::kOk
                                   : Verdict::kUnknown,
       .evidence = gpus.pci.known ? "no GPU: no NVIDIA device is on the PCI bus; ranks compute on the cpu"
                                  : "no GPU seen: no driver, and /sys shows no PCI bus",
       .remedy = wanted ? "run where a GPU is (a container: docker --gpus all), or without --backend cuda" : ""});
}

/// Files that a driver needs are only looked at where something is wrong: else they are there.
void check_device_files(const HostFacts& host, bool usable, Findings& out) {
  const GpuFacts& gpus = host.gpus;
  if (usable || gpus.module_text.empty() || count_of_gpus(gpus) == 0) return;
  const auto has = [&](const std::string& path) {
    return std::any_of(gpus.files.begin(), gpus.files.end(), [&](const DeviceFile& file) { return file.path == path; });
  };
  std::vector<std::string> refused;
  for (const DeviceFile& file : gpus.files) {
    if (!file.usable) refused.push_back(file.path);
  }
  if (!refused.empty()) {
    out.push_back({.check = "device files",
                   .verdict = Verdict::kProblem,
                   .evidence = fmt::format("this user may not open {}", fmt::join(refused, ", ")),
                   .remedy = "add the user to their group (ls -l /dev/nvidia*), or let the job ask for GPUs (srun "
                             "--gpus)"});
  } else if (!has("/dev/nvidiactl") || !has("/dev/nvidia-uvm")) {
    out.push_back({.check = "device files",
                   .verdict = Verdict::kProblem,
                   .evidence = fmt::format("{} is missing", has("/dev/nvidiactl") ? "/dev/nvidia-uvm, which CUDA needs,"
                                                                                  : "/dev/nvidiactl"),
                   .remedy = "as root on the host: nvidia-modprobe -c 0 -u; then start the container anew"});
  }
}

void check_cuda(const HostFacts& host, Ranks ranks, Findings& out) {
  if (ranks.empty() || !host.gpus.any()) return;
  const RankFacts& rank = ranks.front();
  if (rank.build_cuda == 0) {  // the library with the CUDA half is missing, or does not open
    if (!host.gpus.nvml) return;
    out.push_back({.check = "CUDA",
                   .verdict = Verdict::kProblem,
                   .evidence = "there are GPUs, but: " + rank.why_no_device,
                   .remedy = "launch/quickstart builds the CUDA backend where it finds GPUs"});
    return;
  }
  const std::string evidence =
      fmt::format("the driver runs programs up to CUDA {}, this build has {}",
                  rank.driver_cuda == 0 ? "unknown" : version_text(rank.driver_cuda), version_text(rank.build_cuda));
  constexpr int kMajor = 1000;
  const bool old = rank.driver_cuda != 0 && rank.driver_cuda / kMajor < rank.build_cuda / kMajor;
  out.push_back(
      {.check = "CUDA",
       .verdict = rank.driver_cuda == 0 ? Verdict::kUnknown
                  : old                 ? Verdict::kProblem
                                        : Verdict::kOk,
       .evidence = evidence,
       .remedy =
           old ? fmt::format("a newer driver, or a build with a toolkit of CUDA {}", rank.driver_cuda / kMajor) : ""});
}

/// "4 devices (CUDA_VISIBLE_DEVICES=0,1,2,3)".
std::string seen_text(const RankFacts& rank) {
  const auto found = rank.variables.find("CUDA_VISIBLE_DEVICES");
  const std::string variable =
      found == rank.variables.end() ? "" : fmt::format(" by CUDA_VISIBLE_DEVICES={}", found->second);
  return count_text(static_cast<int64_t>(rank.devices.size()), "device") + variable;
}

/// How many a value of CUDA_VISIBLE_DEVICES names.
size_t named_devices(const std::string& value) {
  if (value.empty()) return 0;
  return static_cast<size_t>(std::count(value.begin(), value.end(), ',')) + 1;
}

void check_visible(Ranks ranks, Findings& out) {
  for (const RankFacts& rank : ranks) {
    const auto found = rank.variables.find("CUDA_VISIBLE_DEVICES");
    if (found == rank.variables.end() || rank.build_cuda == 0) continue;
    const size_t named = named_devices(found->second);
    if (named <= rank.devices.size() || rank.devices.empty()) continue;
    out.push_back({.check = "devices",
                   .verdict = Verdict::kWarning,
                   .evidence = fmt::format("CUDA_VISIBLE_DEVICES={} names {}, CUDA shows {} (rank {}): it stops at the "
                                           "first that is not there",
                                           found->second, count_text(static_cast<int64_t>(named), "device"),
                                           rank.devices.size(), rank.rank),
                   .remedy = "name devices as nvidia-smi -L does; of a MIG instance the whole UUID"});
    break;
  }
  std::set<std::string> refusals;
  for (const RankFacts& rank : ranks) {
    for (const SeenDevice& device : rank.devices) {
      if (!device.refusal.empty()) refusals.insert(device.refusal);
    }
  }
  for (const std::string& refusal : refusals) {
    out.push_back({.check = "devices",
                   .verdict = Verdict::kWarning,
                   .evidence = fmt::format("cannot be used: {}", refusal),
                   .remedy = "leave it out of CUDA_VISIBLE_DEVICES"});
  }
}

void check_seen(const HostFacts& host, Ranks ranks, Findings& out) {
  if (ranks.empty() || !host.gpus.nvml || ranks.front().build_cuda == 0) return;
  check_visible(ranks, out);
  const std::string why = grouped(ranks, [](const RankFacts& rank) { return rank.why_no_device; });
  if (!why.empty()) {
    out.push_back({.check = "devices",
                   .verdict = Verdict::kProblem,
                   .evidence = why,
                   .remedy = "nvidia-smi -L lists what there is; every rank needs a device that it can use"});
    return;
  }
  out.push_back({.check = "devices",
                 .verdict = Verdict::kOk,
                 .evidence = "each rank sees " + grouped(ranks, seen_text),
                 .remedy = ""});
}

}  // namespace

Findings gpu_findings(const HostFacts& host, Ranks ranks, BackendKind backend) {
  Findings out;
  check_driver(host, ranks, backend, out);
  check_slow_driver(host.gpus, out);
  const bool usable = !ranks.empty() && std::all_of(ranks.begin(), ranks.end(),
                                                    [](const RankFacts& rank) { return rank.why_no_device.empty(); });
  check_device_files(host, usable, out);
  check_cuda(host, ranks, out);
  check_seen(host, ranks, out);
  return out;
}

}  // namespace shardscope::launch
