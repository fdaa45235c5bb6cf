#include "tests/kernels/reference.hpp"

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

namespace shardscope::test {

using kernels::DType;

std::vector<float> random_values(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = static_cast<float>(random()) * 0x1p-31F - 1.0F;
  return values;
}

StoredMatrix identity_matrix(int64_t size) {
  StoredMatrix matrix{DType::kF32, size, size, {}, std::vector<double>(static_cast<size_t>(size * size), 0.0)};
  for (int64_t i = 0; i < size; ++i) matrix.values[static_cast<size_t>(i * size + i)] = 1;
  const std::vector<float> values(matrix.values.begin(), matrix.values.end());
  matrix.bytes.resize(values.size() * sizeof(float));
  kernels::convert_row(values, DType::kF32, matrix.bytes);
  return matrix;
}

void run(kernels::Backend& backend, const kernels::Step& step, const std::function<void()>& enqueue) {
  const auto recordings = backend.make_recordings(std::ssize(step.token_ids));
  backend.run_step(step, *recordings, enqueue);
}

StoredMatrix random_matrix(DType dtype, int64_t rows, int64_t columns, uint32_t seed) {
  StoredMatrix matrix{dtype, rows, columns, {}, {}};
  const kernels::DTypeFacts& type = kernels::facts(dtype);
  const auto row_bytes = static_cast<size_t>(kernels::row_bytes(dtype, columns));
  matrix.bytes.resize(static_cast<size_t>(rows) * row_bytes);
  const auto magnitude = static_cast<float>(1.0 / std::sqrt(std::max<double>(1.0, static_cast<double>(columns))));
  if (!type.block_quantised) {
    std::vector<float> values = random_values(rows * columns, seed);
    for (float& value : values) value *= magnitude;
    kernels::convert_row(values, dtype, matrix.bytes);
  } else {
    std::mt19937 random(seed);
    for (std::byte& byte : matrix.bytes) byte = static_cast<std::byte>(random() & 255U);
    const float step = magnitude / (dtype == DType::kQ8_0 ? 128.0F : 8.0F);
    for (size_t at = 0; at < matrix.bytes.size(); at += static_cast<size_t>(type.block_bytes)) {
      const uint16_t d = kernels::f32_to_f16(step * (0.5F + static_cast<float>(random() & 255U) / 256.0F));
      std::memcpy(&matrix.bytes[at], &d, 2);
      const uint16_t m = kernels::f32_to_f16(-step * static_cast<float>(random() & 15U));
      if (dtype == DType::kQ4_1) std::memcpy(&matrix.bytes[at + 2], &m, 2);
    }
  }
  std::vector<float> row(static_cast<size_t>(columns));
  for (int64_t r = 0; r < rows; ++r) {
    kernels::dequantise_row(dtype, std::span(matrix.bytes).subspan(static_cast<size_t>(r) * row_bytes, row_bytes), row);
    matrix.values.insert(matrix.values.end(), row.begin(), row.end());
  }
  return matrix;
}

std::unique_ptr<kernels::Matrix> load(kernels::Backend& backend, std::span<const StoredMatrix> parts) {
  std::vector<kernels::MatrixPart> descriptions;
  for (const StoredMatrix& part : parts) descriptions.push_back(part.part());
  return backend.load_matrix(descriptions, [&](int64_t part, Range rows, std::span<std::byte> out) {
    const StoredMatrix& from = parts[static_cast<size_t>(part)];
    std::memcpy(out.data(), from.bytes.data() + rows.begin * kernels::row_bytes(from.dtype, from.columns), out.size());
  });
}

Expected product(const StoredMatrix& w, std::span<const float> x, std::span<const float> bias) {
  const int64_t tokens = w.columns == 0 ? 1 : std::ssize(x) / w.columns;
  Expected expected;
  for (int64_t token = 0; token < tokens; ++token) {
    for (int64_t row = 0; row < w.rows; ++row) {
      double sum = bias.empty() ? 0.0 : static_cast<double>(bias[row]);
      double magnitude = std::abs(sum);
      for (int64_t i = 0; i < w.columns; ++i) {
        const double term = w.values[row * w.columns + i] * static_cast<double>(x[token * w.columns + i]);
        sum += term;
        magnitude += std::abs(term);
      }
      expected.values.push_back(sum);
      expected.tolerances.push_back(kF32Epsilon * static_cast<double>(w.columns + 4) * magnitude + 1e-30);
    }
  }
  return expected;
}

std::vector<float> rounded_to_int8(std::span<const float> x) {
  std::vector<float> rounded(x.begin(), x.end());
  for (size_t begin = 0; begin < rounded.size(); begin += 32) {
    float largest = 0;
    for (size_t i = 0; i < 32; ++i) largest = std::max(largest, std::abs(x[begin + i]));
    for (size_t i = 0; i < 32; ++i) {
      if (largest == 0) continue;
      rounded[begin + i] = std::nearbyint(x[begin + i] * (127.0F / largest)) * (largest / 127.0F);
    }
  }
  return rounded;
}

std::vector<double> int8_bounds(const StoredMatrix& w, std::span<const float> x) {
  std::vector<double> bounds;
  for (int64_t token = 0; token < std::ssize(x) / w.columns; ++token) {
    for (int64_t row = 0; row < w.rows; ++row) {
      double bound = 0;
      for (int64_t begin = 0; begin < w.columns; begin += 32) {
        double largest = 0;
        double weights = 0;
        for (int64_t i = begin; i < begin + 32; ++i) {
          largest = std::max(largest, static_cast<double>(std::abs(x[token * w.columns + i])));
          weights += std::abs(w.values[row * w.columns + i]);
        }
        bound += weights * largest / 127.0 / 2.0;
      }
      bounds.push_back(bound * (1.0 + 1e-5));
    }
  }
  return bounds;
}

Expected gated(const Expected& gate, const Expected& up) {
  Expected expected;
  for (size_t i = 0; i < gate.values.size(); ++i) {
    const double sigmoid = 1.0 / (1.0 + std::exp(-gate.values[i]));
    const double silu = gate.values[i] * sigmoid;
    expected.values.push_back(silu * up.values[i]);
    // |silu'| <= 1.1; exp, quotient and product add some epsilons
    expected.tolerances.push_back(1.1 * gate.tolerances[i] * std::abs(up.values[i]) +
                                  std::abs(silu) * up.tolerances[i] + 16 * kF32Epsilon * std::abs(silu * up.values[i]) +
                                  1e-30);
  }
  return expected;
}

std::unique_ptr<kernels::ActivationBuffer> filled(kernels::Backend& backend, int64_t rows, int64_t columns,
                                                  std::span<const float> values) {
  auto buffer = backend.make_activations(rows, columns);
  std::copy(values.begin(), values.end(), buffer->view().floats());
  return buffer;
}

std::vector<float> contents(kernels::Activations view) {
  std::vector<float> values;
  for (int64_t row = 0; row < view.rows; ++row) {
    values.insert(values.end(), view.floats() + row * view.stride, view.floats() + row * view.stride + view.columns);
  }
  return values;
}

void for_each_target(const std::function<void(const std::string&)>& work) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    work(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(0);
  }
}

}  // namespace shardscope::test
