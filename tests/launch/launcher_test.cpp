#include "launch/launcher.hpp"

#include <map>

#include <catch2/catch.hpp>

#include "kernels/base/error.hpp"

using namespace shardscope;
using namespace shardscope::launch;

namespace {

ReadVariable from(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

}  // namespace

TEST_CASE("detect_launcher: nothing set is one rank without MPI") {
  const Launcher launcher = detect_launcher(from({}));
  CHECK(launcher.name == "none");
  CHECK_FALSE(launcher.use_mpi);
}

TEST_CASE("detect_launcher: mpirun is known by its own variable, inside a Slurm job too") {
  const Launcher launcher = detect_launcher(
      from({{"OMPI_COMM_WORLD_SIZE", "4"}, {"SLURM_NTASKS", "8"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"PMIX_RANK", "0"}}));
  CHECK(launcher.name == "mpirun");
  CHECK(launcher.use_mpi);
  CHECK(launcher.announced_ranks == 4);
}

TEST_CASE("detect_launcher: srun with PMIx joins MPI") {
  const Launcher launcher =
      detect_launcher(from({{"PMIX_RANK", "1"}, {"PMIX_NAMESPACE", "slurm.pmix.7.0"}, {"SLURM_STEP_NUM_TASKS", "2"}}));
  CHECK(launcher.name == "srun");
  CHECK(launcher.announced_ranks == 2);
}

TEST_CASE("detect_launcher: a Slurm step that MPI cannot join is refused, a batch script is one rank") {
  CHECK_THROWS_WITH(
      detect_launcher(from({{"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "4"}})),
      Catch::Matchers::Contains("announced 4 tasks but MPI sees 1") && Catch::Matchers::Contains("srun --mpi=pmix"));
  CHECK_FALSE(detect_launcher(from({{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}})).use_mpi);
  CHECK_FALSE(detect_launcher(from({{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_NTASKS", "4"}})).use_mpi);
}
