// Calls of all kinds among the ranks of one process, behind each other on the same inboxes, each with data of its own.
#pragma once

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "kernels/cuda/exchange_candidates.hpp"
#include "tests/kernels/cuda/sums.hpp"

namespace shardscope::test {

struct NormShape {
  kernels::DType dtype = kernels::DType::kBF16;
  int64_t rows = 2;
  int64_t columns = 1030;  // three blocks a row
  bool in_place = true;    // the sum is the residual's

  int64_t count() const { return rows * columns; }
};

/// A call that adds rows to a residual and norms them; of integers, so that sums are exact. What the norm must be,
/// all_reduce_norm_test.cpp says; here all ranks must have the same one.
struct NormCase {
  NormCase(const Ranks& ranks, const NormShape& its, uint32_t seed)
      : shape(its),
        addends(make_sum(ranks, its.dtype, its.count(), seed)),
        start(stored(its.dtype, random_integers(its.count(), seed + 100))) {
    for (int rank = 0; rank < ranks.count(); ++rank) {
      ranks.use(rank);
      residual.emplace_back(start.bytes);
      sum.emplace_back(static_cast<int64_t>(start.bytes.size()));
      weight.emplace_back(random_values(its.columns, 4));
    }
  }

  const DeviceArray<std::byte>& target(int rank) const { return shape.in_place ? residual[rank] : sum[rank]; }

  void enqueue(const Ranks& ranks, int rank, cuda::Shots shots, bool programmatic) const {
    ranks.use(rank);
    check_cuda(cuda::all_reduce_norm(ranks.rank(rank), shots,
                                     {.dtype = shape.dtype,
                                      .rows = shape.rows,
                                      .columns = shape.columns,
                                      .x = addends.in[rank].data(),
                                      .x_stride = shape.columns,
                                      .residual = residual[rank].data(),
                                      .residual_stride = shape.columns,
                                      .weight = weight[rank].data(),
                                      .epsilon = 1e-5F,
                                      .sum = target(rank).data(),
                                      .sum_stride = shape.columns,
                                      .normed = addends.out[rank].data(),
                                      .normed_stride = shape.columns,
                                      .programmatic = programmatic},
                                     ranks.stream(rank)),
               "all_reduce_norm");
  }

  void check(const Ranks& ranks) const {
    std::vector<float> sums = start.values;
    for (const Stored& x : addends.x) {
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += x.values[i];
    }
    std::vector<std::byte> first;
    for (int rank = 0; rank < ranks.count(); ++rank) {
      INFO("rank " << rank);
      ranks.use(rank);
      CHECK(meaning(shape.dtype, target(rank).download()) == sums);
      const std::vector<std::byte> normed = addends.out[rank].download();
      if (rank == 0) first = normed;
      CHECK(normed == first);
    }
  }

  NormShape shape;
  SumCase addends;  // its `out` receives the norm
  Stored start;
  std::vector<DeviceArray<std::byte>> residual;
  std::vector<DeviceArray<std::byte>> sum;
  std::vector<DeviceArray<float>> weight;
};

/// The best of row i: that of rank seed + i, modulo the ranks.
struct CandidatesCase {
  CandidatesCase(const Ranks& ranks, int64_t rows, uint32_t seed) {
    for (int64_t row = 0; row < rows; ++row) winners.push_back(static_cast<int>((seed + row) % ranks.count()));
    for (int rank = 0; rank < ranks.count(); ++rank) {
      std::vector<cuda::CandidateOut> own;
      for (const int winner : winners) own.push_back({rank == winner ? 1.0F : 0.0F, rank});
      ranks.use(rank);
      best.emplace_back(own);
    }
  }

  void enqueue(const Ranks& ranks, int rank, bool programmatic) const {
    ranks.use(rank);
    check_cuda(
        cuda::exchange_candidates(ranks.rank(rank),
                                  {.rows = best[rank].size(), .best = best[rank].data(), .programmatic = programmatic},
                                  ranks.stream(rank)),
        "exchange_candidates");
  }

  void check(const Ranks& ranks) const {
    for (int rank = 0; rank < ranks.count(); ++rank) {
      INFO("rank " << rank);
      ranks.use(rank);
      std::vector<int> ids;
      for (const cuda::CandidateOut& row : best[rank].download()) ids.push_back(row.token_id);
      CHECK(ids == winners);
    }
  }

