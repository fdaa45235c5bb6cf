// PeerSum: one-shot and two-shot sums over peers' memory, eager and in captured graphs, with the norm, and the exchange
// of candidates. Ranks in processes, on the emulation.
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/cuda/resident.hpp"
#include "tests/parallel/cuda/peer_member.hpp"
#include "tests/parallel/cuda/peer_numbers.hpp"

namespace shardscope::test {
namespace {

using kernels::DType;

constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

class Recorded {
 public:
  Recorded(cudaStream_t stream, const std::function<void()>& body) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    cuda::check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    body();
    cuda::check_cuda(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    const cuda::Graph owned(graph);
    cuda::check_cuda(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
    executable_ = cuda::GraphExec(executable);
  }
  void replay(cudaStream_t stream) const {
    cuda::check_cuda(cudaGraphLaunch(executable_.get(), stream), "cudaGraphLaunch");
  }

 private:
  cuda::GraphExec executable_;
};

}  // namespace

TEST_CASE("peer sums: exact among 1 to 8 ranks, one-shot and two-shot, in each type, at any count") {
  const int ranks = GENERATE(1, 2, 3, 4, 5, 6, 7, 8);
  INFO(ranks << " ranks");
  const PeerPages pages(ranks);
  in_processes(ranks, peers_machine(ranks, static_cast<uint64_t>(ranks)), [&](Rank& rank) {
    PeerMember it(rank, pages);
    {
      const parallel::PeerSums sums = it.sums();
      rank.expect(sums.why_not.empty(), sums.why_not);
      rank.expect(sums.one_shot->name() == "one-shot" && sums.two_shot->name() == "two-shot", "names");
      rank.expect(sums.one_shot->most_bytes() == 4096 && sums.two_shot->most_bytes() == 8192, "capacity");
      for (const DType dtype : kTypes) {
        for (const int64_t count : {1, 3, 257, 1024}) {
          // One after the other without a pause: calls of one group.
          Numbers first = Numbers::of_rank(count, dtype, rank.rank());
          Numbers second = Numbers::of_rank(count, dtype, rank.rank());
          sums.one_shot->all_reduce(first.data(), count, dtype);
          sums.two_shot->all_reduce(second.data(), count, dtype);
          it.finish(*sums.two_shot);
          for (Numbers* const numbers : {&first, &second}) {
            const std::string wrong = numbers->wrong_sum(ranks);
            rank.expect(wrong.empty(), wrong);
          }
        }
      }
      sums.one_shot->all_reduce(nullptr, 0, DType::kF32);  // nothing to do
      it.finish(*sums.one_shot);
    }
    it.member.expect_clean();
  });
}

TEST_CASE("peer sums: a captured step sums again at each replay, and the log tells when") {
  const PeerPages pages(3);
  in_processes(3, peers_machine(3, 5), [&](Rank& rank) {
    PeerMember it(rank, pages);
    {
      const parallel::PeerSums sums = it.sums();
      rank.expect(sums.one_shot->times().empty(), "a log of nothing");
      Numbers one = Numbers::of_rank(100, DType::kBF16, rank.rank());
      Numbers two = Numbers::of_rank(100, DType::kF32, rank.rank());
      const Recorded recorded(it.member.stream(), [&] {
        sums.one_shot->all_reduce(one.data(), 100, DType::kBF16);
        sums.one_shot->check();  // may be asked meanwhile
        sums.two_shot->all_reduce(two.data(), 100, DType::kF32);
      });
      rank.expect(one.values()[0] == element(0, rank.rank()), "capturing runs nothing");
      recorded.replay(it.member.stream());
      it.finish(*sums.one_shot);
      for (Numbers* const numbers : {&one, &two}) {
        const std::string wrong = numbers->wrong_sum(3);
        rank.expect(wrong.empty(), wrong);
      }
      recorded.replay(it.member.stream());
      it.finish(*sums.one_shot);
      rank.expect(two.values()[1] == 3 * element_sum(1, 3), "the second replay sums the sums");

      const std::vector<cuda::CallTimes> times = sums.two_shot->times();
      rank.expect(times.size() == 4, "four calls");
      for (size_t i = 0; i < times.size(); ++i) {
        rank.expect(times[i].number == i + 1, "in their order");
        rank.expect(times[i].begin_ns <= times[i].arrived_ns && times[i].arrived_ns <= times[i].end_ns, "in order");
      }
    }
    it.member.expect_clean();
  });
}

TEST_CASE("peer sums: with residual and norm, the same bits on every rank, where rows suit the kernel") {
  const PeerPages pages(3);
  in_processes(3, peers_machine(3, 2), [&](Rank& rank) {
    PeerMember it(rank, pages);
    {
      const parallel::PeerSums sums = it.sums();
      constexpr int64_t kRows = 2;
      constexpr int64_t kColumns = 40;
      constexpr int64_t kStride = 48;
      constexpr float kEpsilon = 1e-5F;
      const std::vector<float> weights(kColumns, 0.5F);
      auto plane = std::make_shared<const cuda::DeviceBuffer>(kColumns * 4, "weights of a test", cuda::CallContext{});
      cuda::check_cuda(cudaMemcpy(plane->data(), weights.data(), kColumns * 4, cudaMemcpyHostToDevice), "cudaMemcpy");
      cuda::check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
      const cuda::CudaVector weight(cuda::WeightPlane(plane, 0, kColumns * 4), kColumns);
      for (parallel::DeviceSum* const sum : {sums.one_shot.get(), sums.two_shot.get()}) {
        Numbers parts = Numbers::of_rank(kRows * kStride, DType::kF32, rank.rank());
        const Numbers residual(std::vector<float>(kRows * kStride, 3.0F), DType::kF32);
        Numbers out(kRows * kStride, DType::kF32);
        Numbers normed(kRows * kStride, DType::kF32);
        const kernels::Activations x = parts.rows(kRows, kColumns, kStride);
        kernels::NormedInput input{.residual = residual.rows(kRows, kColumns, kStride),
                                   .addend = &x,
                                   .weight = &weight,
                                   .epsilon = kEpsilon,
                                   .sum = out.rows(kRows, kColumns, kStride),
                                   .normed = normed.rows(kRows, kColumns, kStride)};
        rank.expect(sum->all_reduce_norm(input), "refused");
        it.finish(*sum);
        const std::vector<float> sums_there = out.values();
        const std::vector<float> norms_there = normed.values();
        for (int64_t row = 0; row < kRows; ++row) {
          double squares = 0;
          for (int64_t column = 0; column < kColumns; ++column) {
            const int64_t i = row * kStride + column;
            const double right = 3.0 + element_sum(i, 3);
            rank.expect(sums_there[static_cast<size_t>(i)] == static_cast<float>(right), "a sum");
            squares += right * right;
          }
          for (int64_t column = 0; column < kColumns; ++column) {
            const int64_t i = row * kStride + column;
            const double right = 0.5 * (3.0 + element_sum(i, 3)) / std::sqrt(squares / kColumns + kEpsilon);
            // 40 terms in fp32, a root and a product: some 50 roundings of 2^-24 each.
            const double difference = std::abs(norms_there[static_cast<size_t>(i)] - right);
            rank.expect(difference <= 50 * std::ldexp(std::abs(right), -24) + 1e-30, "a norm");
          }
        }
        std::array<float, kRows * kStride> mine{};
        std::copy(norms_there.begin(), norms_there.end(), mine.begin());
        for (int64_t row = 0; row < kRows; ++row) {
          std::fill_n(mine.begin() + row * kStride + kColumns, kStride - kColumns, 0.0F);
        }
        const auto all = rank.exchange(mine);
        for (const auto& other : all) {
          rank.expect(std::memcmp(other.data(), all[0].data(), sizeof(mine)) == 0, "other bits on another rank");
        }

        // What no such kernel takes: then nothing has been enqueued, and the caller sums otherwise.
        const auto declined = [&](auto&& change) {
          kernels::Activations other = x;
          kernels::NormedInput changed = input;
          changed.addend = &other;
          change(changed, other);
          return !sum->all_reduce_norm(changed);
        };
        rank.expect(declined([](auto& in, auto&) { in.normed.dtype = DType::kF16; }), "types that differ");
        rank.expect(declined([](auto& in, auto&) { in.sum.columns -= 1; }), "shapes that differ");
        rank.expect(declined([](auto&, auto& addend) { addend.rows = 0; }), "no rows");
        rank.expect(declined([](auto& in, auto& addend) {
                      for (auto* rows : {&addend, &in.residual, &in.sum, &in.normed}) rows->dtype = DType::kF16;
                      in.residual.stride = 47;  // rows that begin within a word
                    }),
                    "misaligned rows");
        rank.expect(declined([&](auto& in, auto& addend) {
                      for (auto* rows : {&addend, &in.residual, &in.sum, &in.normed}) rows->rows = 1000;
                    }),
                    "more than the inbox holds");
        rank.expect(declined([&](auto& in, auto& addend) {
                      for (auto* rows : {&addend, &in.residual, &in.sum, &in.normed}) {
                        rows->rows = 1;
                        rows->columns = rows->stride = 513;  // three blocks, of which the device holds two at once
                      }
                    }),
                    "rows that are wider than the device");
        it.finish(*sum);
      }
    }
    it.member.expect_clean();
  });
}

TEST_CASE("peer sums: the best candidate of each row over all ranks") {
  const PeerPages pages(3);
  in_processes(3, peers_machine(3, 4), [&](Rank& rank) {
    PeerMember it(rank, pages);
    {
      const parallel::PeerSums sums = it.sums();
      // Rank r is best in row r; a tie goes to the smaller id; nobody has any in the last row.
      std::vector<cuda::CandidateOut> best;
      for (int row = 0; row < 3; ++row) best.push_back({row == rank.rank() ? 9.0F : 1.0F, 100 * rank.rank() + row});
      best.push_back({2.0F, 50 - rank.rank()});
      best.push_back({-INFINITY, -1});
      const auto rows = std::ssize(best);
      const cuda::DeviceBuffer memory(rows * static_cast<int64_t>(sizeof(cuda::CandidateOut)), "a test", {});
      const size_t bytes = best.size() * sizeof(cuda::CandidateOut);
      cuda::check_cuda(cudaMemcpy(memory.data(), best.data(), bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
      cuda::check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
      rank.expect(sums.one_shot->exchange_candidates(memory.as<cuda::CandidateOut>(), rows), "refused");
      it.finish(*sums.one_shot);
      cuda::check_cuda(cudaMemcpy(best.data(), memory.data(), bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
      for (int row = 0; row < 3; ++row) {
        const cuda::CandidateOut& its = best[static_cast<size_t>(row)];
        rank.expect(its.logit == 9.0F && its.token_id == 101 * row, "row " + std::to_string(row));
      }
      rank.expect(best[3].logit == 2.0F && best[3].token_id == 48, "a tie");
      rank.expect(best[4].token_id == -1, "nothing");
      rank.expect(!sums.two_shot->exchange_candidates(memory.as<cuda::CandidateOut>(), 4096 / 8 + 1), "too many rows");
      rank.expect(sums.two_shot->exchange_candidates(memory.as<cuda::CandidateOut>(), 0), "no rows");
    }
    it.member.expect_clean();
  });
}

}  // namespace shardscope::test
