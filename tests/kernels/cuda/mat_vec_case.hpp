// One product on CUDA with all that may be fused to it, checked against doubles: what the tests of mat_vec share.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cuda/mat_vec.hpp"
#include "tests/kernels/cuda/device_array.hpp"
#include "tests/kernels/cuda/matrix_on_device.hpp"
#include "tests/kernels/cuda/stored.hpp"
#include "tests/support/approx.hpp"

namespace shardscope::test {

/// What mat_vec does to its input: nothing, the norm, or the norm of a sum.
enum class InputKind { kAsIs, kNormed, kNormedSum };

/// A product to check. Every array is random; the same fields give the same ones.
struct MatVecCase {
  kernels::DType weight_dtype = kernels::DType::kBF16;
  int64_t rows = 1;
  int64_t columns = 1;
  int64_t batch = 1;
  kernels::DType dtype = kernels::DType::kF32;
  kernels::DType y_dtype = kernels::DType::kF32;
  bool bias = false;
  bool gated = false;
  InputKind input = InputKind::kAsIs;
  float epsilon = 1e-5F;
  int64_t padding = 0;       // of x and y, in elements
  int64_t offset = 0;        // of x from an aligned place, in elements
  int64_t more_padding = 0;  // of the weights' rows, in pieces
};

/// Rows of activations on a device: `padding` zeros between them, `offset` elements before.
struct RowsOnDevice {
  RowsOnDevice(kernels::DType type, int64_t row_count, int64_t column_count, int64_t padding, int64_t offset_elements)
      : dtype(type),
        rows(row_count),
        columns(column_count),
        stride(column_count + padding),
        offset(offset_elements),
        memory(DeviceArray<std::byte>::zeros((offset + rows * stride) * kernels::facts(type).block_bytes)) {}
  void fill(const Stored& values) const {
    if (memory.size() == 0) return;
    const int64_t element = kernels::facts(dtype).block_bytes;
    std::vector<std::byte> all(static_cast<size_t>(memory.size()));
    for (int64_t row = 0; row < rows; ++row) {
      std::copy_n(values.bytes.begin() + row * columns * element, columns * element,
                  all.begin() + (offset + row * stride) * element);
    }
    check_cuda(cudaMemcpy(memory.data(), all.data(), all.size(), cudaMemcpyHostToDevice), "copy of rows");
    check_cuda(cudaStreamSynchronize(nullptr), "copy of rows");
  }
  std::byte* data() const { return memory.data() + offset * kernels::facts(dtype).block_bytes; }
  /// The rows; nobody may have written around them.
  std::vector<float> contents() const {
    const std::vector<float> all = meaning(dtype, memory.download());
    std::vector<float> result;
    for (int64_t i = 0; i < std::ssize(all); ++i) {
      if (i >= offset && (i - offset) % stride < columns) {
        result.push_back(all[static_cast<size_t>(i)]);
      } else {
        CHECK(all[static_cast<size_t>(i)] == 0.0F);
      }
    }
    return result;
  }

