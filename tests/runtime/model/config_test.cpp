#include "runtime/model/config.hpp"

#include <chrono>
#include <cmath>
#include <map>

#include "runtime/model/config_json.hpp"
#include "runtime/model/named.hpp"
#include "tests/runtime/model/model_test_support.hpp"

namespace shardscope::runtime {
namespace {

using Catch::Contains;
using namespace test;

/// A01's config.json with one text replaced.
ModelConfig edited(std::string_view from, std::string_view to) {
  const TemporaryFolder folder;
  write_file(folder.path() / "config.json", replaced(read_file(case_folder("A01-gqa-kv2") / "config.json"), from, to));
  return read_config_json((folder.path() / "config.json").string());
}

/// A configuration of few keys; everything else by the family's defaults.
ModelConfig written(const std::string& text) {
  const TemporaryFolder folder;
  write_file(folder.path() / "config.json", text);
  return read_config_json((folder.path() / "config.json").string());
}

TEST_CASE("inverse_frequencies: unscaled, linear and divided agree with hand-computed values") {
  RopeConfig rope;
  CHECK(inverse_frequencies(rope, 4) == std::vector<float>{1.0F, 0.01F});
  rope.scaling = RopeConfig::Scaling::kLinear;
  rope.factor = 4.0;
  CHECK(inverse_frequencies(rope, 4) == std::vector<float>{0.25F, 0.0025F});
  rope.divisors = {1.0F, 5.0F};
  CHECK(inverse_frequencies(rope, 4) == std::vector<float>{0.25F, 0.0005F});
}

TEST_CASE("inverse_frequencies: llama3 keeps short waves, divides long ones and blends between") {
  // Written the way transformers has it, by wavelength; the code works by turns.
  const RopeConfig rope{.theta = 500000.0,
                        .scaling = RopeConfig::Scaling::kLlama3,
                        .factor = 8.0,
                        .low_freq_factor = 1.0,
                        .high_freq_factor = 4.0,
                        .original_positions = 8192};
  const std::vector<float> got = inverse_frequencies(rope, 128);
  REQUIRE(got.size() == 64);
  std::array<int, 3> seen{};
  for (size_t i = 0; i < got.size(); ++i) {
    const double plain = std::pow(500000.0, -2.0 * static_cast<double>(i) / 128.0);
    const double wave = 2.0 * 3.14159265358979323846 / plain;
    double want = plain;
    if (wave > 8192.0 / 1.0) {
      want = plain / 8.0;
      ++seen[2];
    } else if (wave >= 8192.0 / 4.0) {
      const double t = (8192.0 / wave - 1.0) / (4.0 - 1.0);
      want = (1.0 - t) * plain / 8.0 + t * plain;
      ++seen[1];
    } else {
      ++seen[0];
    }
    INFO("pair " << i);
    CHECK(std::abs(static_cast<double>(got[i]) - want) <= 1e-6 * want);
  }
  CHECK(seen[0] > 0);
  CHECK(seen[1] > 0);
  CHECK(seen[2] > 0);
}

TEST_CASE("read_config_json: every oddity of A27 is accepted or refused as recorded, quickly and by name") {
  const std::map<std::string, std::string> reasons = {
      {"reject-deep-nesting", "nests deeper"},
      {"reject-heads-not-multiple-of-kv", "num_key_value_heads"},
      {"reject-heads-zero", "num_attention_heads is 0"},
      {"reject-hidden-huge", "hidden_size is 1099511627776"},
      {"reject-hidden-string", "hidden_size is \"64\""},
      {"reject-kv-more-than-heads", "num_key_value_heads"},
      {"reject-moe", "num_local_experts is 8"},
      {"reject-mpt-learned-positions", "MPTForCausalLM"},
      {"reject-negative-layers", "num_hidden_layers is -1"},
      {"reject-not-json", "not valid JSON"},
      {"reject-unknown-activation", "hidden_act is \"relu6sin\""},
      {"reject-unknown-architecture", "MambaForCausalLM"},
      {"reject-unknown-quant-method", "quantization_config.quant_method is \"quip9\""},
      {"reject-unknown-rope-type", "rope_scaling.rope_type is \"spiral\""},
  };
  size_t accepted = 0;
  size_t refused = 0;
  for (const auto& entry : fs::directory_iterator(case_folder("A27-config-oddities"))) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(".config.json")) continue;
    const std::string stem = name.substr(0, name.find('.'));
    INFO(name);
    const TemporaryFolder folder;
    folder.copy_case(case_folder("A01-gqa-kv2"));
    fs::copy_file(entry.path(), folder.path() / "config.json", fs::copy_options::overwrite_existing);
    const auto start = std::chrono::steady_clock::now();
    if (stem.starts_with("accept")) {
      const OpenedModel model = open(folder.path());
      CHECK(model.config.kv_heads == 2);
      CHECK(model.config.head_dim == 8);
      CHECK(inverse_frequencies(model.config.rope, 8) == inverse_frequencies({.theta = 10000.0}, 8));
      ++accepted;
    } else {
      const std::string message = refusal([&] { open(folder.path()); });
      CHECK_THAT(message, Contains("config.json"));
      CHECK_THAT(message, Contains(reasons.at(stem)));
      ++refused;
    }
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(2));
  }
  CHECK(accepted == 9);
  CHECK(refused == reasons.size());
}

