// What a machine's GPUs are and how they are joined: a value that probes and readers fill in as far as they know, that
// understand() (understanding.hpp) draws conclusions from, and that JSON carries (topology_json.hpp). What a source
// cannot know stays unknown here: an empty optional, list or text, never a guess.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topology/system.hpp"

namespace shardscope::topology {

/// Where a Topology comes from. The names are those of the JSON.
enum class SourceKind : uint8_t {
  kProbe,
  kNvidiaSmiTopo,
  kNvidiaSmiP2p,
  kNvlinkStatus,
  kNcclXml,
  kHwlocXml,
  kP2pBandwidthTest,
  kP2pmark,
  kNvbandwidth,
  kNcclTests,
  kCollectiveTable,
  kShardscope,
  kCatalogue,  // catalogue.hpp: no source of a machine's own
};
std::string_view name_of(SourceKind kind);

/// What lies between two devices, near to far, with the abbreviations of `nvidia-smi topo -m`.
enum class PathKind : uint8_t {
  kSelf,    // X
  kNvLink,  // NV#: bonded NVLinks, direct or through switches
  kPix,     // one PCIe bridge
  kPxb,     // several, no host bridge
  kPhb,     // a host bridge
  kNode,    // several host bridges of one NUMA node
  kSys,     // the link between sockets
  kSoc,     // the same before 2017, when there was no NODE: ranks as kSys
};

struct Path {
  PathKind kind = PathKind::kSelf;
  int nvlinks = 0;  // of kNvLink, at least 1

  bool operator==(const Path&) const = default;
};
/// "X", "NV12", "PIX", …
std::string text_of(const Path& path);
/// nullopt for anything else than exactly such a text.
std::optional<Path> path_of(std::string_view text);
/// Whether a is nearer than b: more NVLinks before fewer, these before PIX, PXB, PHB, NODE, SYS.
bool nearer(const Path& a, const Path& b);

template <class T>
using Matrix = std::vector<std::vector<T>>;
using PathMatrix = Matrix<std::optional<Path>>;  // nullopt: unknown

/// One NVLink port of a GPU.
struct NvLinkPort {
  enum class Remote : uint8_t { kUnknown, kGpu, kSwitch, kCpu };

  int link = 0;
  std::optional<bool> active;
  Remote remote = Remote::kUnknown;
  std::string remote_bus_id;       // empty: unknown
  std::optional<double> gb_per_s;  // of one direction
  std::optional<int> generation;   // of NVLink

  bool operator==(const NvLinkPort&) const = default;
};

struct Gpu {
  int index = 0;     // as the source numbers it
  std::string name;  // as the driver or the source gives it; empty: unknown
  std::string uuid;
  std::string pci_bus_id;                   // "0000:1b:00.0", lower case
  std::vector<int> numa_nodes;              // of CPUs, ascending; empty: unknown
  std::string cpu_affinity;                 // "0-23,48-71"; empty: unknown
  std::optional<int> gpu_numa_id;           // where the GPU's memory is a NUMA node itself
  std::optional<std::string> compute;       // "9.0"
  std::optional<int> nvlinks;               // that are up, to whatever: of this GPU in all
  std::vector<NvLinkPort> ports;            // each, where the source lists them; empty: it does not
  std::optional<int> pcie_generation;       // now (an idle link may have been slowed down)
  std::optional<int> pcie_width;            // lanes, now
  std::optional<int> pcie_generation_most;  // of device and slot together
  std::optional<int> pcie_width_most;
  std::optional<double> pcie_gt_per_s;  // GT/s a lane, where the source gives the speed instead of a generation
  // Health, by NVML alone.
  std::optional<int64_t> memory_bytes;
  std::optional<double> memory_clock_mhz;
  std::optional<int> memory_bus_bits;
  std::optional<double> clock_mhz, clock_mhz_most;  // of multiprocessors
  std::vector<std::string> slowed_by;               // "hw-thermal-slowdown", …: why clocks are not higher now
  std::optional<int> temperature_celsius;
  std::optional<double> power_watts, power_limit_watts;
  std::optional<bool> persistence, mig;
  std::string fabric;            // "completed", "in progress", "not started", "not supported"; empty: unknown
  std::optional<int> processes;  // others than we that hold memory

