#include <catch2/catch.hpp>
#include <fstream>
#include <random>
#include <sstream>

#include "kernels/base/error.hpp"
#include "tests/runtime/text/fixtures.hpp"

namespace shardscope::runtime {
namespace {

using Catch::Contains;
using nlohmann::json;
using testing::case_json;
using testing::read_spec;

TEST_CASE("read_tokenizer_json: the four byte-level layouts are understood") {
  const TokenizerSpec gpt2 = read_spec(case_json("gpt2"));
  CHECK(gpt2.tokens.size() == 350);
  CHECK(gpt2.merges.size() == 90);
  CHECK(gpt2.patterns.size() == 1);
  CHECK(!gpt2.add_bos);
  CHECK(!gpt2.bos_id);

  const TokenizerSpec llama3 = read_spec(case_json("llama3"));
  CHECK(llama3.ignore_merges);
  CHECK(llama3.add_bos);
  CHECK(llama3.bos_id == 346);

  CHECK(read_spec(case_json("qwen2")).nfc);
  CHECK(read_spec(case_json("smollm")).patterns.size() == 2);
}

TEST_CASE("read_tokenizer_json: merges may be texts or pairs") {
  json pairs = case_json("gpt2");
  json texts = pairs;
  for (json& merge : texts["model"]["merges"]) {
    merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  }
  CHECK(read_spec(pairs).merges == read_spec(texts).merges);
}

TEST_CASE("read_tokenizer_json: tokenizer_config.json adds bos, eos and the chat template") {
  const json config = {{"bos_token", "<|bos|>"},
                       {"eos_token", {{"content", "<|eos|>"}, {"lstrip", false}}},
                       {"add_bos_token", true},
                       {"chat_template", "{{ messages }}"}};
  const TokenizerSpec spec = read_spec(case_json("gpt2"), config);
  CHECK(spec.bos_id == 346);
  CHECK(spec.eos_id == 347);
  CHECK(spec.add_bos);
  CHECK(spec.chat_template == "{{ messages }}");

  CHECK(!read_spec(case_json("llama3"), {{"add_bos_token", false}}).add_bos);
  CHECK(read_spec(case_json("llama3"), {{"bos_token", nullptr}}).add_bos);
  CHECK_THROWS_WITH(read_spec(case_json("gpt2"), {{"add_bos_token", true}}), Contains("add_bos_token"));
}

TEST_CASE("read_tokenizer_json: of named chat templates the default one counts, and a file before both") {
  const json list = {{{"name", "tools"}, {"template", "T"}}, {{"name", "default"}, {"template", "D"}}};
  CHECK(read_spec(case_json("gpt2"), {{"chat_template", list}}).chat_template == "D");

  const testing::TemporaryFolder folder;
  folder.write("tokenizer.json", case_json("gpt2").dump());
  folder.write("tokenizer_config.json", R"({"chat_template": "C"})");
  folder.write("chat_template.jinja", "J\n");
  CHECK(read_tokenizer_json(folder.path()).chat_template == "J\n");
}

TEST_CASE("read_tokenizer_json: the SentencePiece-like case llama2 is refused by name") {
  CHECK_THROWS_AS(read_spec(case_json("llama2")), UserError);
  CHECK_THROWS_WITH(read_spec(case_json("llama2")),
                    Contains("tokenizer.json: byte_fallback true is not supported yet"));
}

TEST_CASE("read_tokenizer_json: what is not understood is refused by name") {
  const auto changed = [](const char* pointer, json value) {
    json tokenizer = case_json("llama3");
    tokenizer[json::json_pointer(pointer)] = std::move(value);
    return tokenizer;
  };
  CHECK_THROWS_WITH(read_spec(changed("/model/type", "Unigram")), Contains("\"Unigram\""));
  CHECK_THROWS_WITH(read_spec(changed("/model/dropout", 0.1)), Contains("dropout"));
  CHECK_THROWS_WITH(read_spec(changed("/model/end_of_word_suffix", "</w>")), Contains("end_of_word_suffix"));
  CHECK_THROWS_WITH(read_spec(changed("/normalizer", {{"type", "NFKC"}})), Contains("\"NFKC\""));
  CHECK_THROWS_WITH(read_spec(changed("/pre_tokenizer", nullptr)), Contains("ByteLevel"));
  CHECK_THROWS_WITH(read_spec(changed("/pre_tokenizer/pretokenizers/0/type", "Metaspace")), Contains("\"Metaspace\""));
  CHECK_THROWS_WITH(read_spec(changed("/pre_tokenizer/pretokenizers/0/behavior", "Removed")), Contains("\"Removed\""));
  CHECK_THROWS_WITH(read_spec(changed("/pre_tokenizer/pretokenizers/0/invert", true)), Contains("invert"));
  CHECK_THROWS_WITH(read_spec(changed("/pre_tokenizer/pretokenizers/1/add_prefix_space", true)),
                    Contains("add_prefix_space"));
  CHECK_THROWS_WITH(read_spec(changed("/decoder", nullptr)), Contains("decoder"));
  CHECK_THROWS_WITH(read_spec(changed("/decoder/type", "WordPiece")), Contains("\"WordPiece\""));
  CHECK_THROWS_WITH(read_spec(changed("/post_processor/type", "BertProcessing")), Contains("\"BertProcessing\""));
  CHECK_THROWS_WITH(read_spec(changed("/post_processor/single/2", {{"SpecialToken", {{"id", "<|bos|>"}}}})),
                    Contains("TemplateProcessing"));
}

TEST_CASE("read_tokenizer_json: damaged values are refused") {
  const auto changed = [](const char* pointer, json value) {
    json tokenizer = case_json("gpt2");
    tokenizer[json::json_pointer(pointer)] = std::move(value);
    return tokenizer;
  };
  CHECK_THROWS_AS(read_spec(changed("/model", nullptr)), UserError);
  CHECK_THROWS_AS(read_spec(changed("/model/vocab", json::array())), UserError);
  CHECK_THROWS_AS(read_spec(changed("/model/vocab/!", -1)), UserError);
  CHECK_THROWS_AS(read_spec(changed("/model/vocab/!", 1.5)), UserError);
  CHECK_THROWS_AS(read_spec(changed("/model/vocab/!", 4000000000)), UserError);
  CHECK_THROWS_AS(read_spec(changed("/model/vocab/!", 18446744073709551615u)), UserError);
  CHECK_THROWS_WITH(read_spec(changed("/model/vocab/!", 1)), Contains("two tokens"));
  CHECK_THROWS_AS(read_spec(changed("/model/merges/0", "one")), UserError);
  CHECK_THROWS_AS(read_spec(changed("/model/merges/0", "a b c")), UserError);
  CHECK_THROWS_AS(read_spec(changed("/model/merges/0", json::array({"a"}))), UserError);
  CHECK_THROWS_AS(read_spec(changed("/added_tokens", 3)), UserError);
  CHECK_THROWS_AS(read_spec(changed("/added_tokens/0/content", nullptr)), UserError);
  CHECK_THROWS_WITH(read_spec(changed("/added_tokens/0/id", 5)), Contains("<|bos|>"));
}

TEST_CASE("read_tokenizer_json: a missing or unreadable file says what to add") {
  const testing::TemporaryFolder folder;
  CHECK_THROWS_WITH(read_tokenizer_json(folder.path()), Contains("no tokenizer.json"));
  folder.write("tokenizer.model", "");
  CHECK_THROWS_WITH(read_tokenizer_json(folder.path()), Contains("SentencePiece"));
  std::filesystem::create_directory(folder.path() + "/tokenizer.json");
  CHECK_THROWS_AS(read_tokenizer_json(folder.path()), UserError);
}

TEST_CASE("read_tokenizer_json: deep nesting is refused and does not end the process") {
  const auto nested = [](size_t depth, const char* open, const char* close) {
    std::string text = "{\"normalizer\": ";
    for (size_t i = 0; i < depth; ++i) text += open;
    text += "null";
    for (size_t i = 0; i < depth; ++i) text += close;
    return text + "}";
  };
  const testing::TemporaryFolder folder;
  for (const size_t depth : {100, 20000, 1000000}) {
    folder.write("tokenizer.json", nested(depth, "[", "]"));
    CHECK_THROWS_WITH(read_tokenizer_json(folder.path()), Contains("nested"));
    folder.write("tokenizer.json", nested(depth, "{\"a\":", "}"));
    CHECK_THROWS_WITH(read_tokenizer_json(folder.path()), Contains("nested"));
  }
}

TEST_CASE("read_tokenizer_json: a cut or altered file is read or refused, nothing else") {
  const std::string good = case_json("llama3").dump();
  const testing::TemporaryFolder folder;
  const auto attempt = [&](const std::string& text) {
    folder.write("tokenizer.json", text);
    try {
      const Tokenizer tokenizer(read_tokenizer_json(folder.path()));
      tokenizer.decode(tokenizer.encode("The 🦙's 123  cats\n<|eos|>", Tokenizer::Specials::kParse));
    } catch (const UserError&) {
    }
  };
  for (size_t size = 0; size < good.size(); size += 37) attempt(good.substr(0, size));
  std::mt19937 random(9);
  const auto pick = [&](size_t below) { return std::uniform_int_distribution<size_t>(0, below - 1)(random); };
  const std::string signs = "{}[]\",:0129-eE.\\ntf\xff\x01 ";
  for (int round = 0; round < 1500; ++round) {
    std::string text = good;
    for (size_t n = 1 + pick(3); n > 0; --n) text[pick(text.size())] = signs[pick(signs.size())];
    attempt(text);
  }
}

}  // namespace
}  // namespace shardscope::runtime
