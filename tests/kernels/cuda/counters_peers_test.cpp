// What ranks send each other, and what of device memory they touch for it, counted by the checked emulation.
#include <catch2/catch.hpp>

#include "kernels/cuda/exchange_candidates.hpp"
#include "tests/kernels/cuda/counting.hpp"
#include "tests/kernels/cuda/sums.hpp"

using namespace shardscope;
using namespace shardscope::test;
using cuda::Shots;
using emulation::KernelCounters;
using kernels::DType;

namespace {

void label_inboxes(const Ranks& ranks) {
  for (int rank = 0; rank < ranks.count(); ++rank) emulation::label(ranks.rank(0).inboxes[rank], "inbox");
}

/// Bytes of the headers of one call: a word from every rank to every other.
constexpr int64_t header_bytes(int64_t devices) {
  return 8 * devices * (devices - 1);
}

/// Bytes that a call among 2 ranks loads of the abort word, which lies across the bus; the first `calling` take part.
int64_t abort_word_bytes(int calling) {
  const auto call = [calling] {
    const Ranks ranks(2);
    emulation::label(ranks.rank(0).abort_word, "abort word");
    const SumCase sum = make_sum(ranks, DType::kF32, 1000, 1);
    for (int rank = 0; rank < calling; ++rank) enqueue(ranks, sum, rank, {});
    for (int rank = 0; rank < calling; ++rank) CHECK((ranks.state(rank).failure != 0) == (calling < 2));
  };
  return loaded(counters_of("all_reduce_kernel", call, 2), "abort word");
}

KernelCounters sum_counters(Shots shots, int devices, int64_t count) {
  return counters_of(
      "all_reduce_kernel",
      [&] {
        const Ranks ranks(devices);
        label_inboxes(ranks);
        const SumCase sum = make_sum(ranks, DType::kF32, count, 1);
        for (int rank = 0; rank < devices; ++rank) {
          emulation::label(sum.in[rank].data(), "x");
          emulation::label(sum.out[rank].data(), "out");
          enqueue(ranks, sum, rank, {.shots = shots});
        }
        check_exact_sums(ranks, sum);
      },
      devices);
}

}  // namespace

TEST_CASE("cuda all_reduce: looks at the abort word only where data is long in coming") {
  if (!emulation::checked()) return;
  CHECK(abort_word_bytes(2) == 0);
  CHECK(abort_word_bytes(1) > 0);
}

// Of all ranks together. Data of one rank: 4 bytes an element.
TEST_CASE("cuda all_reduce: one-shot sends 2 (ranks - 1) times the data, two-shot 4 (ranks - 1) / ranks times") {
  if (!emulation::checked()) return;
  constexpr int64_t kDevices = 4;
  constexpr int64_t kBytes = 4 * 1024;
  for (const Shots shots : {Shots::kOne, Shots::kTwo}) {
    INFO((shots == Shots::kTwo ? "two-shot" : "one-shot"));
    const KernelCounters counters = sum_counters(shots, kDevices, kBytes / 4);
    const int64_t of_each = shots == Shots::kOne ? 2 * (kDevices - 1) * kBytes : 4 * (kDevices - 1) * kBytes / kDevices;
    CHECK(traffic_of(counters, "inbox").stored_bytes == kDevices * of_each + header_bytes(kDevices));
    // Two-shot reads its own chunk again when the others' have come.
    CHECK(loaded(counters, "x") == kDevices * kBytes + (shots == Shots::kOne ? 0 : kBytes));
    CHECK(traffic_of(counters, "out").stored_bytes == kDevices * kBytes);
    // A rank's headers are one request to as many inboxes.
    CHECK(counters.global_stores.units - counters.global_stores.ideal_units == kDevices * (kDevices - 1 - 1));
  }
}

TEST_CASE("cuda all_reduce: two-shot sends ranks that have nothing to add headers alone") {
  if (!emulation::checked()) return;
  // 5 elements are 2 units of 16 bytes: ranks 0 and 1 add. Each rank but the adder sends a chunk, the adder the sums.
  constexpr int64_t kWords = 2 * 3 * 5;
  CHECK(traffic_of(sum_counters(Shots::kTwo, 4, 5), "inbox").stored_bytes == 8 * kWords + header_bytes(4));
}