TEST_CASE("read_config_json: keys that no reference code reads are accepted and listed") {
  const ModelConfig config =
      read_config_json((case_folder("A27-config-oddities") / "accept-extra-keys.config.json").string());
  CHECK(config.ignored_keys ==
        std::vector<std::string>{"_name_or_path", "auto_map", "pretraining_tp", "transformers_version", "use_cache"});
}

TEST_CASE("read_config_json: stop tokens are the union of a number, a list and generation_config.json") {
  const auto eos = [](std::string_view in_config, std::string_view in_generation) {
    const TemporaryFolder folder;
    write_file(folder.path() / "config.json",
               replaced(read_file(case_folder("A01-gqa-kv2") / "config.json"), "\"eos_token_id\": 260", in_config));
    if (!in_generation.empty()) write_file(folder.path() / "generation_config.json", in_generation);
    return read_config_json((folder.path() / "config.json").string()).eos_ids;
  };
  using Ids = std::vector<int32_t>;
  CHECK(eos("\"eos_token_id\": 260", "") == Ids{260});
  CHECK(eos("\"eos_token_id\": [262, 260]", "") == Ids{260, 262});
  CHECK(eos("\"eos_token_id\": null", "") == Ids{});
  CHECK(eos("\"eos_token_id\": 260", R"({"eos_token_id": [261, 260]})") == Ids{260, 261});
  CHECK_THAT(refusal([&] { eos("\"eos_token_id\": 263", ""); }), Contains("eos_token_id 263"));
  CHECK_THAT(refusal([&] { eos("\"eos_token_id\": -1", ""); }), Contains("eos_token_id is -1"));
  CHECK_THAT(refusal([&] { eos("\"eos_token_id\": 260", R"({"eos_token_id": [900]})"); }),
             Contains("generation_config.json") && Contains("900"));
}

TEST_CASE("read_config_json: absent keys take the family's defaults, null KV heads mean as many as query heads") {
  const ModelConfig llama = written(R"({"model_type": "llama"})");
  CHECK(llama.hidden == 4096);
  CHECK(llama.ffn == 11008);
  CHECK(llama.kv_heads == 32);
  CHECK(llama.max_positions == 2048);
  CHECK(llama.norm_epsilon == 1e-6F);
  CHECK(llama.eos_ids == std::vector<int32_t>{2});
  CHECK(written(R"({"model_type": "mistral", "sliding_window": null})").kv_heads == 8);
  CHECK(written(R"({"model_type": "mistral", "sliding_window": null, "num_key_value_heads": null})").kv_heads == 32);
  const ModelConfig qwen = written(R"({"architectures": ["Qwen2ForCausalLM"], "intermediate_size": 64})");
  CHECK(qwen.attention_in_bias);
  CHECK_FALSE(qwen.attention_out_bias);
  CHECK(qwen.vocab == 151936);
  CHECK(qwen.eos_ids.empty());
}

