// The plain definitions of the element types: what every fast kernel is tested against.
#include "kernels/dtype.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/base/error.hpp"

namespace shardscope::kernels {
namespace {

constexpr int64_t kBlock = 32;

constexpr std::array<DTypeFacts, 6> kFacts = {{
    {"fp32", 1, 4, false},
    {"fp16", 1, 2, false},
    {"bf16", 1, 2, false},
    {"q4_0", kBlock, 18, true},
    {"q4_1", kBlock, 20, true},
    {"q8_0", kBlock, 34, true},
}};

template <typename T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

/// value = (nibble + offset) * d + m for both 4-bit formats; `quants` are the 16 nibble bytes.
void expand_nibbles(const std::byte* quants, int offset, float d, float m, float* out) {
  for (int64_t j = 0; j < kBlock / 2; ++j) {
    const int pair = std::to_integer<int>(quants[j]);
    out[j] = static_cast<float>((pair & 15) + offset) * d + m;
    out[j + kBlock / 2] = static_cast<float>((pair >> 4) + offset) * d + m;
  }
}

void dequantise_block(DType dtype, const std::byte* block, float* out) {
  const float d = f16_to_f32(load<uint16_t>(block));
  switch (dtype) {
    case DType::kQ4_0:
      expand_nibbles(block + 2, -8, d, 0.0F, out);
      break;
    case DType::kQ4_1:
      expand_nibbles(block + 4, 0, d, f16_to_f32(load<uint16_t>(block + 2)), out);
      break;
    case DType::kQ8_0:
      for (int64_t j = 0; j < kBlock; ++j) out[j] = static_cast<float>(load<int8_t>(block + 2 + j)) * d;
      break;
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      break;
  }
}

}  // namespace

const DTypeFacts& facts(DType dtype) {
  const auto index = static_cast<size_t>(dtype);
  require(index < kFacts.size(), "unknown dtype");
  return kFacts[index];
}

std::optional<DType> dtype_named(std::string_view name) {
  for (size_t i = 0; i < kFacts.size(); ++i) {
    if (kFacts[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

int64_t row_bytes(DType dtype, int64_t columns) {
  const DTypeFacts& type = facts(dtype);
  if (columns < 0 || columns % type.block_elements != 0) {  // not require: the text would be built every time
    throw BugError("a row of " + std::to_string(columns) + " elements is not whole blocks of " +
                   std::string(type.name));
  }
  return columns / type.block_elements * type.block_bytes;
}

void dequantise_row(DType dtype, std::span<const std::byte> source, std::span<float> out) {
  const auto columns = static_cast<int64_t>(out.size());
  require(std::ssize(source) == row_bytes(dtype, columns), "dequantise_row: source and out disagree in size");
  const std::byte* from = source.data();
  switch (dtype) {
    case DType::kF32:
      if (columns > 0) std::memcpy(out.data(), from, source.size());
      break;
    case DType::kF16:
      for (int64_t i = 0; i < columns; ++i) out[i] = f16_to_f32(load<uint16_t>(from + 2 * i));
      break;
    case DType::kBF16:
      for (int64_t i = 0; i < columns; ++i) out[i] = bf16_to_f32(load<uint16_t>(from + 2 * i));
      break;
    case DType::kQ4_0:
    case DType::kQ4_1:
    case DType::kQ8_0: {
      const int64_t bytes = facts(dtype).block_bytes;
      for (int64_t b = 0; b < columns / kBlock; ++b) dequantise_block(dtype, from + b * bytes, &out[b * kBlock]);
      break;
    }
  }
}

int64_t convert_row(std::span<const float> source, DType target, std::span<std::byte> out) {
  require(!facts(target).block_quantised, "convert_row: the target is a block format");
  require(std::ssize(out) == row_bytes(target, std::ssize(source)), "convert_row: source and out disagree in size");
  if (target == DType::kF32) {
    if (!source.empty()) std::memcpy(out.data(), source.data(), out.size());
    return 0;
  }
  int64_t overflows = 0;
  for (size_t i = 0; i < source.size(); ++i) {
    const uint16_t bits = target == DType::kF16 ? f32_to_f16(source[i]) : f32_to_bf16(source[i]);
    const float back = target == DType::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
    if (std::isfinite(source[i]) && std::isinf(back)) ++overflows;
    std::memcpy(&out[2 * i], &bits, sizeof(bits));
  }
  return overflows;
}

float f16_to_f32(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000U) << 16;
  const uint32_t exponent = (bits >> 10) & 31U;
  const uint32_t mantissa = bits & 0x3ffU;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000U | (mantissa << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;  // subnormal: exact in fp32
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

uint16_t f32_to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000U);
  const uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) {  // NaN: keep the top of its payload, and quiet
    return static_cast<uint16_t>(sign | 0x7e00U | ((magnitude >> 13) & 0x1ffU));
  }
  if (magnitude >= 0x477ff000U) return static_cast<uint16_t>(sign | 0x7c00U);  // rounds to 65536 or more
  if (magnitude < 0x38800000U) {  // below 2^-14: a multiple of 2^-24; adding 0.5 leaves it in the low mantissa bits
    const float aligned = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(aligned) - std::bit_cast<uint32_t>(0.5F)));
  }
  const uint32_t odd = (magnitude >> 13) & 1U;
  return static_cast<uint16_t>(sign | ((magnitude + 0xfffU + odd - (112U << 23)) >> 13));
}

float bf16_to_f32(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

uint16_t f32_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<uint16_t>((bits >> 16) | 0x40U);  // NaN, quiet
  return static_cast<uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

}  // namespace shardscope::kernels
