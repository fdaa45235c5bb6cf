// The cost model of plan: how long a decode step and a prompt take on GPUs that need not be here. cost_model.cpp reads
// as its description; the constants come from calibration.hpp, the bytes from rank_ledger.hpp, sums from sum_model.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/measure/parts.hpp"
#include "runtime/plan/rank_ledger.hpp"
#include "runtime/plan/sum_model.hpp"

namespace shardscope::runtime {

/// What one GPU and one software reach.
struct Reach {
  double gb_per_s = 0;                         // of the data sheet
  std::optional<double> tflops;                // of the data sheet, dense, of the activations' type
  double memory_share = 0, compute_share = 0;  // of these, by products that are large enough
  double launch_us = 0;                        // of a product beside its bytes
  double attention_us = 0;                     // of a layer's attention beside its bytes
  double prefill_half_us = 0;                  // a product of a prompt takes this, and its operations at compute_share
  int64_t prompt_tokens_at_once = 0;           // of a batch's prompts in one forward pass
  double overhead_us = 0;   // of a layer of a decode step: launches, norms, host; what no other part explains
  double stage_hop_us = 0;  // from one pipeline stage to the next
};

/// A model in the hands of a group.
struct PlannedModel {
  int64_t layers = 0;
  std::vector<RankLedger> ranks;         // of the tensor-parallel group
  std::vector<double> activation_bytes;  // of each rank, of one token of a step: StepBytes::activations at batch 1
  int64_t row_bytes = 0;                 // of one token's activations, which an all-reduce sums
};

PlannedModel planned_model(const ModelConfig& config, const DTypeOf& dtype_of, const parallel::ShardPlan& plan,
                           const PlanFormat& format, const kernels::Precision& precision);

struct PredictedStep {
  double ms = 0;             // with the slowest rank
  std::vector<Parts> ranks;  // [tp]: sum to ms each
};

/// The mean decode step of a workload. stages: pipeline stages; a batch flows through them in as many pieces, and the
/// slowest stage sets their pace (the last one has the head).
PredictedStep predicted_step(const PlannedModel& model, const Reach& reach, const SumModel& sums,
                             const Workload& workload, int stages);

/// Pieces of a batch that are under way at once in so many stages.
int64_t pieces_of(int64_t batch, int stages);

/// All prompts of a batch, in ms, in forward passes of reach.prompt_tokens_at_once. nullopt: the GPU's dense peak is
/// unknown.
std::optional<double> predicted_prefill_ms(const PlannedModel& model, const Reach& reach, const SumModel& sums,
                                           int64_t prompts, int64_t prompt_tokens, int stages);

/// Times of a whole batch, static: all prompts, then steps of all sequences.
struct PredictedTimes {
  std::optional<double> ttft_ms;     // of the batch's last prompt; nullopt: unknown, and so is latency
  std::optional<double> latency_ms;  // t(batch) = prefill(batch) + (outputs - 1) x step(batch)
  double tpot_ms = 0;
  PredictedStep step;
};
PredictedTimes predicted_times(const PlannedModel& model, const Reach& reach, const SumModel& sums,
                               const Workload& workload, int stages);

}  // namespace shardscope::runtime
