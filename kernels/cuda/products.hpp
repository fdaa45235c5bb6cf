// Which kernels multiply: matrix-vector kernels with the norm and the gate fused in for few rows and for quantised
// weights, cuBLASLt for many, on weights that are converted a slab at a time where their type is not that of the
// activations.
#pragma once

#include <cstdint>

#include "kernels/backend.hpp"
#include "kernels/cuda/cublas_check.hpp"
#include "kernels/cuda/device.hpp"
#include "kernels/cuda/matmul.hpp"
#include "kernels/cuda/resident.hpp"
#include "kernels/cuda/step_timer.hpp"

namespace shardscope::cuda {

/// A product's input: rows as they are (norm null), or their norm.
struct ProductInput {
  kernels::Activations x;  // [rows, columns]; with a norm: the residual
  const kernels::NormedInput* norm = nullptr;
};

class Products {
 public:
  Products(Device& device, StepTimer& timer, int64_t scratch_bytes);

  void multiply(const CudaMatrix& w, const ProductInput& input, const kernels::Vector* bias, kernels::Activations out);
  void gated_multiply(const CudaMatrix& gate_up, const ProductInput& input, const kernels::Vector* bias,
                      kernels::Activations out);

 private:
  /// One piece of a matrix, or some rows of it, and where its outputs go.
  struct Part {
    DeviceMatrix matrix;
    const float* bias = nullptr;  // of these rows
    kernels::Activations out;
    bool gated = false;
  };

  kernels::Activations normed(const ProductInput& input);
  void keep_sum(const ProductInput& input);
  void by_vectors(const Part& part, const ProductInput& input);
  void by_matrices(const Part& part, const kernels::Activations& x);
  bool few(const Part& part, const kernels::Activations& x) const;
  void plain_product(const DeviceMatrix& matrix, const kernels::Activations& x, const kernels::Activations& out);
  void gate(const kernels::Activations& gate_up, const kernels::Activations& out);

  Device& device_;
  StepTimer& timer_;
  int64_t half_bytes_;
  DeviceBuffer outputs_;  // of gate and up, before the gate
  DeviceBuffer weights_;  // converted ones
  DeviceBuffer workspace_;
  MatMul matmul_;
};

}  // namespace shardscope::cuda
