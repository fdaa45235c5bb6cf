#include "runtime/plan/cost_model.hpp"

#include <catch2/catch.hpp>

#include "runtime/model/named.hpp"
#include "runtime/model/open_model.hpp"
#include "runtime/model/slice.hpp"
#include "runtime/plan/calibration.hpp"
#include "runtime/plan/published.hpp"
#include "topology/device_peaks.hpp"

namespace shardscope::runtime {
namespace {

constexpr kernels::Precision kHalf = {.activations = kernels::DType::kF16, .kv = kernels::DType::kF16};

/// Constants that give round times: 1000 GB/s at half is 500 bytes a us… of 1 MB: 2 us.
Reach round_reach() {
  return {.gb_per_s = 1000,
          .tflops = 100,
          .memory_share = 0.5,
          .compute_share = 0.5,
          .launch_us = 1,
          .attention_us = 3,
          .prefill_half_us = 10,
          .prompt_tokens_at_once = 100,
          .overhead_us = 7,
          .stage_hop_us = 5};
}

SumModel constant_sums(int ranks, double us) {
  const SumTable table{.gpu = "",
                       .topology_class = {},
                       .way = "nccl",
                       .ranks = ranks,
                       .what = "constant",
                       .us = {{1, us}, {int64_t{1} << 40, us}},
                       .origin = {}};
  return {plan_constants(), "h100-sxm", {.path = GroupPath::kNvLink, .gb_per_s = 450}, "nccl", {table}};
}

/// Two layers whose products have 1 MB and 10^6 operations a token each; a head of 2 MB.
RankLedger made_up_rank() {
  const PlannedProduct product{.bytes = 1e6, .flops_per_token = 1e6};
  return {.layers = {{.qkv = product, .attention_out = product, .gate_up = product, .down = product, .count = 2}},
          .head = {.bytes = 2e6, .flops_per_token = 2e6},
          .kv_position_bytes = 1e3,
          .attention_flops_per_pair = 100,
          .looked_up_bytes = 0};
}

PlannedModel made_up_model(int ranks) {
  return {.layers = 2,
          .ranks = std::vector<RankLedger>(static_cast<size_t>(ranks), made_up_rank()),
          .activation_bytes = std::vector<double>(static_cast<size_t>(ranks), 1e3),
          .row_bytes = 256};
}

TEST_CASE("predicted_step: each part is the sum of its formula") {
  const Workload workload{.batch = 2, .prompt_tokens = 98, .output_tokens = 4};  // reads 100 positions in the mean
  const PredictedStep step = predicted_step(made_up_model(2), round_reach(), constant_sums(2, 4), workload, 1);
  REQUIRE(step.ranks.size() == 2);
  const Parts& parts = step.ranks[0];
  // A product: 1 us + 2 us of bytes + 2 tokens x 10^6 / (50 TFLOPS = 5 x 10^7 a us).
  const double products = 8 * (1 + 2 + 0.04);
  const double kv = 2 * (2 * 1e3 * 101) / 500e3;
  const double head = 1 + 4 + 0.08;
  const double activations = 2 * 1e3 / 500e3;
  CHECK(parts[Part::kIdealMemory] * 1e3 == Approx(16 + kv + 4));
  CHECK(parts[Part::kMatrixLoss] * 1e3 == Approx(products - 16));
  CHECK(parts[Part::kAttention] * 1e3 == Approx(6));
  CHECK(parts[Part::kElementwise] * 1e3 == Approx(activations));
  CHECK(parts[Part::kAllreduceTransfer] * 1e3 == Approx(5 * 4));
  CHECK(parts[Part::kAllreduceWait] == Approx(0).margin(1e-12));
  CHECK(parts[Part::kHeadAndSampling] * 1e3 == Approx(head - 4));
  CHECK(parts[Part::kGaps] * 1e3 == Approx(14));
  CHECK(step.ms * 1e3 == Approx(products + kv + 6 + head + activations + 20 + 14));
  CHECK(parts.sum() == Approx(step.ms));
}

TEST_CASE("predicted_step: ranks with less to do wait for the one with most, and each sums to the step") {
  PlannedModel model = made_up_model(3);
  model.ranks[2].layers[0].down.bytes = 3e6;  // 4 us more in each layer
  model.ranks[1].layers[0].qkv = {};          // a rank without heads
  model.ranks[1].layers[0].attention_out = {};
  model.ranks[1].attention_flops_per_pair = 0;
  const Workload workload{.batch = 1, .prompt_tokens = 98, .output_tokens = 4};
  const PredictedStep step = predicted_step(model, round_reach(), constant_sums(3, 4), workload, 1);
  for (const Parts& parts : step.ranks) CHECK(parts.sum() == Approx(step.ms));
  CHECK(step.ranks[0][Part::kAllreduceWait] * 1e3 == Approx(8));
  CHECK(step.ranks[2][Part::kAllreduceWait] == Approx(0).margin(1e-12));
  CHECK(step.ranks[1][Part::kAllreduceWait] > step.ranks[0][Part::kAllreduceWait]);
  CHECK(step.ranks[1][Part::kAttention] == 0);
}

TEST_CASE("predicted_step: a batch flows through pipeline stages in pieces") {
  const SumModel sums = constant_sums(2, 4);
  // One sequence goes through all stages, with a hop after each, and back.
  const Workload alone{.batch = 1, .prompt_tokens = 98, .output_tokens = 4};
  const double through = predicted_step(made_up_model(1), round_reach(), sums, alone, 1).ms;
  CHECK(predicted_step(made_up_model(1), round_reach(), sums, alone, 2).ms * 1e3 == Approx(through * 1e3 + 10));
  // Two pieces keep both stages busy: the slower one, of a layer and the head, sets their pace.
  const Workload both{.batch = 4, .prompt_tokens = 98, .output_tokens = 4};
  const Workload piece{.batch = 2, .prompt_tokens = 98, .output_tokens = 4};
  const double whole_us = predicted_step(made_up_model(1), round_reach(), sums, piece, 1).ms * 1e3;
  const double head_us = 1 + 4 + 0.08;
  const double layer_us = (whole_us - head_us) / 2;
  const PredictedStep step = predicted_step(made_up_model(1), round_reach(), sums, both, 2);
  CHECK(step.ms * 1e3 == Approx(2 * (layer_us + head_us + 5)));
  CHECK(step.ranks[0].sum() == Approx(step.ms));
  // Three stages for two layers: the head alone is a stage, and a layer the slowest one.
  const PredictedStep three = predicted_step(made_up_model(1), round_reach(), sums, {6, 98, 4}, 3);
  CHECK(three.ms * 1e3 == Approx(std::max(whole_us + 15, 3 * (layer_us + 5))));
  CHECK(pieces_of(1, 4) == 1);
  CHECK(pieces_of(9, 4) == 4);
}

/// A pass of so many tokens through made_up_model(2) with sums of 4 us, without what attention computes.
double pass_us(double tokens) {
  const double product = std::min(10 + tokens * 0.02, tokens * (1 + 2 + 0.02));
  return 8 * product + 2 * 3 + (1 + 4 + 0.04) + tokens * 1e3 / 500e3 + 20;
}
double attention_us(double prompts, double tokens) {
  return 2 * 100.0 * prompts * tokens * (tokens + 1) / 2 / 5e7;
}

TEST_CASE("predicted_prefill_ms: operations at their share, with what each product takes to reach it") {
  const auto us = [](int64_t prompts, int64_t tokens, const Reach& reach = round_reach()) {
    return *predicted_prefill_ms(made_up_model(2), reach, constant_sums(2, 4), prompts, tokens, 1) * 1e3;
  };
  CHECK(us(1, 100) == Approx(pass_us(100) + attention_us(1, 100)));
  CHECK(us(3, 100) == Approx(3 * us(1, 100)));                                         // a pass takes one prompt
  CHECK(us(1, 250) == Approx(2 * pass_us(100) + pass_us(50) + attention_us(1, 250)));  // a long one several passes
  CHECK(us(4, 25) == Approx(pass_us(100) + attention_us(4, 25)));                      // short ones share one
  CHECK(us(1, 1) == Approx(pass_us(1) + attention_us(1, 1)));
  CHECK(us(1, 1) < 60);  // no more than a decode step and its sums
  Reach unknown = round_reach();
  unknown.tflops.reset();
  CHECK_FALSE(predicted_prefill_ms(made_up_model(2), unknown, constant_sums(2, 4), 1, 100, 1));
  CHECK_FALSE(predicted_times(made_up_model(2), unknown, constant_sums(2, 4), {1, 100, 4}, 1).latency_ms);
}

TEST_CASE("predicted_times: t(batch) = batch x prefill + (outputs - 1) x step(batch)") {
  const Workload workload{.batch = 5, .prompt_tokens = 100, .output_tokens = 4};
  const SumModel sums = constant_sums(2, 4);
  const PredictedTimes times = predicted_times(made_up_model(2), round_reach(), sums, workload, 1);
  const double prompt = *predicted_prefill_ms(made_up_model(2), round_reach(), sums, 1, 100, 1);
  CHECK(*times.ttft_ms == Approx(5 * prompt));
  CHECK(*times.latency_ms == Approx(*times.ttft_ms + 3 * times.tpot_ms));
  // Through two stages five passes take as long as three, and a hop.
  const PredictedTimes staged = predicted_times(made_up_model(2), round_reach(), sums, workload, 2);
  CHECK(*staged.ttft_ms * 1e3 == Approx(3 * prompt * 1e3 + 5));
}

/// What physics says of any model on any GPU.
class Physics {
 public:
  Physics(const std::string& name, int tp)
      : config_(*named_configuration(name)), tp_(tp), model_(planned_named_model(name, tp)) {}

