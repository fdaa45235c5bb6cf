#include "runtime/measure/traffic.hpp"

#include <algorithm>

#include "runtime/model/slice.hpp"

namespace shardscope::runtime {
namespace {

using kernels::DType;

/// Mean positions read by one sequence in a decode step.
double mean_positions(const Workload& workload) {
  const double steps = static_cast<double>(std::max<int64_t>(workload.output_tokens - 1, 1));
  return static_cast<double>(workload.prompt_tokens) + (1.0 + steps) / 2.0;
}

/// Bytes of keys and values of one position in one KV head of one layer.
double head_position_bytes(const ModelConfig& config, const kernels::Precision& precision) {
  return 2.0 * static_cast<double>(config.head_dim * kernels::facts(precision.kv).block_bytes);
}

DType resident_dtype(Role role, DType stored) {
  return rule_of(role).vector ? DType::kF32 : stored;
}

double activation_bytes(const ModelConfig& config, const parallel::RankShard& shard, int64_t batch,
                        const kernels::Precision& precision) {
  const auto hidden = static_cast<double>(config.hidden);
  const auto queries = static_cast<double>(shard.query_heads.size() * config.head_dim);
  const auto qkv = queries + 2.0 * static_cast<double>(shard.kv_heads.size() * config.head_dim);
  const auto ffn = static_cast<double>(shard.ffn.size());
  // Per layer, reads + writes: two fused add-norms (3 + 2 rows each), qkv in and out, rotary in place, attention in and
  // out, output product, gated product, down product.
  const double layer = 2.0 * 5.0 * hidden + (hidden + qkv) + 2.0 * qkv + (qkv + queries) + (queries + hidden) +
                       (hidden + ffn) + (ffn + hidden);
  const double ends = hidden + 5.0 * hidden + hidden;
  const auto element = static_cast<double>(kernels::facts(precision.activations).block_bytes);
  const double logits = static_cast<double>(shard.vocab.size()) * sizeof(float);
  return static_cast<double>(batch) * ((static_cast<double>(config.layers) * layer + ends) * element + logits);
}

/// Bytes of one tensor in a step, or of the rows looked up in it.
struct WeightTraffic {
  double stored = 0;
  double replicated = 0;
};

WeightTraffic weight_traffic(const ModelConfig& config, WeightId id, const DTypeOf& dtype_of,
                             const parallel::ShardPlan& plan, int rank, int64_t batch) {
  const DType dtype = resident_dtype(id.role, dtype_of(id));
  if (id.role == Role::kEmbedding && !config.tied_embeddings) {
    // Only the rows looked up; a random token lies on this rank with probability local / all.
    const parallel::RankShard& shard = plan.ranks.at(static_cast<size_t>(rank));
    const double share = static_cast<double>(shard.vocab.size()) / static_cast<double>(config.vocab);
    return {.stored =
                static_cast<double>(batch) * share * static_cast<double>(kernels::row_bytes(dtype, config.hidden))};
  }
  const SliceBytes slice = slice_bytes(config, id.role, dtype, plan, rank);
  return {.stored = static_cast<double>(slice.stored), .replicated = slice.replicated};
}

}  // namespace

StepBytes step_traffic(const ModelConfig& config, const DTypeOf& dtype_of, const parallel::ShardPlan& plan, int rank,
                       const Workload& workload, const kernels::Precision& precision) {
  StepBytes bytes;
  const parallel::RankShard& shard = plan.ranks.at(static_cast<size_t>(rank));
  const auto batch = static_cast<double>(workload.batch);
  for (const WeightId id : expected_weights(config)) {
    const WeightTraffic traffic = weight_traffic(config, id, dtype_of, plan, rank, workload.batch);
    bytes.weights += traffic.stored;
    bytes.replicated += traffic.replicated;
  }
  const double position = head_position_bytes(config, precision) * static_cast<double>(config.layers) * batch;
  for (int64_t head = shard.kv_heads.begin; head < shard.kv_heads.end; ++head) {
    const double read = position * mean_positions(workload);
    bytes.kv_read += read;
    bytes.kv_write += position;
    bytes.replicated += read * (1.0 - 1.0 / static_cast<double>(kv_head_holders(plan, head)));
  }
  bytes.activations = activation_bytes(config, shard, workload.batch, precision);
  return bytes;
}

OperationBytes operation_traffic(const ModelConfig& config, const DTypeOf& dtype_of, const parallel::ShardPlan& plan,
                                 int rank, const Workload& workload, const kernels::Precision& precision) {
  OperationBytes bytes;
  for (const WeightId id : expected_weights(config)) {
    const bool table = id.role == Role::kEmbedding && !config.tied_embeddings;
    const bool head = id.role == Role::kHead || id.role == Role::kFinalNorm || id.role == Role::kEmbedding;
    double& sum = table ? bytes.elementwise : head ? bytes.head : bytes.products;
    sum += weight_traffic(config, id, dtype_of, plan, rank, workload.batch).stored;
  }
  const StepBytes step = step_traffic(config, dtype_of, plan, rank, workload, precision);
  bytes.attention = step.kv_read + step.kv_write;
  return bytes;
}

double nominal_step_bytes(const ModelConfig& config, const DTypeOf& dtype_of, const Workload& workload,
                          const kernels::Precision& precision) {
  double bytes = 0;
  for (const WeightId id : expected_weights(config)) {
    const WeightShape shape = shape_of(config, id.role);
    bytes += static_cast<double>(shape.rows * kernels::row_bytes(dtype_of(id), shape.columns));
  }
  return bytes + head_position_bytes(config, precision) *
                     static_cast<double>(config.layers * config.kv_heads * workload.batch) * mean_positions(workload);
}

}  // namespace shardscope::runtime
