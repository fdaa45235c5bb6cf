// What a decode step costs on the CUDA backend, counted: launches of a layer, calls of the host, bytes that kernels
// load.
#include <catch2/catch.hpp>
#include <map>

#include "kernels/cuda/backend.hpp"
#include "kernels/cuda/resident.hpp"
#include "runtime/measure/traffic.hpp"
#include "tests/emulation/emulation.hpp"
#include "tests/support/decoding.hpp"
#include "tests/support/lone_member.hpp"

using namespace shardscope;
using namespace shardscope::runtime;
using kernels::DType;

namespace {

int64_t launches() {
  int64_t count = 0;
  for (const emulation::KernelCounters& counters : emulation::counters()) count += counters.launches;
  return count;
}

/// What one decode step did, after enough of them that nothing is new.
struct StepCosts {
  int64_t launches = 0;
  int64_t sums = 0;  // all-reduces that a step enqueues
  std::map<std::string, int64_t> calls;
  std::map<std::string, int64_t> loaded_bytes;  // by class of allocation
};

struct StepCase {
  OpenedModel& model;
  DType dtype = DType::kBF16;
  int ranks = 1;
  int64_t batch = 1;
  int64_t prompt_tokens = 4;
  int64_t positions = 16;
  int64_t steps_before = 3;  // runs, is captured, is replayed
};

StepCosts step_costs(const StepCase& what) {
  emulation::restart({.multiprocessors = 132});
  const auto backend = cuda::make_backend({.precision = {.activations = what.dtype, .kv = what.dtype},
                                           .weights_together = false,  // bytes are counted by allocation
                                           .scratch_bytes = 1 << 20,
                                           .upload_bytes = 1 << 20});
  test::LoneMember communicator(0, what.ranks);
  parallel::World world({.use_mpi = false});
  const RankContext context{*backend, communicator, world};
  const parallel::ShardPlan plan = parallel::plan_shards(shard_dimensions(what.model.config), what.ranks);
  Decoder decoder(what.model.config, *what.model.weights, plan,
                  {.slots = what.batch,
                   .max_positions = what.positions,
                   .max_step_tokens = what.batch * what.prompt_tokens,
                   .precision = backend->precision()},
                  context);
  for (const kernels::Matrix* matrix : decoder.read_every_step()) {
    for (const auto& piece : dynamic_cast<const cuda::CudaMatrix&>(*matrix).pieces()) {
      emulation::label(piece.values.data(), "weights");
      if (piece.scales.bytes() > 0) emulation::label(piece.scales.data(), "weights");
    }
  }
  emulation::label(dynamic_cast<const cuda::CudaKvCache&>(decoder.kv_cache()).data(), "kv");

  const auto step = [&](int64_t first, int64_t count) {
    std::vector<int32_t> ids;
    std::vector<int32_t> rows;
    std::vector<kernels::StepSequence> sequences;
    for (int64_t slot = 0; slot < what.batch; ++slot) {
      sequences.push_back({.slot = slot, .first_position = first, .count = count});
      for (int64_t i = 0; i < count; ++i) ids.push_back(static_cast<int32_t>(7 * slot + i));
      rows.push_back(static_cast<int32_t>(ids.size()) - 1);
    }
    const kernels::Activations logits = decoder.forward(ids, sequences, rows);
    kernels::Candidate best;
    for (int64_t row = 0; row < what.batch; ++row) {
      backend->top_candidates(logits, row, logits.columns, decoder.vocab_range().begin, {&best, 1});
    }
  };
  step(0, what.prompt_tokens);
  const int64_t sums_of_step = communicator.sums();  // the same of every step
  for (int64_t i = 0; i < what.steps_before; ++i) step(what.prompt_tokens + i, 1);
  const auto loaded = [] {
    std::map<std::string, int64_t> bytes;
    for (const emulation::KernelCounters& counters : emulation::counters()) {
      for (const auto& [allocation, traffic] : counters.bytes) bytes[allocation] += traffic.loaded_bytes;
    }
    return bytes;
  };
  const int64_t launches_before = launches();
  const std::map<std::string, int64_t> bytes_before = loaded();
  emulation::clear_calls();
  step(what.prompt_tokens + what.steps_before, 1);
  StepCosts costs{
      .launches = launches() - launches_before, .sums = sums_of_step, .calls = {}, .loaded_bytes = loaded()};
  for (const auto& [name, count] : emulation::calls()) costs.calls.emplace(name, count);
  for (const auto& [allocation, bytes] : bytes_before) costs.loaded_bytes[allocation] -= bytes;
  CHECK(emulation::take_reports().empty());
  return costs;
}

OpenedModel tiny(int64_t layers, DType dtype) {
  return open_model({.model = "tiny", .layers = layers, .dtype = dtype});
}

int64_t calls_of(const StepCosts& costs, const std::string& name) {
  const auto found = costs.calls.find(name);
  return found == costs.calls.end() ? 0 : found->second;
}

}  // namespace

