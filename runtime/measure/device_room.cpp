#include "runtime/measure/device_room.hpp"

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "kernels/cuda/weight_layout.hpp"
#include "runtime/resident_weights.hpp"

namespace shardscope::runtime {
namespace {

std::string gigabytes(int64_t bytes) {
  return fmt::format("{:.2f} GB", static_cast<double>(bytes) * 1e-9);
}

}  // namespace

std::string DeviceRoom::text() const {
  return fmt::format(
      "rank {} {}: it needs {} (weights {}, KV cache {}, activations {}, libraries and scratch {}), {} are "
      "free on its device",
      rank, lacks() ? "lacks " + gigabytes(needed_bytes() - free_bytes) : "has room", gigabytes(needed_bytes()),
      gigabytes(needed.weights), gigabytes(needed.kv), gigabytes(needed.workspace), gigabytes(reserved_bytes),
      gigabytes(free_bytes));
}

DeviceRoom tightest_room(const OpenedModel& model, const parallel::ShardPlan& plan, const DecoderOptions& options,
                         std::span<const int64_t> free_bytes, int64_t reserved_bytes) {
  require(plan.ranks.size() <= free_bytes.size(), "device_room: not one device for each rank");
  // NCCL's buffers of all channels and peers: an allowance for what differs with the machine, measured by nobody here.
  constexpr int64_t kOfGroup = int64_t{512} << 20;
  const int64_t beside = reserved_bytes + (plan.ranks.size() > 1 ? kOfGroup : 0);
  DeviceRoom tightest;
  for (int rank = 0; rank < static_cast<int>(plan.ranks.size()); ++rank) {
    MemoryBytes needed = planned_memory(model.config, *model.weights, plan, options, rank);
    needed.weights = cuda::allocation_bytes(announced_weights({model.config, *model.weights, plan, rank}));
    const DeviceRoom room{
        .rank = rank, .needed = needed, .reserved_bytes = beside, .free_bytes = free_bytes[static_cast<size_t>(rank)]};
    const auto left = [](const DeviceRoom& r) { return r.free_bytes - r.needed_bytes(); };
    if (rank == 0 || left(room) < left(tightest)) tightest = room;
  }
  return tightest;
}

}  // namespace shardscope::runtime
