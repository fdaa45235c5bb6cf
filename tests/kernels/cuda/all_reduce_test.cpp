// All-reduces among several devices of one process: exact sums of small integers, equal bits on all ranks, and an end
// where a peer does not come.
#include "kernels/cuda/all_reduce.hpp"

#include <catch2/catch.hpp>
#include <chrono>
#include <cmath>
#include <thread>
#include <utility>

#include "tests/kernels/cuda/sums.hpp"
#include "tests/support/approx.hpp"

using namespace shardscope;
using namespace shardscope::test;
using cuda::Shots;
using kernels::DType;

namespace {

constexpr int64_t kCapacityWords = 16384 / 4;

/// Sums of any numbers, against doubles. Gives the bits, the same on all ranks.
std::vector<std::byte> checked_bits(const Ranks& ranks, const SumCase& sum) {
  const DType dtype = sum.x[0].dtype;
  Expected expected;
  for (size_t i = 0; i < sum.x[0].values.size(); ++i) {
    double total = 0;
    double magnitude = 0;
    for (const Stored& x : sum.x) {
      total += static_cast<double>(x.values[i]);
      magnitude += std::abs(static_cast<double>(x.values[i]));
    }
    expected.values.push_back(total);
    expected.tolerances.push_back(kF32Epsilon * static_cast<double>(ranks.count()) * magnitude);
  }
  add_rounding(dtype, expected);
  std::vector<std::byte> first;
  for (int rank = 0; rank < ranks.count(); ++rank) {
    INFO("rank " << rank);
    ranks.use(rank);
    const std::vector<std::byte> bytes = sum.out[rank].download();
    CHECK(first_difference(meaning(dtype, bytes), expected.values, expected.tolerances) == "");
    if (rank == 0) first = bytes;
    CHECK(bytes == first);
  }
  return first;
}

void check_bits_of_both(const Ranks& ranks, DType dtype, int64_t count) {
  std::vector<std::byte> bits[2];
  for (const Shots shots : {Shots::kOne, Shots::kTwo}) {
    const SumCase sum = make_sum(ranks, dtype, count, 3, false);
    for (int rank = ranks.count() - 1; rank >= 0; --rank) enqueue(ranks, sum, rank, {.shots = shots});
    bits[shots == Shots::kOne ? 0 : 1] = checked_bits(ranks, sum);
  }
  CHECK(bits[0] == bits[1]);
}

}  // namespace

// Of two-shot: fewer elements than ranks, chunks of one and of several units, the last one short or empty.
TEST_CASE("cuda all_reduce: any number of ranks and elements") {
  constexpr std::pair<DType, int64_t> kCases[] = {{DType::kF32, 1},  {DType::kF32, 5},   {DType::kF32, 37},
                                                  {DType::kF16, 1},  {DType::kF16, 3},   {DType::kF16, 65},
                                                  {DType::kBF16, 2}, {DType::kBF16, 37}, {DType::kBF16, 333}};
  for (const int devices : {1, 2, 3, 4, 5, 6, 7, 8}) {
    under_conditions({.devices = devices, .seeds = 2}, [&] {
      INFO(devices << " ranks");
      const Ranks ranks(devices);
      for (const Shots shots : {Shots::kOne, Shots::kTwo}) {
        for (const auto& [dtype, count] : kCases) {
          INFO(kernels::facts(dtype).name << " count " << count << (shots == Shots::kTwo ? " two-shot" : ""));
          const SumCase sum = make_sum(ranks, dtype, count, 7);
          for (int rank = 0; rank < devices; ++rank) enqueue(ranks, sum, rank, {.shots = shots});
          check_exact_sums(ranks, sum);
        }
      }
    });
  }
}