  std::vector<int> winners;
  std::vector<DeviceArray<cuda::CandidateOut>> best;
};

/// A sequence of calls.
class Sequence {
 public:
  explicit Sequence(const Ranks& ranks, uint32_t seed = 0) : ranks_(ranks), seed_(seed) {}
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  void add_sum(cuda::Shots shots, kernels::DType dtype, int64_t count, bool in_place = false) {
    const SumCase& sum = sums_.emplace_back(make_sum(ranks_, dtype, count, seed()));
    add(
        fmt::format("{} sum of {} {}{}", name(shots), count, kernels::facts(dtype).name, in_place ? " in place" : ""),
        [this, &sum, shots, in_place](int rank, bool programmatic) {
          test::enqueue(ranks_, sum, rank, {.shots = shots, .in_place = in_place, .programmatic = programmatic});
        },
        [this, &sum, in_place] { check_exact_sums(ranks_, sum, in_place); });
  }
  void add_norm(cuda::Shots shots, const NormShape& shape = {}) {
    const NormCase& norm = norms_.emplace_back(ranks_, shape, seed());
    add(
        fmt::format("{} norm of {} x {} {}{}", name(shots), shape.rows, shape.columns, kernels::facts(shape.dtype).name,
                    shape.in_place ? " in place" : ""),
        [this, &norm, shots](int rank, bool programmatic) { norm.enqueue(ranks_, rank, shots, programmatic); },
        [this, &norm] { norm.check(ranks_); });
  }
  void add_candidates(int64_t rows = 3) {
    const CandidatesCase& candidates = candidates_.emplace_back(ranks_, rows, seed());
    add(
        fmt::format("candidates of {} rows", rows),
        [this, &candidates](int rank, bool programmatic) { candidates.enqueue(ranks_, rank, programmatic); },
        [this, &candidates] { candidates.check(ranks_); });
  }
  size_t size() const { return calls_.size(); }

  void enqueue(size_t call, int rank, bool programmatic) const { calls_[call].enqueue(rank, programmatic); }
  void enqueue_all(int rank, bool programmatic) const {
    for (size_t call = 0; call < calls_.size(); ++call) enqueue(call, rank, programmatic);
  }

  /// calls_before: of the same ranks, by others.
  void check(uint32_t rounds = 1, size_t calls_before = 0) const {
    for (size_t i = 0; i < calls_.size(); ++i) {
      INFO("call " << calls_before + i + 1 << ": " << calls_[i].text);
      calls_[i].check();
    }
    for (int rank = 0; rank < ranks_.count(); ++rank) {
      INFO("rank " << rank);
      const cuda::PeerState state = ranks_.state(rank);
      CHECK(state.calls == calls_before + rounds * calls_.size());
      CHECK(state.counted_blocks == 0);
      CHECK(state.failure == 0);
    }
  }

  /// New data for the sums, in the memory of before.
  void change_sums() {
    for (SumCase& sum : sums_) {
      for (int rank = 0; rank < ranks_.count(); ++rank) {
        sum.x[rank] = stored(sum.x[rank].dtype, random_integers(sum.count(), 7 * seed() + static_cast<uint32_t>(rank)));
        ranks_.use(rank);
        sum.in[rank].upload(sum.x[rank].bytes);
      }
    }
  }

 private:
  struct Call {
    std::string text;
    std::function<void(int rank, bool programmatic)> enqueue;
    std::function<void()> check;
  };

  static const char* name(cuda::Shots shots) { return shots == cuda::Shots::kOne ? "one-shot" : "two-shot"; }
  uint32_t seed() { return seed_ += 10; }
  void add(std::string text, std::function<void(int, bool)> enqueue, std::function<void()> check) {
    calls_.push_back({std::move(text), std::move(enqueue), std::move(check)});
  }

  const Ranks& ranks_;
  uint32_t seed_;
  std::deque<SumCase> sums_;  // a deque: calls refer to what they hold
  std::deque<NormCase> norms_;
  std::deque<CandidatesCase> candidates_;
  std::vector<Call> calls_;
};

/// The calls of each rank, captured.
class CapturedCalls {
 public:
  CapturedCalls(const Ranks& ranks, const Sequence& sequence, bool programmatic) : ranks_(ranks) {
    for (int rank = 0; rank < ranks.count(); ++rank) {
      ranks.use(rank);
      cudaGraph_t graph = nullptr;
      check_cuda(cudaStreamBeginCapture(ranks.stream(rank), cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
      sequence.enqueue_all(rank, programmatic);
      check_cuda(cudaStreamEndCapture(ranks.stream(rank), &graph), "cudaStreamEndCapture");
      graphs_.emplace_back();
      check_cuda(cudaGraphInstantiate(&graphs_.back(), graph, 0), "cudaGraphInstantiate");
      check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
    }
  }
  CapturedCalls(const CapturedCalls&) = delete;
  CapturedCalls& operator=(const CapturedCalls&) = delete;
  ~CapturedCalls() {
    for (const cudaGraphExec_t graph : graphs_) static_cast<void>(cudaGraphExecDestroy(graph));
  }
  void launch(int rank) const {
    ranks_.use(rank);
    check_cuda(cudaGraphLaunch(graphs_[rank], ranks_.stream(rank)), "cudaGraphLaunch");
  }

 private:
  const Ranks& ranks_;
  std::vector<cudaGraphExec_t> graphs_;
};

}  // namespace shardscope::test
