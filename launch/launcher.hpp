// Who started this process: decided from the environment alone, before MPI is touched.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace shardscope::launch {

/// Value of an environment variable; nullopt where it is not set.
using ReadVariable = std::function<std::optional<std::string>(const char* name)>;

std::optional<std::string> read_environment(const char* name);

struct Launcher {
  std::string name = "none";  // "mpirun", "srun", "none"
  bool use_mpi = false;
  std::optional<int> announced_ranks;  // what the launcher says it started
};

/// mpirun and srun --mpi=pmix are told by their own variables; SLURM_NTASKS alone is a batch script (one rank). Throws
/// UserError for a Slurm step of several tasks that MPI cannot join.
Launcher detect_launcher(const ReadVariable& variable);

}  // namespace shardscope::launch
