// Small operations on rows on CUDA, against doubles: gate, bias, picking rows, converting weights, reading.
#include "kernels/cuda/rows.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <cstring>

#include "tests/kernels/cuda/conditions.hpp"
#include "tests/kernels/cuda/matrix_on_device.hpp"
#include "tests/support/approx.hpp"

using namespace shardscope;
using namespace shardscope::test;
using kernels::DType;

namespace {

constexpr DType kAllTypes[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kQ4_0, DType::kQ4_1, DType::kQ8_0};
constexpr DType kPlainTypes[] = {DType::kF32, DType::kF16, DType::kBF16};
constexpr float kBetween = 7.0F;

struct Size {
  int64_t rows;
  int64_t columns;
  int64_t padding;  // between rows, in elements
};
// 1, odd, several threads, whole pieces with and without whole strides, several blocks to a row.
constexpr Size kSizes[] = {{1, 1, 0}, {3, 7, 0}, {2, 33, 5}, {3, 96, 8}, {3, 96, 3}, {2, 2304, 0}};

/// Rows on the device, with kBetween behind each.
class DeviceRows {
 public:
  DeviceRows(DType dtype, const Size& size, const std::vector<float>& values)
      : size_(size), dtype_(dtype), memory_(stored(dtype, spread(size, values)).bytes) {}

  cuda::Rows view() const {
    return {.dtype = dtype_,
            .data = memory_.data(),
            .rows = size_.rows,
            .columns = size_.columns,
            .stride = size_.columns + size_.padding};
  }
  /// The first that differs from the expected, or from kBetween where nobody may write.
  std::string difference(const Expected& expected) const {
    std::vector<double> values;
    std::vector<double> tolerances;
    for (int64_t row = 0; row < size_.rows; ++row) {
      const int64_t begin = row * size_.columns;
      values.insert(values.end(), expected.values.begin() + begin, expected.values.begin() + begin + size_.columns);
      tolerances.insert(tolerances.end(), expected.tolerances.begin() + begin,
                        expected.tolerances.begin() + begin + size_.columns);
      values.insert(values.end(), static_cast<size_t>(size_.padding), static_cast<double>(kBetween));
      tolerances.insert(tolerances.end(), static_cast<size_t>(size_.padding), 0.0);
    }
    return first_difference(meaning(dtype_, memory_.download()), values, tolerances);
  }

 private:
  static std::vector<float> spread(const Size& size, const std::vector<float>& values) {
    std::vector<float> result;
    for (int64_t row = 0; row < size.rows; ++row) {
      result.insert(result.end(), values.begin() + row * size.columns, values.begin() + (row + 1) * size.columns);
      result.insert(result.end(), static_cast<size_t>(size.padding), kBetween);
    }
    return result;
  }

