// What the kernels load and store, counted by the checked emulation: that weights, keys and values are read once, that
// warps touch no more sectors of global memory than their bytes take, and how many passes over the banks of shared
// memory they make. Also that every kernel was looked at at all. In the plain mode nothing is counted.
#include <catch2/catch.hpp>

#include "kernels/cuda/rms_norm.hpp"
#include "tests/kernels/cuda/counting.hpp"
#include "tests/kernels/cuda/stored.hpp"

using namespace shardscope;
using namespace shardscope::test;
using emulation::KernelCounters;
using kernels::DType;

namespace {

constexpr int64_t kNormRows = 3;
constexpr int64_t kNormColumns = 4096;

KernelCounters norm_counters(DType dtype, DType weight_dtype, bool add) {
  return counters_of("rms_norm_kernel", [&] {
    constexpr int64_t kRows = kNormRows;
    constexpr int64_t kColumns = kNormColumns;
    const DeviceArray<std::byte> x(random_stored(dtype, kRows * kColumns, 1).bytes);
    const DeviceArray<std::byte> addend(random_stored(dtype, kRows * kColumns, 2).bytes);
    const DeviceArray<std::byte> weight(random_stored(weight_dtype, kColumns, 3).bytes);
    emulation::label(x.data(), "x");
    check_cuda(cuda::rms_norm({.dtype = dtype,
                               .weight_dtype = weight_dtype,
                               .rows = kRows,
                               .columns = kColumns,
                               .x = x.data(),
                               .x_stride = kColumns,
                               .addend = add ? addend.data() : nullptr,
                               .addend_stride = kColumns,
                               .sum = x.data(),
                               .sum_stride = kColumns,
                               .weight = weight.data(),
                               .out = x.data(),
                               .out_stride = kColumns,
                               .epsilon = 1e-5F},
                              nullptr),
               "rms_norm");
    check_cuda(cudaDeviceSynchronize(), "rms_norm");
  });
}

}  // namespace

TEST_CASE("cuda rms_norm: reads a row once, in whole sectors and without bank conflicts") {
  if (!emulation::checked()) return;
  for (const auto& [dtype, weight_dtype] : {std::pair{DType::kF32, DType::kF32}, std::pair{DType::kF16, DType::kF16},
                                            std::pair{DType::kBF16, DType::kF32}}) {
    for (const bool add : {false, true}) {
      INFO(kernels::facts(dtype).name << ", weight " << kernels::facts(weight_dtype).name << ", add " << add);
      const KernelCounters counters = norm_counters(dtype, weight_dtype, add);
      CHECK(loaded(counters, "x") == kNormRows * kernels::row_bytes(dtype, kNormColumns));
      CHECK(counters.bytes.at("x").stored_bytes == (add ? 2 : 1) * loaded(counters, "x"));
      CHECK(per_ideal(counters.global_loads) == 1.0);
      CHECK(per_ideal(counters.global_stores) == 1.0);
      CHECK(per_ideal(counters.shared_accesses) == 1.0);
    }
  }
}

TEST_CASE("cuda kernels: the checker sees the accesses of every one") {
  if (!emulation::checked()) return;
  CHECK(norm_counters(DType::kF16, DType::kF32, false).accesses > 0);
}
