// shardscope bench: one configuration measured thoroughly, with the distributions behind each figure.
#include "launch/session.hpp"
#include "launch/sweep_command.hpp"
#include "runtime/report/table.hpp"

namespace shardscope::launch {

int bench_command(Session& session, const std::vector<std::string>& words) {
  constexpr int64_t kForP95 = 72;  // generations from which the 95 % interval of p95 is closed
  const SweepKind kind{
      .defaults = {.command = "bench",
                   .powers_of_two = false,
                   .protocol = {.least_generations = kForP95, .noise_bound = 0.01, .max_seconds = 120}},
      .what_it_does =
          "Measures TTFT, TPOT, the gaps between tokens (ITL) and latency of one configuration until they\n"
          "are well known, and prints mean and percentiles with their 95 % intervals.",
      .example = "mpirun -np 2 shardscope bench --model model.gguf --batch 1,8 --json report.json --samples",
      .table = runtime::bench_table,
      .advice = [](const std::vector<runtime::PointResult>&) { return std::vector<std::string>{}; }};
  return sweep_command(kind, session, words);
}

}  // namespace shardscope::launch
