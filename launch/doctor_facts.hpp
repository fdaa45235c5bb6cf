// What `doctor` looks at, as values: the checks (doctor_checks.hpp) are pure functions of these, so that a test can
// make up any machine. What could not be read is empty or nullopt, never a guess.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topology/host.hpp"
#include "topology/system.hpp"
#include "topology/topology.hpp"

namespace shardscope::launch {

using Variables = std::map<std::string, std::string>;

// ---- of a rank ------------------------------------------------------------------------------------------------------

/// A device that CUDA shows to a rank.
struct SeenDevice {
  int ordinal = 0;
  std::string name, uuid;
  std::string pci_bus_id;  // lower case
  std::string refusal;     // why it cannot be used; empty: it can

  bool operator==(const SeenDevice&) const = default;
};

struct RankFacts {
  int rank = 0;
  int host_rank = 0;
  std::string host;
  std::vector<int> launcher_cores, cores;  // the mask that we were started with, and ours
  int threads = 1;
  std::optional<int64_t> locked_bytes;  // soft limit of locked memory; nullopt: none
  std::optional<int> seccomp;           // mode of the process's filter, 0: none
  Variables variables;                  // those that reports have
  std::optional<int> copy_errno;        // of copying from the next rank's memory, 0: it worked; nullopt: not tried
  std::vector<SeenDevice> devices;      // what CUDA shows
  std::string why_no_device;            // empty: at least one can be used
  int driver_cuda = 0, build_cuda = 0;  // 1000 * major + 10 * minor; 0: unknown

  bool operator==(const RankFacts&) const = default;
};

/// Among ranks, and back. Throws BugError for other text.
std::string text_of(const RankFacts& facts);
RankFacts rank_facts_of(std::string_view text);

// ---- of a host ------------------------------------------------------------------------------------------------------

struct PciGpu {
  std::string bus_id;  // lower case, "0000:1b:00.0"
  std::string driver;  // of the kernel: "nvidia", "vfio-pci", "nouveau"; empty: none
  std::string iommu;   // how its addresses are translated: "identity", "DMA", "DMA-FQ"; empty: not told
};

/// A PCIe bridge above a GPU.
struct PciBridge {
  std::string bus_id;
  std::optional<int> acs_control;  // the register; nullopt: it has none, or it cannot be read
  bool readable = true;            // the extended configuration space, root's alone
};

struct PciFacts {
  bool known = false;  // there is a list of devices
  std::vector<PciGpu> gpus;
  std::vector<PciBridge> bridges;             // above any of them, each once
  std::optional<int> iommus;                  // that the kernel uses
  std::vector<std::string> iommu_parameters;  // "iommu=pt": those of the kernel's command line
};

struct DeviceFile {
  std::string path;
  bool usable = false;  // this process may open it
};

struct GpuFacts {
  PciFacts pci;
  std::string module_text;  // first line of /proc/driver/nvidia/version; empty: no module is loaded
  std::vector<DeviceFile> files;
  bool nvml = false;    // NVIDIA's management library answers
  std::string why_not;  // else why
  std::string driver;   // "550.54.15"
  double seconds = 0;   // that it took to answer
  topology::Topology topology;
  std::vector<std::string> nccl_settings;  // lines of /etc/nccl.conf and ~/.nccl.conf

  bool any() const { return !topology.gpus.empty() || !pci.gpus.empty(); }
};

struct HostFacts {
  struct Room {
    int64_t bytes = 0, free_bytes = 0;
  };

  std::string host;
  topology::HostCpu cpu;  // its masks are of one rank, and not looked at; allowed_cores: that ranks may use
  topology::SystemFacts system;
  std::optional<int64_t> memory_limit_bytes;  // of the control group
  std::optional<Room> shared_memory;          // /dev/shm; nullopt: there is none
  std::optional<int64_t> swap_used_bytes;
  std::optional<double> stolen_share;  // of the cores' busy time since the host's start
  std::optional<int> ptrace_scope;
  bool infiniband = false;
  Variables mpi_settings;  // of Open MPI's files; the user's win
  GpuFacts gpus;
};

/// Reads this host; NVML is asked, too. `root` stands before every path: a test's directory. `home`: of the user, may
/// be empty. Throws nothing for what it does not find.
HostFacts read_host(const std::string& host, const std::string& home, const std::string& root = "");

// The parts of it that read files alone.
std::optional<double> stolen_share(const std::string& root);
std::optional<int64_t> swap_used_bytes(const std::string& root);
Variables mpi_settings(const std::string& home, const std::string& root);
std::vector<DeviceFile> device_files(const std::string& root);
std::optional<int> seccomp_mode(const std::string& root);
PciFacts read_pci(const std::string& root);  // doctor_pci.cpp

}  // namespace shardscope::launch
