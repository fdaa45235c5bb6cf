#include "launch/launcher.hpp"

#include <charconv>
#include <cstdlib>

#include "kernels/base/error.hpp"

namespace shardscope::launch {
namespace {

std::optional<int> count_of(const std::optional<std::string>& text) {
  if (!text) return std::nullopt;
  int value = 0;
  const char* end = text->data() + text->size();
  const auto [stop, code] = std::from_chars(text->data(), end, value);
  if (code != std::errc() || stop != end || value < 1) return std::nullopt;
  return value;
}

}  // namespace

std::optional<std::string> read_environment(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) return std::nullopt;
  return value;
}

Launcher detect_launcher(const ReadVariable& variable) {
  if (const std::optional<int> ranks = count_of(variable("OMPI_COMM_WORLD_SIZE"))) {
    return {.name = "mpirun", .use_mpi = true, .announced_ranks = ranks};
  }
  const std::optional<int> step_tasks = count_of(variable("SLURM_STEP_NUM_TASKS"));
  if (variable("PMIX_RANK") && variable("PMIX_NAMESPACE")) {
    return {.name = "srun", .use_mpi = true, .announced_ranks = step_tasks};
  }
  if (step_tasks.value_or(1) > 1) {
    throw UserError("the launcher announced " + std::to_string(*step_tasks) + " tasks but MPI sees 1",
                    "srun without PMIx", "start it with srun --mpi=pmix");
  }
  return {};
}

}  // namespace shardscope::launch
