// SmolLM2-135M-Instruct (Q4_1 GGUF) against recorded references (tests/data/reference, made with torch in fp32 from the
// dequantised weights).
#include <cstdlib>

#include "runtime/text/tokenizer.hpp"
#include "tests/support/decoding.hpp"

using namespace shardscope;
using namespace shardscope::runtime;

namespace {

const std::string kReference = std::string(SHARDSCOPE_TEST_DATA) + "/reference/";

OpenedModel real_model() {
  const char* path = std::getenv("SHARDSCOPE_TEST_MODEL");
  INFO("SHARDSCOPE_TEST_MODEL must name the model file: tests/run fetches it, or use launch/fetch_model");
  REQUIRE(path != nullptr);
  return open_model({.model = path});
}

}  // namespace

TEST_CASE("real model: the tokenizer gives the reference ids and its text back") {
  const OpenedModel model = real_model();
  const Tokenizer tokenizer(model.tokenizer.value());
  for (const char* file : {"smollm2-135m.json", "smollm2-ppl.json"}) {
    const nlohmann::json prompts = test::read_json(kReference + file).at("prompts");
    REQUIRE_FALSE(prompts.empty());
    for (const nlohmann::json& prompt : prompts) {
      const auto text = prompt.at("text").get<std::string>();
      const auto ids = prompt.at("ids").get<std::vector<int32_t>>();
      const bool chat = text.find("<|im_start|>") != std::string::npos;
      const auto specials = chat ? Tokenizer::Specials::kParse : Tokenizer::Specials::kPlainText;
      CHECK(tokenizer.encode(text, specials) == ids);
      if (!chat) CHECK(tokenizer.decode(ids) == text);
    }
  }
}

TEST_CASE("real model: fp32 activations give the reference tokens and logits at 1, 2 and 3 ranks") {
  const OpenedModel model = real_model();
  const int ranks = GENERATE(1, 2, 3);
  const nlohmann::json prompts = test::read_json(kReference + "smollm2-135m.json").at("prompts");
  REQUIRE(prompts.size() == 3);
  for (const nlohmann::json& prompt : prompts) {
    const auto ids = prompt.at("ids").get<std::vector<int32_t>>();
    const auto greedy = prompt.at("greedy").get<std::vector<int32_t>>();
    const auto margins = prompt.at("margins").get<std::vector<double>>();
    CAPTURE(ranks, prompt.at("name"));
    constexpr int64_t kTokens = 16;
    const auto result = test::run_prompt(model, ids, ranks, kTokens, kernels::ActivationMode::kF32, 32);
    // fp32 epsilon x longest sum (1536) x logit magnitude (about 20), a tenth of the worst case over 30 layers.
    constexpr double kTolerance = 1e-2;
    for (const nlohmann::json& entry : prompt.at("top5").at("0")) {
      CHECK(std::abs(result.last_logits.at(entry.at(0).get<size_t>()) - entry.at(1).get<double>()) <= kTolerance);
    }
    for (size_t i = 0; i < kTokens && margins[i] > 2 * kTolerance; ++i) REQUIRE(result.greedy.at(i) == greedy[i]);
  }
}

TEST_CASE("real model: activations rounded to 8 bits stay within 0.5 % of the reference NLL") {
  const OpenedModel model = real_model();
  const nlohmann::json prompt = test::read_json(kReference + "smollm2-ppl.json").at("prompts").at(0);
  const auto ids = prompt.at("ids").get<std::vector<int32_t>>();
  const double expected = prompt.at("prompt_nll").get<double>();
  const auto result = test::run_prompt(model, ids, 1, 0, kernels::ActivationMode::kInt8, 256);
  INFO("NLL " << result.prompt_nll << ", reference " << expected);
  CHECK(std::abs(result.prompt_nll - expected) <= 0.005 * expected);
}
