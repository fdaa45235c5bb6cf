// Calls of all_reduce among the ranks of one process, and what they must give.
#pragma once

#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cuda/all_reduce.hpp"
#include "tests/kernels/cuda/ranks.hpp"
#include "tests/kernels/cuda/stored.hpp"

namespace shardscope::test {

/// Small integers: sums of 8 of them are exact in every dtype, in every order.
inline std::vector<float> random_integers(int64_t count, uint32_t seed) {
  std::vector<float> values = random_values(count, seed);
  for (float& value : values) value = std::floor(value * 8.0F);
  return values;
}

/// One call's data on all ranks.
struct SumCase {
  std::vector<Stored> x;  // of each rank
  std::vector<DeviceArray<std::byte>> in;
  std::vector<DeviceArray<std::byte>> out;

  int64_t count() const { return static_cast<int64_t>(x[0].values.size()); }
};

inline SumCase make_sum(const Ranks& ranks, kernels::DType dtype, int64_t count, uint32_t seed, bool integers = true) {
  SumCase sum;
  for (int rank = 0; rank < ranks.count(); ++rank) {
    const uint32_t own_seed = seed + static_cast<uint32_t>(rank);
    sum.x.push_back(stored(dtype, integers ? random_integers(count, own_seed) : random_values(count, own_seed)));
    ranks.use(rank);
    sum.in.emplace_back(sum.x.back().bytes);
    sum.out.emplace_back(static_cast<int64_t>(sum.x.back().bytes.size()));
  }
  return sum;
}

struct SumHow {
  cuda::Shots shots = cuda::Shots::kOne;
  bool in_place = false;
  bool programmatic = false;
};

inline void enqueue(const Ranks& ranks, const SumCase& sum, int rank, const SumHow& how) {
  ranks.use(rank);
  check_cuda(cuda::all_reduce(ranks.rank(rank), how.shots,
                              {.dtype = sum.x[rank].dtype,
                               .count = sum.count(),
                               .x = sum.in[rank].data(),
                               .out = how.in_place ? sum.in[rank].data() : sum.out[rank].data(),
                               .programmatic = how.programmatic},
                              ranks.stream(rank)),
             "all_reduce");
}

/// Integers: equality is the test.
inline void check_exact_sums(const Ranks& ranks, const SumCase& sum, bool in_place = false) {
  std::vector<float> sums(sum.x[0].values.size());
  for (const Stored& x : sum.x) {
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += x.values[i];
  }
  for (int rank = 0; rank < ranks.count(); ++rank) {
    INFO("rank " << rank);
    ranks.use(rank);
    const DeviceArray<std::byte>& out = in_place ? sum.in[rank] : sum.out[rank];
    CHECK(meaning(sum.x[0].dtype, out.download()) == sums);
  }
}

}  // namespace shardscope::test
