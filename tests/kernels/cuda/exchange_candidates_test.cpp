// The best candidate of each row over several devices of one process.
#include "kernels/cuda/exchange_candidates.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "tests/kernels/cuda/ranks.hpp"

using namespace shardscope;
using namespace shardscope::test;
using cuda::CandidateOut;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr CandidateOut kNone{-kInfinity, -1};

using Rows = std::vector<CandidateOut>;

/// What all ranks have after the call, the same everywhere.
Rows exchanged(const Ranks& ranks, const std::vector<Rows>& of_ranks) {
  std::vector<DeviceArray<CandidateOut>> best;
  for (int rank = 0; rank < ranks.count(); ++rank) {
    ranks.use(rank);
    best.emplace_back(of_ranks[rank]);
  }
  for (int rank = 0; rank < ranks.count(); ++rank) {
    ranks.use(rank);
    check_cuda(cuda::exchange_candidates(ranks.rank(rank), {.rows = best[rank].size(), .best = best[rank].data()},
                                         ranks.stream(rank)),
               "exchange_candidates");
  }
  Rows first;
  for (int rank = 0; rank < ranks.count(); ++rank) {
    ranks.use(rank);
    const Rows rows = best[rank].download();
    if (rank == 0) first = rows;
    INFO("rank " << rank);
    CHECK(std::memcmp(rows.data(), first.data(), rows.size() * sizeof(CandidateOut)) == 0);
  }
  return first;
}

void check_row(const CandidateOut& actual, float logit, int32_t id) {
  CHECK(actual.logit == logit);
  CHECK(actual.token_id == id);
}

}  // namespace

TEST_CASE("cuda exchange_candidates: the larger logit, of equal ones the smaller id, on every rank") {
  under_conditions({.devices = 3}, [] {
    const float nan = std::nanf("");
    const Ranks ranks(3);
    const Rows best = exchanged(
        ranks, {{{1.0F, 5}, {1.0F, 5}, {2.0F, 7}, kNone, kNone, {-0.0F, 3}, {-kInfinity, 9}, {nan, 8}, {3.0F, 1}},
                {{2.0F, 15}, {1.0F, 4}, {2.0F, 6}, {-5.0F, 12}, kNone, {0.0F, 2}, {-kInfinity, 4}, {5.0F, 1}, kNone},
                {{1.5F, 25}, {1.0F, 3}, {2.0F, 8}, kNone, kNone, {0.0F, 4}, kNone, {kInfinity, 9}, {3.0F, 2}}});
    check_row(best[0], 2.0F, 15);
    check_row(best[1], 1.0F, 3);
    check_row(best[2], 2.0F, 6);
    check_row(best[3], -5.0F, 12);
    check_row(best[4], -kInfinity, -1);
    check_row(best[5], 0.0F, 2);
    check_row(best[6], -kInfinity, 4);  // something is better than nothing
    check_row(best[7], kInfinity, 8);   // NaN ranks as +inf and is given as such
    check_row(best[8], 3.0F, 1);
  });
}

TEST_CASE("cuda exchange_candidates: any number of ranks and rows") {
  for (const int devices : {1, 2, 5, 8}) {
    under_conditions({.devices = devices, .multiprocessors = 2, .seeds = 3}, [&] {
      const Ranks ranks(devices);
      for (const int64_t rows : {1, 2, 130, 300}) {
        INFO(devices << " ranks, " << rows << " rows");
        std::vector<Rows> of_ranks(devices);
        for (int rank = 0; rank < devices; ++rank) {
          for (int64_t row = 0; row < rows; ++row) {
            of_ranks[rank].push_back({static_cast<float>((rank * 5 + row * 3) % 11), static_cast<int32_t>(100 * rank)});
          }
        }
        const Rows best = exchanged(ranks, of_ranks);
        int wrong = 0;
        for (int64_t row = 0; row < rows; ++row) {
          CandidateOut expected = of_ranks[0][row];  // ids rise with the ranks: ties stay with the first
          for (const Rows& other : of_ranks) {
            if (other[row].logit > expected.logit) expected = other[row];
          }
          wrong += best[row].logit != expected.logit || best[row].token_id != expected.token_id ? 1 : 0;
        }
        CHECK(wrong == 0);
      }
    });
  }
}

TEST_CASE("cuda exchange_candidates: a peer that does not come ends the wait, by name") {
  under_conditions({.devices = 3}, [] {
    const Ranks ranks(3, {.wait_ns = 2'000'000});
    ranks.use(1);
    const DeviceArray<CandidateOut> best(Rows(4, {1.0F, 1}));
    check_cuda(cuda::exchange_candidates(ranks.rank(1), {.rows = 4, .best = best.data()}, ranks.stream(1)),
               "exchange_candidates");
    const uint32_t failure = ranks.state(1).failure;
    CHECK((failure == 1 + 0 || failure == 1 + 2));
  });
}

TEST_CASE("cuda exchange_candidates: what it refuses") {
  under_conditions({.seeds = 0}, [] {
    const Ranks ranks(1, {.capacity = {.one_shot_bytes = 64, .two_shot_bytes = 0}});
    const DeviceArray<CandidateOut> best(Rows(16, {1.0F, 1}));
    const auto call = [&](int64_t rows, CandidateOut* data) {
      return cuda::exchange_candidates(ranks.rank(0), {.rows = rows, .best = data}, nullptr);
    };
    CHECK(call(0, nullptr) == cudaSuccess);  // nothing to do, and not counted
    CHECK(ranks.state(0).calls == 0);
    CHECK(call(-1, best.data()) == cudaErrorInvalidValue);
    CHECK(call(9, best.data()) == cudaErrorInvalidValue);
    CHECK(call(1, nullptr) == cudaErrorInvalidValue);
    CHECK(call(1, reinterpret_cast<CandidateOut*>(reinterpret_cast<std::byte*>(best.data()) + 4)) ==
          cudaErrorInvalidValue);
    CHECK(call(8, best.data()) == cudaSuccess);
    CHECK(ranks.state(0).calls == 1);
  });
}
