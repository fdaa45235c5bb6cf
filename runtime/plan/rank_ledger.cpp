#include "runtime/plan/rank_ledger.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "runtime/model/slice.hpp"

namespace shardscope::runtime {
namespace {

using kernels::DType;

constexpr double kScaleBits = 16;  // of a quantised weight's scale
constexpr double kByteBits = 8;

bool is_layer_matrix(Role role) {
  const WeightRule& rule = rule_of(role);
  return rule.per_layer && !rule.vector;
}

/// What quantised weights take of the bytes of plain ones.
double format_share(Role role, DType stored, const PlanFormat& format) {
  if (!format.weight_bits || !is_layer_matrix(role)) return 1;
  return *format.weight_bits / (kByteBits * static_cast<double>(kernels::facts(stored).block_bytes));
}

DType resident_dtype(Role role, DType stored) {
  return rule_of(role).vector ? DType::kF32 : stored;
}

double kv_share(const PlanFormat& format, const kernels::Precision& precision) {
  if (!format.kv_bits) return 1;
  return *format.kv_bits / (kByteBits * static_cast<double>(kernels::facts(precision.kv).block_bytes));
}

struct Shards {
  const ModelConfig& config;
  const DTypeOf& dtype_of;
  const parallel::ShardPlan& plan;
  const PlanFormat& format;
  int rank;

