// DeviceCommunicator with NCCL: what sums hold, eager and in captured graphs. Ranks in processes, on the stand-in for
// NCCL.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "parallel/cuda/proof.hpp"
#include "tests/parallel/cuda/rank_group.hpp"
#include "tests/parallel/cuda/sums.hpp"

namespace shardscope::test {

TEST_CASE("nccl communicator: sums of 1 to 8 ranks are exact in each dtype, and nothing else is touched") {
  const int ranks = GENERATE(1, 2, 3, 4, 5, 6, 7, 8);
  INFO(ranks << " ranks");
  const BoardPages pages(ranks);
  in_processes(ranks, ranks_machine(ranks, static_cast<uint64_t>(ranks)), [&](Rank& rank) {
    Member member(rank, pages);
    {
      const auto communicator = member.communicator();
      rank.expect(communicator->name() == "nccl", "name");
      rank.expect(communicator->rank() == rank.rank() && communicator->size() == ranks, "rank and size");
      for (const DType dtype : kTypes) {
        for (const Shape& shape : kShapes) {
          Buffer buffer(shape, dtype, inputs(shape, rank.rank()));
          communicator->all_reduce(buffer.view());
          member.finish(*communicator);
          const std::string difference = buffer.difference(sums(shape, rank.rank(), ranks));
          rank.expect(difference.empty(), difference);
        }
      }
    }
    member.expect_clean();
  });
}

TEST_CASE("nccl communicator: what hosts say goes through the hosts' communicator") {
  const BoardPages pages(3);
  in_processes(3, ranks_machine(3), [&](Rank& rank) {
    Member member(rank, pages);
    const auto communicator = member.communicator();
    std::vector<float> number{static_cast<float>(rank.rank() + 1)};
    communicator->all_reduce(std::span<float>(number));
    rank.expect(number[0] == 6, "a sum of host numbers");
    std::vector<int> all(3);
    const int mine = 10 + rank.rank();
    communicator->all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
    rank.expect(all == std::vector<int>{10, 11, 12}, "gathered");
    int told = rank.rank() == 2 ? 77 : 0;
    communicator->broadcast(std::as_writable_bytes(std::span(&told, 1)), 2);
    rank.expect(told == 77, "broadcast");
    communicator->barrier();
  });
}

TEST_CASE("nccl communicator: a captured step sums again at each replay, on what memory then holds") {
  const int ranks = GENERATE(1, 2, 3);
  const BoardPages pages(ranks);
  in_processes(ranks, ranks_machine(ranks, 5), [&](Rank& rank) {
    Member member(rank, pages);
    {
      const auto communicator = member.communicator();
      for (const DType dtype : kTypes) {
        const Shape shape{3, 5, 8};
        Buffer one(shape, dtype, inputs(shape, rank.rank()));
        Buffer two(shape, DType::kF32, inputs(shape, rank.rank()));
        cudaGraph_t graph = nullptr;
        cudaGraphExec_t executable = nullptr;
        cuda::check_cuda(cudaStreamBeginCapture(member.stream(), cudaStreamCaptureModeThreadLocal), "capture");
        communicator->all_reduce(one.view());
        communicator->all_reduce(two.view());
        communicator->check();  // may be asked meanwhile
        communicator->all_reduce(two.view());
        cuda::check_cuda(cudaStreamEndCapture(member.stream(), &graph), "cudaStreamEndCapture");
        cuda::check_cuda(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
        cuda::check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
        for (const Buffer* buffer : {&one, &two}) {
          const std::string early = buffer->difference(inputs(shape, rank.rank()));
          rank.expect(early.empty(), "capturing runs nothing: " + early);
        }
        for (int replay = 1; replay <= 3; ++replay) {
          cuda::check_cuda(cudaGraphLaunch(executable, member.stream()), "cudaGraphLaunch");
          member.finish(*communicator);
          const std::string first = one.difference(sums(shape, rank.rank(), ranks, replay > 2 ? 1 : replay));
          rank.expect(first.empty(), first);
          const std::string second = two.difference(sums(shape, rank.rank(), ranks, 2 * replay));
          rank.expect(second.empty(), second);
          if (replay == 2) one.fill(inputs(shape, rank.rank()));  // bf16 holds no more
        }
        cuda::check_cuda(cudaGraphExecDestroy(executable), "cudaGraphExecDestroy");
      }
    }
    member.expect_clean();
  });
}

TEST_CASE("nccl communicator: starts also where NCCL takes its time, and enqueues without waiting for others") {
  emulation::Options options = ranks_machine(2);
  options.nccl.milliseconds_to_initialise = 300;
  const BoardPages pages(2);
  in_processes(2, options, [&](Rank& rank) {
    Member member(rank, pages);
    const auto communicator = member.communicator();
    const Shape shape{1, 9, 9};
    Buffer buffer(shape, DType::kF32, inputs(shape, rank.rank()));
    // Rank 1 comes when rank 0 has enqueued its part.
    if (rank.rank() == 1) rank.barrier();
    communicator->all_reduce(buffer.view());
    if (rank.rank() == 0) rank.barrier();
    member.finish(*communicator);
    const std::string difference = buffer.difference(sums(shape, rank.rank(), 2));
    rank.expect(difference.empty(), difference);
  });
}

TEST_CASE("wrong_sum: finds a part that is missing, doubled or misplaced") {
  for (const int size : {1, 2, 8}) {
    std::vector<float> sum(parallel::kProofElements, 0.0F);
    std::vector<float> part(parallel::kProofElements);
    for (int rank = 0; rank < size; ++rank) {
      parallel::fill_proof(part, rank);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
    }
    CHECK(parallel::wrong_sum(sum, size).empty());
    std::vector<float> planted = sum;
    planted.back() -= part.back();
    CHECK(parallel::wrong_sum(planted, size).find("at element 16383") != std::string::npos);
    planted = sum;
    for (size_t i = 512; i < 640; ++i) planted[i] += part[i];
    CHECK(parallel::wrong_sum(planted, size).find("at element 512") != std::string::npos);
    planted = sum;
    std::rotate(planted.begin() + 1024, planted.begin() + 1536, planted.begin() + 2048);
    CHECK(parallel::wrong_sum(planted, size).find("at element 1024") != std::string::npos);
    planted = sum;
    planted[7] = std::numeric_limits<float>::quiet_NaN();
    CHECK(parallel::wrong_sum(planted, size).find("nan instead of ") == 0);
  }
}

}  // namespace shardscope::test
