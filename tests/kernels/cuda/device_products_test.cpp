// Which kernels the CUDA backend multiplies with, and its products where they are cut to fit.
#include "kernels/cuda/backend.hpp"
#include "tests/emulation/emulation.hpp"
#include "tests/kernels/cuda/conditions.hpp"
#include "tests/kernels/cuda/mat_vec_case.hpp"

using namespace shardscope;
using namespace shardscope::test;
using kernels::Activations;
using kernels::DType;

namespace {

Activations view_of(const RowsOnDevice& rows) {
  return {rows.data(), rows.rows, rows.columns, rows.stride, rows.dtype};
}

int64_t mat_vec_launches() {
  int64_t count = 0;
  for (const emulation::KernelCounters& counters : emulation::counters()) {
    if (counters.kernel.find("mat_vec_kernel") != std::string::npos) count += counters.launches;
  }
  return count;
}

struct DeviceProduct {
  DType weight_dtype = DType::kQ8_0;
  int64_t rows = 1;  // of each of gate and up, or of all
  int64_t columns = 32;
  int64_t tokens = 1;
  bool gated = false;
  int64_t scratch_bytes = 1 << 20;
};

/// Checks the product, of fp32, and returns how often the matrix-vector kernels were launched.
int64_t check_device_product(const DeviceProduct& c) {
  INFO(kernels::facts(c.weight_dtype).name << " " << c.rows << " x " << c.columns << ", " << c.tokens << " tokens");
  std::vector<StoredMatrix> parts{random_matrix(c.weight_dtype, c.rows, c.columns, 1)};
  if (c.gated) parts.push_back(random_matrix(c.weight_dtype, c.rows, c.columns, 2));
  const Stored x = random_stored(DType::kF32, c.tokens * c.columns, 3);
  Expected expected = mat_vec_sums(parts[0], x.values, {});
  if (c.gated) expected = gated(expected, mat_vec_sums(parts[1], x.values, {}));

  const auto backend = cuda::make_backend({.scratch_bytes = c.scratch_bytes, .upload_bytes = 1 << 16});
  const auto weights = load(*backend, parts);
  const RowsOnDevice device_x(DType::kF32, c.tokens, c.columns, 0, 0);
  const RowsOnDevice device_y(DType::kF32, c.tokens, c.rows, (4 - c.rows % 4) % 4, 0);  // rows at 16 bytes
  device_x.fill(x);
  const int64_t before = mat_vec_launches();
  if (c.gated) {
    backend->gated_multiply(*weights, view_of(device_x), nullptr, view_of(device_y));
  } else {
    backend->multiply(*weights, view_of(device_x), nullptr, view_of(device_y));
  }
  backend->synchronize();
  CHECK(first_difference(device_y.contents(), expected.values, expected.tolerances) == "");
  return mat_vec_launches() - before;
}

}  // namespace

TEST_CASE("cuda products: gate and up in slabs, where a row of scales is no multiple of 16 bytes") {
  under_conditions({.seeds = 1}, [] {
    // Room for 12 columns of both in fp32: 12 rows of scales, of 3 x 2 or 3 x 4 bytes, may end at 8 more than 16.
    const int64_t tokens = 70;
    for (const DType weight_dtype : {DType::kQ4_0, DType::kQ4_1, DType::kQ8_0}) {
      CHECK(check_device_product({.weight_dtype = weight_dtype,
                                  .rows = 20,
                                  .columns = 96,
                                  .tokens = tokens,
                                  .gated = true,
                                  .scratch_bytes = 2 * 2 * 12 * tokens * 4}) == 0);
    }
  });
}

TEST_CASE("cuda products: block formats go through the matrix-vector kernels up to 16 rows, four at a time") {
  under_conditions({.seeds = 1}, [] {
    for (const DType weight_dtype : {DType::kQ4_0, DType::kQ8_0}) {
      for (const int64_t tokens : {1, 4, 5, 8, 15, 16, 17}) {
        const int64_t launches = tokens > 16 ? 0 : (tokens + 3) / 4;
        DeviceProduct product{.weight_dtype = weight_dtype, .rows = 21, .columns = 160, .tokens = tokens};
        CHECK(check_device_product(product) == launches);
        product.rows = 12;
        product.gated = true;
        CHECK(check_device_product(product) == launches);
      }
    }
  });
}