  bool operator==(const Gpu&) const = default;
};

struct Nic {
  std::string name;    // as in the matrix: "NIC0", "mlx5_0"
  std::string device;  // "mlx5_0"; empty: unknown
  std::optional<int> numa_node;

  bool operator==(const Nic&) const = default;
};

/// A figure that another tool, or we, measured.
struct Measurement {
  enum class Kind : uint8_t { kP2pBandwidth, kP2pLatency, kAllReduce };

  Kind kind = Kind::kP2pBandwidth;
  std::optional<int> from, to;    // GPUs; of kAllReduce none. Data flow from `from` to `to` (P2P writes: the row)
  std::optional<bool> p2p;        // peer access on; nullopt: not told
  std::optional<bool> both_ways;  // bidirectional
  std::optional<int> gpu_count;   // kAllReduce
  std::optional<int64_t> bytes;
  std::optional<double> time_us, gb_per_s, busbw_gb_per_s;
  std::string algorithm;            // "NCCL", "ring", …; empty: not told
  std::optional<bool> one_process;  // kAllReduce: true: one launches to all GPUs in turn, which is part of its time;
                                    // false: each GPU has its own; nullopt: not told, or in between
  std::optional<bool> graph;        // kAllReduce: replayed from CUDA graphs; nullopt: not told

  bool operator==(const Measurement&) const = default;
};
std::string_view name_of(Measurement::Kind kind);

enum class TopologyClass : uint8_t {
  kNvSwitch,    // every pair has the GPU's full link count, through switches
  kNvLinkMesh,  // every pair directly linked, with a part of it
  kCubeMesh,    // some pairs directly linked, so that all are connected (V100)
  kPairs,       // disjoint linked pairs; unlinked GPUs may stand beside them
  kPcie,        // no NVLink
  kMixed,       // anything else
  kSingle,      // one GPU
  kNone,        // no GPU
  kUnknown,     // the source does not tell
};
std::string_view name_of(TopologyClass topology_class);  // "nvlink-pairs"

/// The best and the worst choice of `degree` GPUs for tensor parallelism.
struct Group {
  std::vector<int> best, worst;                         // positions in Topology::gpus, ascending
  std::optional<Path> best_narrowest, worst_narrowest;  // the farthest pair inside; nullopt: unknown

  bool operator==(const Group&) const = default;
};

struct Topology {
  SourceKind source = SourceKind::kProbe;
  std::string file;              // empty: this machine; of kCatalogue a name there
  std::string host;              // of a probe
  bool complete = true;          // false: the source is cut or damaged; what is missing is unknown
  std::optional<int> gpu_count;  // nullopt: not told (a table of collectives without it)
  std::vector<Gpu> gpus;         // gpu_count of them; none where gpu_count is unknown
  std::vector<Nic> nics;
  bool nics_known = true;  // false: the source cannot show NICs, or they were cut: an empty list proves nothing
  std::optional<PathMatrix> links;         // [gpu][gpu]; nullopt: the source has none
  std::optional<PathMatrix> nic_links;     // [gpu][nic]
  std::optional<Matrix<std::string>> p2p;  // [gpu][gpu], read (or read and write): "OK", "GNS", …; "X" on the diagonal,
                                           // empty: unknown. A claim of the driver, not a proof
  std::optional<bool> switched;         // NVLinks lead to switches; nullopt: not told
  std::optional<bool> virtual_machine;  // nullopt: not told
  std::string platform;                 // CPU or machine, where the source names it
  std::string cpu;                      // model name
  std::vector<NumaNode> numa_nodes;     // of the host; empty: not told
  std::vector<Measurement> measurements;
  std::vector<std::string> warnings;  // each one sentence or two, for a person

  // Drawn by understand() from the above.
  TopologyClass topology_class = TopologyClass::kUnknown;
  std::vector<std::vector<std::string>> nearest_nics;          // of each GPU: names; those at PHB or nearer
  std::vector<std::optional<Path>> nearest_nic_links;          // of each GPU
  std::optional<Matrix<std::optional<double>>> link_gb_per_s;  // [gpu][gpu], of one direction, by links' speeds
  std::map<int, Group> groups;                                 // of each degree from 2 to gpu_count

  bool operator==(const Topology&) const = default;
};

}  // namespace shardscope::topology
