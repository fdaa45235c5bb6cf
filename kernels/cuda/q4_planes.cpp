#include "kernels/cuda/q4_planes.hpp"

#include <cstring>

#include "kernels/base/error.hpp"
#include "kernels/dtype.hpp"

namespace shardscope::cuda {

void split_q4_0(std::span<const std::byte> blocks, int64_t rows, int64_t columns, std::span<std::byte> nibbles,
                std::span<std::byte> scales) {
  const int64_t block_row_bytes = kernels::row_bytes(kernels::DType::kQ4_0, columns);  // throws for half a block
  const int64_t nibble_row_bytes = q4_nibble_row_bytes(columns);
  const int64_t scale_row_bytes = q4_scale_row_bytes(columns);
  require(rows >= 0 && static_cast<int64_t>(blocks.size()) == rows * block_row_bytes &&
              static_cast<int64_t>(nibbles.size()) == rows * nibble_row_bytes &&
              static_cast<int64_t>(scales.size()) == rows * scale_row_bytes,
          "planes of other sizes than the blocks");
  const int64_t row_blocks = columns / kQ4BlockColumns;
  for (int64_t row = 0; row < rows; ++row) {
    const std::byte* from = blocks.data() + row * block_row_bytes;
    std::byte* nibble_row = nibbles.data() + row * nibble_row_bytes;
    std::byte* scale_row = scales.data() + row * scale_row_bytes;
    for (int64_t block = 0; block < row_blocks; ++block) {
      std::memcpy(scale_row + block * kQ4ScaleBytes, from, kQ4ScaleBytes);
      std::memcpy(nibble_row + block * kQ4NibbleBytes, from + kQ4ScaleBytes, kQ4NibbleBytes);
      from += kQ4ScaleBytes + kQ4NibbleBytes;
    }
    const int64_t used = row_blocks * kQ4ScaleBytes;
    if (used < scale_row_bytes) std::memset(scale_row + used, 0, static_cast<size_t>(scale_row_bytes - used));
  }
}

}  // namespace shardscope::cuda
