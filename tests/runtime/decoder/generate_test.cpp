#include "runtime/generate/generate.hpp"

#include "tests/support/decoding.hpp"

using namespace shardscope;
using namespace shardscope::runtime;

namespace {

const std::string kModel = std::string(SHARDSCOPE_TEST_DATA) + "/reference/tiny/llama-gqa-9-3-tied";

std::vector<GenerationResult> run(const OpenedModel& model, std::vector<GenerationRequest> requests, int ranks,
                                  int64_t step_tokens, const GenerateOptions& options = {}) {
  std::vector<GenerationResult> results;
  const parallel::ShardPlan plan = parallel::plan_shards(shard_dimensions(model.config), ranks);
  test::run_group(ranks, kernels::ActivationMode::kF32, [&](RankContext context) {
    Decoder decoder(
        model.config, *model.weights, plan,
        {.slots = static_cast<int64_t>(requests.size()), .max_positions = 128, .max_step_tokens = step_tokens},
        context);
    Sampler sampler(context.backend, context.communicator, decoder.vocab_range(), model.config.vocab,
                    static_cast<int64_t>(requests.size()));
    auto own = generate_batch(decoder, sampler, context, requests, options);
    if (context.communicator.rank() == 0) results = std::move(own);
  });
  return results;
}

}  // namespace

TEST_CASE("generate_batch: a batch gives each request the tokens that it gets alone") {
  const OpenedModel model = open_model({.model = kModel});
  const std::vector<GenerationRequest> requests = {
      {.prompt_ids = {5, 9, 30, 31, 32, 7}, .max_tokens = 12},
      {.prompt_ids = {17}, .max_tokens = 3},
      {.prompt_ids = {100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110}, .max_tokens = 9}};
  const int ranks = GENERATE(1, 2);
  const int64_t step_tokens = GENERATE(3, 4, 64);
  const auto together = run(model, requests, ranks, step_tokens);
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto alone = run(model, {requests[i]}, 1, 64);
    CHECK(together[i].output_ids == alone[0].output_ids);
    CHECK(together[i].output_ids.size() == static_cast<size_t>(requests[i].max_tokens));
    CHECK(together[i].finish_reason == FinishReason::kLength);
    CHECK(together[i].token_times_ms.size() == together[i].output_ids.size());
  }
}

TEST_CASE("generate_batch: an end token ends its request, and only it") {
  const OpenedModel model = open_model({.model = kModel});
  const auto free = run(model, {{.prompt_ids = {5, 9, 30}, .max_tokens = 8}}, 1, 64);
  const int32_t stop = free[0].output_ids[3];
  const auto results = run(
      model,
      {{.prompt_ids = {5, 9, 30}, .max_tokens = 8, .stop_ids = {stop}}, {.prompt_ids = {5, 9, 30}, .max_tokens = 8}}, 2,
      64);
  CHECK(results[0].finish_reason == FinishReason::kStop);
  CHECK(results[0].output_ids.back() == stop);
  CHECK(results[0].output_ids.size() <= 4);
  CHECK(results[1].output_ids == free[0].output_ids);
}

TEST_CASE("generate_batch: the verdict of rank 0 alone stops a request, on all ranks") {
  const OpenedModel model = open_model({.model = kModel});
  const parallel::ShardPlan plan = parallel::plan_shards(shard_dimensions(model.config), 3);
  const std::vector<GenerationRequest> requests = {{.prompt_ids = {5, 9, 30}, .max_tokens = 8}};
  std::vector<size_t> lengths(3);
  test::run_group(3, kernels::ActivationMode::kF32, [&](RankContext context) {
    const int rank = context.communicator.rank();
    Decoder decoder(model.config, *model.weights, plan, {.slots = 1, .max_positions = 16}, context);
    Sampler sampler(context.backend, context.communicator, decoder.vocab_range(), model.config.vocab, 1);
    int calls = 0;
    const GenerateOptions options{.on_token = [&](size_t, int32_t) { return ++calls == (rank == 0 ? 3 : 1); },
                                  .callback_may_stop = true};
    const auto results = generate_batch(decoder, sampler, context, requests, options);
    lengths[rank] = results[0].finish_reason == FinishReason::kStop ? results[0].output_ids.size() : 99;
  });
  CHECK(lengths == std::vector<size_t>{3, 3, 3});
}

TEST_CASE("generate_batch: no new tokens is no step") {
  const OpenedModel model = open_model({.model = kModel});
  const auto results = run(model, {{.prompt_ids = {5, 9, 30}, .max_tokens = 0}}, 1, 64);
  CHECK(results[0].output_ids.empty());
}

TEST_CASE("generate_batch: top logits come before each token, largest first") {
  const OpenedModel model = open_model({.model = kModel});
  const auto results = run(model, {{.prompt_ids = {5, 9, 30}, .max_tokens = 4}}, 2, 64, {.top_logits = 5});
  REQUIRE(results[0].top_logits.size() == 4);
  for (size_t step = 0; step < 4; ++step) {
    const auto& top = results[0].top_logits[step];
    REQUIRE(top.size() == 5);
    CHECK(top[0].token_id == results[0].output_ids[step]);
    for (size_t i = 1; i < 5; ++i) CHECK(top[i - 1].logit >= top[i].logit);
  }
}
