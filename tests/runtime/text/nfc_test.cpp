#include "runtime/text/nfc.hpp"

#include <catch2/catch.hpp>

namespace shardscope::runtime {
namespace {

// Expected values from Python's unicodedata.normalize("NFC", ...).
TEST_CASE("to_nfc: composes, reorders and leaves excluded characters apart") {
  CHECK(to_nfc("") == "");
  CHECK(to_nfc("plain \x7f") == "plain \x7f");
  CHECK(to_nfc("e\u0301") == "\u00e9");
  CHECK(to_nfc("a\u0301\u0323") == "\u1ea1\u0301");  // the mark below comes first and composes
  CHECK(to_nfc("a\u0302\u0301") == "\u1ea5");        // two steps
  CHECK(to_nfc("\u212b\u2126") == "\u00c5\u03a9");   // singletons
  CHECK(to_nfc("\u1112\u1161\u11ab") == "\ud55c");   // Hangul
  CHECK(to_nfc("\u0958") == "\u0915\u093c");         // composition exclusion
  CHECK(to_nfc("\ufb01") == "\ufb01");               // a compatibility character stays
  CHECK(to_nfc("a\u0301\u0301") == "\u00e1\u0301");
}

TEST_CASE("to_nfc: bytes that are not UTF-8 stay and separate") {
  CHECK(to_nfc("e\xff\u0301") == "e\xff\u0301");
  CHECK(to_nfc("\xcc") == "\xcc");
  CHECK(to_nfc("e\u0301\xed\xa0\x80"
               "e\u0301") == "\u00e9\xed\xa0\x80\u00e9");
}

TEST_CASE("to_nfc: a very long run of marks is ordered without quadratic time") {
  std::string text = "a";
  for (int i = 0; i < 200000; ++i) text += "\u0301\u0323";
  const std::string out = to_nfc(text);
  CHECK(out.substr(0, 5) == "\u1ea1\u0323");
  CHECK(to_nfc(out) == out);
}

}  // namespace
}  // namespace shardscope::runtime
