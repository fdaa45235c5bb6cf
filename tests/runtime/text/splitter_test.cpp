#include "runtime/text/splitter.hpp"

#include <catch2/catch.hpp>

#include "kernels/base/error.hpp"
#include "tests/runtime/text/fixtures.hpp"

namespace shardscope::runtime {
namespace {

using Pieces = std::vector<std::string_view>;

PieceSplitter with_patterns(std::vector<std::string> patterns) {
  return PieceSplitter(patterns, "here.json");
}
PieceSplitter named(Splitter splitter) {
  return with_patterns(splitter_patterns(splitter));
}

TEST_CASE("split: the named splitters differ in digits, contractions and line breaks") {
  const std::string_view text = "I'LL pay 1234\n\n  x";
  CHECK(named(Splitter::kGpt2).split(text) == Pieces{"I", "'", "LL", " pay", " 1234", "\n\n ", " x"});
  CHECK(named(Splitter::kSmolLm).split(text) == Pieces{"I", "'", "LL", " pay", " ", "1", "2", "3", "4", "\n\n ", " x"});
  CHECK(named(Splitter::kLlama3).split(text) == Pieces{"I", "'LL", " pay", " ", "123", "4", "\n\n", " ", " x"});
  CHECK(named(Splitter::kQwen2).split(text) == Pieces{"I", "'LL", " pay", " ", "1", "2", "3", "4", "\n\n", " ", " x"});
}

TEST_CASE("split: without patterns a text is one piece, and an empty text none") {
  CHECK(with_patterns({}).split("a b") == Pieces{"a b"});
  CHECK(named(Splitter::kGpt2).split("").empty());
}

TEST_CASE("split: an empty match cuts without losing or repeating anything") {
  CHECK(with_patterns({"(?=b)"}).split("abcb") == Pieces{"a", "bc", "b"});
  CHECK(with_patterns({"x*"}).split("ａxxｂ") == Pieces{"ａ", "xx", "ｂ"});
}

TEST_CASE("split: every splitter gives pieces that together are the text, whatever its bytes") {
  for (const Splitter kind : {Splitter::kGpt2, Splitter::kSmolLm, Splitter::kLlama3, Splitter::kQwen2}) {
    const PieceSplitter splitter = named(kind);
    for (const std::string& text : testing::nasty_texts(3, 500, false)) {
      std::string joined;
      for (const std::string_view piece : splitter.split(text)) {
        CHECK(!piece.empty());
        joined += piece;
      }
      REQUIRE(joined == text);
    }
  }
}

TEST_CASE("split: a byte that is not UTF-8 is neither letter, digit nor blank") {
  CHECK(named(Splitter::kGpt2).split("ab\xff\xfe 1") == Pieces{"ab", "\xff\xfe", " 1"});
}

TEST_CASE("split: a pattern that is broken, of another dialect or endless is refused by name") {
  CHECK_THROWS_WITH(with_patterns({"(a"}), Catch::Contains("split pattern") && Catch::Contains("here.json"));
  CHECK_THROWS_WITH(with_patterns({"\\w+"}), Catch::Contains("\\w"));
  CHECK_THROWS_AS(with_patterns({"\\C"}), UserError);
  const PieceSplitter endless = with_patterns({"(a+)+$"});
  CHECK_THROWS_AS(endless.split(std::string(64, 'a') + "b"), UserError);
}

}  // namespace
}  // namespace shardscope::runtime
