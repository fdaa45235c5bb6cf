// Ranks that sum different things at the same time, in each way: an error that names it, long before the timeout.
#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <string>
#include <vector>

#include "kernels/cuda/resident.hpp"
#include "tests/parallel/cuda/peer_member.hpp"
#include "tests/parallel/cuda/peer_numbers.hpp"

namespace shardscope::test {
namespace {

using kernels::DType;
using parallel::CommunicatorKind;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kTimeout{100};
constexpr std::chrono::seconds kSoon{50};  // under sanitizers, beside other tests
constexpr int kRanks = 3;
constexpr int kOdd = 1;  // the rank that sums something else

/// Rows that are summed, and normed behind it where the way can.
class Rows {
 public:
  Rows(Rank& rank, int64_t rows, int64_t columns, DType dtype)
      : partial_(Numbers::of_rank(rows * columns, dtype, rank.rank())),
        residual_(std::vector<float>(static_cast<size_t>(rows * columns), 1.0F), dtype),
        normed_(rows * columns, dtype),
        addend_(partial_.rows(rows, columns, columns)),
        weight_(ones(columns), columns) {}
  Rows(const Rows&) = delete;
  Rows& operator=(const Rows&) = delete;

  const kernels::Activations& addend() const { return addend_; }
  kernels::NormedInput input() {
    const int64_t rows = addend_.rows;
    const int64_t columns = addend_.columns;
    return {.residual = residual_.rows(rows, columns, columns),
            .addend = &addend_,
            .weight = &weight_,
            .epsilon = 1e-5F,
            .sum = residual_.rows(rows, columns, columns),
            .normed = normed_.rows(rows, columns, columns)};
  }

 private:
  static cuda::WeightPlane ones(int64_t columns) {
    const std::vector<float> values(static_cast<size_t>(columns), 1.0F);
    const int64_t bytes = columns * static_cast<int64_t>(sizeof(float));
    cuda::DeviceBuffer memory(bytes, "a norm", {});
    cuda::check_cuda(cudaMemcpy(memory.data(), values.data(), static_cast<size_t>(bytes), cudaMemcpyHostToDevice),
                     "cudaMemcpy");
    cuda::check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    return {std::make_shared<const cuda::DeviceBuffer>(std::move(memory)), 0, bytes};
  }

