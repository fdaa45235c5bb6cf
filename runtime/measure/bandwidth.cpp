#include "runtime/measure/bandwidth.hpp"

#include <algorithm>
#include <chrono>
#include <vector>

#include "runtime/generate/generate.hpp"
#include "runtime/measure/statistics.hpp"

namespace shardscope::runtime {

ReadBandwidth measure_read_bandwidth(Decoder& decoder, RankContext context, const BandwidthOptions& options) {
  ReadBandwidth result;
  for (const kernels::Matrix* matrix : decoder.read_every_step()) result.bytes += matrix->bytes();
  const kernels::KvCache& cache = decoder.kv_cache();
  result.bytes += cache.bytes_per_position() * options.kv.slots * options.kv.positions;

  std::vector<double> pass_seconds;
  uint64_t checksum = 0;
  const Clock::time_point start = Clock::now();
  double go_on = 1;
  while (go_on != 0) {
    context.communicator.barrier();
    const Clock::time_point begin = Clock::now();
    checksum ^= context.backend.read_all(decoder.read_every_step(), &cache, options.kv);
    context.backend.synchronize();
    if (options.oversubscribed) context.communicator.barrier();
    pass_seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    context.world.progress("measuring read bandwidth");
    // The group's first rank decides when it is enough, so that all make the same number of passes.
    constexpr size_t kLeastPasses = 5;
    const double elapsed = std::chrono::duration<double>(Clock::now() - start).count();
    go_on = elapsed < options.seconds || pass_seconds.size() < kLeastPasses ? 1 : 0;
    context.communicator.broadcast(std::as_writable_bytes(std::span(&go_on, 1)), 0);
  }
  volatile uint64_t sink = checksum;  // the reads have a user
  static_cast<void>(sink);
  std::sort(pass_seconds.begin(), pass_seconds.end());
  const double gigabytes = static_cast<double>(result.bytes) * 1e-9;
  result.passes = static_cast<int64_t>(pass_seconds.size());
  result.best_gb_per_s = gigabytes / pass_seconds.front();
  result.median_gb_per_s = gigabytes / quantile_sorted(pass_seconds, 0.5);
  return result;
}

}  // namespace shardscope::runtime
