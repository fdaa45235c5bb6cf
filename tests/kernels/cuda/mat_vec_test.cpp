// Products with 1 to 8 vectors on CUDA, against doubles.
#include "kernels/cuda/mat_vec.hpp"

#include <catch2/catch.hpp>

#include "tests/kernels/cuda/conditions.hpp"
#include "tests/kernels/cuda/device_array.hpp"
#include "tests/kernels/cuda/matrix_on_device.hpp"
#include "tests/kernels/cuda/stored.hpp"
#include "tests/support/approx.hpp"

using namespace shardscope;
using namespace shardscope::test;
using kernels::DType;

namespace {

struct Case {
  DType weight_dtype = DType::kBF16;
  int64_t rows = 1;
  int64_t columns = 1;
  int64_t batch = 1;
  DType dtype = DType::kF32;
  bool bias = false;
  int64_t padding = 0;       // of x and y, in elements
  int64_t offset = 0;        // of x from an aligned place, in elements
  int64_t more_padding = 0;  // of the weights' rows, in pieces
};

void check_product(const Case& c) {
  INFO(kernels::facts(c.weight_dtype).name << " " << c.rows << " x " << c.columns << " batch " << c.batch << " "
                                           << kernels::facts(c.dtype).name);
  const StoredMatrix matrix = random_matrix(c.weight_dtype, c.rows, c.columns, 1);
  const Stored x = random_stored(c.dtype, c.batch * c.columns, 2);
  const std::vector<float> bias = c.bias ? random_values(c.rows, 3) : std::vector<float>();
  const Expected expected = mat_vec_product(matrix, x.values, bias, c.dtype);

  const MatrixOnDevice weights(matrix, c.more_padding);
  const int64_t element = kernels::facts(c.dtype).block_bytes;
  const int64_t x_stride = c.columns + c.padding;
  const int64_t y_stride = c.rows + c.padding;
  DeviceArray<std::byte> device_x((c.offset + c.batch * x_stride) * element);
  for (int64_t vector = 0; vector < c.batch; ++vector) {
    check_cuda(cudaMemcpy(device_x.data() + (c.offset + vector * x_stride) * element,
                          x.bytes.data() + vector * c.columns * element, static_cast<size_t>(c.columns * element),
                          cudaMemcpyHostToDevice),
               "copy of x");
  }
  const DeviceArray<float> device_bias(bias);
  const auto device_y = DeviceArray<std::byte>::zeros(c.batch * y_stride * element);
  cuda::MatVec arguments = weights.arguments();
  arguments.batch = c.batch;
  arguments.dtype = c.dtype;
  arguments.x = device_x.data() + c.offset * element;
  arguments.x_stride = x_stride;
  arguments.bias = device_bias.data();
  arguments.y = device_y.data();
  arguments.y_stride = y_stride;
  check_cuda(cuda::mat_vec(arguments, nullptr), "mat_vec");

  const std::vector<float> y = meaning(c.dtype, device_y.download());
  std::vector<float> actual;
  for (int64_t vector = 0; vector < c.batch; ++vector) {
    actual.insert(actual.end(), y.begin() + vector * y_stride, y.begin() + vector * y_stride + c.rows);
    for (int64_t i = c.rows; i < y_stride; ++i) CHECK(y[vector * y_stride + i] == 0.0F);  // nobody writes between
  }
  CHECK(first_difference(actual, expected.values, expected.tolerances) == "");
}

}  // namespace

TEST_CASE("cuda mat_vec: bf16 of every shape and batch") {
  under_conditions([] {
    for (const int64_t batch : {1, 2, 3, 8}) {
      check_product({.rows = 1, .columns = 1, .batch = batch});
      check_product({.rows = 3, .columns = 7, .batch = batch, .padding = 1});
      check_product({.rows = 5, .columns = 33, .batch = batch, .bias = true, .more_padding = 2});
      check_product({.rows = 33, .columns = 300, .batch = batch, .padding = 4});
    }
  });
}

TEST_CASE("cuda mat_vec: q4_0 of every shape and batch") {
  under_conditions([] {
    for (const int64_t batch : {1, 2, 3, 8}) {
      check_product({.weight_dtype = DType::kQ4_0, .rows = 1, .columns = 32, .batch = batch});
      check_product({.weight_dtype = DType::kQ4_0, .rows = 3, .columns = 96, .batch = batch, .padding = 1});
      check_product({.weight_dtype = DType::kQ4_0, .rows = 35, .columns = 1056, .batch = batch, .bias = true});
    }
  });
}

