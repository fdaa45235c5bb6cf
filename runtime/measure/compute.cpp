#include "runtime/measure/compute.hpp"

#include "runtime/model/weights.hpp"

namespace shardscope::runtime {

double prefill_flops(const ModelConfig& config, const Workload& workload) {
  const auto batch = static_cast<double>(workload.batch);
  const auto prompt = static_cast<double>(workload.prompt_tokens);
  double per_token = 0;  // parameters of the layers' matrices
  for (const WeightId id : expected_weights(config)) {
    if (id.role == Role::kEmbedding || id.role == Role::kHead || rule_of(id.role).vector) continue;
    const WeightShape shape = shape_of(config, id.role);
    per_token += static_cast<double>(shape.rows) * static_cast<double>(shape.columns);
  }
  const double head = static_cast<double>(config.vocab) * static_cast<double>(config.hidden);  // tied or not
  const double contexts = prompt * (prompt + 1) / 2;
  const double attention = 4 * static_cast<double>(config.layers) * static_cast<double>(config.query_heads) *
                           static_cast<double>(config.head_dim) * contexts;
  return batch * (2 * per_token * prompt + 2 * head + attention);
}

}  // namespace shardscope::runtime
