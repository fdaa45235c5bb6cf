// What the tests of runtime/text share: the files of tests/data, folders that vanish, and generated texts.
#pragma once

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "runtime/text/byte_map.hpp"
#include "runtime/text/tokenizer.hpp"

namespace shardscope::runtime::testing {

inline std::string data_path(const std::string& name) {
  return std::string(SHARDSCOPE_TEST_DATA) + "/" + name;
}

inline nlohmann::json read_json(const std::string& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

class TemporaryFolder {
 public:
  TemporaryFolder() : path_((std::filesystem::temp_directory_path() / "shardscope-text-XXXXXX").string()) {
    if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ + "/" + name, std::ios::binary) << text;
  }

 private:
  std::string path_;
};

/// The tokenizer.json of a case of A21.
inline nlohmann::json case_json(const std::string& name) {
  return read_json(data_path("cases/A21-tokenisers/" + name + ".tokenizer.json"));
}

inline TokenizerSpec read_spec(const nlohmann::json& tokenizer, const nlohmann::json& config = nullptr) {
  const TemporaryFolder folder;
  folder.write("tokenizer.json", tokenizer.dump());
  if (!config.is_null()) folder.write("tokenizer_config.json", config.dump());
  return read_tokenizer_json(folder.path());
}

inline Tokenizer case_tokenizer(const std::string& name) {
  return Tokenizer(read_spec(case_json(name)));
}

/// All 256 bytes (token id = byte), then "aa", "aaaa" and " a", and the added tokens <|end|> (special) and <tool>.
inline TokenizerSpec small_spec() {
  TokenizerSpec spec;
  spec.source = "small";
  for (int byte = 0; byte < 256; ++byte) spec.tokens.push_back(printable_byte(static_cast<uint8_t>(byte)));
  for (const char* token : {"aa", "aaaa", "Ġa", "<|end|>", "<tool>"}) spec.tokens.emplace_back(token);
  spec.merges = {{"a", "a"}, {"aa", "aa"}, {"Ġ", "a"}};
  spec.added = {{.id = 259, .content = "<|end|>", .special = true}, {.id = 260, .content = "<tool>"}};
  return spec;
}

/// Texts of parts that tokenizers trip over, some of them not UTF-8; always the same for a seed.
inline std::vector<std::string> nasty_texts(uint32_t seed, int count, bool only_utf8) {
  const std::vector<std::string> parts = {"a",
                                          "the",
                                          " the",
                                          "'s",
                                          "'LL",
                                          "'\u017f",
                                          " ",
                                          "  ",
                                          "          ",
                                          "\t",
                                          "\r\n",
                                          "\n\n",
                                          "\r",
                                          " \n",
                                          "\u00a0",
                                          "\u3000",
                                          "\u2028",
                                          "\u0085",
                                          "\u180e",
                                          "\u200b",
                                          std::string(1, '\0'),
                                          "\x01",
                                          "\x7f",
                                          "1",
                                          "12345678901234567890",
                                          "\u00bd",
                                          "\u0663",
                                          "e\u0301",
                                          "\u00e9",
                                          "\u0301\u0323",
                                          "A\u030a",
                                          "\u212b",
                                          "한국어",
                                          "日本語",
                                          "🦙",
                                          "👨‍👩‍👧‍👦",
                                          "👍🏽",
                                          "🇩🇪",
                                          "\u200d",
                                          "\ufeff",
                                          "\ufffd",
                                          "العربية",
                                          "...",
                                          "?!",
                                          "__x__",
                                          "<|",
                                          "<|eos|>",
                                          "<|end|>",
                                          "<tool>",
                                          "|>",
                                          "\U0010ffff"};
  const std::vector<std::string> broken = {"\xff",         "\xc3",     "\xe2\x82",         "\xf0\x9f\xa6", "\x80",
                                           "\xed\xa0\x80", "\xc0\xaf", "\xf4\x90\x80\x80", "\xf5"};
  std::mt19937 random(seed);
  const auto pick = [&](size_t below) { return std::uniform_int_distribution<size_t>(0, below - 1)(random); };
  std::vector<std::string> texts;
  for (int i = 0; i < count; ++i) {
    std::string text;
    for (size_t n = pick(16); n > 0; --n) {
      const size_t kind = only_utf8 ? 0 : pick(8);
      if (kind < 6) text += parts[pick(parts.size())];
      if (kind == 6) text += broken[pick(broken.size())];
      if (kind == 7) text.push_back(static_cast<char>(static_cast<uint8_t>(pick(256))));
    }
    texts.push_back(std::move(text));
  }
  return texts;
}

}  // namespace shardscope::runtime::testing