  PlannedProduct product(WeightId id) const {
    const DType dtype = resident_dtype(id.role, dtype_of(id));
    const double bytes = static_cast<double>(slice_bytes(config, id.role, dtype, plan, rank).stored) *
                         format_share(id.role, dtype, format);
    if (rule_of(id.role).vector) return {.bytes = bytes};
    const WeightSlice slice = slice_of(config, id.role, dtype, plan, rank);
    return {.bytes = bytes,
            .flops_per_token =
                2.0 * static_cast<double>(slice.rows.size()) * static_cast<double>(slice.used_columns.size())};
  }
};

PlannedProduct& operator+=(PlannedProduct& sum, const PlannedProduct& one) {
  sum.bytes += one.bytes;
  sum.flops_per_token += one.flops_per_token;
  return sum;
}

bool alike(const PlannedLayer& a, const PlannedLayer& b) {
  const auto same = [](const PlannedProduct& x, const PlannedProduct& y) {
    return x.bytes == y.bytes && x.flops_per_token == y.flops_per_token;
  };
  return same(a.qkv, b.qkv) && same(a.attention_out, b.attention_out) && same(a.gate_up, b.gate_up) &&
         same(a.down, b.down);
}

/// Where a tensor's bytes are read; norms are fused to the product behind them.
PlannedProduct& place_of(PlannedLayer& layer, Role role) {
  switch (role) {
    case Role::kAttentionNorm:
    case Role::kQuery:
    case Role::kKey:
    case Role::kValue:
    case Role::kQueryBias:
    case Role::kKeyBias:
    case Role::kValueBias:
      return layer.qkv;
    case Role::kAttentionOut:
    case Role::kAttentionOutBias:
      return layer.attention_out;
    case Role::kFfnNorm:
    case Role::kGate:
    case Role::kUp:
    case Role::kGateBias:
    case Role::kUpBias:
      return layer.gate_up;
    case Role::kDown:
    case Role::kDownBias:
      return layer.down;
    case Role::kEmbedding:
    case Role::kHead:
    case Role::kFinalNorm:
      break;
  }
  throw BugError("place_of: a tensor outside the layers");
}

void add_layer(std::vector<PlannedLayer>& layers, PlannedLayer layer) {
  const auto same =
      std::find_if(layers.begin(), layers.end(), [&](const PlannedLayer& one) { return alike(one, layer); });
  if (same != layers.end()) {
    ++same->count;
    return;
  }
  layer.count = 1;
  layers.push_back(layer);
}

RankLedger ledger_of(const Shards& shards, const kernels::Precision& precision) {
  const ModelConfig& config = shards.config;
  RankLedger ledger;
  std::vector<PlannedLayer> layers(static_cast<size_t>(config.layers));
  for (const WeightId id : expected_weights(config)) {
    if (id.layer >= 0) {
      place_of(layers[static_cast<size_t>(id.layer)], id.role) += shards.product(id);
    } else if (id.role == Role::kEmbedding && !config.tied_embeddings) {
      const parallel::RankShard& shard = shards.plan.ranks[static_cast<size_t>(shards.rank)];
      const double share = static_cast<double>(shard.vocab.size()) / static_cast<double>(config.vocab);
      ledger.looked_up_bytes = share * static_cast<double>(kernels::row_bytes(shards.dtype_of(id), config.hidden));
    } else {
      ledger.head += shards.product(id);
    }
  }
  for (const PlannedLayer& layer : layers) add_layer(ledger.layers, layer);
  const parallel::RankShard& shard = shards.plan.ranks[static_cast<size_t>(shards.rank)];
  const double element =
      static_cast<double>(kernels::facts(precision.kv).block_bytes) * kv_share(shards.format, precision);
  ledger.kv_position_bytes = 2.0 * static_cast<double>(shard.kv_heads.size() * config.head_dim) * element;
  ledger.attention_flops_per_pair = 4.0 * static_cast<double>(shard.query_heads.size() * config.head_dim);
  return ledger;
}

/// Weights of a rank, in that format.
struct StoredWeights {
  double layers = 0, embedding = 0, head = 0;
};

StoredWeights stored_weights(const Shards& shards) {
  StoredWeights stored;
  for (const WeightId id : expected_weights(shards.config)) {
    const double bytes = shards.product(id).bytes;
    (id.layer >= 0 ? stored.layers : id.role == Role::kEmbedding ? stored.embedding : stored.head) += bytes;
  }
  return stored;
}

}  // namespace

PlanFormat PlanFormat::quantised(const std::string& name, int64_t group) {
  struct Scheme {
    std::string_view name;
    double bits;
    int64_t group;  // 0: a scale per row, too little to count
  };
  // nf4: its scales are quantised themselves, 8 bits of 64 weights and 32 of 256 such (arXiv:2305.14314, section 3).
  constexpr double kNf4Bits = 4 + 8.0 / 64 + 32.0 / (64 * 256);
  constexpr std::array kSchemes = {Scheme{"int8", 8, 0}, Scheme{"int4", 4, 128}, Scheme{"nf4", kNf4Bits, -1},
                                   Scheme{"fp8", 8, 0}};
  if (name == "none") return {};
  const auto* const scheme =
      std::find_if(kSchemes.begin(), kSchemes.end(), [&](const Scheme& one) { return one.name == name; });
  if (scheme == kSchemes.end()) {
    throw UserError(fmt::format("no quantisation '{}'", name), "--quant", "use one of: none, int8, int4, nf4, fp8");
  }
  const int64_t of = group > 0 ? group : scheme->group;
  const bool grouped = of > 0 && scheme->group >= 0;
  constexpr int64_t kNf4Group = 64;
  return {.name = grouped ? fmt::format("{} g{}", name, of) : name,
          .weight_bits = scheme->bits + (grouped ? kScaleBits / static_cast<double>(of) : 0),
          .nominal_bits = static_cast<int>(scheme->bits),
          .group = grouped             ? of
                   : scheme->group < 0 ? kNf4Group
                                       : 0,
          .kv_name = "",
          .kv_bits = std::nullopt};
}

std::vector<RankLedger> rank_ledgers(const ModelConfig& config, const DTypeOf& dtype_of,
                                     const parallel::ShardPlan& plan, const PlanFormat& format,
                                     const kernels::Precision& precision) {
  std::vector<RankLedger> ledgers;
  for (int rank = 0; rank < static_cast<int>(plan.ranks.size()); ++rank) {
    ledgers.push_back(ledger_of({config, dtype_of, plan, format, rank}, precision));
  }
  return ledgers;
}

StepBytes planned_step_bytes(const ModelConfig& config, const DTypeOf& dtype_of, const parallel::ShardPlan& plan,
                             int rank, const Workload& workload, const PlanFormat& format,
                             const kernels::Precision& precision) {
  StepBytes bytes = step_traffic(config, dtype_of, plan, rank, workload, precision);
  const double kv = kv_share(format, precision);
  if (!format.weight_bits && kv == 1) return bytes;
  const Shards shards{config, dtype_of, plan, format, rank};
  double replicated_kv = bytes.replicated;
  double replicated_weights = 0;
  bytes.weights = 0;
  for (const WeightId id : expected_weights(config)) {
    const DType dtype = resident_dtype(id.role, dtype_of(id));
    const bool looked_up = id.role == Role::kEmbedding && !config.tied_embeddings;
    const SliceBytes slice = slice_bytes(config, id.role, dtype, plan, rank);
    if (!looked_up) {
      replicated_kv -= slice.replicated;
      replicated_weights += slice.replicated * format_share(id.role, dtype, format);
      bytes.weights += shards.product(id).bytes;
    }
  }
  const RankLedger ledger = ledger_of(shards, precision);
  bytes.weights += static_cast<double>(workload.batch) * ledger.looked_up_bytes;
  bytes.replicated = replicated_weights + replicated_kv * kv;
  bytes.kv_read *= kv;
  bytes.kv_write *= kv;
  return bytes;
}

double planned_nominal_bytes(const ModelConfig& config, const DTypeOf& dtype_of, const Workload& workload,
                             const PlanFormat& format, const kernels::Precision& precision) {
  double weights = 0;
  double as_stored = 0;
  for (const WeightId id : expected_weights(config)) {
    const WeightShape shape = shape_of(config, id.role);
    const auto bytes = static_cast<double>(shape.rows * kernels::row_bytes(dtype_of(id), shape.columns));
    as_stored += bytes;
    weights += bytes * format_share(id.role, dtype_of(id), format);
  }
  const double kv = nominal_step_bytes(config, dtype_of, workload, precision) - as_stored;
  return weights + kv * kv_share(format, precision);
}

MemoryBytes planned_stage_memory(const ModelConfig& config, const WeightSource& source, const parallel::ShardPlan& plan,
                                 const DecoderOptions& options, int rank, const PlanFormat& format, int stages) {
  MemoryBytes memory = planned_memory(config, source, plan, options, rank);
  const DTypeOf dtype_of = [&](WeightId id) { return source.dtype(id); };
  const StoredWeights stored = stored_weights({config, dtype_of, plan, format, rank});
  const int64_t layers = (config.layers + stages - 1) / stages;
  const double share = static_cast<double>(layers) / static_cast<double>(config.layers);
  // The first stage looks up, the last one has the head; with one stage, or a tied table, a rank may have both.
  const double ends = stages == 1 ? stored.embedding + stored.head : std::max(stored.embedding, stored.head);
  memory.weights = static_cast<int64_t>(stored.layers * share + ends);
  memory.kv = static_cast<int64_t>(static_cast<double>(memory.kv) * kv_share(format, options.precision) * share);
  return memory;
}

}  // namespace shardscope::runtime