  double step(const Reach& reach, const SumModel& sums, const Workload& workload) const {
    return predicted_step(model_, reach, sums, workload, 1).ms;
  }
  double prefill(const Reach& reach, const SumModel& sums, int64_t tokens) const {
    return predicted_prefill_ms(model_, reach, sums, 1, tokens, 1).value_or(0);
  }
  double mbu(const Reach& reach, double ms, const Workload& workload) const {
    const auto half = [](WeightId) { return kernels::DType::kF16; };
    const parallel::ShardPlan plan = plan_shards(shard_dimensions(config_), tp_);
    double most = 0;
    for (int rank = 0; rank < tp_; ++rank) {
      most = std::max(most, step_traffic(config_, half, plan, rank, workload, kHalf).headline());
    }
    return most / (ms * reach.gb_per_s * 1e6);
  }

 private:
  ModelConfig config_;
  int tp_;
  PlannedModel model_;
};

TEST_CASE("cost model: every named model on every GPU at TP 1 to 8 obeys physics") {
  const PlanConstants& constants = plan_constants();
  const Calibration& calibration = plan_calibration();
  const Software& software = constants.software_named("shardscope");
  for (const std::string& name : named_configurations()) {
    for (int tp = 1; tp <= 8; ++tp) {
      const Physics physics(name, tp);
      for (const topology::DevicePeaks& gpu : topology::device_peaks()) {
        const std::string where = std::string(gpu.name) + ", " + name + ", TP " + std::to_string(tp);
        const Reach reach = reach_of(constants, calibration, gpu, software);
        const GroupPath path = tp % 2 == 0 ? GroupPath::kNvLink : GroupPath::kHostMemory;
        const SumModel sums(constants, gpu.name, {.path = path, .gb_per_s = 100}, software.way);
        const Workload one{.batch = 1, .prompt_tokens = 512, .output_tokens = 64};
        const double ms = physics.step(reach, sums, one);
        if (!std::isfinite(ms) || ms <= 0) FAIL(where);
        if (physics.mbu(reach, ms, one) > 1) FAIL(where << ": an MBU over 100 %");
        Reach faster = reach;
        faster.gb_per_s *= 1.1;
        if (physics.step(faster, sums, one) > ms) FAIL(where << ": more bandwidth is slower");
        if (reach.tflops) {
          if (physics.prefill(reach, sums, 1) > 1.05 * physics.step(reach, sums, {1, 1, 2}))
            FAIL(where << ": a token's prompt");
          Reach stronger = reach;
          stronger.tflops = *reach.tflops * 1.1;
          if (physics.prefill(stronger, sums, 512) > physics.prefill(reach, sums, 512))
            FAIL(where << ": a higher peak is slower");
          if (physics.prefill(reach, sums, 1024) < physics.prefill(reach, sums, 512))
            FAIL(where << ": longer prompts are faster");
        }
        double rate = 0;
        double before = 0;
        for (int64_t batch = 1; batch <= 64; batch *= 2) {
          const double now = physics.step(reach, sums, {batch, 512, 64});
          if (now < before) FAIL(where << ": a larger batch has the shorter step");
          if (static_cast<double>(batch) / now < rate * (1 - 1e-9))
            FAIL(where << ": a larger batch has fewer tokens/s");
          rate = static_cast<double>(batch) / now;
          before = now;
        }
        if (physics.step(reach, sums, {1, 1024, 64}) < ms) FAIL(where << ": more KV bytes are faster");
      }
    }
  }
}

TEST_CASE("cost model: fewer bits are never slower") {
  const Reach reach = reach_of(plan_constants(), plan_calibration(), *topology::find_device_peaks("h100-sxm"),
                               plan_constants().software_named("shardscope"));
  const SumModel sums(plan_constants(), "h100-sxm", {.path = GroupPath::kNvLink, .gb_per_s = 450}, "nccl");
  const ModelConfig config = *named_configuration("llama3-8b");
  const auto half = [](WeightId) { return kernels::DType::kF16; };
  double before = 1e9;
  for (const char* quant : {"none", "int8", "int4"}) {
    const PlannedModel model =
        planned_model(config, half, plan_shards(shard_dimensions(config), 3), PlanFormat::quantised(quant, 0), kHalf);
    const double ms = predicted_step(model, reach, sums, {1, 512, 64}, 1).ms;
    CHECK(ms < before);
    before = ms;
  }
}

}  // namespace
}  // namespace shardscope::runtime
