// The model, from the top:
//
//   t(batch)  = prefill(batch) + (outputs - 1) x step(batch)
//   prefill   = batch x prefill(prompt), where a pass takes one prompt; shorter ones share passes
//   step      = layers x (attention block + sum + MLP block + sum + overhead) + sum of the embedding + head
//   a block   = its products (and attention), on the slowest rank: the others wait in the sum
//   a product = launch + bytes / (share of the data-sheet bandwidth) + operations / (share of the dense peak)
//   attention = a floor + KV bytes / the same bandwidth
//   a pass    = layers x (products at their share of the dense peak, each with what it takes to reach it; attention;
//               activations; sums of all rows) + head
//
// One launch beside the bytes is what makes the bandwidth that a product reaches depend on its size. Products of few
// tokens overlap their loads and their operations little: that MBU falls with the batch (published, C7) follows.
#include "runtime/plan/cost_model.hpp"

#include <algorithm>

#include "kernels/base/error.hpp"

namespace shardscope::runtime {
namespace {

constexpr double kUsOfMs = 1e3;
constexpr double kBytesPerUsOfGb = 1e3;  // 1 GB/s = 1000 bytes a microsecond
constexpr double kFlopsPerUsOfT = 1e6;   // 1 TFLOPS = 10^6 operations a microsecond

/// All-reduces of a layer: after attention, after the MLP. One more sums the looked-up embedding.
constexpr int64_t kSumsOfLayer = 2;

double memory_us(double bytes, const Reach& reach) {
  return bytes / (reach.gb_per_s * reach.memory_share * kBytesPerUsOfGb);
}

/// Nothing where the peak is unknown: a decode step is bound by bytes until its batch is large.
double compute_us(double flops, const Reach& reach) {
  return !reach.tflops ? 0 : flops / (*reach.tflops * reach.compute_share * kFlopsPerUsOfT);
}

/// Of a decode step; nothing where the rank has no part of it.
double product_us(const PlannedProduct& product, double tokens, const Reach& reach) {
  if (product.bytes <= 0) return 0;
  return reach.launch_us + memory_us(product.bytes, reach) + compute_us(product.flops_per_token * tokens, reach);
}

/// Of a prompt: products of many tokens take a constant time beside their operations, and never more than token by
/// token.
double prompt_product_us(const PlannedProduct& product, double tokens, const Reach& reach) {
  if (product.bytes <= 0) return 0;
  const double whole = std::max(reach.prefill_half_us + compute_us(product.flops_per_token * tokens, reach),
                                reach.launch_us + memory_us(product.bytes, reach));
  return std::min(whole, tokens * product_us(product, 1, reach));
}

/// Mean positions that a sequence reads in a step, as the traffic model counts them.
double mean_positions(const Workload& workload) {
  const double steps = static_cast<double>(std::max<int64_t>(workload.output_tokens - 1, 1));
  return static_cast<double>(workload.prompt_tokens) + (1.0 + steps) / 2.0;
}

/// One rank's own time in a step, us.
struct RankStep {
  double attention_block = 0, mlp_block = 0, head = 0;  // which others wait for
  double products_ideal = 0, products = 0;
  double attention_ideal = 0, attention = 0;
  double head_ideal = 0;
  double elementwise = 0;  // activations and looked-up rows, all memory
};

RankStep rank_step(const RankLedger& ledger, double activation_bytes, int64_t layers, double tokens, double positions,
                   const Reach& reach) {
  RankStep step;
  for (const PlannedLayer& layer : ledger.layers) {
    const auto count = static_cast<double>(layer.count);
    const double before = product_us(layer.qkv, tokens, reach) + product_us(layer.attention_out, tokens, reach);
    const double after = product_us(layer.gate_up, tokens, reach) + product_us(layer.down, tokens, reach);
    step.attention_block += count * before;
    step.mlp_block += count * after;
    step.products += count * (before + after);
    step.products_ideal +=
        count * memory_us(layer.qkv.bytes + layer.attention_out.bytes + layer.gate_up.bytes + layer.down.bytes, reach);
  }
  if (ledger.attention_flops_per_pair > 0) {
    const auto all = static_cast<double>(layers);
    step.attention_ideal =
        all * memory_us(ledger.kv_position_bytes * tokens * (positions + 1), reach);  // and writes one
    step.attention = step.attention_ideal + all * reach.attention_us;
    step.attention_block += step.attention;
  }
  step.head = product_us(ledger.head, tokens, reach);
  step.head_ideal = memory_us(ledger.head.bytes, reach);
  step.elementwise = memory_us((activation_bytes + ledger.looked_up_bytes) * tokens, reach);
  step.attention_block += step.elementwise / 2;  // half of it in each block
  step.mlp_block += step.elementwise / 2;
  return step;
}

double slowest(const std::vector<RankStep>& ranks, double RankStep::*part) {
  double most = 0;
  for (const RankStep& rank : ranks) most = std::max(most, rank.*part);
  return most;
}

/// Of layers dealt evenly over stages, the last of which has the head too and, where they do not divide, one layer
/// less.
double slowest_stage_us(double all_layers_us, double head_us, int64_t layers, int stages) {
  const double layer = all_layers_us / static_cast<double>(layers);
  const auto least = static_cast<double>(layers / stages);
  const auto most = static_cast<double>((layers + stages - 1) / stages);
  return std::max(most * layer, least * layer + head_us);
}

/// One forward pass of so many tokens of prompts, without what attention computes: its slowest rank, and its sums.
double slowest_pass_us(const PlannedModel& model, const Reach& reach, const SumModel& sums, int64_t pass_tokens) {
  const auto tokens = static_cast<double>(pass_tokens);
  double most = 0;
  for (size_t rank = 0; rank < model.ranks.size(); ++rank) {
    const RankLedger& ledger = model.ranks[rank];
    double us = memory_us(model.activation_bytes[rank] * tokens, reach) + product_us(ledger.head, 1, reach);
    for (const PlannedLayer& layer : ledger.layers) {
      const double products =
          prompt_product_us(layer.qkv, tokens, reach) + prompt_product_us(layer.attention_out, tokens, reach) +
          prompt_product_us(layer.gate_up, tokens, reach) + prompt_product_us(layer.down, tokens, reach);
      us += static_cast<double>(layer.count) * products;
    }
    if (ledger.attention_flops_per_pair > 0) us += static_cast<double>(model.layers) * reach.attention_us;
    most = std::max(most, us);
  }
  const double sum = sums.us(static_cast<int>(model.ranks.size()), pass_tokens * model.row_bytes);
  return most + static_cast<double>(1 + kSumsOfLayer * model.layers) * sum;
}

/// What attention computes for that many pairs of positions.
double slowest_attention_us(const PlannedModel& model, const Reach& reach, double pairs) {
  double most = 0;
  for (const RankLedger& ledger : model.ranks) most = std::max(most, ledger.attention_flops_per_pair);
  return static_cast<double>(model.layers) * compute_us(most * pairs, reach);
}

}  // namespace

PlannedModel planned_model(const ModelConfig& config, const DTypeOf& dtype_of, const parallel::ShardPlan& plan,
                           const PlanFormat& format, const kernels::Precision& precision) {
  PlannedModel model{.layers = config.layers,
                     .ranks = rank_ledgers(config, dtype_of, plan, format, precision),
                     .activation_bytes = {},
                     .row_bytes = kernels::row_bytes(precision.activations, config.hidden)};
  const Workload one{.batch = 1, .prompt_tokens = 1, .output_tokens = 1};
  for (int rank = 0; rank < static_cast<int>(plan.ranks.size()); ++rank) {
    model.activation_bytes.push_back(step_traffic(config, dtype_of, plan, rank, one, precision).activations);
  }
  return model;
}

int64_t pieces_of(int64_t batch, int stages) {
  return std::min<int64_t>(batch, stages);
}

PredictedStep predicted_step(const PlannedModel& model, const Reach& reach, const SumModel& sums,
                             const Workload& workload, int stages) {
  require(stages >= 1 && !model.ranks.empty() && workload.batch >= 1, "predicted_step: nothing to predict");
  const int64_t pieces = pieces_of(workload.batch, stages);
  const int64_t piece = (workload.batch + pieces - 1) / pieces;
  const auto tokens = static_cast<double>(piece);
  const double positions = mean_positions(workload);
  std::vector<RankStep> ranks;
  for (size_t rank = 0; rank < model.ranks.size(); ++rank) {
    ranks.push_back(rank_step(model.ranks[rank], model.activation_bytes[rank], model.layers, tokens, positions, reach));
  }
  const auto layers = static_cast<double>(model.layers);
  const double sum = sums.us(static_cast<int>(model.ranks.size()), piece * model.row_bytes);
  const double transfer = (1 + kSumsOfLayer * layers) * sum;
  const double attention_block = slowest(ranks, &RankStep::attention_block);
  const double mlp_block = slowest(ranks, &RankStep::mlp_block);
  const double head = slowest(ranks, &RankStep::head);
  const double all_layers = attention_block + mlp_block + layers * reach.overhead_us + transfer;
  const double hops = stages > 1 ? stages * reach.stage_hop_us : 0;  // and back to the first one
  const double through = all_layers + head + hops;                   // one piece, all stages
  const double pace = stages > 1 ? slowest_stage_us(all_layers, head, model.layers, stages) + reach.stage_hop_us : 0;
  const double step = std::max(through, static_cast<double>(pieces) * pace);
  const double gaps = layers * reach.overhead_us + hops + (step - through);  // stages that wait for the slowest one
  PredictedStep result{.ms = step / kUsOfMs, .ranks = {}};
  for (const RankStep& rank : ranks) {
    Parts parts;
    parts[Part::kIdealMemory] = rank.products_ideal + rank.attention_ideal + rank.head_ideal;
    parts[Part::kMatrixLoss] = rank.products - rank.products_ideal;
    parts[Part::kAttention] = rank.attention - rank.attention_ideal;
    parts[Part::kElementwise] = rank.elementwise;
    parts[Part::kAllreduceTransfer] = transfer;
    parts[Part::kAllreduceWait] =
        (attention_block - rank.attention_block) + (mlp_block - rank.mlp_block) + (head - rank.head);
    parts[Part::kHeadAndSampling] = rank.head - rank.head_ideal;
    parts[Part::kGaps] = gaps;
    for (double& part : parts.ms) part /= kUsOfMs;
    result.ranks.push_back(parts);
  }
  return result;
}

std::optional<double> predicted_prefill_ms(const PlannedModel& model, const Reach& reach, const SumModel& sums,
                                           int64_t prompts, int64_t prompt_tokens, int stages) {
  require(stages >= 1 && !model.ranks.empty() && prompts >= 1 && prompt_tokens >= 1 && reach.prompt_tokens_at_once >= 1,
          "predicted_prefill_ms: nothing to predict");
  if (!reach.tflops) return std::nullopt;
  // Positions that each position sees, itself and those before, and so the operations of attention, do not depend on
  // how prompts are cut into passes.
  const double pairs =
      static_cast<double>(prompts) * static_cast<double>(prompt_tokens) * static_cast<double>(prompt_tokens + 1) / 2;
  const int64_t all = prompts * prompt_tokens;
  const int64_t at_once = std::min(all, reach.prompt_tokens_at_once);
  const int64_t whole_passes = all / at_once;
  const int64_t rest = all % at_once;
  const auto passes_us = [&](int64_t tokens) { return slowest_pass_us(model, reach, sums, tokens); };
  double us = static_cast<double>(whole_passes) * passes_us(at_once) + (rest > 0 ? passes_us(rest) : 0);
  us += slowest_attention_us(model, reach, pairs);
  // Passes follow each other through the stages.
  const auto passes = static_cast<double>(whole_passes + (rest > 0 ? 1 : 0));
  if (stages > 1) us = us / passes * (1 + (passes - 1) / stages) + (stages - 1) * reach.stage_hop_us;
  return us / kUsOfMs;
}

PredictedTimes predicted_times(const PlannedModel& model, const Reach& reach, const SumModel& sums,
                               const Workload& workload, int stages) {
  PredictedTimes times{.step = predicted_step(model, reach, sums, workload, stages)};
  times.tpot_ms = times.step.ms;
  times.ttft_ms = predicted_prefill_ms(model, reach, sums, workload.batch, workload.prompt_tokens, stages);
  if (!times.ttft_ms) return times;
  const auto steps = static_cast<double>(std::max<int64_t>(workload.output_tokens - 1, 0));
  times.latency_ms = *times.ttft_ms + steps * times.tpot_ms;
  return times;
}

}  // namespace shardscope::runtime
