// Element types of weights and activations: names, block sizes, conversion. The byte layouts of the block formats are
// those of GGUF (ggml): Q4_0 {f16 d; 16 nibble bytes}, Q4_1 {f16 d, f16 m; 16 nibble bytes}, Q8_0 {f16 d; 32 int8};
// a nibble byte holds value j in its low and value j + 16 in its high half.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace shardscope::kernels {

enum class DType : uint8_t { kF32, kF16, kBF16, kQ4_0, kQ4_1, kQ8_0 };

struct DTypeFacts {
  std::string_view name;   // as users write and read it: fp32, fp16, bf16, q4_0, q4_1, q8_0
  int64_t block_elements;  // 1 for plain types, 32 for the block formats
  int64_t block_bytes;
  bool block_quantised;
};

const DTypeFacts& facts(DType dtype);

/// The dtype with that user-facing name, if there is one.
std::optional<DType> dtype_named(std::string_view name);

/// Stored bytes of one row of `columns` elements. Throws BugError unless `columns` is a multiple of the block.
int64_t row_bytes(DType dtype, int64_t columns);

/// Expands `columns` stored elements to fp32: the plain definition of each format.
/// source [row_bytes(dtype, columns)], out [columns]. Needs no alignment.
void dequantise_row(DType dtype, std::span<const std::byte> source, std::span<float> out);

/// Rounds fp32 to a plain type (round to nearest even). Returns how many finite inputs became infinite.
/// Throws BugError for a block format.
int64_t convert_row(std::span<const float> source, DType target, std::span<std::byte> out);

float f16_to_f32(uint16_t bits);
uint16_t f32_to_f16(float value);
float bf16_to_f32(uint16_t bits);
uint16_t f32_to_bf16(float value);

}  // namespace shardscope::kernels
