// What a decode step of a group costs each rank, counted: launches of a layer, calls of the host, exchanges among
// hosts. Ranks in processes, on the emulation.
#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/backend.hpp"
#include "parallel/cuda/device_communicator.hpp"
#include "runtime/decoder.hpp"
#include "runtime/generate/sampler.hpp"
#include "runtime/model/open_model.hpp"
#include "runtime/model/slice.hpp"
#include "tests/emulation/emulation.hpp"
#include "tests/parallel/cuda/rank_group.hpp"

namespace shardscope::test {
namespace {

using kernels::DType;
using parallel::CommunicatorKind;

constexpr int kRanks = 2;

/// Counts what hosts say to each other.
class CountingCommunicator final : public parallel::Communicator {
 public:
  CountingCommunicator(Rank& rank, int64_t& count) : to_(rank), count_(count) {}
  std::string_view name() const override { return to_.name(); }
  int rank() const override { return to_.rank(); }
  int size() const override { return to_.size(); }
  void all_reduce(std::span<float> data) override { to_.all_reduce(data); }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    ++count_;
    to_.all_gather(mine, all);
  }
  void broadcast(std::span<std::byte> data, int root) override {
    ++count_;
    to_.broadcast(data, root);
  }
  void barrier() override {
    ++count_;
    to_.barrier();
  }

 private:
  ProcessCommunicator to_;
  int64_t& count_;
};

struct StepCosts {
  int64_t launches = 0;  // of our kernels
  int64_t said = 0;      // among hosts
  std::map<std::string, int64_t> calls;
  std::vector<int32_t> ids;  // of the last step
};

int64_t launches() {
  int64_t count = 0;
  for (const emulation::KernelCounters& counters : emulation::counters()) count += counters.launches;
  return count;
}

StepCosts step_costs(Rank& rank, Member& member, CommunicatorKind kind, int64_t layers, int64_t batch) {
  const runtime::OpenedModel model = runtime::open_model({.model = "tiny", .layers = layers, .dtype = DType::kF32});
  const auto backend = cuda::make_backend({.device = rank.rank(),
                                           .precision = {.activations = DType::kF32, .kv = DType::kF32},
                                           .scratch_bytes = 1 << 20,
                                           .upload_bytes = 1 << 20});
  StepCosts costs;
  int64_t said = 0;
  parallel::DeviceCommunicator communicator(member.world(), std::make_unique<CountingCommunicator>(rank, said),
                                            *backend, {.kind = kind, .dtype = DType::kF32, .message_bytes = {}});
  const runtime::RankContext context{*backend, communicator, member.world()};
  const parallel::ShardPlan plan = parallel::plan_shards(runtime::shard_dimensions(model.config), kRanks);
  constexpr int64_t kPrompt = 3;
  runtime::Decoder decoder(
      model.config, *model.weights, plan,
      {.slots = batch, .max_positions = 16, .max_step_tokens = batch * kPrompt, .precision = backend->precision()},
      context);
  runtime::Sampler sampler(*backend, communicator, decoder.vocab_range(), model.config.vocab, batch);
  const runtime::SamplingOptions greedy;
  const auto step = [&](int64_t first, int64_t count) {
    std::vector<int32_t> ids;
    std::vector<int32_t> rows;
    std::vector<kernels::StepSequence> sequences;
    std::vector<runtime::SampleRow> asked;
    for (int64_t slot = 0; slot < batch; ++slot) {
      sequences.push_back({.slot = slot, .first_position = first, .count = count});
      for (int64_t i = 0; i < count; ++i) ids.push_back(static_cast<int32_t>(7 * slot + first + i));
      rows.push_back(static_cast<int32_t>(ids.size()) - 1);
      asked.push_back({.request = slot, .position = first + count, .history = {}, .options = &greedy});
    }
    const kernels::Activations logits = decoder.forward(ids, sequences, rows);
    costs.ids.resize(static_cast<size_t>(batch));
    sampler.sample(logits, asked, costs.ids);
  };
  step(0, kPrompt);
  for (int64_t i = 0; i < 3; ++i) step(kPrompt + i, 1);  // runs, is captured, is replayed
  const int64_t before = launches();
  const int64_t said_before = said;
  emulation::clear_calls();
  step(kPrompt + 3, 1);
  backend->synchronize();
  costs.launches = launches() - before;
  for (const auto& [name, count] : emulation::calls()) costs.calls.emplace(name, count);
  costs.said = said - said_before;
  for (const emulation::Report& report : emulation::take_reports()) rank.expect(false, report.message);
  return costs;
}

}  // namespace

TEST_CASE("cuda group step: launches of a layer, and what hosts say, with NCCL and with our own sums") {
  const int64_t batch = GENERATE(1, 3);
  const BoardPages pages(kRanks);
  emulation::Options options = ranks_machine(kRanks);
  options.multiprocessors = 2;
  in_processes(kRanks, options, [&](Rank& rank) {
    Member member(rank, pages);
    std::vector<int32_t> ids;
    for (const CommunicatorKind kind : {CommunicatorKind::kNccl, CommunicatorKind::kNcclSymmetric,
                                        CommunicatorKind::kOneShot, CommunicatorKind::kTwoShot}) {
      const std::string name(parallel::communicator_name(kind));
      const StepCosts one = step_costs(rank, member, kind, 1, batch);
      const StepCosts two = step_costs(rank, member, kind, 2, batch);
      const bool ours = kind == CommunicatorKind::kOneShot || kind == CommunicatorKind::kTwoShot;
      // Beside five of a layer: two sums, each with the residual and the norm behind it. NCCL's are no launches of
      // ours.
      rank.expect(two.launches - one.launches == (ours ? 7 : 5),
                  name + ": " + std::to_string(two.launches - one.launches) + " launches a layer");
      // Angles, embedding, head, candidates; the embedding's sum and the exchange of candidates.
      const int64_t layer = ours ? 7 : 5;
      rank.expect(one.launches == layer + (ours ? 6 : 4), name + ": " + std::to_string(one.launches) + " launches");
      // Candidates go among hosts where no kernel exchanges them.
      rank.expect(two.said == (ours ? 0 : 1), name + ": hosts said " + std::to_string(two.said) + " times");
      rank.expect(two.calls.count("cudaMemcpyAsync") == 1 && two.calls.at("cudaMemcpyAsync") == 1, name + ": copies");
      rank.expect(two.calls.at("cudaGraphLaunch") == 1, name + ": graphs");
      for (const auto& [call, count] : two.calls) {
        const bool expected = call == "cudaMemcpyAsync" || call == "cudaGraphLaunch" || call == "cudaEventRecord" ||
                              call == "cudaEventQuery" || call == "ncclCommGetAsyncError";
        rank.expect(expected, name + " calls " + call);
      }
      if (ids.empty()) ids = two.ids;
      rank.expect(two.ids == ids, name + ": another token");
    }
    member.expect_clean();
  });
}

}  // namespace shardscope::test
