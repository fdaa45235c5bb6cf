#include "runtime/report/document.hpp"

#include <map>

#include <fmt/format.h>

#include "runtime/model/slice.hpp"

namespace shardscope::runtime {
namespace {

Json number(const std::optional<double>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json interval_json(const Interval& interval) {
  return Json::array({number(interval.low), number(interval.high)});
}

Json spread_json(const std::optional<Spread>& spread) {
  if (!spread) return nullptr;
  return {{"min", spread->min}, {"mean", spread->mean}, {"max", spread->max}};
}

Json range_json(Range range) {
  return Json::array({range.begin, range.end});
}

Json text_or_null(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

Json positive_or_null(int64_t value) {
  return value > 0 ? Json(value) : Json(nullptr);
}

Json memory_json(const MemoryBytes& memory) {
  return {{"weights", memory.weights}, {"kv", memory.kv}, {"workspace", memory.workspace}};
}

Json bytes_json(const StepBytes& bytes) {
  return {{"weights", bytes.weights},       {"kv_read", bytes.kv_read}, {"kv_write", bytes.kv_write},
          {"replicated", bytes.replicated}, {"padded", bytes.padded},   {"activations", bytes.activations}};
}

const char* status_name(PointStatus status) {
  switch (status) {
    case PointStatus::kOk:
      return "ok";
    case PointStatus::kOutOfMemory:
      return "out_of_memory";
    case PointStatus::kInvalid:
      return "invalid";
  }
  return "invalid";
}

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

Json rank_json(const RankFigures& figures) {
  return {{"rank", figures.rank},
          {"query_heads", range_json(figures.shard.query_heads)},
          {"kv_heads", range_json(figures.shard.kv_heads)},
          {"ffn", range_json(figures.shard.ffn)},
          {"vocab", range_json(figures.shard.vocab)},
          {"bytes_per_step", bytes_json(figures.bytes)},
          {"memory_bytes", memory_json(figures.memory)},
          {"achievable_gb_per_s", figures.achievable_gb_per_s},
          {"achievable_median_gb_per_s", figures.achievable_median_gb_per_s},
          {"bandwidth_drift", figures.bandwidth_drift},
          {"tpot_ms", number(figures.tpot_ms)},
          {"mbu", number(figures.mbu)},
          {"mbu_achievable", number(figures.mbu_achievable)},
          {"mbu_useful", number(figures.mbu_useful)},
          {"load_seconds", figures.load_seconds}};
}

Json point_json(const PointResult& point) {
  Json ranks = Json::array();
  MemoryBytes heaviest;
  for (const RankFigures& figures : point.ranks) {
    ranks.push_back(rank_json(figures));
    heaviest.weights = std::max(heaviest.weights, figures.memory.weights);
    heaviest.kv = std::max(heaviest.kv, figures.memory.kv);
    heaviest.workspace = std::max(heaviest.workspace, figures.memory.workspace);
  }
  Json devices = Json::array();
  for (int rank = 0; rank < point.tp; ++rank) devices.push_back(rank);
  return {{"kind", "measured"},
          {"status", status_name(point.status)},
          {"tp", point.tp},
          {"pp", 1},
          {"placement", nullptr},
          {"devices", std::move(devices)},
          {"batch", point.workload.batch},
          {"prompt_tokens", point.workload.prompt_tokens},
          {"output_tokens", point.workload.output_tokens},
          {"generations", point.generations},
          {"allreduce", text_or_null(point.communicator)},
          {"cold_ttft_ms", number(point.cold_ttft_ms)},
          {"ttft_ms", distribution_json(point.ttft_ms)},
          {"tpot_ms", distribution_json(point.tpot_ms)},
          {"itl_ms", distribution_json(point.itl_ms)},
          {"latency_ms", distribution_json(point.latency_ms)},
          {"throughput_tokens_per_s", number(point.throughput_tokens_per_s)},
          {"requests_per_s", number(point.requests_per_s)},
          {"mbu_nominal", number(point.mbu_nominal)},
          {"mbu", spread_json(point.mbu)},
          {"mbu_achievable", spread_json(point.mbu_achievable)},
          {"mbu_useful", spread_json(point.mbu_useful)},
          {"cache_resident", point.cache_resident ? Json(*point.cache_resident) : Json(nullptr)},
          {"oversubscribed", point.oversubscribed},
          {"mfu_prefill", nullptr},
          {"tp_base", point.tp_base ? Json(*point.tp_base) : Json(nullptr)},
          {"speedup", number(point.speedup)},
          {"efficiency", number(point.efficiency)},
          {"comm_share", nullptr},
          {"attribution", nullptr},
          {"loss", nullptr},
          {"ranks", std::move(ranks)},
          {"memory_bytes_per_gpu", point.ranks.empty() ? Json(nullptr) : memory_json(heaviest)},
          {"verdicts", point.verdicts}};
}

}  // namespace

Json distribution_json(const Distribution& d) {
  return {{"mean", number(d.mean)},
          {"p50", number(d.p50)},
          {"p90", number(d.p90)},
          {"p95", number(d.p95)},
          {"p99", number(d.p99)},
          {"min", number(d.min)},
          {"max", number(d.max)},
          {"stddev", number(d.stddev)},
          {"n", d.n},
          {"ci95",
           {{"mean", interval_json(d.mean_interval)},
            {"p50", interval_json(d.p50_interval)},
            {"p95", interval_json(d.p95_interval)},
            {"p99", interval_json(d.p99_interval)}}},
          {"supported", {{"p95", d.p95_supported}, {"p99", d.p99_supported}}}};
}

Json environment_json(const Environment& e) {
  Json ranks = Json::array();
  for (const RankPlace& place : e.ranks) {
    ranks.push_back({{"rank", place.rank},
                     {"host", place.host},
                     {"device", "cpu"},
                     {"launcher_cores", place.launcher_cores},
                     {"cores", place.cores}});
  }
  Json variables = Json::object();
  for (const auto& [name, value] : e.variables) variables[name] = value;
  return {{"host", e.host},
          {"kernel", text_or_null(e.kernel)},
          {"cpu", text_or_null(e.cpu)},
          {"allowed_cores", e.allowed_cores},
          {"cpu_quota_cores", number(e.cpu_quota_cores)},
          {"last_level_cache_bytes", positive_or_null(e.last_level_cache_bytes)},
          {"memory_bytes", positive_or_null(e.memory_bytes)},
          {"numa_nodes", positive_or_null(e.numa_nodes)},
          {"devices", Json::array()},
          {"cuda", nullptr},
          {"nccl", nullptr},
          {"backend", e.backend},
          {"threads_per_rank", e.threads_per_rank},
          {"oversubscribed", e.oversubscribed},
          {"mpi", text_or_null(e.mpi)},
          {"compiler", e.compiler},
          {"version", e.version},
          {"launcher", e.launcher},
          {"container", text_or_null(e.container)},
          {"ranks", std::move(ranks)},
          {"variables", std::move(variables)}};
}

Json model_json(const OpenedModel& model) {
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
                   {"kv_dtype", "fp32"},
                   {"quantisation", config.quantisation}};
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
  document["bits_per_weight_effective"] = 8.0 * static_cast<double>(total) / static_cast<double>(elements);
  document["identity"] = model.weights->identity();
  return document;
}

Json report_json(const ReportHeader& header, const OpenedModel& model, const SweepOptions& options,
                 const std::vector<PointResult>& points, const std::vector<std::string>& advice,
                 const std::vector<std::string>& warnings, bool complete) {
  Json results = Json::array();
  for (const PointResult& point : points) results.push_back(point_json(point));
  Json workloads = Json::array();
  for (const Workload& workload : options.workloads) {
    workloads.push_back({{"batch", workload.batch},
                         {"prompt_tokens", workload.prompt_tokens},
                         {"output_tokens", workload.output_tokens}});
  }
  return {{"schema", "shardscope.report/1"},
          {"command", header.command},
          {"argv", header.argv},
          {"complete", complete},
          {"environment", environment_json(header.environment)},
          {"topology", nullptr},
          {"model", model_json(model)},
          {"workload",
           {{"points", std::move(workloads)},
            {"prompt", options.prompt_ids.empty() ? "random ids" : "text, cut or repeated to length"},
            {"arrival", "static batch"},
            {"seed", options.seed}}},
          {"protocol",
           {{"warmup_generations", options.warmup},
            {"iterations", options.iterations},
            {"max_seconds", options.max_seconds},
            {"stop_rule", "iterations or max_seconds"},
            {"steady", nullptr},
            {"timer", "steady clock of rank 0"},
            {"percentile_method", kPercentileMethod}}},
          {"comparable_key", nullptr},
          {"results", std::move(results)},
          {"advice", advice},
          {"warnings", warnings}};
}

namespace {

/// Whether the figures bear a statement: measured without sharing cores, and with closed 95 % intervals of the median.
bool supports_advice(const PointResult& point) {
  return point.status == PointStatus::kOk && !point.oversubscribed && point.tpot_ms.p50_interval.low &&
         point.tpot_ms.p50_interval.high;
}

std::string advice_on(const PointResult& base, const PointResult& best) {
  const std::string where = fmt::format("At batch {} with {} + {} tokens, ", base.workload.batch,
                                        base.workload.prompt_tokens, base.workload.output_tokens);
  const bool faster = *best.tpot_ms.p50_interval.high < *base.tpot_ms.p50_interval.low;
  if (!faster) return where + fmt::format("no degree is faster than TP={} beyond its noise.", base.tp);
  return where + fmt::format("TP={} is {:.2f}x faster than TP={} ({:.0f} % of ideal).", best.tp, *best.speedup, base.tp,
                             *best.efficiency * 100);
}

}  // namespace

std::vector<std::string> speedup_advice(const std::vector<PointResult>& points) {
  std::vector<std::string> advice;
  for (const PointResult& base : points) {
    if (!supports_advice(base) || base.tp_base != base.tp) continue;
    const PointResult* best = nullptr;
    for (const PointResult& other : points) {
      const bool rival = supports_advice(other) && other.workload == base.workload && other.tp > base.tp;
      if (rival && (!best || *other.tpot_ms.p50 < *best->tpot_ms.p50)) best = &other;
    }
    if (best) advice.push_back(advice_on(base, *best));
  }
  return advice;
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
                       {"bytes_per_step", bytes_json(step_traffic(model.config, dtype_of, plan, rank, workload))}});
    }
    plans.push_back({{"tp", tp}, {"ranks", std::move(ranks)}});
  }
  return {{"schema", "shardscope.shards/1"},
          {"model", model_json(model)},
          {"workload",
           {{"batch", workload.batch},
            {"prompt_tokens", workload.prompt_tokens},
            {"output_tokens", workload.output_tokens}}},
          {"plans", std::move(plans)}};
}

std::string document_text(const Json& document) {
  return document.dump(1, ' ', false, Json::error_handler_t::ignore) + "\n";
}

}  // namespace shardscope::runtime
