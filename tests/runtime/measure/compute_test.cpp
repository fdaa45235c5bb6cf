#include "runtime/measure/compute.hpp"

#include <catch2/catch.hpp>

#include "runtime/model/open_model.hpp"
#include "tests/support/small_config.hpp"

using namespace shardscope;
using namespace shardscope::runtime;

TEST_CASE("prefill_flops: a small model by hand") {
  // Per layer: q, o 128 x 128; k, v 64 x 128; gate, up, down 256 x 128: 147,456 weights. Head 1000 x 128.
  ModelConfig config = test::small_config(/*tied=*/true);
  // Contexts of a prompt of 4: 1 + 2 + 3 + 4 = 10. Attention: 4 x 3 layers x 4 heads x 32 x 10.
  const double one = 2.0 * 3 * 147'456 * 4 + 2.0 * 128'000 + 4.0 * 3 * 4 * 32 * 10;
  CHECK(prefill_flops(config, {.batch = 1, .prompt_tokens = 4, .output_tokens = 9}) == Approx(one));
  CHECK(prefill_flops(config, {.batch = 5, .prompt_tokens = 4, .output_tokens = 1}) == Approx(5 * one));
  config.tied_embeddings = false;  // the embedding is a look-up either way
  CHECK(prefill_flops(config, {.batch = 1, .prompt_tokens = 4, .output_tokens = 9}) == Approx(one));
}

TEST_CASE("prefill_flops: Llama-2-7B comes near 2 x parameters x tokens") {
  const OpenedModel model = open_model({.model = "llama2-7b", .headers_only = true});
  const double flops = prefill_flops(model.config, {.batch = 1, .prompt_tokens = 512, .output_tokens = 1});
  CHECK(flops == Approx(2 * 6.48e9 * 512).epsilon(0.02));  // 6.74e9 parameters, less embedding and head
}
