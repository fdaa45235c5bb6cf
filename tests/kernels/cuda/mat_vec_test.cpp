// Products with 1 to 8 vectors on CUDA: formats, shapes, what is refused.
#include "tests/kernels/cuda/conditions.hpp"
#include "tests/kernels/cuda/mat_vec_case.hpp"

using namespace shardscope;
using namespace shardscope::test;
using kernels::DType;

TEST_CASE("cuda mat_vec: plain weights of every shape and batch") {
  const DType dtype = GENERATE(DType::kF32, DType::kF16, DType::kBF16);
  under_conditions([&] {
    for (const int64_t batch : {1, 2, 3, 8}) {
      check_product({.weight_dtype = dtype, .rows = 1, .columns = 1, .batch = batch});
      check_product({.weight_dtype = dtype, .rows = 3, .columns = 7, .batch = batch, .padding = 1});
      check_product({.weight_dtype = dtype, .rows = 5, .columns = 33, .batch = batch, .bias = true, .more_padding = 2});
      check_product({.weight_dtype = dtype, .rows = 33, .columns = 300, .batch = batch, .padding = 4});
    }
  });
}

TEST_CASE("cuda mat_vec: block formats of every shape and batch") {
  const DType dtype = GENERATE(DType::kQ4_0, DType::kQ4_1, DType::kQ8_0);
  under_conditions([&] {
    for (const int64_t batch : {1, 2, 3, 8}) {
      check_product({.weight_dtype = dtype, .rows = 1, .columns = 32, .batch = batch});
      check_product({.weight_dtype = dtype, .rows = 3, .columns = 96, .batch = batch, .padding = 1});
      check_product({.weight_dtype = dtype, .rows = 35, .columns = 1056, .batch = batch, .bias = true});
    }
  });
}

