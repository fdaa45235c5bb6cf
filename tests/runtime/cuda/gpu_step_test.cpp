// Decode steps of a tiny model on a real GPU: replayed graphs give what kernels launched one by one give, to the last
// bit, and that is near what the CPU gives. How a graph's programmatic edges behave, no emulation can tell.
#include <catch2/catch.hpp>

#include "kernels/cuda/backend.hpp"
#include "tests/kernels/cuda/conditions.hpp"
#include "tests/runtime/cuda/stepped_decoder.hpp"
#include "tests/support/decoding.hpp"
#include "tests/support/tolerances.hpp"

using namespace shardscope;
using namespace shardscope::runtime;
using kernels::DType;

namespace {

constexpr int64_t kBatch = 3;
constexpr int64_t kPromptTokens = 2;  // so few that no product is cuBLASLt's, which chooses by measuring
constexpr int64_t kSteps = 6;         // the first runs, the second is recorded, the others are replayed

/// Logits of each step, of all requests.
using StepLogits = std::vector<std::vector<float>>;

StepLogits steps_of(const OpenedModel& model, kernels::Backend& backend) {
  parallel::World world({.use_mpi = false});
  const auto communicator = parallel::make_communicator(world, {.group_size = 1});
  const RankContext context{backend, *communicator, world};
  const parallel::ShardPlan plan = parallel::plan_shards(shard_dimensions(model.config), 1);
  Decoder decoder(model.config, *model.weights, plan,
                  {.slots = kBatch,
                   .max_positions = kPromptTokens + kSteps,
                   .max_step_tokens = kBatch * kPromptTokens,
                   .logit_rows = kBatch,
                   .precision = backend.precision()},
                  context);
  StepLogits result;
  const auto step = [&](int64_t first, int64_t count) {
    std::vector<int32_t> ids;
    std::vector<int32_t> rows;
    std::vector<kernels::StepSequence> sequences;
    for (int64_t slot = 0; slot < kBatch; ++slot) {
      sequences.push_back({.slot = slot, .first_position = first, .count = count});
      for (int64_t i = 0; i < count; ++i) ids.push_back(static_cast<int32_t>(1 + 11 * slot + 3 * (first + i)));
      rows.push_back(static_cast<int32_t>(ids.size()) - 1);
    }
    const kernels::Activations logits = decoder.forward(ids, sequences, rows);
    result.emplace_back();
    for (int64_t row = 0; row < kBatch; ++row) {
      const std::vector<float> all = test::whole_row(decoder, context, logits, row);
      result.back().insert(result.back().end(), all.begin(), all.end());
    }
  };
  step(0, kPromptTokens);
  for (int64_t i = 0; i < kSteps; ++i) step(kPromptTokens + i, 1);
  return result;
}

StepLogits on_device(const OpenedModel& model, DType activations, bool graphs) {
  StepLogits result;
  test::under_conditions({.seeds = 1}, [&] {
    const auto backend = cuda::make_backend({.precision = {.activations = activations, .kv = activations},
                                             .graphs = graphs,
                                             .scratch_bytes = 1 << 20,
                                             .upload_bytes = 1 << 16});
    result = steps_of(model, *backend);
  });
  return result;
}

}  // namespace

TEST_CASE("cuda step on a GPU: replayed graphs give the bits of kernels launched one by one") {
  const DType dtype = GENERATE(DType::kF32, DType::kBF16);
  CAPTURE(kernels::facts(dtype).name);
  // Without files, since the program may run on a machine that has none.
  const OpenedModel model = open_model({.model = "tiny", .layers = 2, .dtype = dtype});
  const StepLogits eager = on_device(model, dtype, false);
  const StepLogits replayed = on_device(model, dtype, true);
  REQUIRE(eager.size() == static_cast<size_t>(1 + kSteps));
  CHECK(replayed == eager);
  if (dtype != DType::kF32) return;
  const auto cpu = kernels::make_cpu_backend({.threads = 1, .cores = {}, .activations = kernels::ActivationMode::kF32});
  const StepLogits expected = steps_of(model, *cpu);
  for (size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(i);
    const std::vector<double> row(expected[i].begin(), expected[i].end());
    CHECK(test::first_wrong(eager[i], row, test::logit_tolerance(model.config, row)) == "");
  }
}

TEST_CASE("cuda step on a GPU: noting when operations ran changes no bit, and their times are in order") {
  const OpenedModel model = open_model({.model = "tiny", .layers = 2, .dtype = DType::kBF16});
  test::under_conditions({.seeds = 1}, [&] {
    const auto backend = cuda::make_backend({.precision = {.activations = DType::kBF16, .kv = DType::kBF16},
                                             .scratch_bytes = 1 << 20,
                                             .upload_bytes = 1 << 16});
    parallel::World world({.use_mpi = false});
    const auto communicator = parallel::make_communicator(world, {.group_size = 1});
    test::SteppedDecoder decoder(
        model, {*backend, *communicator, world},
        {.batch = kBatch, .prompt_tokens = kPromptTokens, .positions = kPromptTokens + kSteps});
    StepLogits expected;
    for (const bool noting : {false, true}) {
      CAPTURE(noting);
      backend->note_times(noting);
      CHECK((noting ? backend->time_step_ns() <= 2000 : backend->time_step_ns() == 1));
      decoder.prefill();
      int64_t last_ns = 0;
      for (int64_t step = 0; step < kSteps; ++step) {
        CAPTURE(step);
        decoder.decode();
        if (!noting) {
          expected.push_back(decoder.logits());
          continue;
        }
        CHECK(decoder.logits() == expected[static_cast<size_t>(step)]);
        CHECK(decoder.noted() == test::decode_operations(2, false, false));
        const auto times = backend->step_times();
        REQUIRE(!times.empty());
        CHECK(test::disorder(times, last_ns) == "");
        last_ns = times.back().end_ns;
      }
    }
  });
}
