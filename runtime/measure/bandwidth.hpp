// Read bandwidth that a rank achieves here and now: its own resident weights and KV cache, read by all ranks of the
// group at the same time with the run's threads. The denominator of `mbu_achievable`.
#pragma once

#include <cstdint>

#include "runtime/decoder.hpp"

namespace shardscope::runtime {

struct ReadBandwidth {
  double best_gb_per_s = 0;  // of the passes; 10^9 bytes
  double median_gb_per_s = 0;
  int64_t bytes = 0;  // one pass of this rank
  int64_t passes = 0;
};

/// Reads what a decode step with `kv_positions` positions reads, again and again for about `seconds`, in step with the
/// group (each pass begins together). Collective over the group.
ReadBandwidth measure_read_bandwidth(Decoder& decoder, RankContext context, int64_t kv_positions, double seconds);

}  // namespace shardscope::runtime