TEST_CASE("read_config_json: sliding windows are refused where the family would apply them") {
  CHECK_THAT(refusal([] { written(R"({"model_type": "mistral"})"); }), Contains("sliding_window") && Contains("4096"));
  CHECK_THAT(refusal([] { open(data_folder() / "reference/tiny/mistral-window"); }), Contains("sliding_window is 16"));
  CHECK_THAT(refusal([] { written(R"({"model_type": "qwen2", "use_sliding_window": true})"); }),
             Contains("use_sliding_window is true"));
  CHECK_THAT(refusal([] { written(R"({"model_type": "qwen2", "layer_types": ["sliding_attention"]})"); }),
             Contains("layer_types"));
  CHECK_NOTHROW(written(R"({"model_type": "qwen2", "use_sliding_window": false, "sliding_window": 4096})"));
}

TEST_CASE("read_config_json: rope_scaling wins over rope_parameters, inner values over outer ones") {
  const ModelConfig both =
      edited("\"rope_theta\": 10000.0",
             R"("rope_theta": 10000.0, "rope_scaling": {"type": "linear", "factor": 2, "rope_theta": 7},
                                     "rope_parameters": {"rope_type": "default", "rope_theta": 99.0})");
  CHECK(both.rope.theta == 7.0);
  CHECK(both.rope.scaling == RopeConfig::Scaling::kLinear);
  CHECK(both.rope.factor == 2.0);
  const ModelConfig llama3 = edited("\"rope_theta\": 10000.0", R"("original_max_position_embeddings": 24,
      "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                       "original_max_position_embeddings": 16})");
  CHECK(llama3.rope.original_positions == 24);
  CHECK(read_config_json((case_folder("A04-rope-llama3") / "config.json").string()).rope.original_positions == 16);
}

TEST_CASE("read_config_json: values that would change the result are refused by key") {
  const auto message = [](std::string_view added) {
    return refusal([&] { edited("\"vocab_size\": 263", std::string("\"vocab_size\": 263, ") + std::string(added)); });
  };
  CHECK_THAT(message(R"("partial_rotary_factor": 0.5)"), Contains("partial_rotary_factor is 0.5"));
  CHECK_THAT(message(R"("rope_parameters": {"full_attention": {"rope_type": "default"}})"), Contains("full_attention"));
  CHECK_THAT(message(R"("rope_scaling": {"rope_type": "yarn", "factor": 2.0})"),
             Contains("rope_scaling.rope_type is \"yarn\""));
  CHECK_THAT(message(R"("rope_scaling": {"rope_type": "linear"})"), Contains("rope_scaling.factor is missing"));
  CHECK_THAT(message(R"("rope_scaling": {"factor": 2.0})"), Contains("no rope_type"));
  CHECK_THAT(message(R"("rope_scaling": {"type": "linear", "factor": 0})"), Contains("factor"));
  CHECK_THAT(message(R"("rope_scaling": 3)"), Contains("rope_scaling is 3"));
  CHECK_THAT(message(R"("quantization_config": {"quant_method": "gptq"})"),
             Contains("\"gptq\"") && Contains("recognised"));
  CHECK_THAT(message(R"("head_dim": 7)"), Contains("7 is odd"));
  CHECK_THAT(message(R"("bos_token_id": 259, "bos_token_id": 260)"), Contains("bos_token_id") && Contains("twice"));
}

