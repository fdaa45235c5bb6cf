// One product by cuBLASLt, or its stand-in, checked against doubles: what the tests of matmul share.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "kernels/cuda/matmul.hpp"
#include "tests/kernels/cuda/device_array.hpp"
#include "tests/kernels/cuda/matrix_on_device.hpp"
#include "tests/kernels/cuda/stored.hpp"
#include "tests/support/approx.hpp"

namespace shardscope::test {

inline constexpr int64_t kMatMulWorkspaceBytes = 1 << 20;

inline void wait_for(cudaEvent_t event) {
  for (;;) {
    const cudaError_t error = cudaEventQuery(event);
    if (error == cudaSuccess) return;
    if (error != cudaErrorNotReady) throw std::runtime_error(cudaGetErrorString(error));
    std::this_thread::yield();
  }
}

inline void check_good(const cuda::MatMulResult& result) {
  if (result.good()) return;
  throw std::runtime_error(std::string(result.operation) + ": " + cublasLtGetStatusName(result.status) + ", " +
                           cudaGetErrorName(result.error));
}

/// With its workspace, on the current device.
struct MatMulMachine {
  explicit MatMulMachine(int64_t workspace_bytes = kMatMulWorkspaceBytes)
      : workspace(workspace_bytes), matmul({workspace.data(), workspace_bytes}, wait_for, {}) {}

  DeviceArray<std::byte> workspace;
  cuda::MatMul matmul;
};

struct MatMulCase {
  kernels::DType dtype = kernels::DType::kF16;
  kernels::DType out_dtype = kernels::DType::kF32;
  int64_t rows = 1;
  int64_t n = 1;
  int64_t k = 1;
  int64_t padding = 0;  // of all rows, in pieces of 16 bytes
};

inline constexpr float kBetweenRows = 7.0F;

/// Matrices of a product on the device, and what it should be.
class MatMulProduct {
 public:
  explicit MatMulProduct(const MatMulCase& c, uint32_t seed = 1)
      : case_(c),
        matrix_(random_matrix(c.dtype, c.n, c.k, seed)),
        weights_(matrix_, c.padding),
        x_stride_(stride_of(c.dtype, c.k)),
        out_stride_(stride_of(c.out_dtype, c.n)),
        x_(0),
        out_(stored(c.out_dtype, std::vector<float>(static_cast<size_t>(c.rows * out_stride_), kBetweenRows)).bytes) {
    const Stored x = random_stored(c.dtype, c.rows * c.k, seed + 1);
    std::vector<float> spread(static_cast<size_t>(c.rows * x_stride_), kBetweenRows);
    for (int64_t row = 0; row < c.rows; ++row) {
      std::copy_n(x.values.begin() + row * c.k, c.k, spread.begin() + row * x_stride_);
    }
    x_ = DeviceArray<std::byte>(stored(c.dtype, spread).bytes);
    expected_ = product(matrix_, x.values, {});
    if (c.k == 0) {  // from which product() cannot tell the rows
      expected_.values.assign(static_cast<size_t>(c.rows * c.n), 0.0);
      expected_.tolerances = expected_.values;
    }
    add_rounding(c.out_dtype, expected_);
  }

  cuda::MatMulArguments arguments() const {
    return {.weights = weights_.view(),
            .rows = case_.rows,
            .x = x_.data(),
            .x_stride = x_stride_,
            .out_dtype = case_.out_dtype,
            .out = out_.data(),
            .out_stride = out_stride_};
  }
  /// The first element that differs, or that was written between rows.
  std::string difference() const {
    std::vector<double> values;
    std::vector<double> tolerances;
    for (int64_t row = 0; row < case_.rows; ++row) {
      for (int64_t i = 0; i < out_stride_; ++i) {
        const auto at = static_cast<size_t>(row * case_.n + i);
        values.push_back(i < case_.n ? expected_.values[at] : static_cast<double>(kBetweenRows));
        tolerances.push_back(i < case_.n ? expected_.tolerances[at] : 0.0);
      }
    }
    return first_difference(meaning(case_.out_dtype, out_.download()), values, tolerances);
  }

 private:
  int64_t stride_of(kernels::DType dtype, int64_t columns) const {
    const int64_t element = kernels::facts(dtype).block_bytes;
    return ((columns * element + 15) / 16 + case_.padding) * 16 / element;
  }

  MatMulCase case_;
  StoredMatrix matrix_;
  MatrixOnDevice weights_;
  int64_t x_stride_;
  int64_t out_stride_;
  DeviceArray<std::byte> x_;
  DeviceArray<std::byte> out_;
  Expected expected_;
};

inline void check_matmul(MatMulMachine& machine, const MatMulCase& c) {
  INFO(kernels::facts(c.dtype).name << " to " << kernels::facts(c.out_dtype).name << ", " << c.rows << " x " << c.k
                                    << " * " << c.n << ", padding " << c.padding);
  const MatMulProduct product(c);
  check_good(machine.matmul.run(product.arguments(), nullptr));
  CHECK(product.difference() == "");
  check_good(machine.matmul.run(product.arguments(), nullptr));  // by what was chosen
  CHECK(product.difference() == "");
}

}  // namespace shardscope::test