TEST_CASE("cuda all_reduce: several words a thread, all ranks the same bits, whichever shots") {
  under_conditions({.devices = 2, .multiprocessors = 2},
                   [] { check_bits_of_both(Ranks(2), DType::kF32, kCapacityWords); });
  under_conditions({.devices = 5}, [] {
    const Ranks ranks(5);
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) check_bits_of_both(ranks, dtype, 999);
  });
  under_conditions({.devices = 8, .multiprocessors = 1, .seeds = 1},
                   [] { check_bits_of_both(Ranks(8), DType::kBF16, 2 * kCapacityWords - 1); });
}

TEST_CASE("cuda all_reduce: in place") {
  under_conditions({.devices = 4}, [] {
    const Ranks ranks(4);
    for (const Shots shots : {Shots::kOne, Shots::kTwo}) {
      const SumCase sum = make_sum(ranks, DType::kF16, 777, 5);
      for (int rank = 0; rank < 4; ++rank) enqueue(ranks, sum, rank, {.shots = shots, .in_place = true});
      check_exact_sums(ranks, sum, true);
    }
  });
}

TEST_CASE("cuda all_reduce: a peer that does not come ends the wait, by name") {
  for (const Shots shots : {Shots::kOne, Shots::kTwo}) {
    for (const int64_t count : {700, 5}) {  // 5: two-shot gives the last rank nothing to add
      INFO((shots == Shots::kTwo ? "two-shot, " : "one-shot, ") << count);
      under_conditions({.devices = 3}, [&] {
        const Ranks ranks(3, {.wait_ns = 2'000'000, .log_entries = 4});
        const SumCase sum = make_sum(ranks, DType::kF32, count, 5);
        enqueue(ranks, sum, 0, {.shots = shots});
        enqueue(ranks, sum, 2, {.shots = shots});
        CHECK(ranks.state(0).failure == 1 + 1);
        CHECK(ranks.state(2).failure == 1 + 1);
        CHECK(ranks.failure_on_host() == 1 + 1);
        CHECK(ranks.state(0).counted_blocks == 0);
        CHECK(ranks.log(0)[1].arrived_ns == 0);
        CHECK(ranks.log(0)[1].end_ns - ranks.log(0)[1].begin_ns >= 2'000'000);
        // After a failure nothing is sent and nothing waited for.
        enqueue(ranks, sum, 0, {.shots = shots});
        CHECK(ranks.state(0).calls == 2);
      });
    }
  }
}

TEST_CASE("cuda all_reduce: the abort word ends the wait") {
  for (const Shots shots : {Shots::kOne, Shots::kTwo}) {
    under_conditions({.devices = 2}, [&] {
      Ranks ranks(2);
      ranks.abort();
      const SumCase sum = make_sum(ranks, DType::kBF16, 11, 5);
      enqueue(ranks, sum, 1, {.shots = shots});
      CHECK(ranks.state(1).failure == 1 + 0);
    });
  }
}

TEST_CASE("cuda all_reduce: the log says who waited for whom") {
  for (const Shots shots : {Shots::kOne, Shots::kTwo}) {
    for (const int64_t count : {300, 3}) {
      INFO((shots == Shots::kTwo ? "two-shot, " : "one-shot, ") << count);
      under_conditions({.devices = 2}, [&] {
        constexpr int kCalls = 3;
        constexpr uint64_t kLate = 2'000'000;
        const Ranks ranks(2, {.log_entries = 2});
        std::vector<SumCase> sums;
        for (uint32_t i = 0; i < kCalls; ++i) sums.push_back(make_sum(ranks, DType::kF16, count, 10 * i));
        for (int call = 0; call < kCalls; ++call) {
          enqueue(ranks, sums[call], 0, {.shots = shots});
          if (call == 1) {
            // Time passes: here, or on the emulated machine, which counts how often it is asked.
            for (int i = 0; i < 5; ++i) {
              std::this_thread::sleep_for(std::chrono::nanoseconds(kLate) / 4);
              CHECK(cudaStreamQuery(ranks.stream(0)) == cudaErrorNotReady);
            }
          }
          enqueue(ranks, sums[call], 1, {.shots = shots});
          check_exact_sums(ranks, sums[call]);
        }
        for (int rank = 0; rank < 2; ++rank) {
          const std::vector<cuda::CallTimes> log = ranks.log(rank);
          CHECK(log[0].number == 2);
          CHECK(log[1].number == 3);  // over the first one's
          for (const cuda::CallTimes& times : log) {
            CHECK(times.begin_ns > 0);
            CHECK(times.begin_ns <= times.arrived_ns);
            CHECK(times.arrived_ns <= times.end_ns);
          }
        }
        const cuda::CallTimes waited = ranks.log(0)[0];
        const cuda::CallTimes late = ranks.log(1)[0];
        CHECK(waited.arrived_ns - waited.begin_ns >= kLate);
        CHECK(late.arrived_ns - late.begin_ns < kLate);
      });
    }
  }
}

