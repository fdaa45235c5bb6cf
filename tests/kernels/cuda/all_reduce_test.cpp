// The one-shot all-reduce among several devices of one process: exact sums of small integers, equal bits on all ranks,
// and an end where a peer does not come.
#include "kernels/cuda/all_reduce.hpp"

#include <catch2/catch.hpp>
#include <cmath>

#include "tests/kernels/cuda/conditions.hpp"
#include "tests/kernels/cuda/device_array.hpp"
#include "tests/kernels/cuda/ranks.hpp"
#include "tests/kernels/cuda/stored.hpp"
#include "tests/support/approx.hpp"

using namespace shardscope;
using namespace shardscope::test;
using kernels::DType;

namespace {

/// One call's data on all ranks.
struct Call {
  std::vector<Stored> x;  // of each rank
  std::vector<DeviceArray<std::byte>> in;
  std::vector<DeviceArray<std::byte>> out;
};

Call make_call(const Ranks& ranks, DType dtype, int64_t count, uint32_t seed, bool integers) {
  Call call;
  for (int rank = 0; rank < ranks.count(); ++rank) {
    std::vector<float> values = random_values(count, seed + static_cast<uint32_t>(rank));
    if (integers) {
      for (float& value : values) value = std::floor(value * 8.0F);  // sums of 8 of them are exact in every dtype
    }
    call.x.push_back(stored(dtype, values));
    ranks.use(rank);
    call.in.emplace_back(call.x.back().bytes);
    call.out.emplace_back(static_cast<int64_t>(call.x.back().bytes.size()));
  }
  return call;
}

void enqueue(const Ranks& ranks, const Call& call, int rank, bool in_place = false) {
  ranks.use(rank);
  check_cuda(cuda::all_reduce_one_shot(ranks.rank(rank),
                                       {.dtype = call.x[rank].dtype,
                                        .count = static_cast<int64_t>(call.x[rank].values.size()),
                                        .x = call.in[rank].data(),
                                        .out = in_place ? call.in[rank].data() : call.out[rank].data()},
                                       ranks.stream(rank)),
             "all_reduce_one_shot");
}

void check_sums(const Ranks& ranks, const Call& call, bool in_place = false) {
  const DType dtype = call.x[0].dtype;
  Expected expected;
  for (size_t i = 0; i < call.x[0].values.size(); ++i) {
    double sum = 0;
    double magnitude = 0;
    for (const Stored& x : call.x) {
      sum += static_cast<double>(x.values[i]);
      magnitude += std::abs(static_cast<double>(x.values[i]));
    }
    expected.values.push_back(sum);
    expected.tolerances.push_back(kF32Epsilon * static_cast<double>(ranks.count()) * magnitude);
  }
  add_rounding(dtype, expected);
  std::vector<std::byte> first;
  for (int rank = 0; rank < ranks.count(); ++rank) {
    INFO("rank " << rank);
    ranks.use(rank);
    const std::vector<std::byte> bytes = in_place ? call.in[rank].download() : call.out[rank].download();
    CHECK(first_difference(meaning(dtype, bytes), expected.values, expected.tolerances) == "");
    if (rank == 0) first = bytes;
    CHECK(bytes == first);
  }
}

/// Integers: equality is the test.
void check_exact_sums(const Ranks& ranks, const Call& call) {
  std::vector<float> sums(call.x[0].values.size());
  for (const Stored& x : call.x) {
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += x.values[i];
  }
  for (int rank = 0; rank < ranks.count(); ++rank) {
    INFO("rank " << rank);
    ranks.use(rank);
    CHECK(meaning(call.x[0].dtype, call.out[rank].download()) == sums);
  }
}

}  // namespace

TEST_CASE("cuda all_reduce: any number of ranks and elements") {
  for (const int devices : {1, 2, 3, 4, 5, 8}) {
    under_conditions({.devices = devices}, [&] {
      INFO(devices << " ranks");
      const Ranks ranks(devices);
      for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
        for (const int64_t count : {1, 2, 3, 65, 1027}) {
          INFO(kernels::facts(dtype).name << " count " << count);
          const Call call = make_call(ranks, dtype, count, 7, true);
          for (int rank = 0; rank < devices; ++rank) enqueue(ranks, call, rank);
          check_exact_sums(ranks, call);
        }
      }
    });
  }
}

