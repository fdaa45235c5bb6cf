// All-reduce, residual and norm in one kernel: exact sums of integers, the norm against doubles, equal bits on all
// ranks.
#include <catch2/catch.hpp>
#include <cmath>
#include <utility>

#include "kernels/cuda/all_reduce.hpp"
#include "tests/kernels/cuda/sums.hpp"
#include "tests/support/approx.hpp"

using namespace shardscope;
using namespace shardscope::test;
using cuda::Shots;
using kernels::DType;

namespace {

constexpr float kEpsilon = 1e-5F;
constexpr float kBetween = 7.0F;  // what stands between rows, that nobody may touch

enum class Target : uint8_t { kOwn, kInput, kResidual };

struct Case {
  Shots shots = Shots::kOne;
  DType dtype = DType::kF32;
  int64_t rows = 1;
  int64_t columns = 1;
  int64_t padding = 0;  // elements between rows
  Target sum = Target::kResidual;
  Target normed = Target::kOwn;
};

/// The values at the rows' places.
std::vector<float> spread(const std::vector<float>& values, const Case& c) {
  std::vector<float> result;
  for (int64_t row = 0; row < c.rows; ++row) {
    result.insert(result.end(), values.begin() + row * c.columns, values.begin() + (row + 1) * c.columns);
    result.insert(result.end(), static_cast<size_t>(c.padding), kBetween);
  }
  return result;
}

/// The norm of what the sum is, with padding.
Expected normed(const Case& c, const std::vector<float>& sum, const std::vector<float>& weight) {
  Expected expected;
  for (int64_t row = 0; row < c.rows; ++row) {
    double squares = 0;
    for (int64_t i = 0; i < c.columns; ++i) squares += std::pow(static_cast<double>(sum[row * c.columns + i]), 2);
    const double root = std::sqrt(squares / static_cast<double>(c.columns) + static_cast<double>(kEpsilon));
    for (int64_t i = 0; i < c.columns; ++i) {
      const double value = static_cast<double>(sum[row * c.columns + i]) / root * static_cast<double>(weight[i]);
      expected.values.push_back(value);
      // Of the sum, at most one rounding a term; 8 for the mean, the root, the products.
      expected.tolerances.push_back(kF32Epsilon * static_cast<double>(c.columns + 8) * std::abs(value));
    }
    expected.values.insert(expected.values.end(), static_cast<size_t>(c.padding), static_cast<double>(kBetween));
    expected.tolerances.insert(expected.tolerances.end(), static_cast<size_t>(c.padding), 0.0);
  }
  add_rounding(c.dtype, expected);
  return expected;
}

/// One rank's memory.
struct RankRows {
  RankRows(const Case& c, const Stored& own, const Stored& same, const std::vector<float>& weights)
      : x(stored(c.dtype, spread(own.values, c)).bytes),
        residual(stored(c.dtype, spread(same.values, c)).bytes),
        weight(weights),
        sum(stored(c.dtype, spread(std::vector<float>(own.values.size(), -1.0F), c)).bytes),
        normed(stored(c.dtype, spread(std::vector<float>(own.values.size(), -1.0F), c)).bytes) {}

  const DeviceArray<std::byte>& of(Target target, const DeviceArray<std::byte>& own) const {
    return target == Target::kInput ? x : target == Target::kResidual ? residual : own;
  }

