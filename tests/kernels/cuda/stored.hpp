// Values as a kernel gets and gives them: in some dtype, as bytes, beside what they mean.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/dtype.hpp"
#include "tests/kernels/reference.hpp"

namespace shardscope::test {

/// Values rounded to a plain dtype.
struct Stored {
  kernels::DType dtype = kernels::DType::kF32;
  std::vector<std::byte> bytes;
  std::vector<float> values;  // exactly what the bytes mean
};

/// What bytes of a plain dtype mean.
inline std::vector<float> meaning(kernels::DType dtype, std::span<const std::byte> bytes) {
  std::vector<float> values(bytes.size() / static_cast<size_t>(kernels::facts(dtype).block_bytes));
  kernels::dequantise_row(dtype, bytes, values);
  return values;
}

inline Stored stored(kernels::DType dtype, std::span<const float> values) {
  Stored result{
      dtype, std::vector<std::byte>(values.size() * static_cast<size_t>(kernels::facts(dtype).block_bytes)), {}};
  kernels::convert_row(values, dtype, result.bytes);
  result.values = meaning(dtype, result.bytes);
  return result;
}

/// Random values in [-1, 1).
inline Stored random_stored(kernels::DType dtype, int64_t count, uint32_t seed) {
  return stored(dtype, random_values(count, seed));
}

/// The most that rounding `value` once to `dtype` changes it: half of the last place, or of the smallest subnormal.
inline double rounding(kernels::DType dtype, double value) {
  const auto bound = [&](int mantissa_bits, int smallest_exponent) {
    return std::abs(value) * std::ldexp(1.0, -mantissa_bits - 1) + std::ldexp(1.0, smallest_exponent - 1);
  };
  switch (dtype) {
    case kernels::DType::kF32:
      return bound(23, -149);
    case kernels::DType::kF16:
      return bound(10, -24);
    case kernels::DType::kBF16:
      return bound(7, -133);
    case kernels::DType::kQ4_0:
    case kernels::DType::kQ4_1:
    case kernels::DType::kQ8_0:
      break;
  }
  return std::nan("");
}

/// Adds to each tolerance what the last rounding to `dtype` may change.
inline void add_rounding(kernels::DType dtype, Expected& expected) {
  for (size_t i = 0; i < expected.values.size(); ++i) {
    expected.tolerances[i] += rounding(dtype, std::abs(expected.values[i]) + expected.tolerances[i]);
  }
}

}  // namespace shardscope::test
