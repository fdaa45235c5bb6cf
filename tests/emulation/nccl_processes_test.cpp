// The NCCL stand-in with ranks in processes of their own: right programs, windows, and that nothing is left behind.
// What goes wrong: nccl_processes_faults_test.cpp.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/emulation/emulation.hpp"
#include "tests/emulation/fakes/nccl/nccl_fake.hpp"
#include "tests/emulation/nccl_member.hpp"
#include "tests/emulation/nccl_stand.hpp"
#include "tests/emulation/processes.hpp"

namespace shardscope::test {
namespace {

constexpr Operation kOperations[] = {Operation::kAllReduce, Operation::kAllGather, Operation::kReduceScatter,
                                     Operation::kBroadcast};

}  // namespace

TEST_CASE("nccl processes: every operation is exact on 1 to 8 ranks, and nothing is left") {
  const int count = GENERATE(1, 2, 3, 4, 8);
  char folder[] = "/tmp/shardscope-nccl-XXXXXX";
  REQUIRE(mkdtemp(folder) != nullptr);
  const char* const before = std::getenv("TMPDIR");
  const std::optional<std::string> old = before == nullptr ? std::nullopt : std::optional<std::string>(before);
  setenv("TMPDIR", folder, 1);
  in_processes(count, worker_machine(count), [&](Rank& rank) {
    Member member(rank);
    for (const Operation operation : kOperations) {
      for (const ncclDataType_t type : {ncclFloat16, ncclFloat32, ncclInt8}) {
        for (const bool in_place : {false, true}) {
          member.run({.operation = operation, .type = type, .count = 129, .root = count - 1, .in_place = in_place});
        }
      }
      member.run({.operation = operation, .type = ncclBfloat16, .count = 200'000});
      member.run({.operation = operation, .type = ncclBfloat16, .count = 0});
    }
    const std::vector<std::string> named = shared_files_with_names();
    rank.expect(named.empty(), named.empty() ? "" : "no file with a name: " + named[0]);
    member.expect_nothing_wrong();
    need(cudaStreamDestroy(member.stream), "cudaStreamDestroy");
    rank.expect(emulation::not_given_back().empty(), "all given back");
  });
  CHECK(std::filesystem::is_empty(folder));
  std::filesystem::remove(folder);
  if (old) {
    setenv("TMPDIR", old->c_str(), 1);
  } else {
    unsetenv("TMPDIR");
  }
}

TEST_CASE("nccl processes: dozens of orders, with graphs, communicators that do not block, and different reductions") {
  for (uint64_t seed = 1; seed <= 24; ++seed) {
    INFO("seed " << seed);
    const int count = 2 + static_cast<int>(seed % 3);
    emulation::Options options = worker_machine(count, seed);
    options.nccl.reduction = static_cast<emulation::Reduction>(seed % 3);
    in_processes(count, options, [&](Rank& rank) {
      need(cudaSetDevice(rank.rank()), "cudaSetDevice");
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;
      ncclComm_t communicator = nullptr;
      const auto settled = [&](ncclResult_t result) {
        while (result == ncclInProgress) need(ncclCommGetAsyncError(communicator, &result), "polling");
        need(result, "what did not block");
      };
      settled(ncclCommInitRankConfig(&communicator, count, Member::shared_id(rank), rank.rank(), &config));
      cudaStream_t stream = nullptr;
      need(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
      Part sum({.operation = Operation::kAllReduce, .type = ncclFloat16, .count = 576}, rank.rank(), count);
      Part all({.operation = Operation::kAllGather, .count = 33, .in_place = true}, rank.rank(), count);
      need(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
      settled(sum.call(communicator, stream));
      settled(all.call(communicator, stream));
      cudaGraph_t graph = nullptr;
      cudaGraphExec_t executable = nullptr;
      need(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
      need(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
      for (int turn = 0; turn < 20; ++turn) {
        sum.refill(turn, stream);
        all.refill(turn, stream);
        need(cudaGraphLaunch(executable, stream), "cudaGraphLaunch");
        rank.expect(sum.difference().empty(), sum.difference());
        rank.expect(all.difference().empty(), all.difference());
      }
      need(cudaGraphExecDestroy(executable), "cudaGraphExecDestroy");
      need(cudaGraphDestroy(graph), "cudaGraphDestroy");
      settled(ncclCommFinalize(communicator));
      need(ncclCommDestroy(communicator), "ncclCommDestroy");
      rank.expect(all_reports().empty(), "no report");
    });
  }
}

TEST_CASE("nccl processes: two processes of two devices each, driven by groups") {
  in_processes(2, worker_machine(4), [](Rank& rank) {
    const ncclUniqueId id = Member::shared_id(rank);
    ncclComm_t communicators[2] = {};
    cudaStream_t streams[2] = {};
    std::unique_ptr<Part> parts[2];
    const int first = 2 * rank.rank();
    need(ncclGroupStart(), "ncclGroupStart");
    for (int i = 0; i < 2; ++i) {
      need(cudaSetDevice(first + i), "cudaSetDevice");
      need(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
      need(ncclCommInitRank(&communicators[i], 4, id, first + i), "ncclCommInitRank");
    }
    need(ncclGroupEnd(), "ncclGroupEnd");
    for (const Operation operation : kOperations) {
      for (int i = 0; i < 2; ++i) {
        need(cudaSetDevice(first + i), "cudaSetDevice");
        parts[i] = std::make_unique<Part>(Collective{.operation = operation, .count = 77, .root = 3}, first + i, 4);
      }
      need(ncclGroupStart(), "ncclGroupStart");
      for (int i = 0; i < 2; ++i) need(parts[i]->call(communicators[i], streams[i]), "the collective");
      need(ncclGroupEnd(), "ncclGroupEnd");
      for (int i = 0; i < 2; ++i) {
        need(cudaSetDevice(first + i), "cudaSetDevice");
        rank.expect(parts[i]->difference().empty(), parts[i]->difference());
      }
    }
    for (const ncclComm_t communicator : communicators) need(ncclCommDestroy(communicator), "ncclCommDestroy");
    rank.expect(all_reports().empty(), "no report");
  });
}

TEST_CASE("nccl processes: windows are registered by all ranks, with the same size") {
  const bool planted = GENERATE(false, true);
  in_processes(3, worker_machine(3), [&](Rank& rank) {
    Member member(rank);
    void* memory = nullptr;
    need(ncclMemAlloc(&memory, 8192), "ncclMemAlloc");
    ncclWindow_t window = nullptr;
    const size_t bytes = planted && rank.rank() == 1 ? 4096 : 8192;
    const ncclResult_t result =
        ncclCommWindowRegister(member.communicator, memory, bytes, &window, NCCL_WIN_COLL_SYMMETRIC);
    if (planted) {
      rank.expect(result == ncclInvalidUsage && window == nullptr, "refused");
      const std::string difference = "window 0 differs: " + member.named(0) + " registers 8192 bytes with flags 1, " +
                                     member.named(1) + " registers 4096 bytes with flags 1";
      const std::string why = missing(emulation::take_refusal(), {difference});
      rank.expect(why.empty(), why);
      rank.expect(missing(all_reports(), {difference}).empty(), "reported");
      return;
    }
    need(result, "ncclCommWindowRegister");
    need(cudaMemset(memory, 0, 8192), "cudaMemset");
    need(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    need(ncclAllReduce(memory, memory, 100, ncclFloat32, ncclSum, member.communicator, member.stream), "ncclAllReduce");
    need(cudaStreamSynchronize(member.stream), "cudaStreamSynchronize");
    rank.expect(emulation::symmetric_collectives(member.communicator) == 1, "counted");
    need(ncclCommWindowDeregister(member.communicator, window), "ncclCommWindowDeregister");
    need(ncclMemFree(memory), "ncclMemFree");
    member.expect_nothing_wrong();
  });
}

TEST_CASE("nccl processes: a group of windows of different sizes") {
  in_processes(3, worker_machine(3), [](Rank& rank) {
    constexpr size_t kWindows = 150;  // more than are compared at once
    Member member(rank);
    void* memory = nullptr;
    need(ncclMemAlloc(&memory, 4096 * kWindows), "ncclMemAlloc");
    for (int round = 0; round < 3; ++round) {
      ncclWindow_t windows[kWindows] = {};
      need(ncclGroupStart(), "ncclGroupStart");
      for (size_t i = 0; i < kWindows; ++i) {
        need(ncclCommWindowRegister(member.communicator, memory, 4096 * (i + 1), &windows[i], 0), "a window");
      }
      need(ncclGroupEnd(), "ncclGroupEnd");
      for (const ncclWindow_t window : windows) {
        need(ncclCommWindowDeregister(member.communicator, window), "ncclCommWindowDeregister");
      }
    }
    need(ncclMemFree(memory), "ncclMemFree");
    member.expect_nothing_wrong();
  });
}

TEST_CASE("nccl processes: several ranks on one GPU, if the test says so") {
  emulation::Options options = worker_machine(1);
  options.nccl.several_ranks_per_gpu = true;
  in_processes(3, options, [](Rank& rank) {
    ncclComm_t communicator = nullptr;
    need(ncclCommInitRank(&communicator, 3, Member::shared_id(rank), rank.rank()), "ncclCommInitRank");
    Part part({.count = 1000}, rank.rank(), 3);
    need(part.call(communicator, nullptr), "ncclAllReduce");
    rank.expect(part.difference().empty(), part.difference());
    need(ncclCommDestroy(communicator), "ncclCommDestroy");
  });
}

TEST_CASE("nccl processes: a host message between ranks while another one waits, which needs the worker") {
  // Rank 0 waits for the operation before it lets rank 1's host go on to wait for it.
  in_processes(2, worker_machine(2), [](Rank& rank) {
    Member member(rank);
    for (int turn = 0; turn < 10; ++turn) {
      Part& part = member.begin({.count = 100});
      if (rank.rank() == 0) rank.expect(part.difference().empty(), part.difference());
      rank.barrier();
      if (rank.rank() == 1) rank.expect(part.difference().empty(), part.difference());
    }
    member.expect_nothing_wrong();
  });
}

}  // namespace shardscope::test