TEST_CASE("cuda all_reduce: what it refuses") {
  under_conditions({.seeds = 0}, [] {
    const Ranks ranks(1);
    const DeviceArray<std::byte> memory(64);
    for (const Shots shots : {Shots::kOne, Shots::kTwo}) {
      const auto refused = [&](auto&& change) {
        cuda::PeerRank rank = ranks.rank(0);
        cuda::AllReduce call{.count = 2, .x = memory.data(), .out = memory.data()};
        change(rank, call);
        return cuda::all_reduce(rank, shots, call, nullptr) == cudaErrorInvalidValue;
      };
      CHECK_FALSE(refused([](auto&, auto& call) { call.count = 0; }));  // nothing to do, and not counted
      CHECK(ranks.state(0).calls == 0);
      CHECK(refused([](auto&, auto& call) { call.count = kCapacityWords + 1; }));
      CHECK(refused([](auto&, auto& call) { call.count = -1; }));
      CHECK(refused([](auto&, auto& call) { call.dtype = DType::kQ4_0; }));
      CHECK(refused([&](auto&, auto& call) { call.x = memory.data() + 2; }));
      CHECK(refused([&](auto&, auto& call) { call.out = memory.data() + 1; }));
      CHECK(refused([](auto&, auto& call) { call.x = nullptr; }));
      CHECK(refused([](auto& rank, auto&) { rank.ranks = 9; }));
      CHECK(refused([](auto& rank, auto&) { rank.ranks = 0; }));
      CHECK(refused([](auto& rank, auto&) { rank.ranks = 2; }));  // without the peer's inbox
      CHECK(refused([](auto& rank, auto&) { rank.rank = 1; }));
      CHECK(refused([](auto& rank, auto&) { rank.rank = -1; }));
      CHECK(refused([](auto& rank, auto&) { rank.state = nullptr; }));
      CHECK(refused([](auto& rank, auto&) { rank.inboxes[0] = static_cast<std::byte*>(rank.inboxes[0]) + 8; }));
      CHECK(refused([](auto& rank, auto&) { rank.capacity.one_shot_bytes = 6; }));
      CHECK(refused([](auto& rank, auto&) { rank.capacity.two_shot_bytes = -4; }));
      CHECK(refused([](auto& rank, auto&) { rank.capacity.two_shot_bytes = (int64_t{1} << 30) + 4; }));
      cuda::CallTimes entries[4];
      CHECK(refused([&](auto& rank, auto&) { rank.log = {.entries = entries, .count = 3}; }));
      CHECK(refused([&](auto& rank, auto&) { rank.log = {.entries = entries, .count = 0}; }));
    }
    // Each kind of call has its own capacity.
    cuda::PeerRank rank = ranks.rank(0);
    rank.capacity.two_shot_bytes = 0;
    const cuda::AllReduce call{.count = 2, .x = memory.data(), .out = memory.data()};
    CHECK(cuda::all_reduce(rank, Shots::kTwo, call, nullptr) == cudaErrorInvalidValue);
  });
}