TEST_CASE("cuda mat_vec: activations of every dtype and alignment, and results of theirs or fp32") {
  under_conditions([] {
    for (const DType weight_dtype : {DType::kBF16, DType::kQ4_0}) {
      for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
        for (const int64_t offset : {0, 1}) {
          check_product({.weight_dtype = weight_dtype,
                         .rows = 9,
                         .columns = 352,
                         .batch = 2,
                         .dtype = dtype,
                         .y_dtype = offset == 0 ? dtype : DType::kF32,
                         .offset = offset});
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
    check_product({.weight_dtype = DType::kF32, .rows = 5, .columns = 8463, .batch = 1});
    check_product({.weight_dtype = DType::kQ4_0, .rows = 5, .columns = 8480, .batch = 1});
    check_product({.weight_dtype = DType::kQ4_0, .rows = 5, .columns = 8480, .batch = 2});
    check_product({.weight_dtype = DType::kQ4_1, .rows = 5, .columns = 4384, .batch = 4});
    check_product({.weight_dtype = DType::kQ8_0, .rows = 5, .columns = 4384, .batch = 6});
  });
}

// With one multiprocessor few rows suffice for each way to share them among the warps.
TEST_CASE("cuda mat_vec: one, two, four and eight warps to a row") {
  under_conditions({.multiprocessors = 1}, [] {
    for (const int64_t rows : {130, 64, 30, 14}) {
      check_product({.rows = rows, .columns = 2100, .batch = 1});
      check_product({.rows = rows, .columns = 1050, .batch = 7, .dtype = DType::kBF16});
      check_product({.weight_dtype = DType::kQ4_0, .rows = rows, .columns = 2112, .batch = 1});
      check_product({.weight_dtype = DType::kQ8_0, .rows = rows, .columns = 1056, .batch = 2, .gated = true});
    }
  });
}

TEST_CASE("cuda mat_vec: the length of a real model's rows") {
  under_conditions([] {
    check_product({.rows = 64, .columns = 4096, .batch = 1, .dtype = DType::kBF16, .y_dtype = DType::kBF16});
    check_product({.weight_dtype = DType::kQ4_0, .rows = 64, .columns = 4096, .batch = 1, .dtype = DType::kF16});
    check_product({.weight_dtype = DType::kQ8_0,
                   .rows = 64,
                   .columns = 4096,
                   .batch = 1,
                   .dtype = DType::kBF16,
                   .gated = true,
                   .input = InputKind::kNormedSum});
  });
}

TEST_CASE("cuda mat_vec: what it refuses") {
  under_conditions([] {
    const DeviceArray<std::byte> memory(1024);
    const auto* floats = reinterpret_cast<const float*>(memory.data());
    const cuda::MatVec good{.weights = {.rows = 2, .columns = 8, .values = memory.data(), .row_bytes = 16},
                            .x = memory.data(),
                            .x_stride = 8,
                            .y = memory.data() + 512,
                            .y_stride = 2};
    const auto refused = [&](auto&& change) {
      cuda::MatVec arguments = good;
      change(arguments);
      return cuda::mat_vec(arguments, nullptr) == cudaErrorInvalidValue;
    };
    const auto with_addend = [&](cuda::MatVec& a) {
      a.weights.rows = 0;
      a.norm = {
          .weight = floats, .addend = memory.data(), .addend_stride = 8, .sum = memory.data() + 256, .sum_stride = 8};
    };
    CHECK_FALSE(refused([](cuda::MatVec& a) { a.weights.rows = 0; }));  // nothing to do: the memory stays unread
    CHECK_FALSE(refused(with_addend));
    CHECK(refused([](cuda::MatVec& a) { a.weights.rows = -1; }));
    CHECK(refused([](cuda::MatVec& a) { a.weights.columns = -1; }));
    CHECK(refused([](cuda::MatVec& a) { a.weights.dtype = DType::kQ4_0; }));  // 8 columns are no block
    CHECK(refused([](cuda::MatVec& a) { a.weights.row_bytes = 24; }));
    CHECK(refused([](cuda::MatVec& a) { a.weights.row_bytes = 0; }));
    CHECK(refused([](cuda::MatVec& a) { a.weights.dtype = DType::kF32; }));  // whose rows are longer
    CHECK(refused([&](cuda::MatVec& a) { a.weights.values = memory.data() + 8; }));
    const auto of_blocks = [&](int64_t scales_at) {
      return [&memory, scales_at](cuda::MatVec& a) {
        a.weights = {.dtype = DType::kQ8_0, .rows = 0, .columns = 32, .values = memory.data()};
        a.weights.scales = memory.data() + 64 + scales_at;
        a.x_stride = 32;
      };
    };
    CHECK(refused(of_blocks(1)));
    CHECK_FALSE(refused(of_blocks(2)));  // rows of scales begin anywhere
    CHECK(refused([](cuda::MatVec& a) { a.weights.rows = 1, a.gated = true; }));
    CHECK(refused([](cuda::MatVec& a) { a.dtype = DType::kQ4_0; }));
    CHECK(refused([](cuda::MatVec& a) { a.y_dtype = DType::kF16; }));  // neither fp32 nor that of x
    CHECK(refused([](cuda::MatVec& a) { a.batch = 0; }));
    CHECK(refused([](cuda::MatVec& a) { a.batch = 9; }));
    CHECK(refused([](cuda::MatVec& a) { a.x_stride = 7; }));
    CHECK(refused([](cuda::MatVec& a) { a.y_stride = 1; }));
    const auto refused_norm = [&](auto&& change) {
      return refused([&](cuda::MatVec& a) {
        with_addend(a);
        change(a.norm);
      });
    };
    CHECK(refused_norm([](cuda::InputNorm& n) { n.weight = nullptr; }));
    CHECK(refused_norm([](cuda::InputNorm& n) { n.sum = nullptr; }));
    CHECK(refused_norm([](cuda::InputNorm& n) { n.addend = nullptr; }));
    CHECK(refused_norm([](cuda::InputNorm& n) { n.addend_stride = 7; }));
    CHECK(refused_norm([](cuda::InputNorm& n) { n.sum_stride = 7; }));
  });
}
