#include "runtime/model/open_model.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <span>

#include "runtime/model/mapped_file.hpp"
#include "tests/runtime/model/model_test_support.hpp"

namespace shardscope::runtime {
namespace {

using Catch::Contains;
using namespace test;
using kernels::DType;

TEST_CASE("open_model: every recorded model that can be run is opened") {
  for (const char* name : {"cases/A01-gqa-kv2", "cases/A03-head-dim", "cases/A04-rope-llama3", "cases/A05-tied",
                           "cases/A06-bias-no-kv-key", "cases/A17-eos-list", "cases/A18-padded-vocab",
                           "cases/A19-fp16-overflow", "cases/A20-context", "reference/tiny/llama-rope-llama3",
                           "reference/tiny/llama-sharded", "reference/tiny/qwen2-bias"}) {
    INFO(name);
    const OpenedModel model = open(data_folder() / name);
    CHECK(model.kind == "safetensors");
    CHECK(model.weights != nullptr);
    CHECK(model.config.layers_in_file == model.config.layers);
    CHECK(model.config.quantisation == "none");
    CHECK(model.config.name == fs::path(name).filename().string());
    INFO(model.tokenizer_missing_reason);
    CHECK(model.tokenizer.has_value());
  }
  CHECK(open(case_folder("A17-eos-list")).config.eos_ids == std::vector<int32_t>{268, 269});
  CHECK(open(case_folder("A06-bias-no-kv-key")).config.kv_heads == 8);
  CHECK(open(case_folder("A06-bias-no-kv-key")).dtype == DType::kF32);
  CHECK(open(case_folder("A01-gqa-kv2")).dtype == DType::kBF16);
  CHECK_THAT(refusal([] { open(data_folder() / "reference/tiny/mpt-alibi"); }), Contains("MptForCausalLM"));
}

TEST_CASE("open_model: the file decides whether the head is tied") {
  const auto opened = [](const char* name, const char* from, const char* to) {
    const TemporaryFolder folder;
    folder.copy_case(case_folder(name));
    write_file(folder.path() / "config.json", replaced(read_file(folder.path() / "config.json"), from, to));
    return open(folder.path());
  };
  CHECK(open(case_folder("A05-tied")).config.tied_embeddings);
  CHECK(opened("A05-tied", "\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false").config.tied_embeddings);
  CHECK_FALSE(
      opened("A01-gqa-kv2", "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true").config.tied_embeddings);
}

TEST_CASE("open_model: weights that do not fit the configuration are refused by tensor") {
  const auto message = [](const char* name, const char* from, const char* to) {
    const TemporaryFolder folder;
    folder.copy_case(case_folder(name));
    write_file(folder.path() / "config.json", replaced(read_file(folder.path() / "config.json"), from, to));
    return refusal([&] { open(folder.path()); });
  };
  CHECK_THAT(message("A01-gqa-kv2", "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 4"),
             Contains("k_proj.weight") && Contains("[16, 64]") && Contains("[32, 64]"));
  CHECK_THAT(message("A01-gqa-kv2", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3"),
             Contains("model.layers.2.input_layernorm.weight is missing"));
  CHECK_THAT(message("A01-gqa-kv2", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1"),
             Contains("model.layers.1.") && Contains("no part"));
  CHECK_THAT(message("A01-gqa-kv2", "\"attention_bias\": false", "\"attention_bias\": true"),
             Contains("q_proj.bias is missing"));
  CHECK_THAT(message("A06-bias-no-kv-key", "\"mlp_bias\": true", "\"mlp_bias\": false"),
             Contains("_proj.bias") && Contains("no part"));
}

TEST_CASE(
    "open_model: a needed tensor of a type that cannot be run is refused by name, a known buffer is not looked at") {
  const std::string good = read_file(case_folder("A01-gqa-kv2") / "model.safetensors");
  const TemporaryFolder folder;
  folder.copy_case(case_folder("A01-gqa-kv2"));
  std::string integers = good;
  const size_t place = integers.find("BF16\"");
  REQUIRE(place != std::string::npos);
  integers.replace(place, 5, "I16\" ");
  write_file(folder.path() / "model.safetensors", integers);
  CHECK_THAT(refusal([&] { open(folder.path()); }), Contains("stored as I16"));

  uint64_t length = 0;
  std::memcpy(&length, good.data(), 8);
  auto header = nlohmann::json::parse(good.substr(8, length));
  const auto with_extra = [&](const std::string& name) {
    auto changed = header;
    const size_t end = good.size() - 8 - length;
    changed[name] = {{"dtype", "F32"}, {"shape", {1}}, {"data_offsets", {end, end + 4}}};
    const std::string text = changed.dump();
    uint64_t size = text.size();
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &size, 8);
    write_file(folder.path() / "model.safetensors", bytes + text + good.substr(8 + length) + std::string(4, '\0'));
    return open(folder.path());
  };
  CHECK_NOTHROW(with_extra("model.layers.0.self_attn.rotary_emb.inv_freq"));
  CHECK_THAT(refusal([&] { with_extra("model.layers.0.self_attn.q_norm.weight"); }), Contains("q_norm.weight"));
  CHECK_THAT(refusal([&] { with_extra("model.layers.2.mlp.up_proj.weight"); }), Contains("layers.2"));
}

TEST_CASE("open_model: --layers cuts the model and keeps the rest of it") {
  for (const char* name : {"A01-gqa-kv2", "A09-gguf/gqa-F32.gguf"}) {
    const OpenedModel cut = open_model({.model = case_folder(name).string(), .layers = 1});
    CHECK(cut.config.layers == 1);
    CHECK(cut.config.layers_in_file == 2);
    const OpenedModel whole = open(case_folder(name));
    CHECK(values(cut, {Role::kQuery, 0}) == values(whole, {Role::kQuery, 0}));
    CHECK_THROWS_AS(cut.weights->dtype({Role::kQuery, 1}), BugError);
    for (const int64_t layers : {0, 3, -1}) {
      CHECK_THAT(refusal([&] { open_model({.model = case_folder(name).string(), .layers = layers}); }),
                 Contains("--layers"));
    }
  }
}

TEST_CASE("open_model: --dtype converts plain matrices row by row and leaves the rest") {
  const OpenedModel stored = open(case_folder("A01-gqa-kv2"));
  const OpenedModel wide = open_model({.model = case_folder("A01-gqa-kv2").string(), .dtype = DType::kF32});
  CHECK(wide.dtype == DType::kF32);
  for (const WeightId id : expected_weights(stored.config)) {
    const bool vector = rule_of(id.role).vector;
    CHECK(wide.weights->dtype(id) == (vector ? stored.weights->dtype(id) : DType::kF32));
    CHECK(values(wide, id) == values(stored, id));
  }
  const OpenedModel half = open_model({.model = case_folder("A06-bias-no-kv-key").string(), .dtype = DType::kF16});
  const std::vector<float> exact = values(open(case_folder("A06-bias-no-kv-key")), {Role::kGate, 0});
  const std::vector<float> rounded = values(half, {Role::kGate, 0});
  for (size_t i = 0; i < exact.size(); ++i) {  // half an ulp of 11 bits, and the smallest subnormal
    REQUIRE(std::abs(rounded[i] - exact[i]) <= std::ldexp(std::abs(exact[i]), -11) + std::ldexp(1.0F, -25));
  }
  const OpenedModel quantised =
      open_model({.model = case_folder("A09-gguf/gqa-Q8_0.gguf").string(), .dtype = DType::kBF16});
  CHECK(quantised.weights->dtype({Role::kQuery, 0}) == DType::kQ8_0);
}

TEST_CASE("open_model: fp16 that cannot hold the weights is refused by tensor, the stored type is fine") {
  const auto read_all = [](std::optional<DType> dtype) {
    const OpenedModel model = open_model({.model = case_folder("A19-fp16-overflow").string(), .dtype = dtype});
    for (const WeightId id : expected_weights(model.config)) {
      for (const float value : values(model, id)) REQUIRE(std::isfinite(value));
    }
  };
  CHECK_NOTHROW(read_all({}));
  CHECK_NOTHROW(read_all(DType::kF32));
  CHECK_THAT(refusal([&] { read_all(DType::kF16); }), Contains("fp16 range (65504)") && Contains("A19-fp16-overflow") &&
                                                          Contains(".weight") && Contains("--dtype bf16"));
}

TEST_CASE("open_model: pickles and LFS pointers are refused by name") {
  const TemporaryFolder folder;
  fs::copy_file(case_folder("A07-sharded/broken/pytorch_model.bin"), folder.path() / "pytorch_model.bin");
  CHECK_THAT(refusal([&] { open(folder.path()); }), Contains("pytorch_model.bin") && Contains("pickle"));
  CHECK_THAT(refusal([&] { open(folder.path() / "pytorch_model.bin"); }), Contains("pickle"));
  fs::copy_file(case_folder("A01-gqa-kv2/config.json"), folder.path() / "config.json");
  CHECK_THAT(refusal([&] { open(folder.path()); }), Contains("pytorch_model.bin") && Contains("pickle"));
  write_file(folder.path() / "model.safetensors", "PK\x03\x04 and so on");
  CHECK_THAT(refusal([&] { open(folder.path()); }), Contains("model.safetensors") && Contains("pickle"));
  const std::string pointer = read_file(case_folder("A07-sharded/broken/lfs-pointer.safetensors"));
  write_file(folder.path() / "model.safetensors", pointer);
  CHECK_THAT(refusal([&] { open(folder.path()); }), Contains("model.safetensors") && Contains("Git LFS"));
  write_file(folder.path() / "x.gguf", pointer);
  CHECK_THAT(refusal([&] { open(folder.path() / "x.gguf"); }), Contains("Git LFS"));
  write_file(folder.path() / "config.json", pointer);
  CHECK_THAT(refusal([&] { open(folder.path()); }), Contains("config.json") && Contains("Git LFS"));
}

TEST_CASE("open_model: what cannot be opened says what could be") {
  CHECK_THAT(refusal([] { open("/nowhere/at/all"); }), Contains("/nowhere/at/all") && Contains("llama3-8b"));
  CHECK_THAT(refusal([] { open(""); }), Contains("no such model"));
  CHECK_THAT(refusal([] { open("/dev/null"); }), Contains("/dev/null"));
  CHECK_THAT(refusal([] { open(case_folder("A01-gqa-kv2/model.safetensors")); }), Contains("name the folder"));
  CHECK_THAT(refusal([] { open(case_folder("A20-context/prompt-24-tokens.txt")); }), Contains("not known"));
  const TemporaryFolder folder;
  CHECK_THAT(refusal([&] { open(folder.path()); }), Contains("config.json"));
  fs::copy_file(case_folder("A01-gqa-kv2/config.json"), folder.path() / "config.json");
  CHECK_THAT(refusal([&] { open(folder.path()); }), Contains("model.safetensors"));
  write_file(folder.path() / "model-00001-of-00002.safetensors", "");
  CHECK_THAT(refusal([&] { open(folder.path()); }), Contains("index.json is missing"));
  write_file(folder.path() / "quantize_config.json", "{}");
  CHECK_THAT(refusal([&] { open(folder.path()); }), Contains("quantize_config.json"));
}

TEST_CASE("open_model: a folder with one .gguf file is that file") {
  const TemporaryFolder folder;
  fs::copy_file(case_folder("A09-gguf/gqa-F16.gguf"), folder.path() / "a.gguf");
  CHECK(open(folder.path()).kind == "gguf");
  fs::copy_file(case_folder("A09-gguf/gqa-F32.gguf"), folder.path() / "b.gguf");
  CHECK_THAT(refusal([&] { open(folder.path()); }), Contains("2 .gguf files"));
}

TEST_CASE("open_model: configurations alone open for plans and for synthetic weights") {
  const std::string bare = (case_folder("A02-plan-only") / "llama3-8b.config.json").string();
  CHECK_THAT(refusal([&] { open(bare); }), Contains("--weights synthetic"));
  CHECK(open_model({.model = bare, .headers_only = true}).kind == "config");
  CHECK(open_model({.model = "llama3-8b"}).kind == "synthetic");  // a name has no file: no need to ask for it
  for (const std::string& name : {bare, std::string("llama3-8b")}) {
    INFO(name);
    const OpenedModel plan = open_model({.model = name, .headers_only = true});
    REQUIRE(plan.weights != nullptr);
    CHECK(parameter_count(plan.config) == 8030261248);
    CHECK_FALSE(plan.tokenizer_missing_reason.empty());
    const OpenedModel synthetic = open_model({.model = name, .synthetic = true, .layers = 2, .seed = 3});
    CHECK(synthetic.kind == "synthetic");
    CHECK(synthetic.config.layers == 2);
    CHECK(synthetic.weights->dtype({Role::kKey, 1}) == DType::kBF16);
    CHECK(synthetic.dtype == DType::kBF16);
    CHECK_THAT(synthetic.weights->identity(), Contains("3"));
  }
  const OpenedModel folder =
      open_model({.model = case_folder("A05-tied").string(), .synthetic = true, .dtype = DType::kF16});
  CHECK(folder.weights->dtype({Role::kKey, 1}) == DType::kF16);
  CHECK(folder.config.tied_embeddings);
  CHECK(folder.tokenizer.has_value());
  const OpenedModel gguf = open_model({.model = case_folder("A09-gguf/gqa-Q4_0.gguf").string(), .synthetic = true});
  CHECK(gguf.kind == "synthetic");
  CHECK(gguf.config.quantisation == "none");
  CHECK(gguf.tokenizer.has_value());
}

TEST_CASE("open_model: identity follows the file headers") {
  const std::string one = open(case_folder("A01-gqa-kv2")).weights->identity();
  CHECK(one.size() == 16);
  CHECK(one == open(case_folder("A01-gqa-kv2")).weights->identity());
  CHECK(one != open(case_folder("A05-tied")).weights->identity());
  CHECK(open(case_folder("A09-gguf/gqa-F32.gguf")).weights->identity() !=
        open(case_folder("A09-gguf/gqa-align256-F32.gguf")).weights->identity());
}

TEST_CASE("open_model: a tokenizer that cannot be read does not stand in the way of the weights") {
  const TemporaryFolder folder;
  folder.copy_case(case_folder("A01-gqa-kv2"));
  write_file(folder.path() / "tokenizer.json", "{");
  const OpenedModel broken = open(folder.path());
  CHECK_FALSE(broken.tokenizer);
  CHECK_THAT(broken.tokenizer_missing_reason, Contains("tokenizer.json"));
  fs::remove(folder.path() / "tokenizer.json");
  CHECK_THAT(open(folder.path()).tokenizer_missing_reason, Contains("no tokenizer.json"));
}

std::string with_byte_changed(std::string text, size_t at) {
  text.at(at) = static_cast<char>(text.at(at) ^ 1);
  return text;
}

TEST_CASE("fnv1a_sampled: all of what is small, evenly spaced pieces of what is large, ends included") {
  const auto hash = [](const std::string& text) { return fnv1a_sampled(std::as_bytes(std::span(text)), 7); };
  const std::string small(kSamples * kSampleBytes, 'a');
  CHECK(hash(small) == fnv1a(std::as_bytes(std::span(small)), 7));
  CHECK(hash("") == 7);
  // Three bytes and a half between one piece and the next, on average.
  const std::string large(kSamples * kSampleBytes + 7 * (kSamples - 1) / 2, 'a');
  const uint64_t whole = hash(large);
  CHECK(hash(large) == whole);
  for (const size_t at : {size_t{0}, kSampleBytes - 1, large.size() - kSampleBytes, large.size() - 1}) {
    CHECK(hash(with_byte_changed(large, at)) != whole);
  }
  size_t unseen = 0;  // around the first gap
  for (size_t at = kSampleBytes - 4; at < kSampleBytes + 8; ++at) {
    if (hash(with_byte_changed(large, at)) == whole) ++unseen;
  }
  CHECK(unseen == 3);
}

TEST_CASE("open_model: the identity tells trainings of one model apart, and is stable") {
  const TemporaryFolder folder;
  folder.copy_case(case_folder("A01-gqa-kv2"));
  const fs::path file = folder.path() / "model.safetensors";
  const std::string bytes = read_file(file);
  const auto identity = [&] { return open(folder.path()).weights->identity(); };
  const std::string before = identity();
  CHECK(before.size() == 16);
  CHECK(identity() == before);
  CHECK(open_model({.model = folder.path().string(), .headers_only = true}).weights->identity() == before);
  write_file(file, with_byte_changed(bytes, bytes.size() - 1));
  CHECK(identity() != before);
  write_file(file, bytes);
  CHECK(identity() == before);

  const fs::path gguf = folder.path() / "small.gguf";
  const std::string small = small_gguf().bytes();
  write_file(gguf, small);
  const std::string first = open(gguf).weights->identity();
  write_file(gguf, with_byte_changed(small, small.size() - 32));  // in the last tensor
  CHECK(open(gguf).weights->identity() != first);
}

TEST_CASE("open_model: of a checkpoint in several files, each is part of the identity") {
  const TemporaryFolder folder;
  folder.copy_case(data_folder() / "reference/tiny/llama-sharded");
  std::set<std::string> identities = {open(folder.path()).weights->identity()};
  size_t shards = 0;
  for (const auto& entry : fs::directory_iterator(folder.path())) {
    if (entry.path().extension() != ".safetensors") continue;
    const std::string bytes = read_file(entry.path());
    write_file(entry.path(), with_byte_changed(bytes, bytes.size() - 1));
    identities.insert(open(folder.path()).weights->identity());
    write_file(entry.path(), bytes);
    ++shards;
  }
  CHECK(shards > 1);
  CHECK(identities.size() == shards + 1);
}

}  // namespace
}  // namespace shardscope::runtime
