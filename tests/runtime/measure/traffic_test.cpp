#include "runtime/measure/traffic.hpp"

#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/model/open_model.hpp"
#include "runtime/model/slice.hpp"
#include "tests/support/small_config.hpp"

using namespace shardscope;
using namespace shardscope::runtime;
using kernels::DType;
using test::small_config;

namespace {

DTypeOf all_of(DType matrices) {
  return [=](WeightId id) { return rule_of(id.role).vector ? DType::kF32 : matrices; };
}

StepBytes traffic(const ModelConfig& config, DType dtype, int ranks, int rank, Workload workload) {
  return step_traffic(config, all_of(dtype), plan_shards(shard_dimensions(config), ranks), rank, workload, {});
}

}  // namespace

TEST_CASE("step_traffic: one rank by hand, per format") {
  // Per layer: q, o 128 x 128; k, v 64 x 128; gate, up, down 128 x 256 = 147,456 weights. Head 1000 x 128 = 128,000.
  // Norms (fp32): (2 x 3 + 1) x 128 x 4 = 3,584 bytes.
  struct Format {
    DType dtype;
    double bytes_per_weight;
  };
  const auto [dtype, each] =
      GENERATE(Format{DType::kF32, 4}, Format{DType::kF16, 2}, Format{DType::kBF16, 2}, Format{DType::kQ4_0, 18.0 / 32},
               Format{DType::kQ4_1, 20.0 / 32}, Format{DType::kQ8_0, 34.0 / 32});
  const double layers = 3 * 147'456 * each;
  const double head = 128'000 * each;
  const Workload workload{.batch = 1, .prompt_tokens = 10, .output_tokens = 5};
  const StepBytes tied = traffic(small_config(true), dtype, 1, 0, workload);
  CHECK(tied.weights == Approx(layers + head + 3'584));
  const StepBytes untied = traffic(small_config(false), dtype, 1, 0, workload);
  CHECK(untied.weights == Approx(layers + head + 3'584 + 128 * each));  // and one looked-up row
  // Steps 1 … 4 read 11, 12, 13, 14 positions: 12.5 in the mean; a position is 2 x 2 heads x 32 x 4 bytes x 3 layers.
  CHECK(tied.kv_read == Approx(12.5 * 1536));
  CHECK(tied.kv_write == Approx(1536));
  CHECK(tied.replicated == 0);
  CHECK(tied.padded == 0);
}

TEST_CASE("operation_traffic: the headline's bytes, each with the operation that moves it") {
  const Workload workload{.batch = 2, .prompt_tokens = 10, .output_tokens = 5};
  const auto by_operation = [&](const ModelConfig& config, int ranks, int rank) {
    return operation_traffic(config, all_of(DType::kF16), plan_shards(shard_dimensions(config), ranks), rank, workload,
                             {});
  };
  const OperationBytes untied = by_operation(small_config(false), 1, 0);
  CHECK(untied.products == Approx(3 * 147'456 * 2 + 2 * 3 * 128 * 4));  // and the norms before them
  CHECK(untied.head == Approx(128'000 * 2 + 128 * 4));                  // and the last norm
  CHECK(untied.elementwise == Approx(2 * 128 * 2));                     // a row for each sequence
  CHECK(untied.attention == Approx(2 * (12.5 + 1) * 1536));
  const OperationBytes tied = by_operation(small_config(true), 1, 0);
  CHECK(tied.head == Approx(untied.head));
  CHECK(tied.elementwise == 0);
  for (const bool is_tied : {false, true}) {
    for (const int ranks : {1, 2, 3}) {
      for (int rank = 0; rank < ranks; ++rank) {
        const StepBytes step = traffic(small_config(is_tied), DType::kF16, ranks, rank, workload);
        CHECK(by_operation(small_config(is_tied), ranks, rank).sum() == Approx(step.headline()));
      }
    }
  }
}

TEST_CASE("step_traffic: the batch multiplies KV and looked-up rows, not weights") {
  const Workload one{.batch = 1, .prompt_tokens = 10, .output_tokens = 5};
  const Workload eight{.batch = 8, .prompt_tokens = 10, .output_tokens = 5};
  const StepBytes a = traffic(small_config(false), DType::kF16, 1, 0, one);
  const StepBytes b = traffic(small_config(false), DType::kF16, 1, 0, eight);
  CHECK(b.weights - a.weights == Approx(7 * 256));
  CHECK(b.kv_read == Approx(8 * a.kv_read));
  CHECK(b.kv_write == Approx(8 * a.kv_write));
}

TEST_CASE("step_traffic: what is not replicated adds up to one rank's bytes") {
  const int ranks = GENERATE(2, 3, 4, 5, 8);
  const bool tied = GENERATE(true, false);
  const ModelConfig config = small_config(tied);
  const Workload workload{.batch = 2, .prompt_tokens = 7, .output_tokens = 9};
  const StepBytes alone = traffic(config, DType::kBF16, 1, 0, workload);
  double unique = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const StepBytes bytes = traffic(config, DType::kBF16, ranks, rank, workload);
    unique += bytes.weights + bytes.kv_read - bytes.replicated;
  }
  CHECK(unique == Approx(alone.weights + alone.kv_read));
}

TEST_CASE("step_traffic: nine query heads on two ranks read the middle KV head twice") {
  ModelConfig config = small_config(true);
  config.query_heads = 9;
  config.kv_heads = 3;
  config.hidden = 288;
  const StepBytes bytes = traffic(config, DType::kF32, 2, 0, {.batch = 1, .prompt_tokens = 1, .output_tokens = 2});
  // Rank 0 holds KV heads 0 and 1; head 1 is the other's too. One position read of 2 heads: step 1 reads 1 + 1.
  const double head_position = 2 * 32 * 4 * 3;
  CHECK(bytes.kv_read == Approx(2 * 2 * head_position));
  const double kv_rows_twice = 2.0 * 32 * 288 * 4 * 3;  // k and v rows of head 1, all layers
  const double norms = (2 * 3 + 1) * 288 * 4;
  CHECK(bytes.replicated == Approx(kv_rows_twice / 2 + norms / 2 + 2 * head_position / 2));
}

TEST_CASE("step_traffic: blocks that straddle a cut count as replicated") {
  ModelConfig config = small_config(true);
  config.query_heads = 3;
  config.kv_heads = 3;
  config.head_dim = 16;  // o has 48 columns; heads 0, 1 | 2 cut at 32: whole blocks; at 3 ranks 16 and 32
  config.hidden = 64;
  const auto plan = plan_shards(shard_dimensions(config), 3);
  const SliceBytes middle = slice_bytes(config, Role::kAttentionOut, DType::kQ4_0, plan, 1);
  CHECK(middle.stored == 64 * 18);  // one block of 32 for 16 columns
  CHECK(middle.replicated == Approx(64 * 18 / 2.0));
}

TEST_CASE("step_traffic: published KV sizes per token at 16 bits") {
  // 2 x layers x kv_heads x head_dim x 2 bytes; the cache here is fp32, hence half of kv_write.
  struct Published {
    const char* name;
    double bytes;
  };
  const auto [name, bytes] =
      GENERATE(Published{"smollm2-135m", 23'040}, Published{"llama2-7b", 524'288}, Published{"llama2-13b", 819'200},
               Published{"llama3-8b", 131'072}, Published{"llama2-70b", 327'680});
  const OpenedModel model = open_model({.model = name});
  const StepBytes step =
      traffic(model.config, DType::kBF16, 1, 0, {.batch = 1, .prompt_tokens = 1, .output_tokens = 2});
  CHECK(step.kv_write / 2 == Approx(bytes));
}
