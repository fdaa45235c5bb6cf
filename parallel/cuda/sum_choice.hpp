// Which way of summing serves which message: measured on the group's devices at the start. All ranks decide alike, from
// figures that all have; rank 0 says when the time for measuring is over.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "parallel/communicator.hpp"
#include "parallel/cuda/device_ways.hpp"

namespace shardscope::parallel {

/// Medians of each size and way that takes it whole. Collective. message_bytes: the same on all ranks.
std::vector<SumChoices::Measured> measure_ways(DeviceWays& ways, Communicator& host, const DeviceStream& stream,
                                               kernels::DType dtype, std::span<const int64_t> message_bytes);

/// The fastest at each size, one choice for neighbours with the same; between two sizes it changes at their geometric
/// mean. Ties go to what was measured first. NCCL sums in one kind of memory or the other: of "nccl" and
/// "nccl-symmetric", the one that is slower at the sizes where either would win is left out. Pure. Throws BugError
/// where nothing was measured.
std::vector<SumChoices::Choice> decide(std::span<const SumChoices::Measured> measured);

}  // namespace shardscope::parallel
