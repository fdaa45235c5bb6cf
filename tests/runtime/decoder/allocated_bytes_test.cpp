// The traffic model against what stands in memory: every byte that it counts is a byte of a loaded matrix or cache.
#include <catch2/catch.hpp>

#include "runtime/measure/traffic.hpp"
#include "tests/support/decoding.hpp"

using namespace shardscope;
using namespace shardscope::runtime;
using namespace shardscope::test;

namespace {

/// Bytes of the norms and biases of a rank in fp32, counted from the model's description.
double vector_bytes(const OpenedModel& model, const parallel::ShardPlan& plan, int rank) {
  double bytes = 0;
  for (const WeightId id : expected_weights(model.config)) {
    if (!rule_of(id.role).vector) continue;
    const WeightSlice slice = slice_of(model.config, id.role, kernels::DType::kF32, plan, rank);
    bytes += static_cast<double>(slice.bytes(kernels::DType::kF32));
  }
  return bytes;
}

}  // namespace

TEST_CASE("step_traffic: equals the bytes allocated by the backend, at every degree and format") {
  const auto [name, dtype] = GENERATE(
      std::pair<std::string, std::optional<kernels::DType>>{"tiny", std::nullopt},
      std::pair{std::string("tiny"), std::optional(kernels::DType::kF32)},
      std::pair{std::string("tiny"), std::optional(kernels::DType::kF16)},
      std::pair{std::string(SHARDSCOPE_TEST_DATA "/reference/tiny/llama-gqa-9-3-tied"),
                std::optional<kernels::DType>()},
      std::pair{std::string(SHARDSCOPE_TEST_DATA "/reference/tiny/qwen2-bias"), std::optional<kernels::DType>()});
  const OpenedModel model = open_model({.model = name, .dtype = dtype});
  const DTypeOf dtype_of = [&](WeightId id) { return model.weights->dtype(id); };
  const Workload workload{.batch = 3, .prompt_tokens = 7, .output_tokens = 6};
  for (const int ranks : {1, 2, 3, 5}) {
    const parallel::ShardPlan plan = parallel::plan_shards(shard_dimensions(model.config), ranks);
    std::vector<double> allocated(ranks), kv_position(ranks);
    run_group(ranks, kernels::ActivationMode::kF32, [&](RankContext context) {
      const Decoder decoder(model.config, *model.weights, plan, {.slots = 3, .max_positions = 12}, context);
      const int rank = context.communicator.rank();
      for (const kernels::Matrix* matrix : decoder.read_every_step()) {
        allocated[rank] += static_cast<double>(matrix->bytes());
      }
      kv_position[rank] = static_cast<double>(decoder.kv_cache().bytes_per_position());
    });
    for (int rank = 0; rank < ranks; ++rank) {
      INFO(name << ", rank " << rank << " of " << ranks);
      const StepBytes bytes = step_traffic(model.config, dtype_of, plan, rank, workload, {});
      double looked_up = 0;  // rows of an embedding that is not the head
      if (!model.config.tied_embeddings) {
        const kernels::DType table = model.weights->dtype({Role::kEmbedding, -1});
        looked_up = 3.0 * static_cast<double>(plan.ranks[rank].vocab.size()) / static_cast<double>(model.config.vocab) *
                    static_cast<double>(kernels::row_bytes(table, model.config.hidden));
      }
      CHECK(bytes.weights - looked_up - vector_bytes(model, plan, rank) == Approx(allocated[rank]).margin(0.5));
      CHECK(bytes.kv_write == Approx(3 * kv_position[rank]).margin(0.5));
      // Steps 1 … 5 read 8 … 12 positions.
      CHECK(bytes.kv_read == Approx(3 * 10 * kv_position[rank]).margin(0.5));
    }
  }
}