  Size size_;
  DType dtype_;
  DeviceArray<std::byte> memory_;
};

void check_silu_gate(DType dtype, const Size& size) {
  INFO(kernels::facts(dtype).name << " " << size.rows << " x " << size.columns << " padding " << size.padding);
  const Size wide = {size.rows, 2 * size.columns, size.padding};
  std::vector<float> values = random_values(wide.rows * wide.columns, 1);
  for (float& value : values) value *= 30;  // where the gate is almost closed and almost open
  values.front() = -200;                    // its exponential is beyond fp32
  const Stored given = stored(dtype, values);
  Expected expected;
  for (int64_t row = 0; row < size.rows; ++row) {
    for (int64_t i = 0; i < size.columns; ++i) {
      const double gate = given.values[static_cast<size_t>(row * wide.columns + i)];
      const double up = given.values[static_cast<size_t>(row * wide.columns + size.columns + i)];
      expected.values.push_back(gate / (1 + std::exp(-gate)) * up);
      // One rounding each of sum, quotient and product, two units of the exponential; and what flushes to zero.
      expected.tolerances.push_back(6 * kF32Epsilon * std::abs(expected.values.back()) + 1e-36);
    }
  }
  add_rounding(dtype, expected);
  const DeviceRows gate_up(dtype, wide, given.values);
  const DeviceRows out(dtype, size, std::vector<float>(expected.values.size(), -1.0F));
  check_cuda(cuda::silu_gate(gate_up.view(), out.view(), nullptr), "silu_gate");
  CHECK(out.difference(expected) == "");
}

void check_add_bias(DType dtype, const Size& size) {
  INFO(kernels::facts(dtype).name << " " << size.rows << " x " << size.columns << " padding " << size.padding);
  const Stored given = random_stored(dtype, size.rows * size.columns, 1);
  const std::vector<float> bias = random_values(size.columns, 2);
  Expected expected;
  for (size_t i = 0; i < given.values.size(); ++i) {
    const double sum = static_cast<double>(given.values[i]) + static_cast<double>(bias[i % bias.size()]);
    expected.values.push_back(sum);
    expected.tolerances.push_back(dtype == DType::kF32 ? 0.0 : rounding(DType::kF32, sum));
  }
  add_rounding(dtype, expected);
  const DeviceRows x(dtype, size, given.values);
  const DeviceArray<float> device_bias(bias);
  check_cuda(cuda::add_bias(x.view(), device_bias.data(), nullptr), "add_bias");
  CHECK(x.difference(expected) == "");
}

void check_select_rows(DType dtype, const Size& size) {
  INFO(kernels::facts(dtype).name << " " << size.rows << " x " << size.columns << " padding " << size.padding);
  const std::vector<int32_t> rows = {3, 0, 3, 4, 1};
  const Size all = {5, size.columns, size.padding};
  const Size some = {static_cast<int64_t>(rows.size()), size.columns, size.padding};
  const Stored given = random_stored(dtype, all.rows * all.columns, 1);
  Expected expected;
  for (const int32_t row : rows) {
    for (int64_t i = 0; i < size.columns; ++i) {
      expected.values.push_back(given.values[static_cast<size_t>(row * size.columns + i)]);
    }
  }
  expected.tolerances.assign(expected.values.size(), 0.0);
  const DeviceRows x(dtype, all, given.values);
  const DeviceRows out(dtype, some, std::vector<float>(expected.values.size(), -1.0F));
  const DeviceArray<int32_t> device_rows(rows);
  check_cuda(cuda::select_rows(x.view(), device_rows.data(), out.view(), nullptr), "select_rows");
  CHECK(out.difference(expected) == "");
}

void check_dequantise(DType weights, DType dtype, const Size& size, int64_t first_row) {
  INFO(kernels::facts(weights).name << " to " << kernels::facts(dtype).name << " " << size.rows << " x " << size.columns
                                    << " padding " << size.padding);
  const StoredMatrix matrix = random_matrix(weights, first_row + size.rows + 1, size.columns, 1);
  const MatrixOnDevice device_matrix(matrix);
  // Codes and scales of up to 5 / sqrt(columns), see random_matrix: two roundings in fp32, then that of out.
  const double magnitude = weights == DType::kQ4_1 ? 5 / std::sqrt(static_cast<double>(size.columns)) : 0.0;
  Expected expected;
  for (int64_t i = 0; i < size.rows * size.columns; ++i) {
    expected.values.push_back(matrix.values[static_cast<size_t>(first_row * size.columns + i)]);
    expected.tolerances.push_back(2 * kF32Epsilon * magnitude);
  }
  if (dtype != DType::kF32 && dtype != weights) add_rounding(dtype, expected);
  const DeviceRows out(dtype, size, std::vector<float>(expected.values.size(), -1.0F));
  check_cuda(cuda::dequantise(device_matrix.view(), first_row, out.view(), nullptr), "dequantise");
  CHECK(out.difference(expected) == "");
}

/// `pieces` of 16 bytes a row; what lies between rows, nobody has written.
void check_read_bytes(int64_t rows, int64_t pieces, int64_t pieces_between) {
  INFO(rows << " rows of " << pieces << " pieces, " << pieces_between << " between");
  const int64_t row_words = 4 * pieces;
  const int64_t stride_words = 4 * (pieces + pieces_between);
  const DeviceArray<uint32_t> data((rows - 1) * stride_words + row_words);
  constexpr unsigned long long kBefore = 0x123456789ABCDEF0;
  unsigned long long expected = kBefore;
  for (int64_t row = 0; row < rows; ++row) {
    std::vector<uint32_t> words;
    for (const float value : random_values(row_words, static_cast<uint32_t>(row + 1))) {
      uint32_t bits = 0;
      std::memcpy(&bits, &value, sizeof bits);
      words.push_back(bits);
    }
    for (size_t i = 0; i < words.size(); ++i) expected ^= static_cast<unsigned long long>(words[i]) << (32 * (i % 2));
    check_cuda(cudaMemcpy(data.data() + row * stride_words, words.data(), words.size() * sizeof(uint32_t),
                          cudaMemcpyHostToDevice),
               "copy of a row");
  }
  const DeviceArray<unsigned long long> checksum(std::vector<unsigned long long>{kBefore});
  check_cuda(cuda::read_bytes(
                 {.data = data.data(), .rows = rows, .row_bytes = 4 * row_words, .stride_bytes = 4 * stride_words},
                 checksum.data(), nullptr),
             "read_bytes");
  CHECK(checksum.download().front() == expected);
}

}  // namespace

TEST_CASE("cuda silu_gate: every dtype, length and stride") {
  under_conditions({.seeds = 2}, [] {
    for (const DType dtype : kPlainTypes) {
      for (const Size& size : kSizes) check_silu_gate(dtype, size);
    }
  });
}

TEST_CASE("cuda add_bias: every dtype, length and stride") {
  under_conditions({.seeds = 2}, [] {
    for (const DType dtype : kPlainTypes) {
      for (const Size& size : kSizes) check_add_bias(dtype, size);
    }
  });
}

