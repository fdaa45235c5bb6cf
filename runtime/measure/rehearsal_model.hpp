// What a rehearsal does not run but reckons: which rank stands for its group, and what the group's collectives would
// take. Pure functions; the machine that runs the rest is rehearsal.hpp.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.hpp"
#include "parallel/shard_plan.hpp"
#include "runtime/measure/point.hpp"
#include "topology/collective_times.hpp"

namespace shardscope::runtime {

/// Of a sweep that is rehearsed: one rank, one device, no group.
struct RehearsalOptions {
  topology::CollectiveTimes times;
  std::string topology;  // where they come from; empty: nothing is known
  /// The backend of a co-runner at the place of that rank of a group, called on the thread that will use it. Empty:
  /// none, since ranks share nothing (each its device).
  std::function<std::unique_ptr<kernels::Backend>(int place)> backend_at;
};

/// The rank that moves the most bytes in a decode step, over all workloads; the lowest of equals.
int heaviest_rank(const ModelConfig& config, const DTypeOf& dtype_of, const parallel::ShardPlan& plan,
                  const std::vector<Workload>& workloads, const kernels::Precision& precision);

/// StepBytes::headline() of all ranks together.
double group_step_bytes(const ModelConfig& config, const DTypeOf& dtype_of, const parallel::ShardPlan& plan,
                        const Workload& workload, const kernels::Precision& precision);

/// All-reduces of one forward pass: of the embedding, and two a layer.
int64_t all_reduces_of_pass(const ModelConfig& config);

/// What is added to a workload's figures at degree `tp`, and in words where it comes from. max_step_tokens: of a
/// forward pass.
Rehearsal rehearsal_of(const RehearsalOptions& options, const ModelConfig& config, const kernels::Backend& backend,
                       const Workload& workload, int tp, int64_t max_step_tokens);

/// Adds the modelled collectives to what was measured without them.
void add_collectives(const Rehearsal& rehearsal, GenerationSample& sample);
void add_collectives(const Rehearsal& rehearsal, InstrumentedSample& sample);

/// "stated error of TPOT at most 20 %", or that it is not known.
std::string stated_error_text(const Rehearsal& rehearsal);

/// Appends to point.verdicts: `rehearsed`, which states the error, and where it holds `compute_only`.
/// comm_share is that of a lone rank, and else unknown: nobody knows how long ranks wait for each other.
void finish_rehearsed(PointResult& point);

}  // namespace shardscope::runtime
