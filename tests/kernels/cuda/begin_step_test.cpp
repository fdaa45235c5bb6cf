// What opens a step on CUDA: embeddings against the stored weights' meaning, rotary angles against cosines in double.
#include "kernels/cuda/begin_step.hpp"

#include <catch2/catch.hpp>

#include <cmath>

#include "tests/kernels/cuda/conditions.hpp"
#include "tests/kernels/cuda/matrix_on_device.hpp"
#include "tests/support/approx.hpp"

using namespace shardscope;
using namespace shardscope::test;
using kernels::DType;

namespace {

constexpr DType kAllTypes[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kQ4_0, DType::kQ4_1, DType::kQ8_0};
constexpr DType kPlainTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

struct EmbedCase {
  DType table = DType::kBF16;
  DType dtype = DType::kF32;
  int64_t rows = 5;
  int64_t columns = 32;
  int64_t first_id = 100;
  std::vector<int32_t> ids;
  int64_t padding = 0;       // between rows of out, in elements
  int64_t more_padding = 0;  // of the table's rows, in pieces
};

void check_embed(const EmbedCase& c) {
  INFO(kernels::facts(c.table).name << " to " << kernels::facts(c.dtype).name << ", " << c.columns << " columns, "
                                    << c.ids.size() << " tokens, padding " << c.padding);
  const StoredMatrix table = random_matrix(c.table, c.rows, c.columns, 1);
  const MatrixOnDevice device_table(table, c.more_padding);
  const DeviceArray<int32_t> ids(c.ids);
  const auto tokens = static_cast<int64_t>(c.ids.size());
  const int64_t stride = c.columns + c.padding;
  constexpr float kBetween = 7.0F;
  const DeviceArray<std::byte> out(
      stored(c.dtype, std::vector<float>(static_cast<size_t>(tokens * stride), kBetween)).bytes);
  check_cuda(cuda::embed({.table = device_table.view(),
                          .first_id = c.first_id,
                          .tokens = tokens,
                          .ids = ids.data(),
                          .dtype = c.dtype,
                          .out = out.data(),
                          .out_stride = stride},
                         nullptr),
             "embed");

  // Codes and scales of up to 5 / sqrt(columns), see random_matrix: two roundings in fp32, then that of out.
  const double magnitude = c.table == DType::kQ4_1 ? 5 / std::sqrt(static_cast<double>(c.columns)) : 0.0;
  Expected expected;
  for (const int32_t id : c.ids) {
    const int64_t row = id - c.first_id;
    for (int64_t i = 0; i < stride; ++i) {
      const bool there = row >= 0 && row < c.rows && i < c.columns;
      expected.values.push_back(i >= c.columns ? static_cast<double>(kBetween)
                                : there        ? table.values[static_cast<size_t>(row * c.columns + i)]
                                               : 0.0);
      expected.tolerances.push_back(there ? 2 * kF32Epsilon * magnitude : 0.0);
    }
  }
  if (c.dtype != DType::kF32 && c.dtype != c.table) add_rounding(c.dtype, expected);
  CHECK(first_difference(meaning(c.dtype, out.download()), expected.values, expected.tolerances) == "");
}

struct AnglesCase {
  float scale = 1;
  std::vector<int32_t> positions;
  std::vector<float> inverse_frequencies;
};

/// Spacing of fp32 at `value`.
double unit_in_last_place(double value) {
  int exponent = 0;
  std::frexp(value, &exponent);
  return std::ldexp(1.0, std::max(exponent - 24, -149));
}

void check_angles(const AnglesCase& c) {
  const DeviceArray<int32_t> positions(c.positions);
  const DeviceArray<float> frequencies(c.inverse_frequencies);
  const auto tokens = static_cast<int64_t>(c.positions.size());
  const auto pairs = static_cast<int64_t>(c.inverse_frequencies.size());
  const DeviceArray<float> out(2 * tokens * pairs);
  check_cuda(cuda::rotary_angles({.tokens = tokens,
                                  .pairs = pairs,
                                  .positions = positions.data(),
                                  .inverse_frequencies = frequencies.data(),
                                  .scale = c.scale,
                                  .out = reinterpret_cast<float2*>(out.data())},
                                 nullptr),
             "rotary_angles");
  Expected expected;
  for (const int32_t position : c.positions) {
    for (const float frequency : c.inverse_frequencies) {
      const float angle = static_cast<float>(std::max(position, 0)) * frequency;
      for (const double exact : {std::cos(static_cast<double>(angle)), std::sin(static_cast<double>(angle))}) {
        const double value = static_cast<double>(c.scale) * exact;
        expected.values.push_back(value);
        // 2 units of the function itself, and the rounding of the product.
        expected.tolerances.push_back(2 * std::abs(static_cast<double>(c.scale)) * unit_in_last_place(exact) +
                                      rounding(DType::kF32, value));
      }
    }
  }
  CHECK(first_difference(out.download(), expected.values, expected.tolerances) == "");
}

std::vector<float> frequencies_of(int64_t pairs, double base) {
  std::vector<float> result;
  for (int64_t i = 0; i < pairs; ++i) {
    result.push_back(static_cast<float>(std::pow(base, -static_cast<double>(i) / static_cast<double>(pairs))));
  }
  return result;
}

}  // namespace

