// All-reduces among processes, each with a device of its own and its peers' inboxes by CUDA IPC: what the product does.
// Between processes the checker sees no races (all_reduce_test.cpp has the devices in one process).
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <vector>

#include "kernels/cuda/all_reduce.hpp"
#include "tests/emulation/processes.hpp"
#include "tests/kernels/cuda/device_array.hpp"

namespace shardscope::test {
namespace {

using cuda::Shots;
using emulation::Options;
using emulation::Policy;

constexpr cuda::PeerCapacity kCapacity{.one_shot_bytes = 4096, .two_shot_bytes = 4096};
// Real time, on a machine that may be busy.
constexpr uint64_t kLongWait = 60'000'000'000;
constexpr uint64_t kShortWait = 2'000'000'000;

/// What a rank needs, made in its process.
class Member {
 public:
  Member(Rank& rank, uint64_t wait_ns)
      : inbox_(DeviceArray<std::byte>::zeros(cuda::peer_inbox_bytes(rank.ranks(), kCapacity))),
        state_(DeviceArray<cuda::PeerState>::zeros(1)) {
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    check_cuda(cudaHostAlloc(&abort_word_, sizeof(uint32_t), cudaHostAllocDefault), "cudaHostAlloc");
    *static_cast<uint32_t*>(abort_word_) = 0;
    it_ = {.rank = rank.rank(),
           .ranks = rank.ranks(),
           .capacity = kCapacity,
           .inboxes = {},
           .state = state_.data(),
           .log = {},
           .abort_word = static_cast<const uint32_t*>(abort_word_),
           .wait_ns = wait_ns};
    cudaIpcMemHandle_t own{};
    check_cuda(cudaIpcGetMemHandle(&own, inbox_.data()), "cudaIpcGetMemHandle");
    const std::vector<cudaIpcMemHandle_t> handles = rank.exchange(own);
    for (int peer = 0; peer < rank.ranks(); ++peer) {
      void*& inbox = it_.inboxes[static_cast<size_t>(peer)];
      inbox = inbox_.data();
      if (peer == rank.rank()) continue;
      check_cuda(cudaIpcOpenMemHandle(&inbox, handles[static_cast<size_t>(peer)], cudaIpcMemLazyEnablePeerAccess),
                 "cudaIpcOpenMemHandle");
    }
    rank.barrier();  // all inboxes are zero and open
  }
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;
  ~Member() {
    static_cast<void>(cudaStreamDestroy(stream_));
    static_cast<void>(cudaFreeHost(abort_word_));
  }

  /// Before anybody frees an inbox, all have to have closed it.
  void close(Rank& rank) {
    rank.barrier();  // nobody writes to one any more
    for (int peer = 0; peer < it_.ranks; ++peer) {
      if (peer == it_.rank) continue;
      check_cuda(cudaIpcCloseMemHandle(it_.inboxes[static_cast<size_t>(peer)]), "cudaIpcCloseMemHandle");
    }
    rank.barrier();
  }

  void all_reduce(Shots shots, const DeviceArray<float>& x) const {
    check_cuda(
        cuda::all_reduce(it_, shots, {.dtype = kernels::DType::kF32, .count = x.size(), .x = x.data(), .out = x.data()},
                         stream_),
        "all_reduce");
  }
  uint32_t failure() const {
    check_cuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    return state_.download()[0].failure;
  }

 private:
  DeviceArray<std::byte> inbox_;
  DeviceArray<cuda::PeerState> state_;
  cudaStream_t stream_ = nullptr;
  void* abort_word_ = nullptr;
  cuda::PeerRank it_;
};

/// Element i of that rank's data of a call: small, so that sums are exact.
float element(int rank, int call, int64_t i) {
  return static_cast<float>((rank * 7 + call * 3 + i) % 17);
}

void reduce_and_check(Rank& rank, const Member& member, Shots shots, int call, int64_t count) {
  std::vector<float> own;
  std::vector<float> sums;
  for (int64_t i = 0; i < count; ++i) {
    own.push_back(element(rank.rank(), call, i));
    float sum = 0;
    for (int r = 0; r < rank.ranks(); ++r) sum += element(r, call, i);
    sums.push_back(sum);
  }
  const DeviceArray<float> x(own);
  member.all_reduce(shots, x);
  rank.expect(x.download() == sums, "a sum is wrong");
}

}  // namespace

TEST_CASE("all-reduce: processes that map each other's inboxes get exact sums, call after call") {
  const int ranks = GENERATE(2, 3, 4, 8);
  const uint64_t seed = GENERATE(0, 1, 2);
  INFO(ranks << " ranks, seed " << seed);
  in_processes(ranks, {.seed = seed, .devices = ranks, .multiprocessors = 2, .policy = Policy::kWorker},
               [](Rank& rank) {
                 check_cuda(cudaSetDevice(rank.rank()), "cudaSetDevice");
                 {
                   Member member(rank, kLongWait);
                   for (int call = 0; call < 8; ++call) {
                     reduce_and_check(rank, member, call % 3 == 0 ? Shots::kOne : Shots::kTwo, call, 1 + 37 * call);
                   }
                   member.close(rank);
                 }
                 rank.expect(emulation::not_given_back().empty(), "something was not given back");
                 rank.expect(emulation::take_reports().empty(), "a report");
               });
}

TEST_CASE("all-reduce: where peer access loses writes, the wait ends and names the rank whose data is missing") {
  emulation::MachineTable table = emulation::make_table("h100", 3);
  table.peers[2][0] = emulation::PeerAccess::kLosesWrites;  // one direction only
  const std::vector<Outcome> outcomes =
      in_processes(3, {.seed = 1, .table = table, .multiprocessors = 2, .policy = Policy::kWorker}, [](Rank& rank) {
        check_cuda(cudaSetDevice(rank.rank()), "cudaSetDevice");
        {
          // Only the rank whose inbox stays empty has to end its wait.
          Member member(rank, rank.rank() == 0 ? kShortWait : kLongWait);
          const DeviceArray<float> x(std::vector<float>(8, 1.0F));
          member.all_reduce(Shots::kOne, x);
          const uint32_t failure = member.failure();
          rank.expect(failure == (rank.rank() == 0 ? 3u : 0u), fmt::format("rank {} says {}", rank.rank(), failure));
          member.close(rank);
        }
      });
}

TEST_CASE("all-reduce: a process that is killed is named by the others when their wait ends, and leaves nothing") {
  const Shots shots = GENERATE(Shots::kOne, Shots::kTwo);
  in_processes(3, {.devices = 3, .multiprocessors = 2, .policy = Policy::kWorker}, [shots](Rank& rank) {
    check_cuda(cudaSetDevice(rank.rank()), "cudaSetDevice");
    const Member member(rank, kShortWait);
    reduce_and_check(rank, member, shots, 0, 5);
    if (rank.rank() == 1) rank.die();
    const DeviceArray<float> x(std::vector<float>(8, 1.0F));
    member.all_reduce(shots, x);
    rank.expect(member.failure() == 2, "it does not say that rank 1 is missing");
  });
}

}  // namespace shardscope::test
