// Block-quantised weights as the CUDA kernels read them. GGUF's blocks of 18, 20 and 34 bytes allow no aligned access
// of more than 2 bytes; at load they are taken apart into two planes of the same total size:
//
//   codes   [rows][blocks of a row] 16 bytes of nibbles (Q4_0, Q4_1), or 32 int8 (Q8_0), as in the block
//   scales  [rows][blocks of a row] f16 d (Q4_0, Q8_0), or f16 d and f16 m (Q4_1), as in the block
//
// Neither plane has padding between rows; both begin at a multiple of 16 bytes. Plain C++: no CUDA here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/dtype.hpp"

namespace shardscope::cuda {

inline constexpr int64_t kBlockColumns = 32;  // of every block format here

/// How a block is divided; block_bytes of the format in all.
struct BlockPlanes {
  int64_t code_bytes = 0;
  int64_t scale_bytes = 0;
};

/// Of Q4_0, Q4_1, Q8_0. Throws BugError for a plain type.
BlockPlanes block_planes(kernels::DType dtype);

/// Takes `blocks` (whole blocks, back to back) apart.
/// codes   [blocks.size() / block_bytes * code_bytes]
/// scales  [blocks.size() / block_bytes * scale_bytes]
/// Throws BugError if a size disagrees. Needs no alignment.
void split_blocks(kernels::DType dtype, std::span<const std::byte> blocks, std::span<std::byte> codes,
                  std::span<std::byte> scales);

}  // namespace shardscope::cuda
