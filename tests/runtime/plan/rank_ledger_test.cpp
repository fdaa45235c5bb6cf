#include "runtime/plan/rank_ledger.hpp"

#include <catch2/catch.hpp>

#include "kernels/base/error.hpp"
#include "runtime/model/named.hpp"
#include "runtime/model/open_model.hpp"
#include "runtime/model/slice.hpp"

namespace shardscope::runtime {
namespace {

using kernels::DType;
constexpr kernels::Precision kHalf = {.activations = DType::kBF16, .kv = DType::kBF16};

DType half(WeightId /*id*/) {
  return DType::kBF16;
}

parallel::ShardPlan plan_of(const ModelConfig& config, int ranks) {
  return plan_shards(shard_dimensions(config), ranks);
}

double weights_of(const RankLedger& ledger) {
  double bytes = ledger.head.bytes;
  for (const PlannedLayer& layer : ledger.layers) {
    bytes += static_cast<double>(layer.count) *
             (layer.qkv.bytes + layer.attention_out.bytes + layer.gate_up.bytes + layer.down.bytes);
  }
  return bytes;
}

TEST_CASE("rank_ledgers: bytes are the traffic model's, for every named model and uneven ranks") {
  const Workload workload{.batch = 3, .prompt_tokens = 100, .output_tokens = 11};
  for (const std::string& name : named_configurations()) {
    const ModelConfig config = *named_configuration(name);
    for (const int ranks : {1, 2, 3, 5, 7, 8, 16}) {
      const parallel::ShardPlan plan = plan_of(config, ranks);
      const std::vector<RankLedger> ledgers = rank_ledgers(config, half, plan, {}, kHalf);
      for (int rank = 0; rank < ranks; ++rank) {
        INFO(name << ", rank " << rank << " of " << ranks);
        const RankLedger& ledger = ledgers[static_cast<size_t>(rank)];
        const StepBytes step = step_traffic(config, half, plan, rank, workload, kHalf);
        CHECK(weights_of(ledger) + 3 * ledger.looked_up_bytes == Approx(step.weights));
        const double positions = 100 + (1 + 10) / 2.0;
        const auto layers = static_cast<double>(config.layers);
        CHECK(ledger.kv_position_bytes * layers * 3 * positions == Approx(step.kv_read));
        CHECK(ledger.kv_position_bytes * layers * 3 == Approx(step.kv_write));
      }
    }
  }
}

TEST_CASE("rank_ledgers: layers that are alike are one entry") {
  const ModelConfig config = *named_configuration("llama2-7b");
  const std::vector<RankLedger> ledgers = rank_ledgers(config, half, plan_of(config, 2), {}, kHalf);
  REQUIRE(ledgers[0].layers.size() == 1);
  CHECK(ledgers[0].layers[0].count == 32);
  CHECK(ledgers[0].layers[0].down.flops_per_token == Approx(2.0 * 4096 * 11008 / 2));
  CHECK(ledgers[0].layers[0].qkv.flops_per_token == Approx(2.0 * 3 * 4096 * 4096 / 2));
}

TEST_CASE("PlanFormat: bits of a weight, scales included") {
  CHECK_FALSE(PlanFormat::quantised("none", 0).weight_bits);
  CHECK(*PlanFormat::quantised("int8", 0).weight_bits == 8);
  CHECK(*PlanFormat::quantised("int4", 0).weight_bits == Approx(4.125));
  CHECK(PlanFormat::quantised("int4", 0).name == "int4 g128");
  CHECK(*PlanFormat::quantised("int4", 64).weight_bits == Approx(4.25));
  CHECK(*PlanFormat::quantised("nf4", 0).weight_bits == Approx(4.127).epsilon(1e-3));
  CHECK_THROWS_WITH(PlanFormat::quantised("int3", 0),
                    Catch::Matchers::Contains("int3") && Catch::Matchers::Contains("nf4"));
}

TEST_CASE("planned_step_bytes: without a format the traffic model's, with one, the layers' matrices shrink alone") {
  const ModelConfig config = *named_configuration("llama3-8b");
  const parallel::ShardPlan plan = plan_of(config, 16);  // KV heads are held twice
  const Workload workload{.batch = 2, .prompt_tokens = 64, .output_tokens = 8};
  const StepBytes plain = step_traffic(config, half, plan, 3, workload, kHalf);
  const StepBytes none = planned_step_bytes(config, half, plan, 3, workload, {}, kHalf);
  CHECK(none.headline() == plain.headline());
  PlanFormat eight = PlanFormat::quantised("int8", 0);
  eight.kv_bits = 8;
  const StepBytes small = planned_step_bytes(config, half, plan, 3, workload, eight, kHalf);
  CHECK(small.kv_read == Approx(plain.kv_read / 2));
  CHECK(small.kv_write == Approx(plain.kv_write / 2));
  const RankLedger ledger = rank_ledgers(config, half, plan, {}, kHalf)[3];
  const double norms = 4.0 * 4096;  // fp32, of a layer's two: they stay
  const double matrices = weights_of(ledger) - ledger.head.bytes - 2 * norms * 32;
  CHECK(small.weights == Approx(plain.weights - matrices / 2));
  CHECK(small.replicated > 0.49 * plain.replicated);
  CHECK(small.replicated < plain.replicated);
}

TEST_CASE("planned_nominal_bytes: all parameters at their bits, and the KV cache at its own") {
  const ModelConfig config = *named_configuration("llama2-70b");
  const Workload workload{.batch = 1, .prompt_tokens = 512, .output_tokens = 64};
  const double plain = nominal_step_bytes(config, half, workload, kHalf);
  CHECK(planned_nominal_bytes(config, half, workload, {}, kHalf) == Approx(plain));
  const double eight = planned_nominal_bytes(config, half, workload, PlanFormat::quantised("int8", 0), kHalf);
  CHECK(eight < 0.52 * plain);
  CHECK(eight > 0.49 * plain);
}

TEST_CASE("planned_stage_memory: one stage is the ledger of --dry-run, two share the layers") {
  const OpenedModel model = open_model({.model = "llama2-7b", .headers_only = true});
  const DecoderOptions shape{.slots = 4, .max_positions = 640, .precision = kHalf};
  const parallel::ShardPlan plan = plan_of(model.config, 3);
  const MemoryBytes dry = planned_memory(model.config, *model.weights, plan, shape, 1);
  const MemoryBytes one = planned_stage_memory(model.config, *model.weights, plan, shape, 1, {}, 1);
  CHECK(one.weights == dry.weights);
  CHECK(one.kv == dry.kv);
  CHECK(one.workspace == dry.workspace);
  const MemoryBytes two = planned_stage_memory(model.config, *model.weights, plan, shape, 1, {}, 2);
  CHECK(two.kv * 2 == dry.kv);
  CHECK(two.weights > dry.weights / 2);
  CHECK(two.weights < dry.weights * 6 / 10);
}

}  // namespace
}  // namespace shardscope::runtime
