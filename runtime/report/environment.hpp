// What a report says about where it was made: one field per fact, filled by launch/. Unknown is nullopt or empty.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "topology/system.hpp"

namespace shardscope::runtime {

struct RankPlace {
  int rank = 0;
  std::string host;
  std::string device = "cpu";       // or its UUID
  std::vector<int> launcher_cores;  // the mask that the launcher gave
  std::vector<int> cores;           // the mask that we set
};

/// How this program was built and with what it runs.
struct BuildFacts {
  std::string version;  // "0.1.0"
  std::string commit;   // empty: not built from a repository
  std::string compiler;
  std::string build_type;                        // "Release"
  std::map<std::string, std::string> libraries;  // name -> version: those compiled in or loaded
};

/// A rank's device, as its driver describes it; what it does not tell is 0 or "".
struct DeviceEntry {
  int rank = 0;
  int ordinal = 0;  // among those visible to the rank
  std::string name, uuid, pci_bus_id;
  std::string compute_capability;  // "9.0"
  int64_t memory_bytes = 0;
  int64_t multiprocessors = 0;
  int64_t l2_bytes = 0;
  double mhz = 0, memory_mhz = 0;  // at most
  int64_t memory_bus_bits = 0;
};

struct Environment {
  std::string time;  // when the run began, UTC, ISO 8601
  std::string host;
  topology::SystemFacts system;
  std::string cpu;  // model name
  int64_t allowed_cores = 0;
  std::optional<double> cpu_quota_cores;
  int64_t last_level_cache_bytes = 0;
  int64_t memory_limit_bytes = 0;    // the host's memory, or the cgroup's limit where that is less
  std::string backend;               // "cpu: AVX3_DL, 1 thread"
  std::vector<DeviceEntry> devices;  // one a rank; empty on a CPU
  std::string cuda, nccl;            // versions; empty: not used
  int threads_per_rank = 0;
  bool oversubscribed = false;  // more busy threads than cores
  // Data-sheet peaks of one rank's device or share, as given by the user.
  std::optional<double> peak_gb_per_s, peak_tflops;
  std::string mpi;  // version text of the library; empty: started without MPI
  BuildFacts build;
  std::string launcher;  // "mpirun", "srun", "none"
  std::vector<RankPlace> ranks;
  std::map<std::string, std::string> variables;
};

}  // namespace shardscope::runtime
