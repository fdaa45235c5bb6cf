// What is fused to products with 1 to 8 vectors on CUDA: the norm before them, the gate after them.
#include "tests/kernels/cuda/conditions.hpp"
#include "tests/kernels/cuda/mat_vec_case.hpp"

using namespace shardscope;
using namespace shardscope::test;
using kernels::DType;

TEST_CASE("cuda mat_vec: the norm of the input, with and without an addend") {
  const InputKind input = GENERATE(InputKind::kNormed, InputKind::kNormedSum);
  under_conditions([&] {
    for (const DType weight_dtype : {DType::kBF16, DType::kQ4_1, DType::kQ8_0}) {
      for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
        const int64_t offset = dtype == DType::kF16 ? 1 : 0;
        MatVecCase c{
            .weight_dtype = weight_dtype, .rows = 37, .columns = 96, .dtype = dtype, .input = input, .offset = offset};
        check_product(c);
        c.batch = 3;
        c.bias = true;
        c.padding = 4;
        c.y_dtype = dtype;
        check_product(c);
      }
    }
    // An epsilon that outweighs the squares; one column; columns that are no whole quads.
    check_product({.rows = 5, .columns = 8, .input = input, .epsilon = 3.0F});
    check_product({.weight_dtype = DType::kF32, .rows = 3, .columns = 1, .batch = 8, .input = input});
    check_product({.weight_dtype = DType::kF16,
                   .rows = 9,
                   .columns = 131,
                   .batch = 2,
                   .dtype = DType::kF16,
                   .y_dtype = DType::kF16,
                   .input = input,
                   .padding = 1});
    // Aligned fp16; more vectors than are staged together.
    check_product({.rows = 9, .columns = 132, .batch = 4, .dtype = DType::kF16, .input = input, .padding = 4});
    check_product({.rows = 9, .columns = 132, .batch = 7, .dtype = DType::kBF16, .input = input, .padding = 4});
    // Squares of several chunks, and several blocks that must agree.
    check_product({.rows = 9, .columns = 8463, .input = input});
    check_product(
        {.weight_dtype = DType::kQ4_0, .rows = 9, .columns = 4384, .batch = 5, .dtype = DType::kBF16, .input = input});
  });
}

TEST_CASE("cuda mat_vec: gate and up in one product") {
  under_conditions([] {
    for (const DType weight_dtype :
         {DType::kF32, DType::kF16, DType::kBF16, DType::kQ4_0, DType::kQ4_1, DType::kQ8_0}) {
      for (const int64_t batch : {1, 2, 4, 8}) {
        check_product({.weight_dtype = weight_dtype, .rows = 2, .columns = 32, .batch = batch, .gated = true});
        check_product({.weight_dtype = weight_dtype,
                       .rows = 74,
                       .columns = 96,
                       .batch = batch,
                       .bias = true,
                       .gated = true,
                       .padding = 1});
      }
    }
    check_product({.rows = 26,
                   .columns = 300,
                   .batch = 2,
                   .dtype = DType::kBF16,
                   .y_dtype = DType::kBF16,
                   .gated = true,
                   .input = InputKind::kNormedSum});
  });
}

TEST_CASE("cuda mat_vec: a gate far below zero closes, one far above lets pass") {
  under_conditions([] {
    const int64_t f = 5;
    const std::vector<float> gates{-1000.0F, -90.0F, 0.0F, 90.0F, 1000.0F};
    StoredMatrix matrix{DType::kF32, 2 * f, 1, {}, {}};
    std::vector<float> values = gates;
    values.resize(static_cast<size_t>(2 * f), 0.5F);
    matrix.bytes = stored(DType::kF32, values).bytes;
    const MatrixOnDevice weights(matrix);
    const DeviceArray<float> x(std::vector<float>{1.0F});
    const DeviceArray<float> y(f);
    cuda::MatVec arguments = weights.arguments();
    arguments.gated = true;
    arguments.x = x.data();
    arguments.x_stride = 1;
    arguments.y = y.data();
    arguments.y_stride = f;
    check_cuda(cuda::mat_vec(arguments, nullptr), "mat_vec");
    // 90 / (1 + e^-90) is 90 in fp32; -90 e^-90 is below the least normal number.
    CHECK(first_difference(y.download(), std::vector<double>{0, 0, 0, 45, 500}, 1e-37) == "");
  });
}

TEST_CASE("cuda mat_vec: without columns, the bias or nothing") {
  under_conditions([] {
    for (const DType weight_dtype : {DType::kBF16, DType::kQ8_0}) {
      for (const bool bias : {false, true}) {
        check_product(
            {.weight_dtype = weight_dtype, .rows = 35, .columns = 0, .bias = bias, .input = InputKind::kNormed});
        check_product({.weight_dtype = weight_dtype, .rows = 6, .columns = 0, .bias = bias, .gated = true});
      }
    }
  });
}