TEST_CASE("cuda embed: every format into every dtype, zeros where another rank holds the row") {
  under_conditions({.seeds = 2}, [] {
    const std::vector<int32_t> ids = {104, 100, 99, 102, 105, 102, -1};
    for (const DType table : kAllTypes) {
      for (const DType dtype : kPlainTypes) {
        check_embed({.table = table, .dtype = dtype, .columns = 32, .ids = {101}});
        check_embed({.table = table, .dtype = dtype, .columns = 96, .ids = ids, .padding = 8});
        check_embed({.table = table, .dtype = dtype, .columns = 96, .ids = ids, .padding = 3});
      }
    }
  });
}

TEST_CASE("cuda embed: columns that are no whole pieces") {
  under_conditions({.seeds = 2}, [] {
    for (const DType table : kPlainTypes) {
      for (const DType dtype : kPlainTypes) {
        for (const int64_t columns : {1, 7, 33}) {
          check_embed({.table = table, .dtype = dtype, .columns = columns, .ids = {103, 100}, .padding = 2});
          check_embed({.table = table,
                       .dtype = dtype,
                       .columns = columns,
                       .ids = {103, 100},
                       .padding = 64 - columns,
                       .more_padding = 1});
        }
      }
    }
  });
}

// Several blocks to a row.
TEST_CASE("cuda embed: rows as wide as a real model's") {
  under_conditions({.seeds = 1}, [] {
    check_embed({.table = DType::kBF16, .dtype = DType::kBF16, .columns = 4096, .ids = {103, 17, 100}});
    check_embed({.table = DType::kQ4_0, .dtype = DType::kF16, .columns = 5120, .ids = {101}});
    check_embed({.table = DType::kQ8_0, .dtype = DType::kF32, .columns = 4128, .ids = {104}});
  });
}

TEST_CASE("cuda embed: what it refuses and what is nothing to do") {
  under_conditions({.seeds = 0}, [] {
    const DeviceArray<std::byte> memory(64);
    const DeviceArray<int32_t> ids(std::vector<int32_t>{0});
    const cuda::Embed good = {
        .table = {.dtype = DType::kBF16, .rows = 1, .columns = 8, .values = memory.data(), .row_bytes = 16},
        .tokens = 0,
        .ids = ids.data(),
        .out = memory.data() + 16,
        .out_stride = 8};
    CHECK(cuda::embed(good, nullptr) == cudaSuccess);
    const auto refused = [&](auto change) {
      cuda::Embed bad = good;
      bad.tokens = 1;
      change(bad);
      return cuda::embed(bad, nullptr) == cudaErrorInvalidValue;
    };
    CHECK(refused([](cuda::Embed& it) { it.dtype = DType::kQ8_0; }));
    CHECK(refused([](cuda::Embed& it) { it.out_stride = 7; }));
    CHECK(refused([](cuda::Embed& it) { it.ids = nullptr; }));
    CHECK(refused([](cuda::Embed& it) { it.tokens = -1; }));
    CHECK(refused([](cuda::Embed& it) { it.table.row_bytes = 8; }));
    CHECK(refused([](cuda::Embed& it) { it.table.columns = 9; }));
    CHECK(refused([&](cuda::Embed& it) { it.table.values = memory.data() + 8; }));
    CHECK(refused([](cuda::Embed& it) {
      it.table.dtype = DType::kQ8_0;
      it.table.scales = it.table.values;
    }));
  });
}