TEST_CASE("cuda all_reduce_norm: sends what all_reduce does, and reads and writes each row once") {
  if (!emulation::checked()) return;
  constexpr int64_t kDevices = 2;
  constexpr int64_t kRows = 2;
  constexpr int64_t kColumns = 1024;  // two blocks a row
  constexpr int64_t kBytes = kRows * kColumns * 2;
  for (const Shots shots : {Shots::kOne, Shots::kTwo}) {
    INFO((shots == Shots::kTwo ? "two-shot" : "one-shot"));
    const KernelCounters counters = counters_of(
        "all_reduce_norm_kernel",
        [&] {
          const Ranks ranks(kDevices);
          label_inboxes(ranks);
          const SumCase x = make_sum(ranks, DType::kBF16, kRows * kColumns, 1);
          const SumCase residual = make_sum(ranks, DType::kBF16, kRows * kColumns, 1);
          std::vector<DeviceArray<float>> weight;
          for (int rank = 0; rank < kDevices; ++rank) {
            ranks.use(rank);
            weight.emplace_back(random_values(kColumns, 2));
            emulation::label(x.in[rank].data(), "x");
            emulation::label(residual.in[rank].data(), "residual");
            emulation::label(residual.out[rank].data(), "sum");
            emulation::label(x.out[rank].data(), "normed");
            emulation::label(weight[rank].data(), "weight");
          }
          for (int rank = 0; rank < kDevices; ++rank) {
            ranks.use(rank);
            check_cuda(cuda::all_reduce_norm(ranks.rank(rank), shots,
                                             {.dtype = DType::kBF16,
                                              .rows = kRows,
                                              .columns = kColumns,
                                              .x = x.in[rank].data(),
                                              .x_stride = kColumns,
                                              .residual = residual.in[rank].data(),
                                              .residual_stride = kColumns,
                                              .weight = weight[rank].data(),
                                              .epsilon = 1e-5F,
                                              .sum = residual.out[rank].data(),
                                              .sum_stride = kColumns,
                                              .normed = x.out[rank].data(),
                                              .normed_stride = kColumns},
                                             ranks.stream(rank)),
                       "all_reduce_norm");
          }
          for (int rank = 0; rank < kDevices; ++rank) CHECK(ranks.state(rank).failure == 0);
        },
        kDevices);
    // Of two ranks, either way sends the data twice, as words; and the blocks of each row their sums of squares.
    CHECK(traffic_of(counters, "inbox").stored_bytes ==
          kDevices * (2 * kBytes + kRows * 2 * 8) + header_bytes(kDevices));
    const bool two_shot = shots == Shots::kTwo;
    CHECK(loaded(counters, "x") == kDevices * kBytes + (two_shot ? kBytes : 0));
    CHECK(loaded(counters, "residual") == (two_shot ? 1 : kDevices) * kBytes);
    CHECK(loaded(counters, "sum") == (two_shot ? kBytes : 0));
    CHECK(traffic_of(counters, "sum").stored_bytes == kDevices * kBytes);
    CHECK(traffic_of(counters, "normed").stored_bytes == kDevices * kBytes);
    CHECK(loaded(counters, "weight") == kDevices * kRows * kColumns * 4);  // each row by blocks of its own
  }
}

TEST_CASE("cuda exchange_candidates: 16 bytes a row to every peer") {
  if (!emulation::checked()) return;
  constexpr int64_t kDevices = 3;
  constexpr int64_t kRows = 40;
  const KernelCounters counters = counters_of(
      "exchange_candidates_kernel",
      [] {
        const Ranks ranks(kDevices);
        label_inboxes(ranks);
        std::vector<DeviceArray<cuda::CandidateOut>> best;
        for (int rank = 0; rank < kDevices; ++rank) {
          ranks.use(rank);
          best.emplace_back(std::vector<cuda::CandidateOut>(kRows, {1.0F, rank}));
        }
        for (int rank = 0; rank < kDevices; ++rank) {
          ranks.use(rank);
          check_cuda(cuda::exchange_candidates(ranks.rank(rank), {.rows = kRows, .best = best[rank].data()},
                                               ranks.stream(rank)),
                     "exchange_candidates");
        }
        for (int rank = 0; rank < kDevices; ++rank) CHECK(ranks.state(rank).failure == 0);
      },
      kDevices);
  CHECK(traffic_of(counters, "inbox").stored_bytes == kDevices * (kDevices - 1) * kRows * 16 + header_bytes(kDevices));
}
