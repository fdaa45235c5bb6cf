#include "runtime/model/gguf.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <map>

#include "runtime/report/document.hpp"
#include "tests/runtime/model/model_test_support.hpp"

namespace shardscope::runtime {
namespace {

using Catch::Contains;
using namespace test;

std::string message_for(const std::string& bytes) {
  const TemporaryFolder folder;
  write_file(folder.path() / "x.gguf", bytes);
  return refusal([&] { open(folder.path() / "x.gguf"); });
}

OpenedModel open_bytes(const TemporaryFolder& folder, const GgufWriter& file) {
  write_file(folder.path() / "x.gguf", file.bytes());
  return open(folder.path() / "x.gguf");
}

TEST_CASE("GgufFile: every file of A10 is refused with its own reason, quickly") {
  const std::map<std::string, std::string> reasons = {
      {"bad-magic", "magic"},
      {"bad-version-1", "version 1"},
      {"bad-version-0", "version 0"},
      {"bad-version-4", "version 4"},
      {"bad-big-endian", "big-endian"},
      {"bad-short-header", "are left"},
      {"bad-empty", "magic"},
      {"bad-kv-count-huge", "key count"},
      {"bad-kv-count-negative", "key count"},
      {"bad-tensor-count-huge", "tensor count"},
      {"bad-tensor-count-one-too-many", "tensor 1"},
      {"bad-key-length-huge", "key 0"},
      {"bad-string-length-wraps", "length"},
      {"bad-empty-key", "empty name"},
      {"bad-duplicate-key", "twice"},
      {"bad-value-type-99", "type 99"},
      {"bad-array-length-huge", "items"},
      {"bad-alignment-0", "general.alignment is 0"},
      {"bad-alignment-12", "general.alignment is 12"},
      {"bad-alignment-type", "general.alignment must be a u32"},
      {"bad-dims-5", "5 dimensions"},
      {"bad-dims-count-huge", "dimensions"},
      {"bad-dim-negative", "dimension"},
      {"bad-dims-product-overflow", "product"},
      {"bad-type-999", "type 999"},
      {"bad-type-removed-4", "type 4"},
      {"bad-row-not-multiple-of-block", "blocks of 32"},
      {"bad-offset-past-end", "offset"},
      {"bad-offset-not-aligned", "offset"},
      {"bad-data-truncated", "truncated"},
      {"bad-duplicate-tensor", "twice"},
      {"bad-no-architecture", "general.architecture is missing"},
      {"bad-unknown-architecture", "gpt-none"},
  };
  const auto expected = nlohmann::json::parse(read_file(case_folder("A10-gguf-malformed") / "expected.json"));
  REQUIRE(expected.size() == reasons.size());
  for (const auto& [name, reason] : reasons) {
    INFO(name);
    CHECK(expected.at(name) == "reject");
    const auto start = std::chrono::steady_clock::now();
    const std::string message = refusal([&] { open(case_folder("A10-gguf-malformed") / (name + ".gguf")); });
    CHECK_THAT(message, Contains(name + ".gguf"));
    CHECK_THAT(message, Contains(reason));
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(2));
  }
}

TEST_CASE("GgufFile: no prefix of a good file is accepted") {
  const std::string bytes = small_gguf().bytes();
  const TemporaryFolder folder;
  write_file(folder.path() / "x.gguf", bytes);
  CHECK_NOTHROW(open(folder.path() / "x.gguf"));
  for (size_t length = 0; length + 32 < bytes.size(); length += 7) {
    INFO(length);
    fs::resize_file(folder.path() / "x.gguf", length);
    CHECK_THROWS_AS(open(folder.path() / "x.gguf"), UserError);
    write_file(folder.path() / "x.gguf", bytes);
  }
  CHECK_THAT(message_for(bytes + bytes), Contains("after the last tensor"));
}

TEST_CASE("GgufFile: any single changed byte of the header gives a model or a UserError, nothing else") {
  const std::string good = small_gguf().bytes();
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "x.gguf";
  size_t refused = 0;
  for (size_t i = 0; i < 1200; ++i) {
    std::string bytes = good;
    bytes[i] = static_cast<char>(bytes[i] ^ (i % 2 == 0 ? 0xFF : 0x01));
    write_file(path, bytes);
    try {
      open(path);
    } catch (const UserError&) {
      ++refused;
    }
  }
  CHECK(refused > 600);
}

TEST_CASE("GgufFile: typed getters refuse other types by key") {
  const TemporaryFolder folder;
  GgufWriter file;
  file.u32("n", 7).f32("f", 0.5F).text("t", "x").boolean("b", true).numbers<int16_t>("list", 3, {-1, 2});
  write_file(folder.path() / "x.gguf", file.bytes());
  const GgufFile gguf((folder.path() / "x.gguf").string());
  CHECK(gguf.whole_number("n") == 7);
  CHECK(gguf.number("f") == 0.5);
  CHECK(gguf.text("t") == "x");
  CHECK(gguf.flag("b") == true);
  CHECK(gguf.whole_numbers("list") == std::vector<int64_t>{-1, 2});
  CHECK_FALSE(gguf.whole_number("absent"));
  CHECK_THAT(refusal([&] { gguf.whole_number("f"); }), Contains("value of f"));
  CHECK_THAT(refusal([&] { gguf.number("n"); }), Contains("value of n"));
  CHECK_THAT(refusal([&] { gguf.text("n"); }), Contains("value of n"));
  CHECK_THAT(refusal([&] { gguf.whole_number("list"); }), Contains("value of list"));
  CHECK_THAT(refusal([&] { gguf.texts("list"); }), Contains("value of list"));
  CHECK_THAT(refusal([&] { gguf.whole_numbers("t"); }), Contains("value of t"));
}

TEST_CASE("open_model: the plain GGUF files of A09 have the weights of A01 in half-split order") {
  const OpenedModel reference = open(case_folder("A01-gqa-kv2"));
  const std::map<std::string, double> files = {
      {"gqa-F32.gguf", 0.0}, {"gqa-align256-F32.gguf", 0.0}, {"gqa-BF16.gguf", 0.0}, {"gqa-F16.gguf", 1e-3}};
  for (const auto& [name, tolerance] : files) {
    const OpenedModel model = open(case_folder("A09-gguf") / name);
    CHECK(model.config.quantisation == "none");
    CHECK(model.config.head_dim == 8);
    CHECK(model.config.rope.theta == 10000.0);
    CHECK_FALSE(model.config.tied_embeddings);
    CHECK(model.config.eos_ids == std::vector<int32_t>{260});
    for (const WeightId id : expected_weights(reference.config)) {
      INFO(name << " " << weight_name(id));
      const std::vector<float> want = values(reference, id);
      const std::vector<float> got = values(model, id);
      REQUIRE(got.size() == want.size());
      size_t close = 0;
      for (size_t i = 0; i < got.size(); ++i) {
        close += std::abs(static_cast<double>(got[i] - want[i])) <=
                 tolerance * std::abs(static_cast<double>(want[i])) + tolerance * 1e-4;
      }
      CHECK(close == got.size());
    }
  }
}

TEST_CASE("open_model: the quantised GGUF files of A09 say what they are, their q and k rows move whole") {
  for (const std::string type : {"q4_0", "q4_1", "q8_0"}) {
    const fs::path path = case_folder("A09-gguf") / ("gqa-Q" + type.substr(1) + ".gguf");
    const OpenedModel model = open(path);
    const GgufFile file(path.string());
    CHECK(model.kind == "gguf");
    CHECK(model.config.quantisation == type);
    const Json document = model_json(model, {});
    CHECK(document["quantisation"] == Json{{"scheme", type},
                                           {"bits_nominal", type == "q8_0" ? 8 : 4},
                                           {"bits_effective", document["bits_per_weight_effective"]},
                                           {"group", 32},
                                           {"granularity", "block"},
                                           {"algorithm", nullptr}});
    CHECK(document["bits_per_weight_effective"] > document["quantisation"]["bits_nominal"]);
    for (const Role role : {Role::kQuery, Role::kKey, Role::kValue, Role::kDown}) {
      const WeightId id{role, 1};
      INFO(type << " " << weight_name(id));
      const WeightShape shape = shape_of(model.config, role);
      CHECK(kernels::facts(model.weights->dtype(id)).name == type);
      const auto stored = std::find_if(file.tensors().begin(), file.tensors().end(), [&](const StoredTensor& tensor) {
        return tensor.name == weight_name(id, Naming::kGguf);
      });
      REQUIRE(stored != file.tensors().end());
      const int64_t width = kernels::row_bytes(model.weights->dtype(id), shape.columns);
      std::vector<std::byte> got(static_cast<size_t>(shape.rows * width));
      model.weights->read(id, {0, shape.rows}, {0, shape.columns}, got);
      static constexpr std::array<int64_t, 8> kInterleaved = {0, 2, 4, 6, 1, 3, 5, 7};  // of a head of 8
      const bool moved = role == Role::kQuery || role == Role::kKey;
      for (int64_t row = 0; row < shape.rows; ++row) {
        const int64_t from = moved ? row / 8 * 8 + kInterleaved[static_cast<size_t>(row % 8)] : row;
        CHECK(std::memcmp(got.data() + row * width, stored->data.data() + from * width, static_cast<size_t>(width)) ==
              0);
      }
    }
  }
}

TEST_CASE("open_model: llama GGUF rows and biases of q and k are put into half-split order, qwen2's are not") {
  const TemporaryFolder folder;
  const auto near = [](const std::vector<float>& got, const std::vector<float>& want) {
    REQUIRE(got.size() == want.size());
    for (size_t i = 0; i < got.size(); ++i) CHECK(std::abs(got[i] - want[i]) <= 1e-6F * std::abs(want[i]));
  };
  const OpenedModel llama = open_bytes(folder, small_gguf());
  // Head of 4: half-split element 0, 1, 2, 3 stands in the file as 0, 2, 1, 3.
  near(values(llama, {Role::kQueryBias, 0}), {3.000F, 3.002F, 3.001F, 3.003F, 3.004F, 3.006F, 3.005F, 3.007F});
  near(values(llama, {Role::kKeyBias, 0}), {5.000F, 5.002F, 5.001F, 5.003F});
  near(values(llama, {Role::kValueBias, 0}), {7.000F, 7.001F, 7.002F, 7.003F});
  const std::vector<float> key = values(llama, {Role::kKey, 0});
  near({key[0], key[8], key[16], key[24]}, {4.000F, 4.016F, 4.008F, 4.024F});
  std::vector<std::byte> part(2 * 3 * sizeof(float));  // rows 1 and 2 of columns 4..6
  llama.weights->read({Role::kKey, 0}, {1, 3}, {4, 7}, part);
  std::vector<float> numbers(6);
  kernels::dequantise_row(kernels::DType::kF32, part, numbers);
  near(numbers, {4.020F, 4.021F, 4.022F, 4.012F, 4.013F, 4.014F});
  std::vector<std::byte> pair(2 * sizeof(float));  // elements 5 and 6 of the query bias
  llama.weights->read({Role::kQueryBias, 0}, {0, 1}, {5, 7}, pair);
  numbers.resize(2);
  kernels::dequantise_row(kernels::DType::kF32, pair, numbers);
  near(numbers, {3.006F, 3.005F});

  const OpenedModel qwen = open_bytes(folder, small_gguf("qwen2"));
  CHECK(qwen.config.attention_in_bias);
  near(values(qwen, {Role::kKeyBias, 0}), {5.000F, 5.001F, 5.002F, 5.003F});
  const std::vector<float> plain = values(qwen, {Role::kKey, 0});
  near({plain[0], plain[8], plain[16], plain[24]}, {4.000F, 4.008F, 4.016F, 4.024F});
}

TEST_CASE("open_model: GGUF metadata that cannot be run is refused by key") {
  const auto message = [](auto change) {
    GgufWriter file = small_gguf();
    change(file);
    return message_for(file.bytes());
  };
  CHECK_THAT(message([](GgufWriter& f) { f.u32("llama.expert_count", 8); }), Contains("llama.expert_count is 8"));
  CHECK_THAT(message([](GgufWriter& f) { f.u32("llama.attention.sliding_window", 4096); }),
             Contains("sliding_window is 4096"));
  CHECK_THAT(message([](GgufWriter& f) { f.f32("llama.attention.clamp_kqv", 8.0F); }), Contains("clamp_kqv"));
  CHECK_THAT(message([](GgufWriter& f) { f.u32("split.count", 3); }), Contains("split.count is 3"));
  CHECK_THAT(message([](GgufWriter& f) { f.text("llama.rope.scaling.type", "yarn"); }),
             Contains("rope.scaling.type is yarn"));
  CHECK_THAT(message([](GgufWriter& f) { f.u32("llama.rope.dimension_count", 2); }),
             Contains("rope.dimension_count 2"));
  CHECK_THAT(message([](GgufWriter& f) { f.u32("llama.vocab_size", 5); }), Contains("vocab_size is 5"));
  CHECK_THAT(message([](GgufWriter& f) { f.u32("llama.attention.value_length", 2); }), Contains("value_length"));
  CHECK_THAT(message([](GgufWriter& f) { f.u32("tokenizer.ggml.eos_token_id", 4); }), Contains("eos_token_id is 4"));
  CHECK_THAT(message([](GgufWriter& f) {
               f.tensor("blk.0.attn_q_norm.weight", {4}, {1, 1, 1, 1});
             }),
             Contains("blk.0.attn_q_norm.weight"));
  CHECK_THAT(message([](GgufWriter& f) {
               f.tensor("rope_freqs.weight", {3}, {1, 1, 1});
             }),
             Contains("rotary divisors"));
  CHECK_THAT(message([](GgufWriter& f) { f.tensor("rope_freqs.weight", {2}, {1, 0}); }), Contains("divisor 0"));
}

TEST_CASE("open_model: GGUF rope_freqs, linear scaling and per-layer lists of equal counts are honoured") {
  const TemporaryFolder folder;
  GgufWriter file = small_gguf();
  file.text("llama.rope.scaling.type", "linear")
      .f32("llama.rope.scaling.factor", 2.0F)
      .f32("llama.rope.freq_base", 100.0F);
  file.tensor("rope_freqs.weight", {2}, {1.0F, 4.0F});
  file.text("llama.some_key", "x");
  const OpenedModel model = open_bytes(folder, file);
  CHECK(model.config.rope.divisors == std::vector<float>{1.0F, 4.0F});
  CHECK(inverse_frequencies(model.config.rope, 4) == std::vector<float>{0.5F, 0.0125F});
  CHECK(model.config.tied_embeddings);
  CHECK(model.config.ignored_keys == std::vector<std::string>{"llama.some_key"});
  CHECK_FALSE(model.tokenizer);
  CHECK_THAT(model.tokenizer_missing_reason, Contains("no tokenizer"));
}

TEST_CASE("open_model: the GGUF tokenizer is handed over with its special tokens") {
  const OpenedModel model = open(case_folder("A09-gguf") / "gqa-F16.gguf");
  REQUIRE(model.tokenizer);
  CHECK(model.tokenizer_missing_reason.empty());
  CHECK(model.tokenizer->tokens.size() == 263);
  CHECK(model.tokenizer->splitter == Splitter::kGpt2);
  using Merges = std::vector<std::pair<std::string, std::string>>;
  CHECK(model.tokenizer->merges == Merges{{"t", "h"}, {"th", "e"}, {"\u0120", "the"}});
  CHECK(model.tokenizer->bos_id == 259);
  CHECK(model.tokenizer->eos_id == 260);
  CHECK_FALSE(model.tokenizer->add_bos);
  CHECK_THAT(model.tokenizer->chat_template, Contains("<|im_start|>"));
  REQUIRE_FALSE(model.tokenizer->added.empty());
  for (const AddedToken& token : model.tokenizer->added) CHECK(token.special);
}

TEST_CASE("open_model: GGUF tokenizer metadata: types, kinds and contradictions") {
  const TemporaryFolder folder;
  const auto tokens = [](GgufWriter& file, std::string_view model, std::string_view pre) -> GgufWriter& {
    return file.text("tokenizer.ggml.model", model)
        .text("tokenizer.ggml.pre", pre)
        .texts("tokenizer.ggml.tokens", {"a", "b", "<s>", "<u>"})
        .texts("tokenizer.ggml.merges", {"a b"})
        .numbers<int32_t>("tokenizer.ggml.token_type", 5, {1, 1, 3, 4});
  };
  GgufWriter llama3 = small_gguf();
  const OpenedModel model =
      open_bytes(folder, tokens(llama3, "gpt2", "llama-bpe").u32("tokenizer.ggml.bos_token_id", 2));
  REQUIRE(model.tokenizer);
  CHECK(model.tokenizer->splitter == Splitter::kLlama3);
  CHECK(model.tokenizer->ignore_merges);
  CHECK(model.tokenizer->add_bos);
  REQUIRE(model.tokenizer->added.size() == 2);
  CHECK(model.tokenizer->added[0].special);
  CHECK_FALSE(model.tokenizer->added[1].special);
  GgufWriter unknown = small_gguf();
  const OpenedModel other = open_bytes(folder, tokens(unknown, "gpt2", "weird"));
  CHECK_FALSE(other.tokenizer);
  CHECK_THAT(other.tokenizer_missing_reason, Contains("weird"));
  GgufWriter sentencepiece = small_gguf();
  CHECK_THAT(open_bytes(folder, tokens(sentencepiece, "llama", "default")).tokenizer_missing_reason,
             Contains("model is llama"));
  GgufWriter short_types = small_gguf();
  short_types.text("tokenizer.ggml.model", "gpt2")
      .text("tokenizer.ggml.pre", "gpt-2")
      .texts("tokenizer.ggml.tokens", {"a", "b"})
      .texts("tokenizer.ggml.merges", {})
      .numbers<int8_t>("tokenizer.ggml.token_type", 1, {1});
  CHECK_THAT(message_for(short_types.bytes()), Contains("token_type has 1 entries for 2 tokens"));
  GgufWriter no_pair = small_gguf();
  no_pair.text("tokenizer.ggml.model", "gpt2")
      .text("tokenizer.ggml.pre", "gpt-2")
      .texts("tokenizer.ggml.tokens", {"a"})
      .texts("tokenizer.ggml.merges", {"ab"});
  CHECK_THAT(message_for(no_pair.bytes()), Contains("merges") && Contains("ab"));
}

}  // namespace
}  // namespace shardscope::runtime
