// Right host programs must stay right: whatever the order, the result is the one of going through them step by step,
// nothing is reported, nothing is left. And with one needed wait left out, the checker reports it in every order.
#include <catch2/catch.hpp>

#include <string>
#include <vector>

#include "tests/emulation/random_host_programs.hpp"

namespace shardscope::test {
namespace {

using emulation::Policy;

std::string text_of(const HostRun& run) {
  std::string text = run.wrong + "; " + run.error + "; ";
  for (const emulation::Report& report : run.reports) text += report.message + "; ";
  for (const std::string& line : run.left) text += line + "; ";
  return text;
}

bool right(const HostRun& run) {
  return run.wrong.empty() && run.error.empty() && run.reports.empty() && run.left.empty();
}

void try_programs(uint32_t first, uint32_t count, uint64_t seeds, Policy policy) {
  for (uint32_t number = first; number < first + count; ++number) {
    const HostProgram program = random_host_program(number);
    for (uint64_t seed = 0; seed < seeds; ++seed) {
      const HostRun run = run_host_program(program, {.seed = seed == 0 ? 0 : number * seeds + seed, .policy = policy});
      INFO("program " << number << ", seed " << seed << ": " << text_of(run));
      CHECK(right(run));
    }
  }
}

void try_omissions(uint32_t first, uint32_t count, uint64_t seeds) {
  int64_t runs = 0;
  int64_t wrong = 0;
  for (uint32_t number = first; number < first + count; ++number) {
    const HostProgram program = random_host_program(number);
    const std::vector<Omission> needed = needed_waits(program);
    if (needed.empty()) continue;
    const Omission omission = needed[number % needed.size()];
    for (uint64_t seed = 0; seed < seeds; ++seed) {
      const HostRun run = run_host_program(program, {.seed = seed == 0 ? 0 : number * seeds + seed}, omission);
      ++runs;
      wrong += run.wrong.empty() && run.reports.empty() ? 0 : 1;
      if (!emulation::checked()) continue;
      INFO("program " << number << " without wait " << omission.wait << " of step " << omission.step << " of graph "
                      << omission.graph << ", seed " << seed << ": " << text_of(run));
      CHECK(run.reports.size() == 1);
      if (!run.reports.empty()) CHECK(run.reports[0].fault == emulation::Fault::kGlobalRace);
    }
  }
  CHECK(runs > count / 2);
  CHECK(wrong > runs / 10);  // the plain program sees what goes wrong by chance
}

}  // namespace

TEST_CASE("random host programs: they are what they should be") {
  int64_t graphs = 0;
  int64_t replays = 0;
  int64_t waits = 0;
  int64_t needed = 0;
  int64_t host_waits = 0;
  int64_t several_devices = 0;
  int64_t acts[9] = {};
  for (uint32_t number = 0; number < 1000; ++number) {
    const HostProgram program = random_host_program(number);
    several_devices += program.devices > 1 ? 1 : 0;
    std::vector<int> launches(program.graphs.size(), 0);
    for (const Step& step : program.steps) {
      ++acts[static_cast<int>(step.act)];
      (step.stream < 0 ? host_waits : waits) += std::ssize(step.waits);
      if (step.act == Act::kGraph) ++launches[static_cast<size_t>(step.graph)];
    }
    for (const Graph& graph : program.graphs) {
      for (const Step& step : graph.steps) waits += std::ssize(step.waits);
    }
    graphs += std::ssize(program.graphs);
    for (const int count : launches) replays += count > 1 ? 1 : 0;
    needed += std::ssize(needed_waits(program));
  }
  for (const int64_t count : acts) CHECK(count > 200);
  CHECK(graphs > 500);
  CHECK(replays > 200);
  CHECK(waits > 2000);
  CHECK(host_waits > 500);
  CHECK(several_devices > 400);
  CHECK(needed > 500);
}

TEST_CASE("random host programs: right in every order, nothing reported, nothing left") {
  try_programs(0, 1000, 2, Policy::kAtSynchronisation);
}

TEST_CASE("random host programs: right on devices that are faster than the host") {
  try_programs(3000, 300, 2, Policy::kAtOnce);
}

TEST_CASE("random host programs: right when a worker runs them meanwhile") {
  try_programs(5000, 150, 2, Policy::kWorker);
}

TEST_CASE("random host programs: a needed wait that is left out is reported, or goes wrong") {
  try_omissions(10000, 400, 2);
}

// More of the same, by hand: host_test_plain "[soak]"
TEST_CASE("random host programs: thousands more", "[.][soak]") {
  try_programs(20000, 3000, 3, Policy::kAtSynchronisation);
  try_programs(40000, 500, 2, Policy::kWorker);
  try_programs(45000, 1000, 2, Policy::kAtOnce);
  try_omissions(50000, 6000, 3);
}

}  // namespace shardscope::test
