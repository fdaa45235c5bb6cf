#include "runtime/decoder.hpp"

#include <limits>

#include "tests/support/decoding.hpp"
#include "tests/support/tolerances.hpp"

using namespace shardscope;
using namespace shardscope::runtime;

namespace {

const std::string kData = SHARDSCOPE_TEST_DATA;

}  // namespace

TEST_CASE("decoder: tiny models give their reference logits and tokens at every degree") {
  const std::string name =
      GENERATE("llama-mha", "llama-gqa-9-3-tied", "llama-rope-llama3", "llama-head-dim", "llama-sharded", "qwen2-bias");
  const int ranks = GENERATE(1, 2, 3, 4, 5, 8);
  CAPTURE(name, ranks);
  const std::string folder = kData + "/reference/tiny/" + name;
  const OpenedModel model = open_model({.model = folder});
  const nlohmann::json prompts = test::read_json(folder + ".json").at("prompts");
  REQUIRE(prompts.size() == 4);
  for (const nlohmann::json& prompt : prompts) {
    const auto ids = prompt.at("ids").get<std::vector<int32_t>>();
    const auto expected = prompt.at("last_logits").get<std::vector<double>>();
    const auto greedy = prompt.at("greedy").get<std::vector<int32_t>>();
    const auto margins = prompt.at("margins").get<std::vector<double>>();
    CAPTURE(ids.size());
    const double tolerance = test::logit_tolerance(model.config, expected);
    const auto result = test::run_prompt(model, ids, ranks, 24, kernels::ActivationMode::kF32, 16);
    CHECK(test::first_wrong(result.last_logits, expected, tolerance) == "");
    CHECK(std::abs(result.prompt_nll - prompt.at("prompt_nll").get<double>()) <=
          1e-4 + 2 * tolerance * static_cast<double>(ids.size()));
    for (size_t i = 0; i < greedy.size() && margins[i] > 2 * tolerance; ++i) {
      CAPTURE(i);
      REQUIRE(result.greedy.at(i) == greedy[i]);
    }
  }
}

TEST_CASE("decoder: case files give their greedy ids, whatever the format and the degree") {
  struct Case {
    const char* file;
    const char* expected;
  };
  const auto [file, expected] = GENERATE(
      Case{"A01-gqa-kv2", "A01-gqa-kv2/expected.json"}, Case{"A03-head-dim", "A03-head-dim/expected.json"},
      Case{"A04-rope-llama3", "A04-rope-llama3/expected.json"}, Case{"A05-tied", "A05-tied/expected.json"},
      Case{"A06-bias-no-kv-key", "A06-bias-no-kv-key/expected.json"},
      Case{"A07-sharded/good", "A07-sharded/good/expected.json"},
      Case{"A09-gguf/gqa-F32.gguf", "A09-gguf/expected.json"}, Case{"A09-gguf/gqa-F16.gguf", "A09-gguf/expected.json"},
      Case{"A09-gguf/gqa-BF16.gguf", "A09-gguf/expected.json"},
      Case{"A09-gguf/gqa-align256-F32.gguf", "A09-gguf/expected.json"},
      Case{"A09-gguf/gqa-Q4_0.gguf", "A09-gguf/expected-Q4_0.json"},
      Case{"A09-gguf/gqa-Q4_1.gguf", "A09-gguf/expected-Q4_1.json"},
      Case{"A09-gguf/gqa-Q8_0.gguf", "A09-gguf/expected-Q8_0.json"});
  const int ranks = GENERATE(1, 2, 3, 4, 8);
  CAPTURE(file, ranks);
  const OpenedModel model = open_model({.model = kData + "/cases/" + file});
  const nlohmann::json reference = test::read_json(kData + "/cases/" + expected);
  const auto ids = reference.at("prompt_ids").get<std::vector<int32_t>>();
  const auto greedy = reference.at("greedy_ids").get<std::vector<int32_t>>();
  const auto result =
      test::run_prompt(model, ids, ranks, static_cast<int64_t>(greedy.size()), kernels::ActivationMode::kF32, 8);
  CHECK(result.greedy == greedy);
  for (const nlohmann::json& entry : reference.at("first_step_top8")) {
    const double logit = result.last_logits.at(entry.at(0).get<size_t>());
    CHECK(std::abs(logit - entry.at(1).get<double>()) <= 1e-3);  // the bound that the cases state for fp32
  }
}

TEST_CASE("decoder: what it allocates is what was planned") {
  const std::string name =
      GENERATE("reference/tiny/llama-gqa-9-3-tied", "cases/A09-gguf/gqa-Q4_0.gguf", "reference/tiny/qwen2-bias");
  const int ranks = GENERATE(1, 3);
  CAPTURE(name, ranks);
  const OpenedModel model = open_model({.model = kData + "/" + name});
  const parallel::ShardPlan plan = parallel::plan_shards(shard_dimensions(model.config), ranks);
  const DecoderOptions options{.slots = 3, .max_positions = 20, .max_step_tokens = 7};
  std::vector<MemoryBytes> actual(ranks);
  test::run_group(ranks, kernels::ActivationMode::kAuto, [&](RankContext context) {
    const Decoder decoder(model.config, *model.weights, plan, options, context);
    actual[context.communicator.rank()] = decoder.memory();
  });
  for (int rank = 0; rank < ranks; ++rank) {
    const MemoryBytes planned = planned_memory(model.config, *model.weights, plan, options, rank);
    CHECK(actual[rank].weights == planned.weights);
    CHECK(actual[rank].kv == planned.kv);
    CHECK(actual[rank].workspace >= planned.workspace);  // rows may be padded to a cache line
    CHECK(actual[rank].workspace <= planned.workspace * 2 + 65536);
  }
}
