// Median µs of an all-reduce per count: mpirun [--oversubscribe] -n N bench_allreduce [oversubscribed]
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string_view>

#include "kernels/base/error.hpp"
#include "parallel/communicator.hpp"

namespace shardscope::parallel {
namespace {

using Clock = std::chrono::steady_clock;

double median_us(Communicator& communicator, std::span<float> data) {
  std::vector<double> times;
  for (int i = 0; i < 400; ++i) {
    const Clock::time_point start = Clock::now();
    communicator.all_reduce(data);
    const std::chrono::duration<double, std::micro> time = Clock::now() - start;
    if (i >= 40) times.push_back(time.count());
  }
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

void run(World& world, bool oversubscribed) {
  constexpr int64_t kMost = 65536;
  const auto make = [&](CommunicatorKind kind) {
    return make_communicator(world, {world.size(), kind, kMost, oversubscribed});
  };
  const auto shm = make(CommunicatorKind::kShm);
  const auto mpi = make(CommunicatorKind::kMpi);
  const Clock::time_point start = Clock::now();
  const auto automatic = make(CommunicatorKind::kAuto);
  const std::chrono::duration<double, std::milli> choosing = Clock::now() - start;
  if (world.rank() == 0) {
    std::printf("%d ranks, %s: auto is %.*s, chosen in %.0f ms\n", world.size(),
                oversubscribed ? "oversubscribed" : "spin", static_cast<int>(automatic->name().size()),
                automatic->name().data(), choosing.count());
    std::printf("%8s %10s %10s %10s   (median us)\n", "floats", "shm", "mpi", "auto");
  }
  for (int64_t floats : {int64_t{1}, int64_t{576}, int64_t{1536}, int64_t{2048}, int64_t{4096}, int64_t{8192},
                         int64_t{16384}, int64_t{32768}, kMost}) {
    std::vector<float> data(floats, 1.0f);
    const double shm_us = median_us(*shm, data);
    std::fill(data.begin(), data.end(), 0.0f);
    const double mpi_us = median_us(*mpi, data);
    const double auto_us = median_us(*automatic, data);
    if (world.rank() == 0) {
      std::printf("%8lld %10.1f %10.1f %10.1f\n", static_cast<long long>(floats), shm_us, mpi_us, auto_us);
      std::fflush(stdout);
    }
  }
}

}  // namespace
}  // namespace shardscope::parallel

int main(int argc, char** argv) {
  using namespace shardscope;
  parallel::World world({.use_mpi = true});
  try {
    parallel::run(world, argc > 1 && std::string_view(argv[1]) == "oversubscribed");
  } catch (const parallel::PeerFailure&) {
    world.fail(1, "");
  } catch (const Error& error) {
    world.fail(error.exit_code(), error.what());
  }
  return 0;
}