TEST_CASE("cuda step: at most five launches a layer, whatever the batch of the matrix-vector kernels") {
  const int64_t batch = GENERATE(1, 3, 8);
  const DType dtype = GENERATE(DType::kBF16, DType::kF32);
  CAPTURE(batch, kernels::facts(dtype).name);
  OpenedModel one = tiny(1, dtype);
  OpenedModel two = tiny(2, dtype);
  const StepCosts of_one = step_costs({.model = one, .dtype = dtype, .batch = batch});
  const StepCosts of_two = step_costs({.model = two, .dtype = dtype, .batch = batch});
  CHECK(of_two.launches - of_one.launches == 5);
  // Beside the layers: angles, embedding, head, candidates.
  CHECK(of_one.launches == 5 + 4);
  // With several ranks two sums come to them, seven in all, and one after the embedding.
  CHECK(of_two.sums - of_one.sums == 2);
  CHECK(of_one.sums == 2 + 1);
}

TEST_CASE("cuda step: the host copies the tokens, launches a graph and waits for one event, no more") {
  OpenedModel model = tiny(2, DType::kBF16);
  const StepCosts costs = step_costs({.model = model, .batch = 2});
  CHECK(calls_of(costs, "cudaMemcpyAsync") == 1);
  CHECK(calls_of(costs, "cudaGraphLaunch") == 1);
  CHECK(calls_of(costs, "cudaEventRecord") == 2);  // the tokens' buffer is free; the step is done
  CHECK(calls_of(costs, "cudaEventQuery") >= 1);
  for (const auto& [name, count] : costs.calls) {
    CAPTURE(name, count);
    CHECK((name == "cudaMemcpyAsync" || name == "cudaGraphLaunch" || name == "cudaEventRecord" ||
           name == "cudaEventQuery"));
  }
}

TEST_CASE("cuda step: kernels load the weights and the cache once, as the traffic model says") {
  if (!emulation::checked()) return;  // only the checked mode counts
  const int ranks = GENERATE(1, 8);
  CAPTURE(ranks);
  // One layer of llama3-8b; of its vocabulary a little, which says as much.
  OpenedModel model = open_model({.model = "llama3-8b", .layers = 1});
  model.config.vocab = 512;
  // The first step loads what every step does, and each takes a while.
  const StepCase what{.model = model, .ranks = ranks, .prompt_tokens = 60, .positions = 128, .steps_before = 0};
  const StepCosts costs = step_costs(what);
  const parallel::ShardPlan plan = parallel::plan_shards(shard_dimensions(model.config), ranks);
  const StepBytes bytes = step_traffic(model.config, [&](WeightId id) { return model.weights->dtype(id); }, plan, 0,
                                       {.batch = 1, .prompt_tokens = 60, .output_tokens = 2},
                                       {.activations = what.dtype, .kv = what.dtype});
  const auto loaded = static_cast<double>(costs.loaded_bytes.at("weights") + costs.loaded_bytes.at("kv"));
  CAPTURE(loaded, bytes.weights, bytes.kv_read);
  CHECK(loaded / (bytes.weights + bytes.kv_read) <= 1.02);
  CHECK(loaded / (bytes.weights + bytes.kv_read) >= 0.98);
}
