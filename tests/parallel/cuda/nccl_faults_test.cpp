// DeviceCommunicator with NCCL, where something goes wrong: ranks that do not come, die or fail, calls that fail. Each
// ends within its limit, with the line that a user needs.
#include <nccl.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <string>
#include <vector>

#include "kernels/cuda/owners.hpp"
#include "tests/parallel/cuda/rank_group.hpp"

namespace shardscope::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

// Of worlds in which a rank stands still: more than ranks need that go on, on a busy machine.
constexpr milliseconds kTimeout{2000};

/// Four numbers on the device.
class Numbers {
 public:
  Numbers() {
    cuda::check_cuda(cudaMalloc(&memory_, 16), "cudaMalloc");
    cuda::check_cuda(cudaMemset(memory_, 0, 16), "cudaMemset");
    cuda::check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
  Numbers(const Numbers&) = delete;
  Numbers& operator=(const Numbers&) = delete;
  ~Numbers() { cudaFree(memory_); }
  kernels::Activations view(int64_t columns = 4) const { return {memory_, 1, columns, columns, kernels::DType::kF32}; }

 private:
  float* memory_ = nullptr;
};

/// A machine whose NCCL, as a real one within a host, says nothing of ranks that are gone.
emulation::Options silent_machine(int devices) {
  emulation::Options options = ranks_machine(devices);
  options.nccl.tells_of_dead_ranks = false;
  return options;
}

}  // namespace

TEST_CASE("nccl faults: a rank that does not come to the start is named within the timeout") {
  const BoardPages pages(3);
  const std::vector<Outcome> outcomes = in_processes(3, ranks_machine(3), [&](Rank& rank) {
    Member member(rank, pages, kTimeout);
    if (rank.rank() == 2) {
      member.world().progress("loading");
      // It hears the id, and then stands still.
      ncclUniqueId id{};
      ProcessCommunicator(rank).broadcast(std::as_writable_bytes(std::span(&id, 1)), 0);
      rank.stop_here();
    }
    const Clock::time_point begin = Clock::now();
    const std::string text = member.outcome([&] { member.communicator(); });
    rank.expect(Clock::now() - begin < 3 * kTimeout, "in time");
    // Whoever comes first says so, the other one leaves the word to it.
    if (text != "peer failure") {
      member.expect_words(text, {"rank 2 made no progress for 2 s", "last doing 'loading'", "ncclCommInitRankConfig"});
    }
  });
  CHECK(outcomes[2].end == Outcome::End::kStopped);
}

TEST_CASE("nccl faults: a rank that does not come to a sum is named within the timeout, and the stream is free again") {
  const BoardPages pages(2);
  const std::vector<Outcome> outcomes = in_processes(2, silent_machine(2), [&](Rank& rank) {
    Member member(rank, pages, kTimeout);
    const std::string text = member.outcome([&] {
      const auto communicator = member.communicator();
      const Numbers numbers;
      communicator->all_reduce(numbers.view());
      member.finish(*communicator);
      member.world().progress("thinking");
      if (rank.rank() == 1) rank.stop_here();
      communicator->all_reduce(numbers.view());
      member.finish(*communicator);
    });
    member.expect_words(text, {"rank 1 made no progress for 2 s", "last doing 'thinking'", "awaited in 'the device'"});
    const Clock::time_point begin = Clock::now();
    rank.expect(cudaStreamSynchronize(member.stream()) == cudaSuccess, "the abort frees the stream");
    rank.expect(Clock::now() - begin < seconds(5), "at once");
  });
  CHECK(outcomes[1].end == Outcome::End::kStopped);
}

