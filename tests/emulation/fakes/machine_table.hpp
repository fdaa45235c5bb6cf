// The machine that the stand-ins for the CUDA runtime, NCCL and NVML present: which GPUs there are, how they are
// joined, and what is wrong with them. Made for a number of equal GPUs, or read from a JSON file, so that a test can
// describe a machine that no test has at hand: mixed, without NVLink, degraded, or with peer access that loses what is
// written. Host code only, without CUDA's headers: several libraries compile it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace shardscope::emulation {

inline constexpr int kMostGpus = 8;

/// What all GPUs of one kind have in common.
struct GpuModel {
  std::string_view key;   // "h100"
  std::string_view name;  // as the driver gives it: "NVIDIA H100 80GB HBM3"
  int compute_major = 0;
  int compute_minor = 0;
  int multiprocessors = 0;
  int64_t memory_bytes = 0;                     // all of it, as cudaMemGetInfo gives it
  int64_t shared_bytes_per_multiprocessor = 0;  // of which each block takes 1 KiB for the system, from Ampere on
  int64_t most_shared_bytes_per_block = 0;      // after asking
  int threads_per_multiprocessor = 0;
  int blocks_per_multiprocessor = 0;
  int64_t l2_bytes = 0;
  int memory_bus_bits = 0;
  int memory_clock_khz = 0;
  int clock_khz = 0;                  // of multiprocessors, at most
  int64_t frame_buffer_bytes = 0;     // all of it, as NVML gives it: what the driver keeps for itself included
  int links = 0;                      // NVLinks of each GPU
  int link_generation = 0;            // of NVLink
  int link_megabytes_per_second = 0;  // of each link and direction, as NVML gives it
  int pcie_generation = 0;            // the best, at 16 lanes
  uint32_t pci_device_id = 0;         // device and vendor, as NVML gives them: 0x233010DE
  uint32_t pci_subsystem_id = 0;
  bool joins_fabric = false;  // a fabric manager has to admit it before NVLink works, and NVML says how far that is
};

/// "a100" (80 GB), "a100-40gb", "h100" (80 GB), "h200" and "v100" (16 GB), all SXM, and "rtx-4090"; nullptr if there is
/// none with that key.
const GpuModel* find_model(std::string_view key);
/// The keys, for messages: "a100, a100-40gb, h100, h200, v100, rtx-4090".
std::string model_keys();

/// One NVLink of a GPU.
struct NvLink {
  static constexpr int kSwitch = -1;

  int to = kSwitch;     // the GPU at the other end, or an NVSwitch
  bool active = true;   // false: trained down or broken
  bool hidden = false;  // NVML does not tell where it leads: GPUs passed to a virtual machine

  bool operator==(const NvLink&) const = default;
};

/// How far the fabric manager is with a GPU.
enum class Fabric : uint8_t { kNotSupported, kNotStarted, kInProgress, kCompleted };

/// A process that holds memory of a GPU.
struct GpuProcess {
  int pid = 0;
  int used_mib = 0;

  bool operator==(const GpuProcess&) const = default;
};

struct Gpu {
  const GpuModel* model = nullptr;
  std::string uuid;        // "GPU-…"
  std::string pci_bus_id;  // "00000000:1B:00.0"
  int numa_node = 0;
  std::vector<NvLink> links;  // those that lead somewhere: at most as many as the model has
  int pcie_generation = 0;    // now: an idle link may have been slowed down
  int pcie_width = 16;
  bool mig = false;  // cut into instances
  Fabric fabric = Fabric::kNotSupported;
  int clock_khz = 0;           // of multiprocessors, now
  int memory_clock_khz = 0;    // now
  uint64_t clock_reasons = 0;  // why clocks are not higher: the bits of NVML's "clocks event reasons"
  int temperature_celsius = 34;
  int power_milliwatts = 70'000;
  int power_limit_milliwatts = 700'000;
  bool persistence = true;   // the driver stays initialised while nobody uses the GPU
  std::string cpu_affinity;  // "0-23,48-71": CPUs that are near; empty: the driver does not tell
  std::vector<GpuProcess> processes;
  std::map<std::string, std::string> failing;  // as MachineTable's, for this GPU alone

  bool operator==(const Gpu&) const = default;
};

/// How a GPU reaches another one's memory, in one direction.
enum class PeerAccess : uint8_t {
  kWorks,
  kNone,         // and says so
  kLosesWrites,  // claims to work; what is written never arrives
};

/// What lies between two GPUs on PCIe, near to far, as `nvidia-smi topo -m` abbreviates it.
enum class Distance : uint8_t { kSelf, kPix, kPxb, kPhb, kNode, kSys };

struct MachineTable {
  std::vector<Gpu> gpus;                         // in the order of their PCI bus ids
  std::vector<std::vector<PeerAccess>> peers;    // [who][whose memory]
  std::vector<std::vector<Distance>> distances;  // [GPU][GPU], symmetric
  int cuda_driver_version = 13000;               // 1000 * major + 10 * minor
  std::string driver_version = "580.95.05";
  std::map<std::string, std::string> failing;  // NVML's functions that fail, each with its error: "NOT_SUPPORTED"

  bool operator==(const MachineTable&) const = default;
};

/// An 8-GPU node with NVSwitch, cut to its first 1 to 8 GPUs, each with peer access to all. Throws UserError for an
/// unknown model or another number.
MachineTable make_table(std::string_view model, int gpus);

/// A table in JSON. Only "gpus" with their "model" must be there: the rest is as in make_table. Throws UserError, which
/// names file and key, for anything unknown, of another type or range, and for tables that contradict themselves.
MachineTable parse_table(std::string_view json, const std::string& file);
MachineTable read_table(const std::string& file);

/// The JSON of a whole table: parse_table gives the same table again.
std::string table_json(const MachineTable& table);

/// The CPUs of a list like "0-23,48-71"; none where it is no list, or names CPUs from 1024 on.
std::vector<int> cpus_of(std::string_view text);

/// Throws UserError, naming `where`, for a table that contradicts itself.
void check_table(const MachineTable& table, const std::string& where);

}  // namespace shardscope::emulation
