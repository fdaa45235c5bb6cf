// Times of the operations of a step on the CUDA backend, one rank: which there are, in which order, and that a step
// which notes none is the same as ever.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>

#include "tests/emulation/emulation.hpp"
#include "tests/kernels/cuda/conditions.hpp"
#include "tests/runtime/cuda/stepped_decoder.hpp"
#include "tests/support/lone_member.hpp"

using namespace shardscope;
using namespace shardscope::runtime;
using kernels::DType;
using kernels::Operation;
using test::SteppedDecoder;

namespace {

struct RankOptions {
  int rank = 0;
  int ranks = 1;
  bool graphs = true;
};

/// One rank of a group, on an emulated device.
struct TimedRank {
  explicit TimedRank(const RankOptions& options = {})
      : communicator(options.rank, options.ranks),
        backend(cuda::make_backend({.precision = {.activations = DType::kBF16, .kv = DType::kBF16},
                                    .graphs = options.graphs,
                                    .scratch_bytes = 1 << 20,
                                    .upload_bytes = 1 << 20})) {}
  RankContext context() { return {*backend, communicator, world}; }

  parallel::World world{{.use_mpi = false}};
  test::LoneMember communicator;
  std::unique_ptr<cuda::CudaBackend> backend;
};

OpenedModel tiny(int64_t layers) {
  return open_model({.model = "tiny", .layers = layers, .dtype = DType::kBF16});
}

int64_t launches() {
  int64_t count = 0;
  for (const emulation::KernelCounters& counters : emulation::counters()) count += counters.launches;
  return count;
}

/// Launches and calls of the host of one decode step.
struct StepCosts {
  int64_t launches = 0;
  std::map<std::string, int64_t> calls;
  bool operator==(const StepCosts&) const = default;
};

StepCosts costs_of_step(SteppedDecoder& decoder) {
  const int64_t before = launches();
  emulation::clear_calls();
  decoder.decode();
  StepCosts costs{.launches = launches() - before, .calls = {}};
  for (const auto& [name, count] : emulation::calls()) {
    if (name != "cudaEventQuery") costs.calls.emplace(name, count);  // as often as it takes
  }
  return costs;
}

}  // namespace

TEST_CASE("cuda times: every operation of a decode step, in order, anew in each replay") {
  const bool graphs = GENERATE(true, false);
  CAPTURE(graphs);
  const OpenedModel model = tiny(2);
  test::under_conditions({.multiprocessors = 6, .seeds = 2}, [&] {
    TimedRank rank({.graphs = graphs});
    SteppedDecoder decoder(model, rank.context(), {});
    REQUIRE(rank.backend->note_times(true));
    CHECK(rank.backend->time_step_ns() >= 1);
    decoder.prefill();
    int64_t last_ns = 0;
    int64_t early = 0;                      // operations that began before their predecessors had ended
    for (int step = 0; step < 4; ++step) {  // runs, is captured, is replayed
      decoder.decode();
      CAPTURE(step);
      CHECK(decoder.noted() == test::decode_operations(2, false, false));
      const auto times = rank.backend->step_times();
      REQUIRE(!times.empty());
      CHECK(test::disorder(times, last_ns) == "");
      for (const kernels::OperationTimes& one : times) CHECK(one.arrived_ns == -1);
      for (size_t i = 1; i < times.size(); ++i) early += times[i].begin_ns < times[i - 1].end_ns ? 1 : 0;
      last_ns = times.back().end_ns;
    }
    CHECK(early > 0);  // as without notes: kernels start while their predecessors run
  });
}

