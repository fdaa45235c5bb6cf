// shardscope scale: the main job. Sweeps tensor-parallel degrees in one launch and shows what each brings.
#include "launch/session.hpp"
#include "launch/sweep_command.hpp"
#include "runtime/report/advice.hpp"
#include "runtime/report/table.hpp"

namespace shardscope::launch {

int scale_command(Session& session, const std::vector<std::string>& words) {
  const SweepKind kind{
      .defaults = {.command = "scale",
                   .powers_of_two = true,
                   .protocol = {.least_generations = 12, .noise_bound = 0.02, .max_seconds = 30},
                   .rehearses = true},
      .what_it_does =
          "Loads the model at each tensor-parallel degree in turn, up and down again, measures TTFT, TPOT\n"
          "and memory bandwidth utilisation (MBU), and prints one row per degree and workload.",
      .example = "mpirun -np 4 shardscope scale --model model.gguf --tp 1,2,4 --json report.json",
      .table = runtime::scale_table,
      .advice = runtime::scale_advice};
  return sweep_command(kind, session, words);
}

}  // namespace shardscope::launch