TEST_CASE("cuda all_reduce: calls behind each other, of changing length, without a pause") {
  under_conditions({.devices = 3}, [] {
    const Ranks ranks(3);
    std::vector<Call> calls;
    for (const int64_t count : {600, 1, 33, 600, 599, 2, 1}) {
      calls.push_back(make_call(ranks, DType::kBF16, count, static_cast<uint32_t>(10 * calls.size()), true));
    }
    for (int rank = 0; rank < 3; ++rank) {
      for (const Call& call : calls) enqueue(ranks, call, rank);
    }
    for (const Call& call : calls) check_exact_sums(ranks, call);
    for (int rank = 0; rank < 3; ++rank) {
      const cuda::OneShotState state = ranks.state(rank);
      CHECK(state.calls == calls.size());
      CHECK(state.finished_blocks == 0);
      CHECK(state.failure == 0);
    }
  });
}

TEST_CASE("cuda all_reduce: several words a thread, all ranks the same bits") {
  under_conditions({.devices = 2, .multiprocessors = 2}, [] {
    const Ranks ranks(2);
    const Call call = make_call(ranks, DType::kF32, Ranks::kCapacityBytes / 4, 3, false);
    for (int rank = 0; rank < 2; ++rank) enqueue(ranks, call, rank);
    check_sums(ranks, call);
  });
  under_conditions({.devices = 5}, [] {
    const Ranks ranks(5);
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      const Call call = make_call(ranks, dtype, 999, 3, false);
      for (int rank = 4; rank >= 0; --rank) enqueue(ranks, call, rank);
      check_sums(ranks, call);
    }
  });
}

TEST_CASE("cuda all_reduce: in place") {
  under_conditions({.devices = 4}, [] {
    const Ranks ranks(4);
    const Call call = make_call(ranks, DType::kF16, 777, 5, false);
    for (int rank = 0; rank < 4; ++rank) enqueue(ranks, call, rank, true);
    check_sums(ranks, call, true);
  });
}

TEST_CASE("cuda all_reduce: a peer that does not come ends the wait, by name") {
  under_conditions({.devices = 3}, [] {
    const Ranks ranks(3, 2'000'000);
    const Call call = make_call(ranks, DType::kF32, 700, 5, false);
    enqueue(ranks, call, 0);
    enqueue(ranks, call, 2);
    CHECK(ranks.state(0).failure == 1 + 1);
    CHECK(ranks.state(2).failure == 1 + 1);
    CHECK(ranks.state(0).finished_blocks == 0);
    // After a failure nothing is sent and nothing waited for.
    enqueue(ranks, call, 0);
    CHECK(ranks.state(0).calls == 2);
  });
}

TEST_CASE("cuda all_reduce: the abort word ends the wait") {
  under_conditions({.devices = 2}, [] {
    Ranks ranks(2);
    ranks.abort();
    const Call call = make_call(ranks, DType::kBF16, 11, 5, false);
    enqueue(ranks, call, 1);
    CHECK(ranks.state(1).failure == 1 + 0);
  });
}

TEST_CASE("cuda all_reduce: what it refuses") {
  under_conditions([] {
    const Ranks ranks(1);
    const DeviceArray<std::byte> memory(64);
    const auto refused = [&](auto&& change) {
      cuda::OneShotRank rank = ranks.rank(0);
      cuda::AllReduce call{.count = 2, .x = memory.data(), .out = memory.data()};
      change(rank, call);
      return cuda::all_reduce_one_shot(rank, call, nullptr) == cudaErrorInvalidValue;
    };
    CHECK_FALSE(refused([](auto&, auto& call) { call.count = 0; }));  // nothing to do, and not counted
    CHECK(ranks.state(0).calls == 0);
    CHECK(refused([](auto&, auto& call) { call.count = Ranks::kCapacityBytes / 4 + 1; }));
    CHECK(refused([](auto&, auto& call) { call.count = -1; }));
    CHECK(refused([](auto&, auto& call) { call.dtype = DType::kQ4_0; }));
    CHECK(refused([&](auto&, auto& call) { call.x = memory.data() + 2; }));
    CHECK(refused([](auto& rank, auto&) { rank.ranks = 9; }));
    CHECK(refused([](auto& rank, auto&) { rank.ranks = 0; }));
    CHECK(refused([](auto& rank, auto&) { rank.ranks = 2; }));  // without the peer's inbox
    CHECK(refused([](auto& rank, auto&) { rank.rank = 1; }));
    CHECK(refused([](auto& rank, auto&) { rank.state = nullptr; }));
    CHECK(refused([](auto& rank, auto&) { rank.capacity_bytes = 6; }));
  });
}
