// The decode loop allocates nothing: every allocation of the process is counted, from the first token to the last.
#include <catch2/catch.hpp>
#include <memory>

#include "parallel/world.hpp"
#include "runtime/generate/generate.hpp"
#include "runtime/model/open_model.hpp"
#include "runtime/model/slice.hpp"
#include "tests/support/allocations.hpp"

using namespace shardscope;
using namespace shardscope::runtime;
using test::allocation_count;

namespace {

/// Allocations between the first token and the last one, on a loaded and once used decoder.
int64_t allocations_of_decoding(const std::string& name, int64_t batch, int threads, kernels::ActivationMode mode) {
  parallel::World world({});
  const auto backend = kernels::make_cpu_backend({.threads = threads, .activations = mode});
  const OpenedModel model = open_model({.model = name});
  const parallel::ShardPlan plan = plan_shards(shard_dimensions(model.config), 1);
  const auto communicator = parallel::make_communicator(world, {.group_size = 1});
  const RankContext context{*backend, *communicator, world};
  Decoder decoder(model.config, *model.weights, plan, {.slots = batch, .max_positions = 64, .max_step_tokens = 16},
                  context);
  Sampler sampler(*backend, *communicator, decoder.vocab_range(), model.config.vocab, batch);
  std::vector<GenerationRequest> requests(static_cast<size_t>(batch),
                                          {.prompt_ids = {1, 2, 3, 4, 5}, .max_tokens = 40});
  int64_t first = -1, last = -1;
  GenerateOptions options;
  options.on_token = [&](size_t request, int32_t) {
    if (request != 0) return false;
    last = allocation_count();
    if (first < 0) first = last;
    return false;
  };
  generate_batch(decoder, sampler, context, requests, options);
  return last - first;
}

}  // namespace

TEST_CASE("allocation counter: counts") {
  const int64_t before = allocation_count();
  auto memory = std::make_unique<int>(3);
  CHECK(*memory == 3);
  CHECK(allocation_count() > before);
}

TEST_CASE("generate_batch: nothing is allocated between the first token and the last") {
  const int64_t batch = GENERATE(1, 3);
  const int threads = GENERATE(1, 2);
  CHECK(allocations_of_decoding("tiny", batch, threads, kernels::ActivationMode::kAuto) == 0);
  CHECK(allocations_of_decoding(SHARDSCOPE_TEST_DATA "/reference/tiny/qwen2-bias", batch, threads,
                                kernels::ActivationMode::kF32) == 0);
}
