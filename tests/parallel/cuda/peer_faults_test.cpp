// Sums over peers' memory where something goes wrong: ranks that die, stand still or fail, calls that fail. Each ends
// within its limit, with the line that a user needs.
#include <catch2/catch.hpp>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/parallel/cuda/peer_member.hpp"
#include "tests/parallel/cuda/peer_numbers.hpp"

namespace shardscope::test {
namespace {

using kernels::DType;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

// Of worlds in which a rank stands still: more than ranks need that go on, on a busy machine.
constexpr milliseconds kTimeout{4000};
// Of everything: under sanitizers, beside other tests.
constexpr seconds kSoon{50};

}  // namespace

TEST_CASE("peer faults: a rank that dies before a sum is named long before the timeout, in each way") {
  const bool one_shot = GENERATE(true, false);
  const PeerPages pages(3);
  const std::vector<Outcome> outcomes = in_processes(3, peers_machine(3), [&](Rank& rank) {
    PeerMember it(rank, pages, 3 * kSoon);
    Clock::time_point begin;
    const std::string text = it.member.outcome([&] {
      const parallel::PeerSums sums = it.sums();
      parallel::DeviceSum& sum = one_shot ? *sums.one_shot : *sums.two_shot;
      const Numbers numbers = Numbers::of_rank(100, DType::kF32, rank.rank());
      if (rank.rank() == 1) rank.die();
      begin = Clock::now();
      sum.all_reduce(numbers.data(), 100, DType::kF32);
      it.finish(sum);
    });
    if (text != "peer failure") it.member.expect_words(text, {"rank 1 has died: its process is gone"});
    rank.expect(Clock::now() - begin < kSoon, "long before the timeout");
    rank.expect(cudaStreamSynchronize(it.member.stream()) == cudaSuccess, "the abort frees the stream");
    expect_only_inbox_left(rank);
  });
  CHECK(outcomes[1].end == Outcome::End::kDied);
}

TEST_CASE("peer faults: a rank that stands still is named within the timeout, with a graph and buffers alive") {
  const PeerPages pages(2);
  const std::vector<Outcome> outcomes = in_processes(2, peers_machine(2), [&](Rank& rank) {
    PeerMember it(rank, pages, kTimeout);
    Clock::time_point begin;
    const std::string text = it.member.outcome([&] {
      const parallel::PeerSums sums = it.sums();
      const Numbers numbers = Numbers::of_rank(100, DType::kF32, rank.rank());
      cudaGraph_t graph = nullptr;
      cudaGraphExec_t executable = nullptr;
      cuda::check_cuda(cudaStreamBeginCapture(it.member.stream(), cudaStreamCaptureModeThreadLocal), "capture");
      sums.two_shot->all_reduce(numbers.data(), 100, DType::kF32);
      cuda::check_cuda(cudaStreamEndCapture(it.member.stream(), &graph), "cudaStreamEndCapture");
      const cuda::Graph its_graph(graph);
      cuda::check_cuda(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
      const cuda::GraphExec replayed(executable);
      it.member.world().progress("thinking");
      if (rank.rank() == 1) rank.stop_here();
      begin = Clock::now();
      cuda::check_cuda(cudaGraphLaunch(executable, it.member.stream()), "cudaGraphLaunch");
      it.finish(*sums.two_shot);
    });
    // The world's limit and the kernel's are the same: either may be first.
    if (text.find("made no progress") != std::string::npos) {
      it.member.expect_words(text, {"rank 1 made no progress for 4 s", "last doing 'thinking'"});
    } else {
      it.member.expect_words(text,
                             {"a sum by peer access has no result: data of rank 1 on ", "two-shot all-reduce of",
                              "did not come within 4 s", "100 elements of fp32", "device 0 of rank 0", "--timeout"});
    }
    rank.expect(Clock::now() - begin < kSoon, "in time");
    expect_only_inbox_left(rank);
  });
  CHECK(outcomes[1].end == Outcome::End::kStopped);
}

TEST_CASE("peer faults: a sum that a peer does not join in time ends by the kernel's own limit, and names the peer") {
  const PeerPages pages(2);
  in_processes(2, peers_machine(2), [&](Rank& rank) {
    PeerMember it(rank, pages, kTimeout);
    const std::string text = it.member.outcome([&] {
      const parallel::PeerSums sums = it.sums();
      const Numbers numbers = Numbers::of_rank(8, DType::kBF16, rank.rank());
      if (rank.rank() == 1) {
        // Alive, and busy with something else: the world finds no fault with it.
        const Clock::time_point end = Clock::now() + 2 * kTimeout;
        while (Clock::now() < end) {
          it.member.world().progress("loading");
          std::this_thread::sleep_for(milliseconds(5));
        }
      }
      sums.one_shot->all_reduce(numbers.data(), 8, DType::kBF16);
      it.finish(*sums.one_shot);
    });
    if (rank.rank() == 0) {
      it.member.expect_words(text, {"a sum by peer access has no result: data of rank 1 on ", "one-shot all-reduce of",
                                    "did not come within 4 s", "8 elements of bf16", "device 0 of rank 0"});
    } else {
      rank.expect(text == "peer failure", text);
    }
  });
}

TEST_CASE("peer faults: a rank that fails leaves the others its own words") {
  const PeerPages pages(3);
  in_processes(3, peers_machine(3), [&](Rank& rank) {
    PeerMember it(rank, pages);
    const std::string text = it.member.outcome([&] {
      const parallel::PeerSums sums = it.sums();
      const Numbers numbers = Numbers::of_rank(100, DType::kF32, rank.rank());
      if (rank.rank() == 1) throw SystemError("disk failed", "byte 7", "buy another");
      sums.one_shot->all_reduce(numbers.data(), 100, DType::kF32);
      it.finish(*sums.one_shot);
    });
    rank.expect(text == (rank.rank() == 1 ? "disk failed, byte 7, buy another" : "peer failure"), text);
    expect_only_inbox_left(rank);
  });
}

TEST_CASE("peer faults: an exception unwinds at once while others have not come") {
  const PeerPages pages(2);
  in_processes(2, peers_machine(2), [&](Rank& rank) {
    PeerMember it(rank, pages);
    Clock::time_point begin;
    const std::string text = it.member.outcome([&] {
      const Numbers numbers = Numbers::of_rank(100, DType::kF32, rank.rank());  // goes after the sums
      const parallel::PeerSums sums = it.sums();
      rank.barrier();  // both have them: else the failure might meet the other's start
      begin = Clock::now();
      if (rank.rank() == 1) return;
      sums.one_shot->all_reduce(numbers.data(), 100, DType::kF32);
      throw UserError("interrupted", "", "");
    });
    rank.expect(text == (rank.rank() == 0 ? "interrupted" : ""), text);
    rank.expect(Clock::now() - begin < kSoon, "no end without a limit");
    expect_only_inbox_left(rank);
  });
}

TEST_CASE("peer faults: a rank that fails within the proof frees the others' kernels at once") {
  const PeerPages pages(3);
  in_processes(3, peers_machine(3), [&](Rank& rank) {
    if (rank.rank() == 2) {
      emulation::Options options = peers_machine(3);
      options.failing = {{.function = "cudaLaunchKernelExC", .nth = 2, .error = cudaErrorLaunchOutOfResources}};
      emulation::restart(options);
    }
    PeerMember it(rank, pages);
    const Clock::time_point begin = Clock::now();
    const std::string text = it.member.outcome([&] { it.sums({.proof_wait = seconds(60)}); });
    if (rank.rank() == 2) {
      it.member.expect_words(text, {"prove_peers", "device 2 of rank 2"});
    } else {
      rank.expect(text == "peer failure", text);
    }
    rank.expect(Clock::now() - begin < kSoon, "long before the proof's limit");
    expect_only_inbox_left(rank);
  });
}

TEST_CASE("peer faults: sums that the caller may not ask for are bugs, as is any after the end") {
  const PeerPages pages(1);
  in_processes(1, peers_machine(1), [&](Rank& rank) {
    PeerMember it(rank, pages);
    const parallel::PeerSums sums = it.sums();
    const Numbers numbers = Numbers::of_rank(8, DType::kF16, 0);
    const std::string text = it.member.outcome([&] { sums.one_shot->all_reduce(numbers.data(), 4096, DType::kF16); });
    it.member.expect_words(text, {"too many bytes"});
    const std::string aligned = it.member.outcome(
        [&] { sums.one_shot->all_reduce(static_cast<std::byte*>(numbers.data()) + 2, 2, DType::kF16); });
    it.member.expect_words(aligned, {"misaligned"});
    const std::string typed = it.member.outcome([&] { sums.one_shot->all_reduce(numbers.data(), 32, DType::kQ8_0); });
    it.member.expect_words(typed, {"have no sum"});
    sums.two_shot->abort();
    const std::string ended = it.member.outcome([&] { sums.one_shot->all_reduce(numbers.data(), 8, DType::kF16); });
    it.member.expect_words(ended, {"after the end of its group"});
  });
}

}  // namespace shardscope::test