  kernels::DType dtype;
  int64_t rows;
  int64_t columns;
  int64_t stride;
  int64_t offset;
  DeviceArray<std::byte> memory;
};

/// s / sqrt(mean(s^2) + epsilon) * weight of each row, in double, rounded to what product() takes.
inline std::vector<float> normed(const std::vector<float>& s, const std::vector<float>& weight, float epsilon) {
  std::vector<float> result;
  for (size_t begin = 0; begin < s.size(); begin += weight.size()) {
    double squares = 0;
    for (size_t i = 0; i < weight.size(); ++i) squares += std::pow(static_cast<double>(s[begin + i]), 2);
    const double root = std::sqrt(squares / static_cast<double>(weight.size()) + static_cast<double>(epsilon));
    for (size_t i = 0; i < weight.size(); ++i) {
      result.push_back(static_cast<float>(static_cast<double>(s[begin + i]) / root * static_cast<double>(weight[i])));
    }
  }
  return result;
}

/// The sums of one half of the rows, gate or up.
inline Expected half_of(const Expected& all, int64_t rows, int64_t first) {
  Expected result;
  for (int64_t i = 0; i < std::ssize(all.values); ++i) {
    if (i % rows < first || i % rows >= first + rows / 2) continue;
    result.values.push_back(all.values[static_cast<size_t>(i)]);
    result.tolerances.push_back(all.tolerances[static_cast<size_t>(i)]);
  }
  return result;
}

/// x: what the product is of, normed if need be.
inline Expected mat_vec_reference(const MatVecCase& c, const StoredMatrix& matrix, const std::vector<float>& x,
                                  const std::vector<float>& bias) {
  Expected expected = mat_vec_sums(matrix, x, bias);
  if (c.input != InputKind::kAsIs) {
    // The sum of squares and its root, relative: another columns + 12 roundings; the tolerance is of columns + 4 or
    // more of them.
    for (double& tolerance : expected.tolerances) tolerance *= 1 + (c.columns + 12.0) / (c.columns + 4.0);
  }
  if (c.gated) expected = gated(half_of(expected, c.rows, 0), half_of(expected, c.rows, c.rows / 2));
  add_rounding(c.y_dtype, expected);
  return expected;
}

inline void check_product(const MatVecCase& c) {
  INFO(kernels::facts(c.weight_dtype).name << " " << c.rows << " x " << c.columns << " batch " << c.batch << " "
                                           << kernels::facts(c.dtype).name << " to " << kernels::facts(c.y_dtype).name
                                           << " input " << static_cast<int>(c.input) << " gated " << c.gated);
  const StoredMatrix matrix = random_matrix(c.weight_dtype, c.rows, c.columns, 1);
  const Stored x = random_stored(c.dtype, c.batch * c.columns, 2);
  const std::vector<float> bias = c.bias ? random_values(c.rows, 3) : std::vector<float>();
  const Stored addend = random_stored(c.dtype, c.batch * c.columns, 4);
  const std::vector<float> norm_weight = random_values(c.columns, 5);
  std::vector<float> s = x.values;
  if (c.input == InputKind::kNormedSum) {
    for (size_t i = 0; i < s.size(); ++i) s[i] += addend.values[i];
    s = stored(c.dtype, s).values;
  }
  const Expected expected =
      mat_vec_reference(c, matrix, c.input == InputKind::kAsIs ? s : normed(s, norm_weight, c.epsilon), bias);

  const MatrixOnDevice weights(matrix, c.more_padding);
  const RowsOnDevice device_x(c.dtype, c.batch, c.columns, c.padding, c.offset);
  const RowsOnDevice device_addend(c.dtype, c.batch, c.columns, 2 * c.padding, c.offset);
  const RowsOnDevice device_sum(c.dtype, c.batch, c.columns, 3 * c.padding, c.offset);
  const RowsOnDevice device_y(c.y_dtype, c.batch, c.gated ? c.rows / 2 : c.rows, c.padding, 0);
  device_x.fill(x);
  device_addend.fill(addend);
  const DeviceArray<float> device_bias(bias);
  DeviceArray<float> device_norm_weight(c.columns + 1);  // not null without columns either
  device_norm_weight.upload(norm_weight);
  cuda::MatVec arguments = weights.arguments();
  arguments.gated = c.gated;
  arguments.batch = c.batch;
  arguments.dtype = c.dtype;
  arguments.x = device_x.data();
  arguments.x_stride = device_x.stride;
  if (c.input != InputKind::kAsIs) arguments.norm = {.weight = device_norm_weight.data(), .epsilon = c.epsilon};
  if (c.input == InputKind::kNormedSum) {
    arguments.norm.addend = device_addend.data();
    arguments.norm.addend_stride = device_addend.stride;
    arguments.norm.sum = device_sum.data();
    arguments.norm.sum_stride = device_sum.stride;
  }
  arguments.bias = device_bias.data();
  arguments.y_dtype = c.y_dtype;
  arguments.y = device_y.data();
  arguments.y_stride = device_y.stride;
  check_cuda(cuda::mat_vec(arguments, nullptr), "mat_vec");

  CHECK(first_difference(device_y.contents(), expected.values, expected.tolerances) == "");
  const std::vector<float> sum = device_sum.contents();
  CHECK(sum == (c.input == InputKind::kNormedSum ? s : std::vector<float>(s.size())));
  CHECK(device_x.contents() == x.values);
}

}  // namespace shardscope::test
