// Which workloads are measured on one set of resident shards, and what of the shards' sizes follows.
#pragma once

#include <functional>
#include <vector>

#include "runtime/decoder.hpp"
#include "runtime/measure/traffic.hpp"

namespace shardscope::runtime {

/// KV cache and step sizes that hold every workload of a list.
DecoderOptions decoder_options(const std::vector<Workload>& workloads, int64_t max_step_tokens,
                               const kernels::Precision& precision);

struct ResidentPlan {
  std::vector<std::vector<size_t>> residents;  // indices of workloads; a set of shards each, in order
  std::vector<size_t> refused;                 // fit no memory even alone
};

/// Puts workloads together while their common KV cache fits (the first set with room takes one); one that fits only
/// alone gets a set of its own. fits: whether shards with room for these workloads fit the memory.
ResidentPlan plan_residents(const std::vector<Workload>& workloads,
                            const std::function<bool(const std::vector<Workload>&)>& fits);

}  // namespace shardscope::runtime