  DeviceArray<std::byte> x;
  DeviceArray<std::byte> residual;
  DeviceArray<float> weight;
  DeviceArray<std::byte> sum;
  DeviceArray<std::byte> normed;
};

void enqueue(const Ranks& ranks, int rank, const Case& c, const RankRows& memory) {
  const int64_t stride = c.columns + c.padding;
  ranks.use(rank);
  check_cuda(cuda::all_reduce_norm(ranks.rank(rank), c.shots,
                                   {.dtype = c.dtype,
                                    .rows = c.rows,
                                    .columns = c.columns,
                                    .x = memory.x.data(),
                                    .x_stride = stride,
                                    .residual = memory.residual.data(),
                                    .residual_stride = stride,
                                    .weight = memory.weight.data(),
                                    .epsilon = kEpsilon,
                                    .sum = memory.of(c.sum, memory.sum).data(),
                                    .sum_stride = stride,
                                    .normed = memory.of(c.normed, memory.normed).data(),
                                    .normed_stride = stride},
                                   ranks.stream(rank)),
             "all_reduce_norm");
}

void check_norm(const Ranks& ranks, const Case& c) {
  INFO((c.shots == Shots::kTwo ? "two-shot " : "one-shot ")
       << kernels::facts(c.dtype).name << " rows " << c.rows << " columns " << c.columns << " padding " << c.padding
       << " sum " << static_cast<int>(c.sum) << " normed " << static_cast<int>(c.normed));
  const int64_t count = c.rows * c.columns;
  const Stored residual = random_stored(c.dtype, count, 50);
  const std::vector<float> weight = random_values(c.columns, 60);
  std::vector<float> sum(static_cast<size_t>(count));
  std::vector<RankRows> memory;
  for (int rank = 0; rank < ranks.count(); ++rank) {
    const Stored x = stored(c.dtype, random_integers(count, static_cast<uint32_t>(rank)));
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += x.values[i];
    ranks.use(rank);
    memory.emplace_back(c, x, residual, weight);
  }
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += residual.values[i];  // the only sum that is rounded
  sum = stored(c.dtype, sum).values;
  for (int rank = 0; rank < ranks.count(); ++rank) enqueue(ranks, rank, c, memory[rank]);

  const Expected expected = normed(c, sum, weight);
  const std::vector<float> expected_sum = stored(c.dtype, spread(sum, c)).values;
  std::vector<std::byte> first;
  for (int rank = 0; rank < ranks.count(); ++rank) {
    INFO("rank " << rank);
    ranks.use(rank);
    const RankRows& own = memory[rank];
    CHECK(meaning(c.dtype, own.of(c.sum, own.sum).download()) == expected_sum);
    const std::vector<std::byte> bytes = own.of(c.normed, own.normed).download();
    CHECK(first_difference(meaning(c.dtype, bytes), expected.values, expected.tolerances) == "");
    if (rank == 0) first = bytes;
    CHECK(bytes == first);
  }
}

constexpr DType kDTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

}  // namespace

TEST_CASE("cuda all_reduce_norm: any number of ranks, rows, columns and strides") {
  for (const int devices : {1, 2, 3, 8}) {
    under_conditions({.devices = devices, .seeds = 2}, [&] {
      INFO(devices << " ranks");
      const Ranks ranks(devices);
      for (const Shots shots : {Shots::kOne, Shots::kTwo}) {
        for (const DType dtype : kDTypes) {
          check_norm(ranks, {shots, dtype, 1, 1});
          check_norm(ranks, {shots, dtype, 3, 7, 1});
          check_norm(ranks, {shots, dtype, 2, 66, 4});
        }
      }
    });
  }
}

// Rows of one to sixteen blocks, and of several words a thread. Parts of rows add their squares in the order of the
// blocks, so that the norm's bits agree.
TEST_CASE("cuda all_reduce_norm: rows that several blocks share") {
  under_conditions({.devices = 3, .seeds = 3}, [] {
    const Ranks ranks(3);
    for (const Shots shots : {Shots::kOne, Shots::kTwo}) {
      check_norm(ranks, {shots, DType::kBF16, 2, 576});
      check_norm(ranks, {shots, DType::kF16, 1, 1501});
      check_norm(ranks, {shots, DType::kF32, 1, 771});
    }
  });
  under_conditions({.devices = 2, .seeds = 1}, [] {
    const Ranks ranks(2, {.capacity = {.one_shot_bytes = 65536, .two_shot_bytes = 65536}});
    check_norm(ranks, {Shots::kOne, DType::kF32, 1, 4099});
    check_norm(ranks, {Shots::kTwo, DType::kBF16, 1, 8191});
    check_norm(ranks, {Shots::kOne, DType::kF16, 1, 20001});
    check_norm(ranks, {Shots::kTwo, DType::kF32, 1, cuda::all_reduce_norm_columns(DType::kF32, 132)});
  });
}

TEST_CASE("cuda all_reduce_norm: more rows than blocks, which take them in turn") {
  under_conditions({.devices = 2, .multiprocessors = 5, .seeds = 3}, [] {
    const Ranks ranks(2, {.capacity = {.one_shot_bytes = 32768, .two_shot_bytes = 32768}});
    for (const Shots shots : {Shots::kOne, Shots::kTwo}) {
      check_norm(ranks, {shots, DType::kBF16, 7, 600, 2});  // two groups of two blocks
      check_norm(ranks, {shots, DType::kF32, 11, 40});
    }
  });
}

