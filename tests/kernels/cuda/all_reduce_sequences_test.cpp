// Calls of all kinds behind each other on the same inboxes, without a pause and replayed as a graph: what the two
// buffers and the numbers of calls are for.
#include <catch2/catch.hpp>
#include <functional>

#include "kernels/cuda/exchange_candidates.hpp"
#include "tests/kernels/cuda/sums.hpp"

using namespace shardscope;
using namespace shardscope::test;
using cuda::Shots;
using kernels::DType;

namespace {

/// A call that adds rows to a residual and norms them; of integers, so that sums are exact. What the norm must be,
/// all_reduce_norm_test.cpp says; here all ranks must have the same one.
struct NormCase {
  static constexpr int64_t kColumns = 1030;  // three blocks a row
  static constexpr int64_t kRows = 2;

  NormCase(const Ranks& ranks, uint32_t seed) : addends(make_sum(ranks, DType::kBF16, kRows * kColumns, seed)) {
    start = stored(DType::kBF16, random_integers(kRows * kColumns, seed + 100));
    for (int rank = 0; rank < ranks.count(); ++rank) {
      ranks.use(rank);
      residual.emplace_back(start.bytes);
      weight.emplace_back(random_values(kColumns, 4));
    }
  }

  void enqueue(const Ranks& ranks, int rank, Shots shots, bool programmatic) const {
    ranks.use(rank);
    check_cuda(cuda::all_reduce_norm(ranks.rank(rank), shots,
                                     {.dtype = DType::kBF16,
                                      .rows = kRows,
                                      .columns = kColumns,
                                      .x = addends.in[rank].data(),
                                      .x_stride = kColumns,
                                      .residual = residual[rank].data(),
                                      .residual_stride = kColumns,
                                      .weight = weight[rank].data(),
                                      .epsilon = 1e-5F,
                                      .sum = residual[rank].data(),
                                      .sum_stride = kColumns,
                                      .normed = addends.out[rank].data(),
                                      .normed_stride = kColumns,
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
      CHECK(meaning(DType::kBF16, residual[rank].download()) == sums);
      const std::vector<std::byte> normed = addends.out[rank].download();
      if (rank == 0) first = normed;
      CHECK(normed == first);
    }
  }

  SumCase addends;  // its `out` receives the norm
  Stored start;
  std::vector<DeviceArray<std::byte>> residual;
  std::vector<DeviceArray<float>> weight;
};

/// The best of a row: that of rank `seed` modulo the ranks.
struct CandidatesCase {
  CandidatesCase(const Ranks& ranks, uint32_t seed) : winner(static_cast<int>(seed) % ranks.count()) {
    for (int rank = 0; rank < ranks.count(); ++rank) {
      ranks.use(rank);
      best.emplace_back(std::vector<cuda::CandidateOut>(3, {rank == winner ? 1.0F : 0.0F, rank}));
    }
  }

  int winner;
  std::vector<DeviceArray<cuda::CandidateOut>> best;
};

/// A sequence of calls with data of their own.
class Sequence {
 public:
  explicit Sequence(const Ranks& ranks) : ranks_(ranks) {}

  void add_sum(Shots shots, DType dtype, int64_t count) {
    sums_.push_back(make_sum(ranks_, dtype, count, seed()));
    add([this, shots, i = sums_.size() - 1](int rank, bool programmatic) {
      enqueue(ranks_, sums_[i], rank, {.shots = shots, .programmatic = programmatic});
    });
  }
  void add_norm(Shots shots) {
    norms_.emplace_back(ranks_, seed());
    add([this, shots, i = norms_.size() - 1](int rank, bool programmatic) {
      norms_[i].enqueue(ranks_, rank, shots, programmatic);
    });
  }
  void add_candidates() {
    candidates_.emplace_back(ranks_, seed());
    add([this, i = candidates_.size() - 1](int rank, bool programmatic) {
      ranks_.use(rank);
      const DeviceArray<cuda::CandidateOut>& best = candidates_[i].best[rank];
      check_cuda(cuda::exchange_candidates(ranks_.rank(rank),
                                           {.rows = best.size(), .best = best.data(), .programmatic = programmatic},
                                           ranks_.stream(rank)),
                 "exchange_candidates");
    });
  }
  /// Everything, of changing length.
  void add_all(bool with_norms) {
    add_sum(Shots::kOne, DType::kBF16, 600);
    add_sum(Shots::kTwo, DType::kBF16, 601);
    add_candidates();
    add_sum(Shots::kTwo, DType::kF32, 1);
    add_sum(Shots::kTwo, DType::kF16, 5);
    if (with_norms) add_norm(Shots::kOne);
    add_sum(Shots::kOne, DType::kF16, 33);
    add_candidates();
    if (with_norms) add_norm(Shots::kTwo);
    if (with_norms) add_norm(Shots::kTwo);
    add_sum(Shots::kTwo, DType::kF32, 333);
    add_sum(Shots::kOne, DType::kF32, 1);
    add_sum(Shots::kTwo, DType::kF16, 17);
    add_sum(Shots::kTwo, DType::kF16, 600);
  }

  void enqueue_all(int rank, bool programmatic) const {
    for (const auto& call : calls_) call(rank, programmatic);
  }

  void check(uint32_t rounds = 1) const {
    for (const SumCase& sum : sums_) check_exact_sums(ranks_, sum);
    for (const NormCase& norm : norms_) norm.check(ranks_);
    for (const CandidatesCase& candidates : candidates_) {
      for (int rank = 0; rank < ranks_.count(); ++rank) {
        ranks_.use(rank);
        for (const cuda::CandidateOut& best : candidates.best[rank].download()) {
          CHECK(best.token_id == candidates.winner);
        }
      }
    }
    for (int rank = 0; rank < ranks_.count(); ++rank) {
      const cuda::PeerState state = ranks_.state(rank);
      CHECK(state.calls == rounds * calls_.size());
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
  uint32_t seed() { return seed_ += 10; }
  void add(std::function<void(int, bool)> call) { calls_.push_back(std::move(call)); }

  const Ranks& ranks_;
  uint32_t seed_ = 0;
  std::vector<SumCase> sums_;
  std::vector<NormCase> norms_;
  std::vector<CandidatesCase> candidates_;
  std::vector<std::function<void(int, bool)>> calls_;
};

}  // namespace

TEST_CASE("cuda peer calls: all kinds behind each other, without a pause") {
  for (const int devices : {2, 3, 8}) {
    under_conditions({.devices = devices, .seeds = devices == 8 ? 2 : 5}, [&] {
      INFO(devices << " ranks");
      const Ranks ranks(devices, {.log_entries = 8});
      Sequence sequence(ranks);
      sequence.add_all(true);
      for (int rank = devices - 1; rank >= 0; --rank) sequence.enqueue_all(rank, false);
      sequence.check();
    });
  }
}

TEST_CASE("cuda peer calls: all kinds, each allowed to start early") {
  under_conditions({.devices = 3}, [] {
    const Ranks ranks(3);
    Sequence sequence(ranks);
    sequence.add_all(true);
    for (int rank = 0; rank < 3; ++rank) sequence.enqueue_all(rank, true);
    sequence.check();
  });
}

TEST_CASE("cuda peer calls: a captured sequence, replayed with other data") {
  for (const bool programmatic : {false, true}) {
    under_conditions({.devices = 2, .seeds = 3}, [&] {
      const Ranks ranks(2);
      Sequence sequence(ranks);
      sequence.add_all(false);  // an odd number of calls: they change buffers from replay to replay
      std::vector<cudaGraphExec_t> graphs;
      for (int rank = 0; rank < 2; ++rank) {
        ranks.use(rank);
        cudaGraph_t graph = nullptr;
        check_cuda(cudaStreamBeginCapture(ranks.stream(rank), cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
        sequence.enqueue_all(rank, programmatic);
        check_cuda(cudaStreamEndCapture(ranks.stream(rank), &graph), "cudaStreamEndCapture");
        graphs.emplace_back();
        check_cuda(cudaGraphInstantiate(&graphs.back(), graph, 0), "cudaGraphInstantiate");
        check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
      }
      for (uint32_t replay = 1; replay <= 3; ++replay) {
        for (int rank = 0; rank < 2; ++rank) {
          ranks.use(rank);
          check_cuda(cudaGraphLaunch(graphs[rank], ranks.stream(rank)), "cudaGraphLaunch");
        }
        sequence.check(replay);
        sequence.change_sums();
      }
      for (const cudaGraphExec_t graph : graphs) check_cuda(cudaGraphExecDestroy(graph), "cudaGraphExecDestroy");
    });
  }
}

// What is the same in every call may hide a word that is taken for new: here everything but the data repeats.
TEST_CASE("cuda peer calls: the same call many times, with other data") {
  under_conditions({.devices = 4, .seeds = 3}, [] {
    const Ranks ranks(4);
    for (const Shots shots : {Shots::kOne, Shots::kTwo}) {
      Sequence sequence(ranks);
      for (int i = 0; i < 12; ++i) sequence.add_sum(shots, DType::kF16, 70);
      for (int rank = 0; rank < 4; ++rank) sequence.enqueue_all(rank, false);
      sequence.check(shots == Shots::kOne ? 1 : 2);
    }
  });
}
