#include <catch2/catch.hpp>
#include <random>

#include "kernels/base/error.hpp"
#include "runtime/text/utf8.hpp"
#include "tests/runtime/text/fixtures.hpp"

namespace shardscope::runtime {
namespace {

bool is_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t length = read_utf8(text, at).length;
    if (length == 0) return false;
    at += length;
  }
  return true;
}

struct Shown {
  std::string text;
  bool stopped = false;
};

Shown show(const std::vector<std::string>& stops, std::string_view text, const std::vector<size_t>& pushes) {
  StreamDecoder decoder(stops);
  Shown shown;
  for (const size_t size : pushes) {
    const size_t taken = std::min(size, text.size());
    shown.text += decoder.push(text.substr(0, taken));
    text.remove_prefix(taken);
  }
  shown.text += decoder.push(text);
  shown.text += decoder.flush();
  shown.stopped = decoder.stopped();
  return shown;
}

// The definition: the shortest beginning of the text that ends in a stop text, without the longest such stop text.
Shown show_plainly(const std::vector<std::string>& stops, std::string_view text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& stop : stops) {
      if (text.substr(0, end).ends_with(stop)) longest = std::max(longest, stop.size());
    }
    if (longest > 0) return {.text = std::string(text.substr(0, end - longest)), .stopped = true};
  }
  return {.text = std::string(text), .stopped = false};
}

TEST_CASE("stream: byte by byte only whole characters come out, and nothing is lost") {
  const std::string text = "Hi 🦙\ncafé!中 👨‍👩‍👧‍👦.";
  StreamDecoder decoder({});
  std::string shown;
  for (const char byte : text) {
    const std::string out = decoder.push(std::string_view(&byte, 1));
    CHECK(is_utf8(out));
    shown += out;
  }
  CHECK(shown == text);
  CHECK(decoder.flush().empty());
}

TEST_CASE("stream: the scripted case A16 comes out exactly") {
  const std::string folder = testing::data_path("cases/A16-stream-unicode");
  const Tokenizer tokenizer(read_tokenizer_json(folder));
  const auto expected = testing::read_json(folder + "/expected.json");
  StreamDecoder decoder({});
  std::string shown;
  for (const int32_t id : expected["greedy_ids"].get<std::vector<int32_t>>()) {
    const std::string out = decoder.push(tokenizer.token_bytes(id));
    CHECK(is_utf8(out));
    shown += out;
  }
  shown += decoder.flush();
  CHECK(shown == expected["text"].get<std::string>());
}

TEST_CASE("stream: flush gives an incomplete character as it is") {
  StreamDecoder decoder({});
  CHECK(decoder.push("a\xf0\x9f\xa6") == "a");
  CHECK(decoder.flush() == "\xf0\x9f\xa6");
  CHECK(decoder.flush().empty());
}

TEST_CASE("stream: bytes that cannot be UTF-8 do not block what follows") {
  StreamDecoder decoder({});
  CHECK(decoder.push("\xff") == "\xff");
  CHECK(decoder.push("\xe2\x82").empty());
  CHECK(decoder.push("x") == "\xe2\x82x");
  CHECK(decoder.push("\xed\xa0") == "\xed\xa0");
}

TEST_CASE("stream: a stop text is cut off exactly, also across pushes") {
  StreamDecoder decoder({"END"});
  CHECK(decoder.push("go E") == "go ");
  CHECK(decoder.push("N").empty());
  CHECK(!decoder.stopped());
  CHECK(decoder.push("D of it").empty());
  CHECK(decoder.stopped());
  CHECK(decoder.push("more").empty());
  CHECK(decoder.flush().empty());
}

TEST_CASE("stream: what only looked like a stop text is shown") {
  StreamDecoder decoder({"</s>", "\n\n"});
  CHECK(decoder.push("a</").size() == 1);
  CHECK(decoder.push("b>\n") == "</b>");
  CHECK(decoder.flush() == "\n");
  CHECK(!decoder.stopped());
}

TEST_CASE("stream: of several stop texts the first that is complete wins, of those the longest") {
  CHECK(show({"abcd", "bc"}, "xabcd", {}).text == "xa");
  CHECK(show({"cd", "abcd"}, "xabcd", {}).text == "x");
  CHECK(show({"d", "b"}, "abcd", {}).text == "a");
}

TEST_CASE("stream: a stop text may begin inside a character's bytes or not be UTF-8") {
  CHECK(show({"\x9f\xa6"}, "a🦙", {}).text == "a\xf0");
  CHECK(show({"\xff"}, "a\xff", {1}).text == "a");
}

TEST_CASE("stream: an empty stop text is refused") {
  CHECK_THROWS_AS(StreamDecoder({"a", ""}), UserError);
}

TEST_CASE("stream: the text does not depend on how it is cut into pushes") {
  std::mt19937 random(5);
  const auto pick = [&](size_t below) { return std::uniform_int_distribution<size_t>(0, below - 1)(random); };
  const std::vector<std::string> letters = {"a", "b", "ab", "🦙", "é", "\n", "\xff", "\xf0\x9f", "\xa6"};
  const auto word = [&](size_t count) {
    std::string text;
    for (size_t i = 0; i < count; ++i) text += letters[pick(letters.size())];
    return text;
  };
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::string> stops;
    for (size_t n = pick(4); n > 0; --n) stops.push_back(word(1 + pick(4)));
    const std::string text = word(pick(24));
    const Shown expected = show_plainly(stops, text);
    std::vector<size_t> cuts;
    for (size_t n = pick(12); n > 0; --n) cuts.push_back(pick(6));
    for (const auto& pushes : {std::vector<size_t>{}, std::vector<size_t>(text.size(), 1), cuts}) {
      const Shown shown = show(stops, text, pushes);
      REQUIRE(shown.text == expected.text);
      REQUIRE(shown.stopped == expected.stopped);
    }
  }
}

}  // namespace
}  // namespace shardscope::runtime
