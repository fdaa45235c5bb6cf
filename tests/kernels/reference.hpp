// Plain references for the operations of a backend, in double and in the textbook order, and what the tests share:
// random tensors, and the loop over instruction sets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/backend.hpp"

namespace shardscope::test {

/// `count` values in [-1, 1), the same for the same seed.
std::vector<float> random_values(int64_t count, uint32_t seed);

/// A stored tensor and what it means.
struct StoredMatrix {
  kernels::DType dtype = kernels::DType::kF32;
  int64_t rows = 0;
  int64_t columns = 0;
  std::vector<std::byte> bytes;
  std::vector<double> values;  // [rows][columns]

  kernels::MatrixPart part() const { return {"tensor", dtype, rows, columns}; }
};

/// [size][size] of fp32, with 1 on the diagonal: a product with it is exact.
StoredMatrix identity_matrix(int64_t size);

/// A step of its own, that nothing is recorded of.
void run(kernels::Backend& backend, const kernels::Step& step, const std::function<void()>& enqueue);

/// Weights of magnitude about 1 / sqrt(columns), with random bits in the block formats.
StoredMatrix random_matrix(kernels::DType dtype, int64_t rows, int64_t columns, uint32_t seed);

std::unique_ptr<kernels::Matrix> load(kernels::Backend& backend, std::span<const StoredMatrix> parts);

/// Sums with a bound of their fp32 rounding error.
struct Expected {
  std::vector<double> values;
  std::vector<double> tolerances;
};

/// x [tokens][columns] * w^T + bias (may be empty). Tolerances: fp32 epsilon x columns x sum |x w|.
Expected product(const StoredMatrix& w, std::span<const float> x, std::span<const float> bias);

/// What rounding x to int8 with a scale per 32 columns leaves.
std::vector<float> rounded_to_int8(std::span<const float> x);

/// For each output of a product, the most that rounding x to int8 can change it: sum |w| * half a step.
std::vector<double> int8_bounds(const StoredMatrix& w, std::span<const float> x);

/// silu(gate) * up, with the tolerances carried through.
Expected gated(const Expected& gate, const Expected& up);

/// An activation buffer filled with values.
std::unique_ptr<kernels::ActivationBuffer> filled(kernels::Backend& backend, int64_t rows, int64_t columns,
                                                  std::span<const float> values);
std::vector<float> contents(kernels::Activations view);

/// Calls work(name) once for every instruction set that this machine can run, with the dispatch set to it.
void for_each_target(const std::function<void(const std::string&)>& work);

inline constexpr double kF32Epsilon = 1.1920929e-07;

}  // namespace shardscope::test