  Numbers partial_;
  Numbers residual_;
  Numbers normed_;
  kernels::Activations addend_;
  cuda::CudaVector weight_;
};

struct Summed {
  int64_t rows = 1;
  int64_t columns = 100;
  DType dtype = DType::kF32;
  bool normed = false;
};

void sum(Rank& rank, parallel::DeviceCommunicator& communicator, Rows& rows, bool normed) {
  if (!normed) {
    communicator.all_reduce(rows.addend());
    return;
  }
  kernels::NormedInput input = rows.input();
  communicator.all_reduce(input);
  rank.expect(input.ready, "this way has a norm");
}

/// That every rank's sum ends soon by an error, and one of them at least has all of these words.
void expect_named(Rank& rank, Member& member, const std::string& text, Clock::time_point begin,
                  const std::vector<std::string>& words) {
  rank.expect(Clock::now() - begin < kSoon, "long before the timeout");
  rank.expect(!text.empty(), "an error");
  const bool own = text != "peer failure";
  if (own) member.expect_words(text, words);
  const std::vector<int> owns = rank.exchange(own ? 1 : 0);
  rank.expect(std::count(owns.begin(), owns.end(), 1) > 0, "nobody says what is wrong");
}

}  // namespace

TEST_CASE("mismatch: our ways name the rank that is in another collective, at once") {
  struct Case {
    CommunicatorKind kind;
    Summed most, odd;
    const char* latest;  // of the rank that is odd
  };
  const Case its = GENERATE(values<Case>({
      {CommunicatorKind::kOneShot, {}, {.columns = 101}, "one-shot all-reduce of 101 elements of fp32"},
      {CommunicatorKind::kTwoShot, {}, {.columns = 5}, "two-shot all-reduce of 5 elements of fp32"},
      {CommunicatorKind::kOneShot,
       {},
       {.columns = 200, .dtype = DType::kBF16},
       "one-shot all-reduce of 200 elements of bf16"},
      {CommunicatorKind::kTwoShot,
       {.dtype = DType::kF16},
       {.dtype = DType::kBF16},
       "two-shot all-reduce of 100 elements of bf16"},
      {CommunicatorKind::kOneShot, {}, {.normed = true}, "one-shot all-reduce with norm of 100 elements of fp32"},
      {CommunicatorKind::kTwoShot,
       {.rows = 4, .columns = 30, .normed = true},
       {.rows = 30, .columns = 4, .normed = true},
       "two-shot all-reduce with norm of 120 elements of fp32"},
  }));
  INFO(its.latest);
  const BoardPages pages(kRanks);
  in_processes(kRanks, peers_machine(kRanks, 3), [&](Rank& rank) {
    Member member(rank, pages, kTimeout);
    Clock::time_point begin;
    const std::string text = member.outcome([&] {
      const auto communicator = member.communicator({.kind = its.kind});
      const Summed& mine = rank.rank() == kOdd ? its.odd : its.most;
      Rows rows(rank, mine.rows, mine.columns, mine.dtype);
      begin = Clock::now();
      sum(rank, *communicator, rows, mine.normed);
      member.finish(*communicator);
    });
    const bool odd = rank.rank() == kOdd;
    expect_named(rank, member, text, begin,
                 {"ranks are in different collectives", odd ? "rank " : "rank 1 on ",
                  "is in another one than this rank", "the latest call enqueued was ", odd ? its.latest : "all-reduce",
                  "device " + std::to_string(rank.rank()), "this is a bug"});
    rank.expect(cudaStreamSynchronize(member.stream()) == cudaSuccess, "the stream is free");
    expect_only_inbox_left(rank);
  });
}

TEST_CASE("mismatch: one-shot against two-shot, and an exchange of candidates against a sum") {
  const bool candidates = GENERATE(false, true);
  const PeerPages pages(kRanks);
  in_processes(kRanks, peers_machine(kRanks, 2), [&](Rank& rank) {
    PeerMember it(rank, pages, kTimeout);
    Clock::time_point begin;
    const std::string text = it.member.outcome([&] {
      const parallel::PeerSums sums = it.sums();
      const Numbers numbers = Numbers::of_rank(20, DType::kF32, rank.rank());
      rank.barrier();
      begin = Clock::now();
      parallel::DeviceSum& way = rank.rank() == kOdd && !candidates ? *sums.two_shot : *sums.one_shot;
      if (rank.rank() == kOdd && candidates) {
        rank.expect(way.exchange_candidates(static_cast<cuda::CandidateOut*>(numbers.data()), 10), "refused");
      } else {
        way.all_reduce(numbers.data(), 20, DType::kF32);
      }
      it.finish(way);
    });
    expect_named(rank, it.member, text, begin, {"ranks are in different collectives", "in another one than this rank"});
    expect_only_inbox_left(rank);
  });
}

TEST_CASE("mismatch: NCCL's ways are told of other sizes and types") {
  struct Case {
    CommunicatorKind kind;
    Summed odd;
    const char* call;
  };
  const Case its = GENERATE(values<Case>({
      {CommunicatorKind::kNccl, {.columns = 101}, "ncclAllReduce of 101 ncclFloat32"},
      {CommunicatorKind::kNccl, {.dtype = DType::kBF16}, "ncclAllReduce of 100 ncclBfloat16"},
      {CommunicatorKind::kNcclSymmetric, {.columns = 101}, "ncclAllReduce of 101 ncclFloat32"},
      {CommunicatorKind::kNcclSymmetric, {.dtype = DType::kF16}, "ncclAllReduce of 100 ncclFloat16"},
  }));
  INFO(its.call);
  const BoardPages pages(kRanks);
  in_processes(kRanks, peers_machine(kRanks, 3), [&](Rank& rank) {
    Member member(rank, pages, kTimeout);
    Clock::time_point begin;
    const std::string text = member.outcome([&] {
      const auto communicator = member.communicator({.kind = its.kind});
      const Summed mine = rank.rank() == kOdd ? its.odd : Summed{};
      Rows rows(rank, mine.rows, mine.columns, mine.dtype);
      begin = Clock::now();
      sum(rank, *communicator, rows, false);
      member.finish(*communicator);
    });
    expect_named(rank, member, text, begin,
                 {"NCCL error 5 (invalid usage): ncclAllReduce", "ncclAllReduce of 100 ncclFloat32", its.call});
  });
}

}  // namespace shardscope::test