TEST_CASE("cuda times: a step that does not decode picks rows, and norms and converts for larger products") {
  const OpenedModel model = tiny(1);
  test::under_conditions({.multiprocessors = 6, .seeds = 1}, [&] {
    TimedRank rank;
    const std::vector<Operation> few = {Operation::kEmbedding, Operation::kProduct, Operation::kAttention,
                                        Operation::kProduct,   Operation::kProduct, Operation::kProduct,
                                        Operation::kRows,      Operation::kHead,    Operation::kCandidates};
    const std::vector<Operation> many = {Operation::kEmbedding, Operation::kNorm,      Operation::kProduct,
                                         Operation::kAttention, Operation::kProduct,   Operation::kNorm,
                                         Operation::kProduct,   Operation::kProduct,   Operation::kRows,
                                         Operation::kHead,      Operation::kCandidates};
    for (const int64_t tokens : {4, 20}) {
      CAPTURE(tokens);
      SteppedDecoder decoder(model, rank.context(), {.prompt_tokens = tokens});
      rank.backend->note_times(true);
      decoder.prefill();
      CHECK(decoder.noted() == (tokens == 4 ? few : many));
      const int64_t end_ns = rank.backend->step_times().back().end_ns;
      CHECK(test::disorder(rank.backend->step_times(), 0) == "");
      decoder.decode();
      CHECK(test::disorder(rank.backend->step_times(), end_ns) == "");
      rank.backend->note_times(false);
    }
  });
}

TEST_CASE("cuda times: what a rank has no share of has no times") {
  constexpr int kRanks = 16;
  const OpenedModel model = tiny(1);
  const parallel::ShardPlan plan = parallel::plan_shards(shard_dimensions(model.config), kRanks);
  const auto headless = std::find_if(plan.ranks.begin(), plan.ranks.end(),
                                     [](const parallel::RankShard& shard) { return shard.query_heads.empty(); });
  REQUIRE(headless != plan.ranks.end());
  test::under_conditions({.multiprocessors = 6, .seeds = 0}, [&] {
    TimedRank rank({.rank = static_cast<int>(headless - plan.ranks.begin()), .ranks = kRanks});
    SteppedDecoder decoder(model, rank.context(), {});
    rank.backend->note_times(true);
    decoder.prefill();
    decoder.decode();
    // Of the first product there are no rows, of the second no columns: that one fills in zeros.
    CHECK(decoder.noted() == std::vector<Operation>{Operation::kEmbedding, Operation::kProduct, Operation::kProduct,
                                                    Operation::kProduct, Operation::kHead, Operation::kCandidates});
    CHECK(test::disorder(rank.backend->step_times(), 0) == "");
  });
}

TEST_CASE("cuda times: noting changes no logit, and a step without it costs what it did") {
  const OpenedModel model = tiny(2);
  test::under_conditions({.multiprocessors = 6, .seeds = 1}, [&] {
    constexpr int kSteps = 9;
    std::vector<std::vector<float>> expected;
    {
      TimedRank rank;
      SteppedDecoder decoder(model, rank.context(), {.batch = 2});
      decoder.prefill();
      for (int step = 0; step < kSteps; ++step) {
        decoder.decode();
        expected.push_back(decoder.logits());
        CHECK(rank.backend->step_times().empty());
      }
    }
    TimedRank rank;
    SteppedDecoder decoder(model, rank.context(), {.batch = 2});
    decoder.prefill();
    std::vector<StepCosts> costs;
    for (int step = 0; step < kSteps; ++step) {
      const bool noting = step >= 3 && step < 6;  // each kind runs, is captured, is replayed
      rank.backend->note_times(noting);
      costs.push_back(costs_of_step(decoder));
      CAPTURE(step);
      CHECK(decoder.logits() == expected[static_cast<size_t>(step)]);
      CHECK(rank.backend->step_times().empty() == !noting);
    }
    CHECK(costs[2].launches == 2 * 5 + 4);
    CHECK(costs[2].calls.at("cudaMemcpyAsync") == 1);
    CHECK(costs[6] == costs[2]);  // a recording of before is replayed
    CHECK(costs[8] == costs[2]);
    CHECK(costs[5] == costs[2]);  // the same kernels, in one graph
  });
}

TEST_CASE("cuda times: operations of the host's sampling are none of the device") {
  const OpenedModel model = tiny(1);
  test::under_conditions({.multiprocessors = 6, .seeds = 0}, [&] {
    TimedRank rank;
    SteppedDecoder decoder(model, rank.context(), {});
    rank.backend->note_times(true);
    decoder.prefill();
    const std::vector<Operation> before = decoder.noted();
    {
      const kernels::TimedOperation times(*rank.backend, Operation::kCandidates);
      static_cast<void>(decoder.logits());
    }
    CHECK(decoder.noted() == before);
  });
}
