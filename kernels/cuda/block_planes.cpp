#include "kernels/cuda/block_planes.hpp"

#include <cstring>

#include "kernels/base/error.hpp"

namespace shardscope::cuda {

BlockPlanes block_planes(kernels::DType dtype) {
  switch (dtype) {
    case kernels::DType::kQ4_0:
      return {.code_bytes = 16, .scale_bytes = 2};
    case kernels::DType::kQ4_1:
      return {.code_bytes = 16, .scale_bytes = 4};
    case kernels::DType::kQ8_0:
      return {.code_bytes = 32, .scale_bytes = 2};
    case kernels::DType::kF32:
    case kernels::DType::kF16:
    case kernels::DType::kBF16:
      break;
  }
  throw BugError("a plain type has no planes");
}

void split_blocks(kernels::DType dtype, std::span<const std::byte> blocks, std::span<std::byte> codes,
                  std::span<std::byte> scales) {
  const BlockPlanes planes = block_planes(dtype);
  const auto code_bytes = static_cast<size_t>(planes.code_bytes);
  const auto scale_bytes = static_cast<size_t>(planes.scale_bytes);
  const size_t count = blocks.size() / (code_bytes + scale_bytes);
  require(blocks.size() == count * (code_bytes + scale_bytes) && codes.size() == count * code_bytes &&
              scales.size() == count * scale_bytes,
          "planes of other sizes than the blocks");
  const std::byte* from = blocks.data();
  for (size_t block = 0; block < count; ++block) {
    std::memcpy(scales.data() + block * scale_bytes, from, scale_bytes);  // every format begins with them
    std::memcpy(codes.data() + block * code_bytes, from + scale_bytes, code_bytes);
    from += scale_bytes + code_bytes;
  }
}

}  // namespace shardscope::cuda