TEST_CASE("cuda select_rows: any rows in any order, every dtype, length and stride") {
  under_conditions({.seeds = 2}, [] {
    for (const DType dtype : kPlainTypes) {
      for (const Size& size : kSizes) check_select_rows(dtype, size);
    }
  });
}

TEST_CASE("cuda dequantise: some rows of every format into every dtype") {
  under_conditions({.seeds = 2}, [] {
    for (const DType weights : kAllTypes) {
      for (const DType dtype : kPlainTypes) {
        check_dequantise(weights, dtype, {1, 32, 0}, 0);
        check_dequantise(weights, dtype, {3, 96, 8}, 2);
        check_dequantise(weights, dtype, {2, 160, 3}, 1);
        check_dequantise(weights, dtype, {2, 2304, 0}, 1);
      }
    }
    for (const DType weights : kPlainTypes) check_dequantise(weights, DType::kF16, {3, 37, 3}, 1);
  });
}

TEST_CASE("cuda read_bytes: every byte once, whatever the number of blocks") {
  under_conditions({.multiprocessors = 1, .seeds = 2}, [] {
    for (const int64_t pieces : {1, 3, 255, 257, 2048, 2 * 2048 + 5, 9 * 2048 + 77}) check_read_bytes(1, pieces, 0);
  });
  under_conditions({.seeds = 1}, [] { check_read_bytes(1, 20001, 0); });
}

// Fewer and more rows than blocks, and rows that several blocks share.
TEST_CASE("cuda read_bytes: rows, and nothing between them") {
  under_conditions({.multiprocessors = 1, .seeds = 2}, [] {
    check_read_bytes(2, 7, 1);
    check_read_bytes(3, 1500, 2);
    check_read_bytes(21, 300, 5);
  });
  under_conditions({.seeds = 0}, [] { check_read_bytes(5, 4000, 3); });
}

TEST_CASE("cuda rows: what they refuse and what is nothing to do") {
  under_conditions({.seeds = 0}, [] {
    const DeviceArray<float> memory(64);
    const DeviceArray<int32_t> picked(std::vector<int32_t>{0});
    const auto rows = [&](int64_t count, int64_t columns, int64_t stride, DType dtype = DType::kF32) {
      return cuda::Rows{.dtype = dtype, .data = memory.data(), .rows = count, .columns = columns, .stride = stride};
    };
    const cuda::Rows good = rows(1, 4, 4);
    CHECK(cuda::silu_gate(rows(0, 8, 8), rows(0, 4, 4), nullptr) == cudaSuccess);
    CHECK(cuda::silu_gate(rows(1, 8, 8), rows(1, 4, 4, DType::kF16), nullptr) == cudaErrorInvalidValue);
    CHECK(cuda::silu_gate(rows(1, 7, 8), good, nullptr) == cudaErrorInvalidValue);
    CHECK(cuda::silu_gate(rows(2, 8, 8), good, nullptr) == cudaErrorInvalidValue);
    CHECK(cuda::add_bias(rows(0, 4, 4), memory.data(), nullptr) == cudaSuccess);
    CHECK(cuda::add_bias(rows(1, 4, 3), memory.data(), nullptr) == cudaErrorInvalidValue);
    CHECK(cuda::add_bias(rows(1, 4, 4, DType::kQ4_0), memory.data(), nullptr) == cudaErrorInvalidValue);
    CHECK(cuda::select_rows(good, picked.data(), rows(0, 4, 4), nullptr) == cudaSuccess);
    CHECK(cuda::select_rows(good, picked.data(), rows(1, 3, 4), nullptr) == cudaErrorInvalidValue);
    CHECK(cuda::select_rows(good, picked.data(), rows(1, 4, 4, DType::kBF16), nullptr) == cudaErrorInvalidValue);
    const cuda::DeviceMatrix matrix = {
        .dtype = DType::kF32, .rows = 2, .columns = 4, .values = memory.data(), .row_bytes = 16};
    CHECK(cuda::dequantise(matrix, 2, rows(0, 4, 4), nullptr) == cudaSuccess);
    CHECK(cuda::dequantise(matrix, 2, good, nullptr) == cudaErrorInvalidValue);
    CHECK(cuda::dequantise(matrix, -1, good, nullptr) == cudaErrorInvalidValue);
    CHECK(cuda::dequantise(matrix, 0, rows(1, 3, 4), nullptr) == cudaErrorInvalidValue);
    CHECK(cuda::read_bytes({.data = memory.data()}, nullptr, nullptr) == cudaSuccess);
    CHECK(cuda::read_bytes({.data = memory.data(), .row_bytes = 8, .stride_bytes = 16}, nullptr, nullptr) ==
          cudaErrorInvalidValue);
    CHECK(cuda::read_bytes({.data = memory.data() + 1, .row_bytes = 16, .stride_bytes = 16}, nullptr, nullptr) ==
          cudaErrorInvalidValue);
  });
}