// Each kernel overwrites what the one before wrote; the last one's results must stand.
TEST_CASE("cuda embed and rotary_angles: kernels that start early wait for those before") {
  under_conditions([] {
    constexpr int64_t kRows = 5;
    constexpr int64_t kColumns = 2500;
    constexpr int64_t kPairs = 300;
    const StoredMatrix table = random_matrix(DType::kF32, kRows, kColumns, 1);
    const MatrixOnDevice device_table(table);
    const DeviceArray<int32_t> ids(std::vector<int32_t>{0, 1, 2, 3, 4});
    const DeviceArray<float> embedded(kColumns);
    const DeviceArray<float> frequencies(std::vector<float>(kPairs, 0.25F));
    const DeviceArray<float> angles(2 * kPairs);
    for (int64_t i = 0; i < kRows; ++i) {
      check_cuda(cuda::embed({.table = device_table.view(),
                              .tokens = 1,
                              .ids = ids.data() + i,
                              .out = embedded.data(),
                              .out_stride = kColumns,
                              .programmatic = true},
                             nullptr),
                 "embed");
    }
    for (int64_t i = 0; i < kRows; ++i) {
      check_cuda(cuda::rotary_angles({.tokens = 1,
                                      .pairs = kPairs,
                                      .positions = ids.data() + i,
                                      .inverse_frequencies = frequencies.data(),
                                      .out = reinterpret_cast<float2*>(angles.data()),
                                      .programmatic = true},
                                     nullptr),
                 "rotary_angles");
    }
    const std::vector<double> last(table.values.end() - kColumns, table.values.end());
    CHECK(first_difference(embedded.download(), last, 0.0) == "");
    std::vector<double> last_angles;
    for (int64_t i = 0; i < kPairs; ++i) {
      last_angles.push_back(std::cos(1.0));
      last_angles.push_back(std::sin(1.0));
    }
    CHECK(first_difference(angles.download(), last_angles, 2 * kF32Epsilon) == "");
  });
}

TEST_CASE("cuda rotary_angles: cosines and sines of every position") {
  under_conditions({.seeds = 2}, [] {
    check_angles({.positions = {0}, .inverse_frequencies = {1.0F}});
    check_angles({.positions = {5, -1, 0, 131071}, .inverse_frequencies = {1.0F, 0.5F, 0.01F}});
    check_angles({.scale = 1.3F, .positions = {3, 77, 4095}, .inverse_frequencies = frequencies_of(64, 10000)});
    check_angles({.scale = 0.7F, .positions = {1000, 131071}, .inverse_frequencies = frequencies_of(48, 500000)});
  });
}

TEST_CASE("cuda rotary_angles: angles up to 2^22, near multiples of pi / 2, and tiny ones") {
  under_conditions({.seeds = 0}, [] {
    std::vector<int32_t> positions;
    for (int32_t i = 0; i < 1500; ++i) positions.push_back(i);
    for (int32_t i = 0; i < 1500; ++i) positions.push_back((1 << 21) - 7 * i);
    check_angles({.positions = positions, .inverse_frequencies = {2.0F, 1.5707964F, 0.6180340F, 1e-30F}});
  });
}
