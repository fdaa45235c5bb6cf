// Q4_0 as the CUDA kernels read it. GGUF's blocks of 18 bytes ({f16 scale; 16 bytes of nibbles}) allow no aligned
// access of more than 2 bytes; at load they are taken apart into two planes of the same total size, but for the
// padding:
//
//   nibbles  [rows][columns / 32] 16 bytes  as in the block: byte j holds values j (low half) and j + 16 (high half)
//   scales   [rows][columns / 32] f16       each row padded with zeros to a multiple of 16 bytes
//
// value = (nibble - 8) * scale. Both planes begin at a multiple of 16 bytes. Plain C++: no CUDA here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace shardscope::cuda {

inline constexpr int64_t kQ4BlockColumns = 32;
inline constexpr int64_t kQ4NibbleBytes = 16;  // of a block
inline constexpr int64_t kQ4ScaleBytes = 2;

/// Bytes of one row of each plane. `columns` is a multiple of 32.
constexpr int64_t q4_nibble_row_bytes(int64_t columns) {
  return columns / kQ4BlockColumns * kQ4NibbleBytes;
}
constexpr int64_t q4_scale_row_bytes(int64_t columns) {
  return (columns / kQ4BlockColumns * kQ4ScaleBytes + 15) / 16 * 16;
}

/// Takes `rows` rows of Q4_0 blocks apart.
/// blocks   [rows * row_bytes(kQ4_0, columns)]
/// nibbles  [rows * q4_nibble_row_bytes(columns)]
/// scales   [rows * q4_scale_row_bytes(columns)]
/// Throws BugError if a size disagrees or `columns` is not whole blocks. Needs no alignment.
void split_q4_0(std::span<const std::byte> blocks, int64_t rows, int64_t columns, std::span<std::byte> nibbles,
                std::span<std::byte> scales);

}  // namespace shardscope::cuda
