#include "topology/markup.hpp"

#include <catch2/catch.hpp>

using shardscope::topology::escaped_markup;

TEST_CASE("escaped_markup: no text ends its element or its attribute, and none is lost") {
  CHECK(escaped_markup("").empty());
  CHECK(escaped_markup("GPU 0, 1.5 µs") == "GPU 0, 1.5 µs");
  CHECK(escaped_markup("</title>") == "&lt;/title&gt;");
  CHECK(escaped_markup("a \"b\" 'c'") == "a &quot;b&quot; &#39;c&#39;");
  CHECK(escaped_markup("&lt;") == "&amp;lt;");
}
