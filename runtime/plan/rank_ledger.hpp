// What one rank of a shard plan reads, multiplies and keeps, product by product: the traffic model and the shard plan
// in the grain that times are reckoned in.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "parallel/shard_plan.hpp"
#include "runtime/decoder.hpp"
#include "runtime/measure/point.hpp"
#include "runtime/measure/traffic.hpp"
#include "runtime/model/config.hpp"

namespace shardscope::runtime {

/// How weights and KV cache are stored, where that differs from the model's own types.
struct PlanFormat {
  std::string name = "none";          // of the quantisation
  std::optional<double> weight_bits;  // of a weight of the layers' matrices, scales included; nullopt: as stored
  int nominal_bits = 0;               // without scales; 0: as stored
  int64_t group = 0;                  // weights that share a scale; 0: a row's
  std::string kv_name;                // empty: as --kv-dtype
  std::optional<double> kv_bits;      // of an element of the KV cache

  /// "none", "int8", "int4", "nf4", "fp8". group: weights that share a scale. Throws UserError.
  static PlanFormat quantised(const std::string& name, int64_t group);
};

/// A matrix product of one rank; nothing where it has no rows.
struct PlannedProduct {
  double bytes = 0;            // of weights (and biases), once a step
  double flops_per_token = 0;  // 2 x elements
};

/// The products of a layer on one rank, fused as ours are.
struct PlannedLayer {
  PlannedProduct qkv, attention_out, gate_up, down;
  int64_t count = 0;  // layers that are alike
};

struct RankLedger {
  std::vector<PlannedLayer> layers;
  PlannedProduct head;
  double kv_position_bytes = 0;         // keys and values of a position of one sequence, of one layer
  double attention_flops_per_pair = 0;  // of a layer, for one query position and one position that it sees
  double looked_up_bytes = 0;           // rows of the embedding, of one token
};

/// The ledgers of all ranks.
std::vector<RankLedger> rank_ledgers(const ModelConfig& config, const DTypeOf& dtype_of,
                                     const parallel::ShardPlan& plan, const PlanFormat& format,
                                     const kernels::Precision& precision);

/// step_traffic of one rank in that format.
StepBytes planned_step_bytes(const ModelConfig& config, const DTypeOf& dtype_of, const parallel::ShardPlan& plan,
                             int rank, const Workload& workload, const PlanFormat& format,
                             const kernels::Precision& precision);

/// nominal_step_bytes in that format.
double planned_nominal_bytes(const ModelConfig& config, const DTypeOf& dtype_of, const Workload& workload,
                             const PlanFormat& format, const kernels::Precision& precision);

/// planned_memory of one rank in that format, of the heaviest of `stages` pipeline stages.
MemoryBytes planned_stage_memory(const ModelConfig& config, const WeightSource& source, const parallel::ShardPlan& plan,
                                 const DecoderOptions& options, int rank, const PlanFormat& format, int stages);

}  // namespace shardscope::runtime