TEST_CASE("cuda all_reduce_norm: in place of what it reads") {
  under_conditions({.devices = 2, .seeds = 3}, [] {
    const Ranks ranks(2);
    for (const Shots shots : {Shots::kOne, Shots::kTwo}) {
      for (const auto& [sum, norm] :
           {std::pair{Target::kOwn, Target::kOwn}, std::pair{Target::kOwn, Target::kInput},
            std::pair{Target::kResidual, Target::kInput}, std::pair{Target::kInput, Target::kOwn},
            std::pair{Target::kInput, Target::kResidual}, std::pair{Target::kOwn, Target::kResidual}}) {
        check_norm(ranks, {shots, DType::kBF16, 2, 601, 1, sum, norm});
      }
    }
  });
}

TEST_CASE("cuda all_reduce_norm: a peer that does not come ends the wait, by name") {
  for (const Shots shots : {Shots::kOne, Shots::kTwo}) {
    under_conditions({.devices = 3, .seeds = 3}, [&] {
      const Ranks ranks(3, {.wait_ns = 2'000'000});
      const Case c{shots, DType::kBF16, 2, 1200};
      const Stored values = random_stored(c.dtype, c.rows * c.columns, 1);
      std::vector<RankRows> memory;
      for (int rank = 0; rank < 3; ++rank) {
        ranks.use(rank);
        memory.emplace_back(c, values, values, random_values(c.columns, 2));
      }
      enqueue(ranks, 0, c, memory[0]);
      enqueue(ranks, 1, c, memory[1]);
      CHECK(ranks.state(0).failure == 1 + 2);
      CHECK(ranks.state(1).failure == 1 + 2);
      CHECK(ranks.failure_on_host() == 1 + 2);
      CHECK(ranks.state(0).counted_blocks == 0);
      enqueue(ranks, 0, c, memory[0]);
      CHECK(ranks.state(0).calls == 2);
    });
  }
}

TEST_CASE("cuda all_reduce_norm: what it refuses") {
  under_conditions({.multiprocessors = 2, .seeds = 0}, [] {
    const Ranks ranks(1);
    const DeviceArray<std::byte> memory(64);
    const DeviceArray<std::byte> other(64);
    const DeviceArray<float> weight(16);
    for (const Shots shots : {Shots::kOne, Shots::kTwo}) {
      const auto refused = [&](auto&& change) {
        cuda::AllReduceNorm call{.dtype = DType::kF16,
                                 .rows = 2,
                                 .columns = 3,
                                 .x = memory.data(),
                                 .x_stride = 4,
                                 .residual = memory.data(),
                                 .residual_stride = 4,
                                 .weight = weight.data(),
                                 .sum = memory.data(),
                                 .sum_stride = 4,
                                 .normed = other.data(),
                                 .normed_stride = 4};
        change(call);
        return cuda::all_reduce_norm(ranks.rank(0), shots, call, nullptr) == cudaErrorInvalidValue;
      };
      CHECK_FALSE(refused([](auto& call) { call.rows = 0; }));  // nothing to do, and not counted
      CHECK(ranks.state(0).calls == 0);
      CHECK(refused([](auto& call) { call.rows = -1; }));
      CHECK(refused([](auto& call) { call.rows = int64_t{1} << 62; }));
      CHECK(refused([](auto& call) { call.rows = 16384 / 8 + 1; }));
      CHECK(refused([](auto& call) { call.columns = 0; }));
      CHECK(refused([](auto& call) { call.dtype = DType::kQ8_0; }));
      CHECK(refused([](auto& call) { call.x_stride = 2; }));
      CHECK(refused([](auto& call) { call.x_stride = 5; }));  // odd: rows begin in the middle of a word
      CHECK(refused([](auto& call) { call.residual_stride = 5; }));
      CHECK(refused([](auto& call) { call.sum_stride = 5; }));
      CHECK(refused([](auto& call) { call.normed_stride = 5; }));
      CHECK(refused([&](auto& call) { call.x = memory.data() + 2; }));
      CHECK(refused([](auto& call) { call.residual = nullptr; }));
      CHECK(refused([](auto& call) { call.weight = nullptr; }));
      CHECK(refused([](auto& call) { call.normed = call.sum; }));
      CHECK(refused([](auto& call) {  // more blocks a row than can be resident
        call.rows = 1;
        call.columns = cuda::all_reduce_norm_columns(call.dtype, 2) + 1;
        call.x_stride = call.residual_stride = call.sum_stride = call.normed_stride = call.columns;
      }));
    }
  });
}
