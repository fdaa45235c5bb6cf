#include "runtime/measure/text_cost.hpp"

#include <catch2/catch.hpp>

#include "runtime/model/open_model.hpp"

using namespace shardscope;
using namespace shardscope::runtime;

TEST_CASE("measure_text_cost: both ways take time, and much text takes more than little") {
  const OpenedModel model = open_model({.model = SHARDSCOPE_TEST_DATA "/reference/tiny/llama-mha"});
  REQUIRE(model.tokenizer.has_value());
  const Tokenizer tokenizer(*model.tokenizer);
  const TextCost little = measure_text_cost(tokenizer, {1, 2, 3}, 2);
  CHECK(little.tokenise_ms > 0);
  CHECK(little.detokenise_ms > 0);
  const TextCost much = measure_text_cost(tokenizer, std::vector<int32_t>(20'000, 70), 20'000);
  CHECK(much.tokenise_ms > little.tokenise_ms);
  CHECK(much.detokenise_ms > little.detokenise_ms);
}
