#include "kernels/dtype.hpp"

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "kernels/base/error.hpp"
#include "tests/support/approx.hpp"

using namespace shardscope;
using namespace shardscope::kernels;

namespace {

/// The value of a 16-bit float from its definition: sign, exponent, mantissa.
double meaning(uint16_t bits, int exponent_bits) {
  const int mantissa_bits = 15 - exponent_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == (1 << exponent_bits) - 1) {
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

template <typename Widen, typename Narrow>
void check_16_bit_type(int exponent_bits, Widen widen, Narrow narrow) {
  int wrong = 0;
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const double expected = meaning(half, exponent_bits);
    const float value = widen(half);
    if (std::isnan(expected)) {
      if (!std::isnan(value) || !std::isnan(widen(narrow(value)))) ++wrong;
      continue;
    }
    if (static_cast<double>(value) != expected || std::signbit(value) != std::signbit(expected)) ++wrong;
    if (narrow(value) != half) ++wrong;
    if (std::isinf(expected) || std::isinf(widen(static_cast<uint16_t>(half + 1)))) continue;
    // The middle of two neighbours goes to the even one, and what is beside it to the nearer one.
    const double next = meaning(static_cast<uint16_t>(half + 1), exponent_bits);
    if (std::isnan(next) || std::signbit(next) != std::signbit(expected)) continue;
    const auto middle = static_cast<float>((expected + next) / 2);
    const auto even = static_cast<uint16_t>(half + (half & 1));
    if (narrow(middle) != even) ++wrong;
    if (narrow(std::nextafter(middle, value)) != half) ++wrong;
    if (narrow(std::nextafter(middle, static_cast<float>(next))) != half + 1) ++wrong;
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("dtype: f16 conversions are exact and round to nearest even for every bit pattern") {
  check_16_bit_type(5, f16_to_f32, f32_to_f16);
}

TEST_CASE("dtype: bf16 conversions are exact and round to nearest even for every bit pattern") {
  check_16_bit_type(8, bf16_to_f32, f32_to_bf16);
}

TEST_CASE("dtype: what is too large for a 16-bit type becomes infinite and is counted") {
  CHECK(f32_to_f16(65519.996F) == 0x7bff);
  CHECK(f32_to_f16(65520.0F) == 0x7c00);
  CHECK(f32_to_f16(-1e30F) == 0xfc00);
  CHECK(f32_to_bf16(std::numeric_limits<float>::max()) == 0x7f80);
  const std::vector<float> source = {1.0F, 70000.0F, std::numeric_limits<float>::infinity(), -70000.0F};
  std::vector<std::byte> out(8);
  CHECK(convert_row(source, DType::kF16, out) == 2);
  CHECK(convert_row(source, DType::kBF16, out) == 0);
  CHECK_THROWS_AS(convert_row(source, DType::kQ8_0, out), BugError);
}

TEST_CASE("dtype: names and sizes") {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ4_0, DType::kQ4_1, DType::kQ8_0}) {
    CHECK(dtype_named(facts(dtype).name) == dtype);
  }
  CHECK_FALSE(dtype_named("fp64").has_value());
  CHECK(row_bytes(DType::kF32, 7) == 28);
  CHECK(row_bytes(DType::kBF16, 7) == 14);
  CHECK(row_bytes(DType::kQ4_0, 64) == 36);
  CHECK(row_bytes(DType::kQ4_1, 64) == 40);
  CHECK(row_bytes(DType::kQ8_0, 64) == 68);
  CHECK(row_bytes(DType::kQ8_0, 0) == 0);
  CHECK_THROWS_AS(row_bytes(DType::kQ4_1, 33), BugError);
}

TEST_CASE("dequantise_row: agrees with recorded blocks of every block format") {
  const nlohmann::json cases = nlohmann::json::parse(std::ifstream(SHARDSCOPE_TEST_DATA "/quant-blocks.json"));
  const std::vector<std::pair<std::string, DType>> formats = {
      {"Q4_0", DType::kQ4_0}, {"Q4_1", DType::kQ4_1}, {"Q8_0", DType::kQ8_0}};
  for (const auto& [name, dtype] : formats) {
    REQUIRE(cases.contains(name));
    for (const auto& block : cases[name]["blocks"]) {
      const auto hex = block["hex"].get<std::string>();
      std::vector<std::byte> bytes;
      for (size_t i = 0; i < hex.size(); i += 2) {
        bytes.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
      }
      const auto expected = block["values"].get<std::vector<double>>();
      std::vector<double> tolerances;
      for (const double value : expected) tolerances.push_back(1e-6 * std::abs(value));  // recorded with 7 digits
      std::vector<float> out(expected.size());
      dequantise_row(dtype, bytes, out);
      CHECK(test::first_difference(out, expected, tolerances) == "");
    }
  }
}
