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

struct BandwidthOptions {
  kernels::KvPart kv;           // what a decode step reads of the cache; must have been written
  double seconds = 0;           // about how long
  bool oversubscribed = false;  // ranks share cores
};

/// Reads what a decode step reads, again and again, in step with the group: each pass begins together. A pass lasts
/// until this rank has read its part; where ranks share cores, until all ranks have, since a rank's own time then
/// leaves out that others wait for its core. Collective over the group.
ReadBandwidth measure_read_bandwidth(Decoder& decoder, RankContext context, const BandwidthOptions& options);

}  // namespace shardscope::runtime
