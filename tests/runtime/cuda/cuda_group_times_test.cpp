// Times of the operations of a step of a group, on the CUDA backend: which there are on each rank, and whose wait a
// late rank is. Ranks in processes, on the emulation, whose clock is then the host's.
#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "parallel/cuda/device_communicator.hpp"
#include "tests/emulation/emulation.hpp"
#include "tests/parallel/cuda/rank_group.hpp"
#include "tests/runtime/cuda/stepped_decoder.hpp"

namespace shardscope::test {
namespace {

using kernels::DType;
using kernels::Operation;
using kernels::OperationTimes;
using parallel::CommunicatorKind;

constexpr int64_t kLayers = 2;

runtime::OpenedModel tiny() {
  return runtime::open_model({.model = "tiny", .layers = kLayers, .dtype = DType::kF32});
}

/// A rank's backend and communicator.
struct TimedMember {
  TimedMember(Rank& rank, Member& member, CommunicatorKind kind)
      : backend(cuda::make_backend({.device = rank.rank(),
                                    .precision = {.activations = DType::kF32, .kv = DType::kF32},
                                    .scratch_bytes = 1 << 20,
                                    .upload_bytes = 1 << 20})),
        communicator(member.world(), std::make_unique<ProcessCommunicator>(rank), *backend,
                     {.kind = kind, .dtype = DType::kF32, .message_bytes = {}}),
        context{*backend, communicator, member.world()} {}

  std::unique_ptr<cuda::CudaBackend> backend;
  parallel::DeviceCommunicator communicator;
  runtime::RankContext context;
};

bool is_ours(CommunicatorKind kind) {
  return kind == CommunicatorKind::kOneShot || kind == CommunicatorKind::kTwoShot;
}

emulation::Options small_machine(int ranks) {
  emulation::Options options = ranks_machine(ranks);
  options.multiprocessors = 2;
  return options;
}

/// What the rank would wait in an operation for the last rank to come.
double wait_ms(std::span<const OperationTimes> times, size_t operation) {
  const OperationTimes& one = times[operation];
  const int64_t begin = std::max(one.begin_ns, operation == 0 ? 0 : times[operation - 1].end_ns);
  return static_cast<double>(one.arrived_ns - begin) * 1e-6;
}

void check_steps(Rank& rank, Member& member, CommunicatorKind kind) {
  const std::string name(parallel::communicator_name(kind));
  const runtime::OpenedModel model = tiny();
  TimedMember timed(rank, member, kind);
  SteppedDecoder decoder(model, timed.context, {});
  decoder.prefill();
  decoder.decode();
  const std::vector<int32_t> expected = decoder.chosen();
  timed.backend->note_times(true);
  int64_t last_ns = 0;
  for (int step = 0; step < 4; ++step) {  // a prompt, then runs, is captured, is replayed
    decoder.prefill();
    decoder.decode();
    rank.expect(decoder.chosen() == expected, name + ": another token");
    rank.expect(decoder.noted() == decode_operations(kLayers, true, is_ours(kind)), name + ": other operations");
    const auto times = timed.backend->step_times();
    const std::string wrong = disorder(times, last_ns);
    rank.expect(wrong.empty(), name + ": " + wrong);
    for (const OperationTimes& one : times) {
      const bool knows = is_ours(kind) && is_collective(one.operation);
      rank.expect((one.arrived_ns >= 0) == knows, name + ": who knows of arrivals");
    }
    last_ns = times.back().end_ns;
  }
}

}  // namespace

TEST_CASE("cuda group times: every operation of a step on every rank, with NCCL and with our own sums") {
  const int ranks = GENERATE(2, 3);
  const BoardPages pages(ranks);
  in_processes(ranks, small_machine(ranks), [&](Rank& rank) {
    Member member(rank, pages);
    for (const CommunicatorKind kind : {CommunicatorKind::kNccl, CommunicatorKind::kNcclSymmetric,
                                        CommunicatorKind::kOneShot, CommunicatorKind::kTwoShot}) {
      check_steps(rank, member, kind);
    }
    member.expect_clean();
  });
}

TEST_CASE("cuda group times: a rank that comes late is the others' wait, not its own") {
  constexpr int kRanks = 2;
  constexpr std::chrono::milliseconds kLate{200};
  const BoardPages pages(kRanks);
  in_processes(kRanks, small_machine(kRanks), [&](Rank& rank) {
    Member member(rank, pages);
    const runtime::OpenedModel model = tiny();
    {
      TimedMember timed(rank, member, CommunicatorKind::kOneShot);
      SteppedDecoder decoder(model, timed.context, {});
      timed.backend->note_times(true);
      decoder.prefill();
      for (int step = 0; step < 3; ++step) decoder.decode();  // runs, is captured, is replayed
      for (const int late : {0, 1}) {
        timed.backend->synchronize();
        rank.barrier();
        if (rank.rank() == late) std::this_thread::sleep_for(kLate);
        decoder.decode();
        const auto first_wait = static_cast<float>(wait_ms(timed.backend->step_times(), 1));
        const std::vector<float> waits = rank.exchange(first_wait);
        const float own = waits[static_cast<size_t>(late)];
        const float of_other = waits[static_cast<size_t>(1 - late)];
        // The other begins when it is let, which on a busy machine is late, too, but seldom by so much.
        rank.expect(of_other - own > 0.25F * static_cast<float>(kLate.count()),
                    "waits of " + std::to_string(of_other) + " and, late, " + std::to_string(own) + " ms");
      }
    }
    member.expect_clean();
  });
}

}  // namespace shardscope::test
