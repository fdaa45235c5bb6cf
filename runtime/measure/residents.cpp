#include "runtime/measure/residents.hpp"

#include <algorithm>

namespace shardscope::runtime {

DecoderOptions decoder_options(const std::vector<Workload>& workloads, int64_t max_step_tokens,
                               const kernels::Precision& precision) {
  DecoderOptions result{.slots = 1, .max_positions = 1, .max_step_tokens = max_step_tokens, .precision = precision};
  for (const Workload& workload : workloads) {
    result.slots = std::max(result.slots, workload.batch);
    result.max_positions = std::max(result.max_positions, workload.positions());
  }
  result.max_step_tokens = std::max(result.max_step_tokens, result.slots);
  return result;
}

ResidentPlan plan_residents(const std::vector<Workload>& workloads,
                            const std::function<bool(const std::vector<Workload>&)>& fits) {
  ResidentPlan plan;
  std::vector<std::vector<Workload>> together;
  for (size_t index = 0; index < workloads.size(); ++index) {
    bool placed = false;
    for (size_t set = 0; set < together.size() && !placed; ++set) {
      std::vector<Workload> joined = together[set];
      joined.push_back(workloads[index]);
      if (!fits(joined)) continue;
      together[set] = std::move(joined);
      plan.residents[set].push_back(index);
      placed = true;
    }
    if (placed) continue;
    if (!fits({workloads[index]})) {
      plan.refused.push_back(index);
      continue;
    }
    together.push_back({workloads[index]});
    plan.residents.push_back({index});
  }
  return plan;
}

}  // namespace shardscope::runtime
