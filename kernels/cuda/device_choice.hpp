// Which device each rank takes, from what all ranks of the group see. Pure: every rank calculates the same from the
// same gathered facts, before NCCL or any context. Knows nothing of MPI and of CUDA.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace shardscope::cuda {

/// A device that a rank can use.
struct VisibleDevice {
  int ordinal = 0;         // in that rank's process
  std::string uuid;        // tells devices apart, MIG instances too
  std::string pci_bus_id;  // does so where there is no UUID

  bool operator==(const VisibleDevice&) const = default;
};

/// What one rank sees.
struct RankDevices {
  std::string host;
  int host_rank = 0;                           // among the ranks of that host
  std::optional<std::string> visible_devices;  // CUDA_VISIBLE_DEVICES, if it is set
  std::vector<VisibleDevice> devices;          // usable ones, by ordinal
  std::string why_none;                        // why there are none

  bool operator==(const RankDevices&) const = default;
};

/// One line of text with it, for an exchange among ranks, and back. Throws BugError for other text.
std::string encode(const RankDevices& rank);
RankDevices decode_rank_devices(std::string_view text);

struct ChoiceOptions {
  int group_size = 0;          // ranks 0 .. group_size - 1 take devices
  bool oversubscribe = false;  // ranks may share a device, dealt in turn
};

/// The ordinal for each rank, -1 outside the group. `ranks`: all, by rank. On each host the n-th rank gets the n-th
/// device that it sees, or its only one, and another one where that is taken: each device goes to one rank. Throws
/// UserError, which names ranks, host, bus ids and CUDA_VISIBLE_DEVICES, if there are not enough.
std::vector<int> choose_devices(std::span<const RankDevices> ranks, const ChoiceOptions& options);

}  // namespace shardscope::cuda
