#include "runtime/text/tokenizer.hpp"

#include <catch2/catch.hpp>

#include "kernels/base/error.hpp"
#include "tests/runtime/text/fixtures.hpp"

namespace shardscope::runtime {
namespace {

using Catch::Contains;
using nlohmann::json;
using Ids = std::vector<int32_t>;
using Specials = Tokenizer::Specials;
using testing::case_tokenizer;
using testing::small_spec;

const char* const kByteLevelCases[] = {"gpt2", "llama3", "qwen2", "smollm"};

std::string decode_with_specials(const Tokenizer& tokenizer, const Ids& ids) {
  std::string text;
  for (const int32_t id : ids)
    text += tokenizer.is_special(id) ? tokenizer.spec().tokens[id] : tokenizer.token_bytes(id);
  return text;
}

TEST_CASE("encode: every row of case A21 gives Hugging Face's ids and decodings") {
  for (const char* name : kByteLevelCases) {
    const Tokenizer tokenizer = case_tokenizer(name);
    const json rows =
        testing::read_json(testing::data_path(std::string("cases/A21-tokenisers/") + name + ".expected.json"));
    CHECK(rows.size() > 20);
    for (const json& row : rows) {
      INFO(name << ": " << row["text"]);
      const Ids ids = tokenizer.encode(row["text"].get<std::string>(), Specials::kParse);
      CHECK(ids == row["ids"].get<Ids>());
      CHECK(tokenizer.decode(ids) == row["decoded"].get<std::string>());
      CHECK(decode_with_specials(tokenizer, ids) == row["decoded_keep_special"].get<std::string>());
      Ids whole = tokenizer.spec().add_bos ? Ids{*tokenizer.spec().bos_id} : Ids{};
      whole.insert(whole.end(), ids.begin(), ids.end());
      CHECK(whole == row["ids_with_special"].get<Ids>());
    }
  }
}

TEST_CASE("encode: awkward texts give the ids of Hugging Face's library") {
  const json file = testing::read_json(testing::data_path("tokenizer-nasty.json"));
  for (const auto& [name, added] : file["added_tokens"].items()) {
    json tokenizer_json = testing::case_json(name.substr(0, name.find('+')));
    for (const json& token : added) tokenizer_json["added_tokens"].push_back(token);
    const Tokenizer tokenizer(testing::read_spec(tokenizer_json));
    for (const json& row : file["rows"]) {
      if (!row.contains(name)) continue;
      INFO(name << ": " << row["text"]);
      CHECK(tokenizer.encode(row["text"].get<std::string>(), Specials::kParse) == row[name].get<Ids>());
    }
  }
}

TEST_CASE("encode: decoding gives the text again, whatever its bytes") {
  for (const char* name : {"gpt2", "llama3", "smollm"}) {
    const Tokenizer tokenizer = case_tokenizer(name);
    for (const std::string& text : testing::nasty_texts(1, 2000, false)) {
      REQUIRE(tokenizer.decode(tokenizer.encode(text)) == text);
    }
  }
}

TEST_CASE("encode: with NFC the normalised text comes back, and encodes to the same ids") {
  const Tokenizer tokenizer = case_tokenizer("qwen2");
  for (const std::string& text : testing::nasty_texts(2, 2000, false)) {
    const Ids ids = tokenizer.encode(text);
    REQUIRE(tokenizer.encode(tokenizer.decode(ids)) == ids);
  }
  CHECK(tokenizer.decode(tokenizer.encode("e\u0301 \xff")) == "\u00e9 \xff");
}

TEST_CASE("encode: token by token through a stream gives the text again") {
  const Tokenizer tokenizer = case_tokenizer("gpt2");
  for (const std::string& text : testing::nasty_texts(4, 500, false)) {
    StreamDecoder decoder({});
    std::string shown;
    for (const int32_t id : tokenizer.encode(text)) shown += decoder.push(tokenizer.token_bytes(id));
    REQUIRE(shown + decoder.flush() == text);
  }
}

TEST_CASE("encode: a special token typed in a prompt stays plain text") {
  const Tokenizer tokenizer(small_spec());
  const Ids typed = tokenizer.encode("<|end|>");
  CHECK(typed == Ids{'<', '|', 'e', 'n', 'd', '|', '>'});
  CHECK(tokenizer.decode(typed) == "<|end|>");
  CHECK(tokenizer.encode("x<|end|>", Specials::kParse) == Ids{'x', 259});
}

TEST_CASE("encode: ignore_merges never takes a special token for a piece of the text") {
  TokenizerSpec spec = small_spec();
  spec.ignore_merges = true;
  spec.tokens.emplace_back("stop");
  spec.tokens.emplace_back("word");
  spec.added.push_back({.id = 261, .content = "stop", .special = true});
  const Tokenizer tokenizer(std::move(spec));
  CHECK(tokenizer.encode("word") == Ids{262});
  CHECK(tokenizer.encode("stop") == Ids{'s', 't', 'o', 'p'});
  CHECK(tokenizer.encode("stop", Specials::kParse) == Ids{261});
}

TEST_CASE("encode: an added token that is not special is always recognised") {
  const Tokenizer tokenizer(small_spec());
  CHECK(tokenizer.encode("a<tool>a") == Ids{'a', 260, 'a'});
  CHECK(tokenizer.decode(Ids{260, 259, 'a'}) == "<tool>a");
}

TEST_CASE("encode: merges do not cross pieces or added tokens") {
  const Tokenizer tokenizer(small_spec());
  CHECK(tokenizer.encode("aaaaaa a") == Ids{257, 256, 258});
  CHECK(tokenizer.encode("a<tool>aa") == Ids{'a', 260, 256});
}

TEST_CASE("encode: NUL bytes and an empty text") {
  const Tokenizer tokenizer(small_spec());
  CHECK(tokenizer.encode("").empty());
  CHECK(tokenizer.encode(std::string("a\0b", 3)) == Ids{'a', 0, 'b'});
}

TEST_CASE("encode: a prefix blank goes in front of every text between added tokens") {
  TokenizerSpec spec = small_spec();
  spec.add_prefix_space = true;
  const Tokenizer tokenizer(std::move(spec));
  CHECK(tokenizer.encode("a<tool>a") == Ids{258, 260, 258});
  CHECK(tokenizer.encode(" a") == Ids{258});
  CHECK(tokenizer.encode("").empty());
}

TEST_CASE("encode: a byte without a token is the unknown token, or an error that names it") {
  TokenizerSpec spec = small_spec();
  spec.tokens['z'].clear();
  spec.tokens['y'].clear();
  CHECK_THROWS_AS(Tokenizer(spec).encode("az"), UserError);
  CHECK_THROWS_WITH(Tokenizer(spec).encode("az"), Contains("0x7A"));
  spec.unk_id = 260;
  CHECK(Tokenizer(spec).encode("azy") == Ids{'a', 260, 260});
  spec.fuse_unk = true;
  CHECK(Tokenizer(spec).encode("azyaz") == Ids{'a', 260, 'a', 260});
}

TEST_CASE("token_bytes: ids outside the vocabulary and holes decode to nothing") {
  TokenizerSpec spec = small_spec();
  spec.added.push_back({.id = 300, .content = "<x>"});
  const Tokenizer tokenizer(std::move(spec));
  CHECK(tokenizer.size() == 301);
  for (const int32_t id : {-1, 261, 299, 301, INT32_MAX, INT32_MIN}) {
    CHECK(tokenizer.token_bytes(id).empty());
    CHECK(!tokenizer.is_special(id));
  }
  CHECK(tokenizer.token_bytes(300) == "<x>");
  CHECK(tokenizer.token_bytes(259).empty());
  CHECK(tokenizer.is_special(259));
}

TEST_CASE("token_bytes: a token outside the byte map stands for its own text") {
  TokenizerSpec spec = small_spec();
  spec.tokens.emplace_back("日 本");
  CHECK(Tokenizer(std::move(spec)).token_bytes(261) == "日 本");
}

TEST_CASE("Tokenizer: a spec whose parts contradict each other is refused") {
  const auto refused = [](auto change) {
    TokenizerSpec spec = small_spec();
    change(spec);
    CHECK_THROWS_AS(Tokenizer(std::move(spec)), UserError);
  };
  refused([](TokenizerSpec& spec) { spec.merges.emplace_back("a", "none"); });
  refused([](TokenizerSpec& spec) { spec.merges.emplace_back("a", "b"); });
  refused([](TokenizerSpec& spec) { spec.bos_id = 261; });
  refused([](TokenizerSpec& spec) { spec.eos_id = -1; });
  refused([](TokenizerSpec& spec) { spec.unk_id = 1000; });
  refused([](TokenizerSpec& spec) { spec.added.push_back({.id = -1, .content = "x"}); });
  refused([](TokenizerSpec& spec) { spec.added.push_back({.id = INT32_MAX, .content = "x"}); });
  refused([](TokenizerSpec& spec) { spec.added.push_back({.id = 300, .content = "<tool>"}); });
  refused([](TokenizerSpec& spec) {
    spec.splitter = Splitter::kPatterns;
    spec.patterns = {"("};
  });
}

TEST_CASE("encode: a megabyte is no trouble, in one piece or in many") {
  constexpr size_t kBytes = 1 << 20;
  TokenizerSpec unsplit = small_spec();
  unsplit.splitter = Splitter::kPatterns;
  const Tokenizer one_piece(std::move(unsplit));
  CHECK(one_piece.encode(std::string(kBytes, 'a')).size() == kBytes / 4);
  for (const char* name : kByteLevelCases) {
    const Tokenizer tokenizer = case_tokenizer(name);
    for (const std::string part : {"a", " ", "\n", " \n", "1", "<", "'", "e\u0301", "\u0301\u0323", "🦙", "\xff",
                                   "the cat saw 12 ducks, and they'll see "}) {
      std::string text;
      while (text.size() < kBytes) text += part;
      const std::string decoded = tokenizer.decode(tokenizer.encode(text));
      CHECK((tokenizer.spec().nfc || decoded == text));
    }
  }
}

}  // namespace
}  // namespace shardscope::runtime
