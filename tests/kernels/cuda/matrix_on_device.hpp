// A weight matrix on a device as the CUDA products read it, and its product in doubles.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/mat_vec.hpp"
#include "kernels/cuda/q4_planes.hpp"
#include "tests/kernels/cuda/device_array.hpp"
#include "tests/kernels/cuda/stored.hpp"

namespace shardscope::test {

class MatrixOnDevice {
 public:
  /// bf16 rows are padded with zeros to whole pieces of 16 bytes, and `more_padding` pieces beyond that nobody has
  /// written; Q4_0 blocks are split into planes.
  explicit MatrixOnDevice(const StoredMatrix& matrix, int64_t more_padding = 0)
      : dtype_(matrix.dtype),
        rows_(matrix.rows),
        columns_(matrix.columns),
        row_bytes_(row_bytes(matrix, more_padding)),
        weights_(matrix.rows * row_bytes_),
        scales_(0) {
    if (matrix.dtype == kernels::DType::kQ4_0) {
      std::vector<std::byte> nibbles(static_cast<size_t>(weights_.size()));
      std::vector<std::byte> scales(static_cast<size_t>(matrix.rows * cuda::q4_scale_row_bytes(matrix.columns)));
      cuda::split_q4_0(matrix.bytes, matrix.rows, matrix.columns, nibbles, scales);
      weights_.upload(nibbles);
      scales_ = DeviceArray<std::byte>(scales);
      return;
    }
    const int64_t used = kernels::row_bytes(matrix.dtype, matrix.columns);
    for (int64_t row = 0; row < matrix.rows; ++row) {
      std::vector<std::byte> bytes(static_cast<size_t>((used + 15) / 16 * 16));
      std::copy_n(matrix.bytes.begin() + row * used, used, bytes.begin());
      check_cuda(cudaMemcpy(weights_.data() + row * row_bytes_, bytes.data(), bytes.size(), cudaMemcpyHostToDevice),
                 "copy of a row");
    }
  }

  /// The arguments that say where the matrix is.
  cuda::MatVec arguments() const {
    return {.weight_dtype = dtype_,
            .rows = rows_,
            .columns = columns_,
            .weights = weights_.data(),
            .weight_row_bytes = row_bytes_,
            .scales = scales_.data()};
  }
  const std::byte* weights() const { return weights_.data(); }
  const std::byte* scales() const { return scales_.data(); }
  int64_t weight_bytes() const { return weights_.size(); }
  int64_t scale_bytes() const { return scales_.size(); }

 private:
  static int64_t row_bytes(const StoredMatrix& matrix, int64_t more_padding) {
    if (matrix.dtype == kernels::DType::kQ4_0) return cuda::q4_nibble_row_bytes(matrix.columns);
    return (kernels::row_bytes(matrix.dtype, matrix.columns) + 15) / 16 * 16 + 16 * more_padding;
  }

  kernels::DType dtype_;
  int64_t rows_;
  int64_t columns_;
  int64_t row_bytes_;
  DeviceArray<std::byte> weights_;
  DeviceArray<std::byte> scales_;
};

/// product() with the tolerances that mat_vec needs. For Q4_0 the kernel sums (1 + q / 16) x, at most 2 |x|, and x
/// alone, and takes 16 d times their difference: its roundings are those of terms of 16 d (2 + 1.5) |x|.
inline Expected mat_vec_product(const StoredMatrix& w, std::span<const float> x, std::span<const float> bias,
                                kernels::DType dtype) {
  Expected expected = product(w, x, bias);
  if (w.dtype == kernels::DType::kQ4_0) {
    for (size_t i = 0; i < expected.values.size(); ++i) {
      const int64_t row = static_cast<int64_t>(i) % w.rows;
      const int64_t token = static_cast<int64_t>(i) / w.rows;
      double magnitude = bias.empty() ? 0.0 : std::abs(static_cast<double>(bias[static_cast<size_t>(row)]));
      for (int64_t column = 0; column < w.columns; ++column) {
        const std::byte* block = &w.bytes[static_cast<size_t>((row * w.columns + column) / 32 * 18)];
        const auto bits = static_cast<uint16_t>(std::to_integer<int>(block[0]) + 256 * std::to_integer<int>(block[1]));
        const auto d = static_cast<double>(std::abs(kernels::f16_to_f32(bits)));
        magnitude += 16 * 3.5 * d * std::abs(static_cast<double>(x[static_cast<size_t>(token * w.columns + column)]));
      }
      expected.tolerances[i] = kF32Epsilon * static_cast<double>(w.columns + 8) * magnitude;
    }
  }
  add_rounding(dtype, expected);
  return expected;
}

}  // namespace shardscope::test
