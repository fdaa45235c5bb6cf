#include "runtime/report/document.hpp"

#include <algorithm>
#include <map>
#include <span>

#include <fmt/format.h>

#include "runtime/model/mapped_file.hpp"
#include "runtime/model/slice.hpp"
#include "runtime/report/comparable.hpp"
#include "runtime/report/json_values.hpp"
#include "runtime/report/names.hpp"

namespace shardscope::runtime {
namespace {

/// The tensor class that a role is summed under.
const char* tensor_class(Role role) {
  switch (role) {
    case Role::kEmbedding:
      return "embedding";
    case Role::kHead:
      return "head";
    case Role::kQuery:
    case Role::kKey:
    case Role::kValue:
    case Role::kAttentionOut:
      return "attention";
    case Role::kGate:
    case Role::kUp:
    case Role::kDown:
      return "ffn";
    case Role::kFinalNorm:
    case Role::kAttentionNorm:
    case Role::kFfnNorm:
      return "norms";
    case Role::kQueryBias:
    case Role::kKeyBias:
    case Role::kValueBias:
    case Role::kAttentionOutBias:
    case Role::kGateBias:
    case Role::kUpBias:
    case Role::kDownBias:
      return "biases";
  }
  return "other";
}

const char* activation_name(kernels::ActivationMode mode) {
  switch (mode) {
    case kernels::ActivationMode::kAuto:
      return "auto";
    case kernels::ActivationMode::kF32:
      return "fp32";
    case kernels::ActivationMode::kInt8:
      return "int8";
  }
  return "auto";
}

/// What a value takes, its block's scale and zero point left out.
int nominal_bits(kernels::DType dtype) {
  switch (dtype) {
    case kernels::DType::kF32:
      return 32;
    case kernels::DType::kF16:
    case kernels::DType::kBF16:
      return 16;
    case kernels::DType::kQ8_0:
      return 8;
    case kernels::DType::kQ4_0:
    case kernels::DType::kQ4_1:
      return 4;
  }
  return 0;
}

/// The type in which most bytes of the model's matrices are stored.
kernels::DType dominant_dtype(const OpenedModel& model) {
  std::map<kernels::DType, int64_t> bytes;
  for (const WeightId id : expected_weights(model.config)) {
    if (rule_of(id.role).vector) continue;
    const WeightShape shape = shape_of(model.config, id.role);
    const kernels::DType dtype = model.weights->dtype(id);
    bytes[dtype] += shape.rows * kernels::row_bytes(dtype, shape.columns);
  }
  const auto less = [](const auto& a, const auto& b) { return a.second < b.second; };
  return std::max_element(bytes.begin(), bytes.end(), less)->first;
}

Json quantisation_json(const OpenedModel& model, double effective_bits) {
  const kernels::DType dtype = dominant_dtype(model);
  const kernels::DTypeFacts& facts = kernels::facts(dtype);
  const bool blocks = facts.block_quantised;
  return {{"scheme", model.config.quantisation},
          {"bits_nominal", nominal_bits(dtype)},
          {"bits_effective", effective_bits},
          {"group", blocks ? Json(facts.block_elements) : Json(nullptr)},
          {"granularity", blocks ? Json("block") : Json(nullptr)},
          {"algorithm", nullptr}};  // files do not say
}

/// Whether every warm-up became steady: one that did not decides; null where none can tell.
Json steady_json(const std::vector<PointResult>& points) {
  Json steady = nullptr;
  for (const PointResult& point : points) {
    for (const WarmUp& warm_up : point.warm_ups) {
      if (!warm_up.steady.value_or(true)) return false;
      if (warm_up.steady) steady = true;
    }
  }
  return steady;
}

/// The all-reduce times that a rehearsal adds, whatever file they came from; empty: none are known.
Json collectives_json(const topology::CollectiveTimes& times) {
  Json tables = Json::array();
  for (const auto& [ranks, us] : times.tables()) {
    Json sizes = Json::array();
    Json microseconds = Json::array();
    for (const auto& [bytes, time_us] : us) {
      sizes.push_back(bytes);
      microseconds.push_back(time_us);
    }
    tables.push_back({{"ranks", ranks}, {"bytes", std::move(sizes)}, {"time_us", std::move(microseconds)}});
  }
  return tables;
}

}  // namespace

Json model_json(const OpenedModel& model, const kernels::Precision& precision) {
  const ModelConfig& config = model.config;
  Json document = {{"name", config.name},
                   {"kind", model.kind},
                   {"architecture", config.architecture},
                   {"parameters", parameter_count(config)},
                   {"layers", config.layers},
                   {"layers_in_file", config.layers_in_file},
                   {"layers_cut", config.layers != config.layers_in_file},
                   {"hidden", config.hidden},
                   {"query_heads", config.query_heads},
                   {"kv_heads", config.kv_heads},
                   {"head_dim", config.head_dim},
                   {"ffn", config.ffn},
                   {"vocab", config.vocab},
                   {"tied_embeddings", config.tied_embeddings},
                   {"max_positions", config.max_positions},
                   {"dtype", kernels::facts(model.dtype).name},
                   {"kv_dtype", kernels::facts(precision.kv).name},
                   {"quantisation", nullptr}};
  std::map<std::string, int64_t> by_class;
  std::map<std::string, int64_t> by_dtype;
  int64_t total = 0;
  int64_t elements = 0;
  for (const WeightId id : expected_weights(config)) {
    const WeightShape shape = shape_of(config, id.role);
    const kernels::DType dtype = model.weights->dtype(id);
    const int64_t bytes = shape.rows * kernels::row_bytes(dtype, shape.columns);
    by_class[tensor_class(id.role)] += bytes;
    by_dtype[std::string(kernels::facts(dtype).name)] += bytes;
    total += bytes;
    elements += shape.rows * shape.columns;
  }
  document["bytes"] = {{"total", total}, {"by_class", by_class}, {"by_dtype", by_dtype}};
  const double effective_bits = 8.0 * static_cast<double>(total) / static_cast<double>(elements);
  document["quantisation"] = quantisation_json(model, effective_bits);
  document["bits_per_weight_effective"] = effective_bits;
  document["identity"] = model.weights->identity();
  return document;
}

Json workload_json(const SweepOptions& options) {
  Json points = Json::array();
  for (const Workload& workload : options.workloads) points.push_back(workload_point_json(workload));
  const std::vector<int32_t>& ids = options.prompt_ids;
  const bool random = ids.empty();
  return {{"points", std::move(points)},
          {"prompt", random ? "random ids" : "text, cut or repeated to length"},
          {"prompt_hash", random ? Json(nullptr) : Json(fmt::format("{:016x}", fnv1a(std::as_bytes(std::span(ids)))))},
          {"arrival", "static batch"},
          {"seed", options.protocol.seed}};
}

Json protocol_json(const SweepOptions& options) {
  const Protocol& protocol = options.protocol;
  return {{"warmup_generations", value_or_null(protocol.warmup)},  // of a visit; null: until steady
          {"least_warmup_generations", kLeastWarmUp},
          {"longest_warmup_generations", kLongestWarmUp},
          {"steady_change", kSteadyChange},
          {"iterations", value_or_null(protocol.iterations)},  // null: until the noise is low
          {"least_generations", protocol.least_generations},
          {"noise_bound", protocol.noise_bound},
          {"max_seconds", protocol.max_seconds},
          {"stop_rule", protocol.stop_rule()},
          {"passes", protocol.passes()},
          {"instrumented", protocol.instrumented},
          {"order", "interleaved, seeded"},
          {"order_seed", protocol.seed},
          {"steady", nullptr},
          {"allreduce", parallel::communicator_name(options.communicator)},
          {"activations", activation_name(options.activations)},
          {"activation_dtype", kernels::facts(options.precision.activations).name},
          {"graphs", options.device_free_bytes.empty() ? Json(nullptr) : Json(options.graphs)},
          {"kind", kind_name(options.kind())},
          {"rehearsed_topology", options.rehearsal ? text_or_null(options.rehearsal->topology) : Json(nullptr)},
          {"rehearsed_collectives", options.rehearsal ? collectives_json(options.rehearsal->times) : Json(nullptr)},
          {"timer", "steady clock, slowest rank of each token"},
          {"percentile_method", kPercentileMethod}};
}

Json report_json(const ReportHeader& header, const OpenedModel& model, const SweepOptions& options,
                 const ReportBody& body) {
  Json results = Json::array();
  for (const PointResult& point : body.points) results.push_back(point_json(point, header.samples));
  Json document = {{"schema", "shardscope.report/1"},
                   {"command", header.command},
                   {"argv", header.argv},
                   {"options", header.options},
                   {"complete", body.complete},
                   {"environment", environment_json(header.environment)},
                   {"topology", header.topology},
                   {"model", model_json(model, options.precision)},
                   {"workload", workload_json(options)},
                   {"protocol", protocol_json(options)},
                   {"comparable_key", nullptr},
                   {"results", std::move(results)},
                   {"advice", body.advice},
                   {"warnings", body.warnings}};
  document["protocol"]["steady"] = steady_json(body.points);
  document["comparable_key"] = comparable_key(document);
  return document;
}

Json shards_json(const OpenedModel& model, const std::vector<int>& degrees, const Workload& workload,
                 const DecoderOptions& options) {
  const DTypeOf dtype_of = [&](WeightId id) { return model.weights->dtype(id); };
  Json plans = Json::array();
  for (const int tp : degrees) {
    const parallel::ShardPlan plan = plan_shards(shard_dimensions(model.config), tp);
    Json ranks = Json::array();
    for (int rank = 0; rank < tp; ++rank) {
      const parallel::RankShard& shard = plan.ranks[static_cast<size_t>(rank)];
      ranks.push_back({{"rank", rank},
                       {"query_heads", range_json(shard.query_heads)},
                       {"kv_heads", range_json(shard.kv_heads)},
                       {"ffn", range_json(shard.ffn)},
                       {"vocab", range_json(shard.vocab)},
                       {"memory_bytes", memory_json(planned_memory(model.config, *model.weights, plan, options, rank))},
                       {"bytes_per_step", step_bytes_json(step_traffic(model.config, dtype_of, plan, rank, workload,
                                                                       options.precision))}});
    }
    plans.push_back({{"tp", tp}, {"ranks", std::move(ranks)}});
  }
  return {{"schema", "shardscope.shards/1"},
          {"model", model_json(model, options.precision)},
          {"workload", workload_point_json(workload)},
          {"plans", std::move(plans)}};
}

std::string document_text(const Json& document) {
  return document.dump(1, ' ', false, Json::error_handler_t::ignore) + "\n";
}

}  // namespace shardscope::runtime
