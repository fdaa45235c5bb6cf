// The traffic model: how many bytes a rank must move for one decode step. A pure function of the model, the plan and
// the lengths; every MBU divides by what stands here.
#pragma once

#include <cstdint>
#include <functional>

#include "kernels/backend.hpp"
#include "kernels/dtype.hpp"
#include "parallel/shard_plan.hpp"
#include "runtime/model/config.hpp"
#include "runtime/model/weights.hpp"

namespace shardscope::runtime {

/// Bytes of one rank in one decode step (means over the steps of a generation, hence double).
struct StepBytes {
  double weights = 0;  // every matrix once at its stored size, vectors, looked-up embedding rows
  double kv_read = 0;
  double kv_write = 0;
  double replicated = 0;   // part of weights + kv_read that other ranks move too: (1 - 1 / holders) of each byte
  double padded = 0;       // part of weights that is padding; not foreseen: 0
  double activations = 0;  // inputs and outputs of the operations; not part of headline()

  double headline() const { return weights + kv_read + kv_write; }
};

/// StepBytes::headline() by the operations that move it. Biases and the weights of norms go with the products that they
/// are fused to.
struct OperationBytes {
  double products = 0;  // all weights but the LM head's and the embedding's
  double attention = 0;
  double elementwise = 0;  // looked-up embedding rows
  double head = 0;         // with the final norm

  double sum() const { return products + attention + elementwise + head; }
};

struct Workload {
  int64_t batch = 1;
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;

  /// Of the KV cache that one sequence fills; the last token is never read.
  int64_t positions() const { return prompt_tokens + (output_tokens > 1 ? output_tokens - 1 : 0); }
  bool operator==(const Workload&) const = default;
};

/// Stored type of a tensor of the model.
using DTypeOf = std::function<kernels::DType(WeightId)>;

/// Mean over decode steps s = 1 … output_tokens - 1: step s reads prompt + s positions (its own included) of every
/// sequence and writes one. With one output token there is no step: kv_read and kv_write are those of step 1.
StepBytes step_traffic(const ModelConfig& config, const DTypeOf& dtype_of, const parallel::ShardPlan& plan, int rank,
                       const Workload& workload, const kernels::Precision& precision);

/// The same bytes by operation: sum() is step_traffic(…).headline().
OperationBytes operation_traffic(const ModelConfig& config, const DTypeOf& dtype_of, const parallel::ShardPlan& plan,
                                 int rank, const Workload& workload, const kernels::Precision& precision);

/// Bytes of the whole unsharded model that the published MBU definition counts for one step: all parameters (the
/// embedding table too) + KV of the mean step.
double nominal_step_bytes(const ModelConfig& config, const DTypeOf& dtype_of, const Workload& workload,
                          const kernels::Precision& precision);

}  // namespace shardscope::runtime
