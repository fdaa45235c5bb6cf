// What products with 1 to 8 vectors load and store, counted by the checked emulation. In the plain mode nothing is
// counted.
#include <catch2/catch.hpp>

#include "tests/kernels/cuda/counting.hpp"
#include "tests/kernels/cuda/matrix_on_device.hpp"

using namespace shardscope;
using namespace shardscope::test;
using emulation::KernelCounters;
using kernels::DType;

namespace {

struct ProductCase {
  DType weight_dtype = DType::kBF16;
  int64_t batch = 1;
  int64_t columns = 4096;
  bool gated = false;
  bool normed = false;  // of a sum
};
struct ProductCounts {
  KernelCounters counters;
  double weights_loaded = 0;  // in parts of what there are
};
ProductCounts product_counters(const ProductCase& c) {
  ProductCounts result;
  result.counters = counters_of("mat_vec_kernel", [&] {
    constexpr int64_t kRows = 24;
    const StoredMatrix matrix = random_matrix(c.weight_dtype, kRows, c.columns, 1);
    const MatrixOnDevice weights(matrix);
    const DeviceArray<float> x(random_values(c.batch * c.columns, 2));
    const DeviceArray<float> addend(random_values(c.batch * c.columns, 3));
    const DeviceArray<float> norm_weight(random_values(c.columns, 4));
    const DeviceArray<float> sum(c.batch * c.columns);
    const DeviceArray<float> y(c.batch * kRows);
    emulation::label(weights.values(), "weights");
    if (weights.scales() != nullptr) emulation::label(weights.scales(), "weights");
    emulation::label(sum.data(), "sum");
    emulation::label(norm_weight.data(), "norm weight");
    cuda::MatVec arguments = weights.arguments();
    arguments.gated = c.gated;
    arguments.batch = c.batch;
    arguments.x = x.data();
    arguments.x_stride = c.columns;
    if (c.normed) {
      arguments.norm = {.weight = norm_weight.data(),
                        .addend = addend.data(),
                        .addend_stride = c.columns,
                        .sum = sum.data(),
                        .sum_stride = c.columns};
    }
    arguments.y = y.data();
    arguments.y_stride = kRows;
    check_cuda(cuda::mat_vec(arguments, nullptr), "mat_vec");
    check_cuda(cudaDeviceSynchronize(), "mat_vec");
    result.weights_loaded = static_cast<double>(weights.bytes());
  });
  result.weights_loaded = static_cast<double>(loaded(result.counters, "weights")) / result.weights_loaded;
  return result;
}

}  // namespace

TEST_CASE("cuda mat_vec: reads each weight once, in whole sectors and almost without bank conflicts") {
  if (!emulation::checked()) return;
  for (const DType weight_dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ4_0, DType::kQ4_1, DType::kQ8_0}) {
    for (const int64_t batch : {1, 2, 4, 8}) {
      INFO(kernels::facts(weight_dtype).name << " batch " << batch);
      const ProductCounts counts = product_counters({.weight_dtype = weight_dtype, .batch = batch});
      CHECK(counts.weights_loaded == 1.0);
      CHECK(per_ideal(counts.counters.global_loads) == 1.0);
      // Only the last sum, of a few words for each row, has conflicts.
      CHECK(per_ideal(counts.counters.shared_accesses) < 1.01);
    }
  }
}

TEST_CASE("cuda mat_vec: norm, gate and rows of scales that begin anywhere cost the weights nothing") {
  if (!emulation::checked()) return;
  for (const DType weight_dtype : {DType::kBF16, DType::kQ4_0, DType::kQ4_1, DType::kQ8_0}) {
    INFO(kernels::facts(weight_dtype).name);
    const ProductCounts fused =
        product_counters({.weight_dtype = weight_dtype, .batch = 2, .gated = true, .normed = true});
    CHECK(fused.weights_loaded == 1.0);
    CHECK(per_ideal(fused.counters.global_loads) == 1.0);
    CHECK(per_ideal(fused.counters.shared_accesses) < 1.01);
    CHECK(fused.counters.bytes.at("sum").stored_bytes == 2 * 4096 * 4);  // by one block
    CHECK(loaded(fused.counters, "sum") == 0);
    // By each block, once for all vectors. 8 warps share a row, or 4 where a warp takes 1024 columns at once.
    const int64_t blocks = weight_dtype == DType::kQ4_0 || weight_dtype == DType::kQ4_1 ? 3 : 6;
    CHECK(loaded(fused.counters, "norm weight") == blocks * 4096 * 4);

    // 125 blocks a row: a warp's scales, of 2 sectors, touch a third one.
    const ProductCounts odd = product_counters({.weight_dtype = weight_dtype, .columns = 4000});
    CHECK(odd.weights_loaded == 1.0);
    CHECK(per_ideal(odd.counters.global_loads) <= 1.06);
  }
}
