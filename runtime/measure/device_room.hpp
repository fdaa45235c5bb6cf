// Whether shards fit the devices of their ranks: the ledger that is asked before anything is loaded.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "runtime/decoder.hpp"
#include "runtime/model/open_model.hpp"

namespace shardscope::runtime {

/// One rank's needs and what its device has free.
struct DeviceRoom {
  int rank = 0;
  MemoryBytes needed;          // weights with the alignment of their places on a device
  int64_t reserved_bytes = 0;  // what backend and libraries take beside them
  int64_t free_bytes = 0;

  int64_t needed_bytes() const { return needed.weights + needed.kv + needed.workspace + reserved_bytes; }
  bool lacks() const { return needed_bytes() > free_bytes; }
  /// "rank 1 lacks 3.20 GB: it needs 83.20 GB (weights …), 80.00 GB are free on its device"
  std::string text() const;
};

/// Of the plan's ranks, the one with the least left over. free_bytes: of each rank's device, at least one for each rank
/// of the plan.
DeviceRoom tightest_room(const OpenedModel& model, const parallel::ShardPlan& plan, const DecoderOptions& options,
                         std::span<const int64_t> free_bytes, int64_t reserved_bytes);

}  // namespace shardscope::runtime