TEST_CASE("cuda mat_vec: activations of every dtype and alignment") {
  under_conditions([] {
    for (const DType weight_dtype : {DType::kBF16, DType::kQ4_0}) {
      for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
        for (const int64_t offset : {0, 1}) {
          check_product(
              {.weight_dtype = weight_dtype, .rows = 9, .columns = 352, .batch = 2, .dtype = dtype, .offset = offset});
        }
      }
    }
  });
}

TEST_CASE("cuda mat_vec: rows longer than what is staged of x at once") {
  under_conditions([] {
    check_product({.rows = 5, .columns = 8463, .batch = 1});
    check_product({.rows = 5, .columns = 8463, .batch = 2});
    check_product({.rows = 5, .columns = 4361, .batch = 4});
    check_product({.rows = 5, .columns = 4361, .batch = 5});
    check_product({.weight_dtype = DType::kQ4_0, .rows = 5, .columns = 8480, .batch = 1});
    check_product({.weight_dtype = DType::kQ4_0, .rows = 5, .columns = 8480, .batch = 2});
    check_product({.weight_dtype = DType::kQ4_0, .rows = 5, .columns = 4384, .batch = 4});
    check_product({.weight_dtype = DType::kQ4_0, .rows = 5, .columns = 4384, .batch = 6});
  });
}

// With one multiprocessor few rows suffice for each way to share them among the warps.
TEST_CASE("cuda mat_vec: one, two, four and eight warps to a row") {
  under_conditions({.multiprocessors = 1}, [] {
    for (const int64_t rows : {129, 64, 30, 13}) {
      check_product({.rows = rows, .columns = 2100, .batch = 1});
      check_product({.rows = rows, .columns = 1050, .batch = 7, .dtype = DType::kBF16});
      check_product({.weight_dtype = DType::kQ4_0, .rows = rows, .columns = 2112, .batch = 1});
    }
  });
}

TEST_CASE("cuda mat_vec: the length of a real model's rows") {
  under_conditions([] {
    check_product({.rows = 64, .columns = 4096, .batch = 1, .dtype = DType::kBF16});
    check_product({.weight_dtype = DType::kQ4_0, .rows = 64, .columns = 4096, .batch = 1, .dtype = DType::kF16});
  });
}

TEST_CASE("cuda mat_vec: what it refuses") {
  under_conditions([] {
    const DeviceArray<std::byte> memory(1024);
    const cuda::MatVec good{.rows = 2,
                            .columns = 8,
                            .weights = memory.data(),
                            .weight_row_bytes = 16,
                            .x = memory.data(),
                            .x_stride = 8,
                            .y = memory.data() + 512,
                            .y_stride = 2};
    const auto refused = [&](auto&& change) {
      cuda::MatVec arguments = good;
      change(arguments);
      return cuda::mat_vec(arguments, nullptr) == cudaErrorInvalidValue;
    };
    CHECK_FALSE(refused([](cuda::MatVec& a) { a.rows = 0; }));  // nothing to do: the memory stays unread
    CHECK(refused([](cuda::MatVec& a) { a.weight_dtype = DType::kQ8_0; }));
    CHECK(refused([](cuda::MatVec& a) { a.weight_dtype = DType::kQ4_0; }));  // 8 columns are no block
    CHECK(refused([](cuda::MatVec& a) { a.dtype = DType::kQ4_0; }));
    CHECK(refused([](cuda::MatVec& a) { a.batch = 0; }));
    CHECK(refused([](cuda::MatVec& a) { a.batch = 9; }));
    CHECK(refused([](cuda::MatVec& a) { a.columns = 0; }));
    CHECK(refused([](cuda::MatVec& a) { a.weight_row_bytes = 24; }));
    CHECK(refused([](cuda::MatVec& a) { a.weight_row_bytes = 0; }));
    CHECK(refused([&](cuda::MatVec& a) { a.weights = memory.data() + 8; }));
    CHECK(refused([](cuda::MatVec& a) { a.x_stride = 7; }));
    CHECK(refused([](cuda::MatVec& a) { a.y_stride = 1; }));
  });
}