TEST_CASE("nccl faults: whoever waits by the world alone, with a graph and buffers alive, is freed, too") {
  const BoardPages pages(2);
  const std::vector<Outcome> outcomes = in_processes(2, silent_machine(2), [&](Rank& rank) {
    Member member(rank, pages, kTimeout);
    const std::string text = member.outcome([&] {
      const auto communicator = member.communicator();
      const Numbers numbers;  // whose cudaFree waits for the sum
      cudaGraph_t graph = nullptr;
      cudaGraphExec_t executable = nullptr;
      cuda::check_cuda(cudaStreamBeginCapture(member.stream(), cudaStreamCaptureModeThreadLocal), "capture");
      communicator->all_reduce(numbers.view());
      cuda::check_cuda(cudaStreamEndCapture(member.stream(), &graph), "cudaStreamEndCapture");
      const cuda::Graph its_graph(graph);
      cuda::check_cuda(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
      const cuda::GraphExec replayed(executable);
      if (rank.rank() == 1) rank.stop_here();
      cuda::check_cuda(cudaGraphLaunch(executable, member.stream()), "cudaGraphLaunch");
      member.world().wait([&] { return cudaStreamQuery(member.stream()) != cudaErrorNotReady; }, "the device",
                          std::vector<int>{0, 1});
    });
    member.expect_words(text, {"rank 1 made no progress for 2 s", "awaited in 'the device'"});
    // The stand-in refuses to abort until the graph is gone, and says so each time.
    for (const emulation::Report& report : emulation::take_reports()) {
      member.expect_words(report.message, {"is to be aborted while a graph"});
    }
    member.expect_clean();
  });
  CHECK(outcomes[1].end == Outcome::End::kStopped);
}

TEST_CASE("nccl faults: nothing can be summed after the end") {
  const BoardPages pages(1);
  in_processes(1, ranks_machine(1), [&](Rank& rank) {
    Member member(rank, pages);
    const std::string text = member.outcome([&] {
      const Numbers numbers;
      const auto communicator = member.communicator();
      communicator->abort();
      communicator->abort();
      communicator->all_reduce(numbers.view());
    });
    member.expect_words(text, {"NCCL is used after its end"});
    member.expect_clean();
  });
}

TEST_CASE("nccl faults: a rank that dies is named, whether NCCL notices or not") {
  const bool noticed = GENERATE(true, false);
  const BoardPages pages(3);
  const std::vector<Outcome> outcomes =
      in_processes(3, noticed ? ranks_machine(3) : silent_machine(3), [&](Rank& rank) {
        Member member(rank, pages);
        const Clock::time_point begin = Clock::now();
        const std::string text = member.outcome([&] {
          const auto communicator = member.communicator();
          const Numbers numbers;
          if (rank.rank() == 1) rank.die();
          communicator->all_reduce(numbers.view());
          member.finish(*communicator);
        });
        if (text != "peer failure") member.expect_words(text, {"rank 1 has died: its process is gone"});
        rank.expect(Clock::now() - begin < seconds(10), "long before the timeout");
      });
  CHECK(outcomes[1].end == Outcome::End::kDied);
}

TEST_CASE("nccl faults: a rank that fails leaves the others its own words, not those of NCCL") {
  const BoardPages pages(3);
  in_processes(3, ranks_machine(3), [&](Rank& rank) {
    Member member(rank, pages);
    const std::string text = member.outcome([&] {
      const auto communicator = member.communicator();
      const Numbers numbers;
      if (rank.rank() == 1) throw SystemError("disk failed", "byte 7", "buy another");
      communicator->all_reduce(numbers.view());
      member.finish(*communicator);
    });
    rank.expect(text == (rank.rank() == 1 ? "disk failed, byte 7, buy another" : "peer failure"), text);
    member.expect_clean();
  });
}

TEST_CASE("nccl faults: an exception unwinds at once while others have not come") {
  const BoardPages pages(2);
  in_processes(2, ranks_machine(2), [&](Rank& rank) {
    Member member(rank, pages);
    const Clock::time_point begin = Clock::now();
    const std::string text = member.outcome([&] {
      const Numbers numbers;  // goes after the communicator, as cudaFree waits for the stream
      const auto communicator = member.communicator();
      rank.barrier();  // both have one: else the failure might meet the other's start
      if (rank.rank() == 1) return;
      communicator->all_reduce(numbers.view());
      throw UserError("interrupted", "", "");
    });
    rank.expect(text == (rank.rank() == 0 ? "interrupted" : ""), text);
    rank.expect(Clock::now() - begin < seconds(10), "no end without a limit");
    member.expect_clean();
  });
}

TEST_CASE("nccl faults: calls that fail at the start say which, on what device and rank, and what to do") {
  struct Slip {
    const char* function;
    int error;
    std::vector<std::string> words;
    bool only_rank_0 = false;
  };
  const Slip slip = GENERATE(values<Slip>({
      {"ncclCommInitRankConfig",
       ncclUnhandledCudaError,
       {"NCCL error 1 (unhandled cuda error): ncclCommInitRankConfig", "NCCL_DEBUG=INFO", "device 0 of rank 0"}},
      {"ncclCommInitRankConfig", ncclSystemError, {"NCCL error 2", "NCCL_DEBUG=INFO", "device 0 of rank 0"}},
      {"ncclAllReduce",
       ncclInternalError,
       {"NCCL error 3 (internal error): ncclAllReduce", "16384 elements of fp32", "device 0 of rank 0"}},
      {"cudaMalloc",
       cudaErrorMemoryAllocation,
       {"CUDA error 2", "proof of nccl's sums", "device 0 of rank 0", "free the device's memory"}},
      {"cudaEventQuery", cudaErrorIllegalAddress, {"CUDA error 700", "cudaEventQuery", "compute-sanitizer"}},
      {"ncclCommGetAsyncError", ncclInternalError, {"NCCL error 3"}},
  }));
  INFO(slip.function << " " << slip.error);
  const BoardPages pages(1);
  emulation::Options options = ranks_machine(1);
  options.failing = {{.function = slip.function, .error = slip.error}};
  in_processes(1, options, [&](Rank& rank) {
    Member member(rank, pages);
    member.expect_words(member.outcome([&] { member.communicator(); }), slip.words);
    member.expect_clean();
  });
}

TEST_CASE("nccl faults: the id that rank 0 cannot make") {
  const BoardPages pages(1);
  emulation::Options options = ranks_machine(1);
  options.failing = {{.function = "ncclGetUniqueId", .error = ncclSystemError}};
  in_processes(1, options, [&](Rank& rank) {
    Member member(rank, pages);
    member.expect_words(member.outcome([&] { member.communicator(); }),
                        {"NCCL error 2 (unhandled system error): ncclGetUniqueId", "device 0 of rank 0"});
    member.expect_clean();
  });
}

TEST_CASE("nccl faults: two ranks on one GPU are told what to do") {
  const BoardPages pages(2);
  in_processes(2, ranks_machine(2), [&](Rank& rank) {
    Member member(rank, pages, kTimeout, 0);
    const std::string text = member.outcome([&] { member.communicator(); });
    if (text != "peer failure") member.expect_words(text, {"Duplicate GPU", "give each rank a GPU of its own"});
  });
}

TEST_CASE("nccl faults: ranks that sum different sizes are told which") {
  const BoardPages pages(2);
  in_processes(2, ranks_machine(2), [&](Rank& rank) {
    Member member(rank, pages);
    const std::string text = member.outcome([&] {
      const auto communicator = member.communicator();
      const Numbers numbers;
      communicator->all_reduce(numbers.view(3 + rank.rank()));
      member.finish(*communicator);
    });
    if (text != "peer failure") {
      member.expect_words(text, {"NCCL error 5 (invalid usage): ncclAllReduce", "ncclAllReduce of 3 ncclFloat32",
                                 "ncclAllReduce of 4 ncclFloat32", "elements of fp32, device "});
    }
  });
}

TEST_CASE("nccl faults: an orderly end that fails is an abort, and throws nothing") {
  const char* const function = GENERATE("ncclCommFinalize", "ncclCommDestroy");
  const BoardPages pages(2);
  emulation::Options options = ranks_machine(2);
  options.failing = {{.function = function, .error = ncclInternalError}};
  in_processes(2, options, [&](Rank& rank) {
    Member member(rank, pages);
    const std::string text = member.outcome([&] {
      const auto communicator = member.communicator();
      rank.barrier();
    });
    rank.expect(text.empty(), text);
    rank.expect(emulation::calls().at("ncclCommAbort") == 1, "aborted");
    member.expect_clean();
  });
}

TEST_CASE("nccl faults: block-quantised activations cannot be summed") {
  const BoardPages pages(1);
  in_processes(1, ranks_machine(1), [&](Rank& rank) {
    Member member(rank, pages);
    const std::string text = member.outcome([&] {
      const auto communicator = member.communicator();
      const Numbers numbers;
      kernels::Activations view = numbers.view();
      view.dtype = kernels::DType::kQ8_0;
      communicator->all_reduce(view);
    });
    member.expect_words(text, {"an all-reduce of q8_0"});
  });
}

}  // namespace shardscope::test
