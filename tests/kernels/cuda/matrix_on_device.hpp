// A weight matrix on a device as the CUDA kernels read it, and its product in doubles.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/block_planes.hpp"
#include "kernels/cuda/device_matrix.hpp"
#include "kernels/cuda/mat_vec.hpp"
#include "tests/kernels/cuda/device_array.hpp"
#include "tests/kernels/cuda/stored.hpp"

namespace shardscope::test {

class MatrixOnDevice {
 public:
  /// Rows of plain types are padded with zeros to whole pieces of 16 bytes, and `more_padding` pieces beyond that
  /// nobody has written; blocks are split into planes.
  explicit MatrixOnDevice(const StoredMatrix& matrix, int64_t more_padding = 0)
      : matrix_{.dtype = matrix.dtype, .rows = matrix.rows, .columns = matrix.columns}, values_(0), scales_(0) {
    if (kernels::facts(matrix.dtype).block_quantised) {
      const cuda::BlockPlanes planes = cuda::block_planes(matrix.dtype);
      const int64_t blocks = matrix.rows * matrix.columns / cuda::kBlockColumns;
      std::vector<std::byte> codes(static_cast<size_t>(blocks * planes.code_bytes));
      std::vector<std::byte> scales(static_cast<size_t>(blocks * planes.scale_bytes));
      cuda::split_blocks(matrix.dtype, matrix.bytes, codes, scales);
      values_ = DeviceArray<std::byte>(codes);
      scales_ = DeviceArray<std::byte>(scales);
    } else {
      const int64_t used = kernels::row_bytes(matrix.dtype, matrix.columns);
      const int64_t padded = (used + 15) / 16 * 16;
      matrix_.row_bytes = padded + 16 * more_padding;
      values_ = DeviceArray<std::byte>(matrix.rows * matrix_.row_bytes);
      std::vector<std::byte> bytes(static_cast<size_t>(padded));
      for (int64_t row = 0; row < matrix.rows && used > 0; ++row) {
        std::copy_n(matrix.bytes.begin() + row * used, used, bytes.begin());
        check_cuda(
            cudaMemcpy(values_.data() + row * matrix_.row_bytes, bytes.data(), bytes.size(), cudaMemcpyHostToDevice),
            "copy of a row");
      }
      check_cuda(cudaStreamSynchronize(nullptr), "copy of the rows");
    }
    matrix_.values = values_.data();
    matrix_.scales = scales_.data();
  }

  const cuda::DeviceMatrix& view() const { return matrix_; }
  /// The arguments of a product that say where the matrix is.
  cuda::MatVec arguments() const {
    cuda::MatVec arguments;
    arguments.weights = matrix_;
    return arguments;
  }
  const std::byte* values() const { return values_.data(); }
  const std::byte* scales() const { return scales_.data(); }
  /// Of everything.
  int64_t bytes() const { return values_.size() + scales_.size(); }

 private:
  cuda::DeviceMatrix matrix_;
  DeviceArray<std::byte> values_;
  DeviceArray<std::byte> scales_;
};

/// product() with the tolerances that mat_vec's sums need. Of nibbles q the kernel sums (1 + q / 16) x, at most 2 |x|,
/// and x alone, and takes 16 d times their difference (Q4_0: to 1.5 x): its roundings are those of terms of
/// 16 d (2 + 1.5) |x|, and of |m x| where there is an m.
inline Expected mat_vec_sums(const StoredMatrix& w, std::span<const float> x, std::span<const float> bias) {
  Expected expected = product(w, x, bias);
  if (w.dtype != kernels::DType::kQ4_0 && w.dtype != kernels::DType::kQ4_1) return expected;
  const int64_t block_bytes = kernels::facts(w.dtype).block_bytes;
  const auto f16_at = [&](int64_t at) {
    const auto byte = [&](int64_t i) { return std::to_integer<int>(w.bytes[static_cast<size_t>(i)]); };
    return static_cast<double>(kernels::f16_to_f32(static_cast<uint16_t>(byte(at) + 256 * byte(at + 1))));
  };
  for (size_t i = 0; i < expected.values.size(); ++i) {
    const int64_t row = static_cast<int64_t>(i) % w.rows;
    const int64_t token = static_cast<int64_t>(i) / w.rows;
    double magnitude = bias.empty() ? 0.0 : std::abs(static_cast<double>(bias[static_cast<size_t>(row)]));
    for (int64_t column = 0; column < w.columns; ++column) {
      const int64_t block = (row * w.columns + column) / cuda::kBlockColumns * block_bytes;
      const double least = w.dtype == kernels::DType::kQ4_1 ? std::abs(f16_at(block + 2)) : 0.0;
      magnitude += (16 * 3.5 * std::abs(f16_at(block)) + least) *
                   std::abs(static_cast<double>(x[static_cast<size_t>(token * w.columns + column)]));
    }
    expected.tolerances[i] = kF32Epsilon * static_cast<double>(w.columns + 8) * magnitude;
  }
  return expected;
}

/// The same, rounded once to `dtype`.
inline Expected mat_vec_product(const StoredMatrix& w, std::span<const float> x, std::span<const float> bias,
                                kernels::DType dtype) {
  Expected expected = mat_vec_sums(w, x, bias);
  add_rounding(dtype, expected);
  return expected;
}

}  // namespace shardscope::test
