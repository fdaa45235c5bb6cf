// HostSumBench under mpirun, for any number of ranks and groups smaller than the world. Ends with 0 only if all ranks'
// checks hold.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>
#include <string>
#include <thread>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "parallel/host_sum_bench.hpp"

namespace shardscope::parallel {
namespace {

void check_way(SumBench& bench, const SumBench::Way& way, int64_t count) {
  const SumTask task{.way = way.name, .count = count, .samples = 20, .warm_up = 3};
  const SumTimes times = bench.time(task);
  const std::string label = fmt::format("{} of {}", way.name, count);
  require(times.wrong == 0, fmt::format("{}: {} sums are wrong", label, times.wrong));
  require(times.sample_us.size() == 20 && times.inside_us.size() == 20, fmt::format("{}: number of samples", label));
  for (const double time_us : times.sample_us) require(time_us >= 0, fmt::format("{}: a time below 0", label));
}

void check_group(World& world, int group_size) {
  constexpr int64_t kMostFloats = 100'000;  // several pieces of shared memory
  HostSumBench bench(world, {.group_size = group_size, .max_floats = kMostFloats, .oversubscribed = group_size > 2});
  std::string names;
  for (const SumBench::Way& way : bench.ways()) {
    names += fmt::format("{} ", way.name);
    require(way.why_not.empty(), "HostSumBench: all ranks are on one host");
    require(way.most_bytes == kMostFloats * 4, "HostSumBench: most_bytes");
    for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{257}, int64_t{8192}, kMostFloats}) {
      check_way(bench, way, count);
    }
  }
  require(names == (group_size == 1 ? "none " : "shm mpi "), fmt::format("HostSumBench: ways are {}", names));
}

/// Times are of the sum alone: what a rank does before it is none of it.
void check_late_rank(World& world) {
  if (world.size() == 1) return;
  HostSumBench bench(world, {.group_size = world.size(), .max_floats = 16, .oversubscribed = world.size() > 2});
  constexpr std::chrono::milliseconds kLate{20};
  double least_us = std::numeric_limits<double>::infinity();  // of several, since others may disturb any one of them
  for (int i = 0; i < 9; ++i) {
    if (world.rank() == 0) std::this_thread::sleep_for(kLate);
    const SumTimes times = bench.time({.way = "shm", .count = 16, .samples = 1});
    const std::vector<double> all = world.all_gather(times.sample_us, "times");
    least_us = std::min(least_us, *std::max_element(all.begin(), all.end()));
  }
  require(least_us < 1e3 * static_cast<double>(kLate.count()) / 2, "HostSumBench: the wait before a sample counts");
}

void check_all(World& world) {
  for (int group_size = 1; group_size <= world.size(); ++group_size) {
    if (world.rank() < group_size) check_group(world, group_size);
    world.barrier("end of a group");
  }
  check_late_rank(world);
}

}  // namespace
}  // namespace shardscope::parallel

int main() {
  using namespace shardscope;
  parallel::World world({.use_mpi = true, .timeout = std::chrono::milliseconds(20'000)});
  try {
    parallel::check_all(world);
  } catch (const parallel::PeerFailure&) {
    world.fail(1, "");
  } catch (const Error& error) {
    world.fail(error.exit_code(), error.what());
  }
  if (world.rank() == 0) std::puts("all checks hold");
  return 0;
}