TEST_CASE("read_config_json: a wrong type, a non-number or a huge value names its key") {
  const auto message = [](std::string_view from, std::string_view to) { return refusal([&] { edited(from, to); }); };
  CHECK_THAT(message("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 2.5"), Contains("num_hidden_layers is 2.5"));
  CHECK_THAT(message("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 99999999999999999999"),
             Contains("num_hidden_layers"));
  CHECK_THAT(message("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 18446744073709551615"),
             Contains("num_hidden_layers"));
  CHECK_THAT(message("\"rms_norm_eps\": 1e-05", "\"rms_norm_eps\": \"1e-05\""), Contains("rms_norm_eps"));
  CHECK_THAT(message("\"rms_norm_eps\": 1e-05", "\"rms_norm_eps\": -1"), Contains("rms_norm_eps"));
  CHECK_THAT(message("\"rms_norm_eps\": 1e-05", "\"rms_norm_eps\": 1e-60"), Contains("rms_norm_eps"));
  CHECK_THAT(message("\"tie_word_embeddings\": false", "\"tie_word_embeddings\": 0"), Contains("tie_word_embeddings"));
  CHECK_THAT(message("\"hidden_act\": \"silu\"", "\"hidden_act\": 1"), Contains("hidden_act"));
  CHECK_THAT(message("\"hidden_size\": 64", "\"hidden_size\": 65"), Contains("hidden_size 65"));
  CHECK_THAT(message("\"model_type\": \"llama\"", "\"model_type\": \"qwen2\""), Contains("model_type"));
}

TEST_CASE("read_config_json: the shapes of A02 come out as written") {
  const auto read = [](const char* name) { return read_config_json((case_folder("A02-plan-only") / name).string()); };
  CHECK(read("llama-30b-52-heads.config.json").kv_heads == 52);
  CHECK(read("mqa-1-kv-head.config.json").kv_heads == 1);
  CHECK(read("qwen2-7b-28-heads.config.json").attention_in_bias);
  CHECK(read("smol-135m-9-heads.config.json").vocab == 49153);
  CHECK_THAT(refusal([&] { read("awq-11008-g128.config.json"); }), Contains("awq"));
  CHECK_THAT(refusal([&] { read("fp8-block128-1536.config.json"); }), Contains("Qwen3ForCausalLM"));
}

TEST_CASE("ModelConfig::validate: each bound is checked") {
  const ModelConfig good = *named_configuration("tiny");
  CHECK_NOTHROW(good.validate("x"));
  const auto message = [&](auto change) {
    ModelConfig bad = good;
    change(bad);
    return refusal([&] { bad.validate("somewhere"); });
  };
  CHECK_THAT(message([](ModelConfig& c) { c.layers = 0; }), Contains("layers is 0") && Contains("somewhere"));
  CHECK_THAT(message([](ModelConfig& c) { c.vocab = int64_t{1} << 40; }), Contains("vocab"));
  CHECK_THAT(message([](ModelConfig& c) { c.kv_heads = 3; }), Contains("multiple"));
  CHECK_THAT(message([](ModelConfig& c) { c.norm_epsilon = std::nanf(""); }), Contains("epsilon"));
  CHECK_THAT(message([](ModelConfig& c) { c.rope.theta = std::nan(""); }), Contains("theta"));
  CHECK_THAT(message([](ModelConfig& c) { c.rope.divisors = {1.0F}; }), Contains("divisors"));
  CHECK_THAT(message([](ModelConfig& c) { c.bos_id = 512; }), Contains("bos_token_id 512"));
}

TEST_CASE("named_configuration: parameter counts are the published ones") {
  // Model cards; in units of 10^6 parameters, to the last digit given.
  const std::map<std::string, double> published = {
      {"llama2-7b", 6738.4},    {"llama2-13b", 13015.9},     {"llama2-70b", 68976.6}, {"llama3-8b", 8030.3},
      {"llama3-70b", 70553.7},  {"llama3.1-405b", 405853.4}, {"mistral-7b", 7248.0},  {"qwen2.5-7b", 7615.6},
      {"qwen2.5-72b", 72706.2}, {"smollm2-135m", 134.5},     {"qwen3-8b", 8190.7},    {"mpt-7b", 6649.3},
      {"mpt-30b", 29957.2},
  };
  for (const std::string& name : named_configurations()) {
    INFO(name);
    const auto config = named_configuration(name);
    REQUIRE(config);
    const double millions = static_cast<double>(parameter_count(*config)) / 1e6;
    if (name == "tiny") {
      CHECK(millions < 1.0);
    } else {
      CHECK(std::abs(millions - published.at(name)) <= 0.051);
    }
  }
  CHECK(named_configurations().size() == published.size() + 1);
  CHECK_FALSE(named_configuration("llama9"));
}

}  // namespace
}  // namespace shardscope::runtime
