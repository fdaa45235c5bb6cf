// What a report says about where it was made: one field per fact, filled by launch/. Unknown is nullopt or empty.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace shardscope::runtime {

struct RankPlace {
  int rank = 0;
  std::string host;
  std::vector<int> launcher_cores;  // the mask that the launcher gave
  std::vector<int> cores;           // the mask that we set
};

struct Environment {
  std::string host;
  std::string kernel;  // "Linux 6.1.0"
  std::string cpu;
  int64_t allowed_cores = 0;
  std::optional<double> cpu_quota_cores;
  int64_t last_level_cache_bytes = 0;
  int64_t memory_bytes = 0;
  int numa_nodes = 0;
  std::string backend;  // "cpu: AVX3_DL, 1 thread"
  int threads_per_rank = 0;
  bool oversubscribed = false;  // more busy threads than cores
  std::string mpi;
  std::string compiler;
  std::string version;    // of shardscope
  std::string launcher;   // "mpirun", "srun", "none"
  std::string container;  // kind, empty: none seen
  std::vector<RankPlace> ranks;
  std::map<std::string, std::string> variables;
};

}  // namespace shardscope::runtime
