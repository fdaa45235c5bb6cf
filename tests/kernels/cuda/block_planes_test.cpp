// Block formats in planes, against the plain definition of each format.
#include "kernels/cuda/block_planes.hpp"

#include <catch2/catch.hpp>

#include "kernels/base/error.hpp"
#include "tests/kernels/reference.hpp"

using namespace shardscope;
using namespace shardscope::test;
using kernels::DType;

namespace {

float f16_at(const std::vector<std::byte>& bytes, size_t at) {
  return kernels::f16_to_f32(
      static_cast<uint16_t>(std::to_integer<int>(bytes[at]) + 256 * std::to_integer<int>(bytes[at + 1])));
}

/// Value `place` of block `block`, from the planes as block_planes.hpp draws them.
float value_in_planes(DType dtype, const std::vector<std::byte>& codes, const std::vector<std::byte>& scales,
                      size_t block, size_t place) {
  if (dtype == DType::kQ8_0) {
    const int code = std::to_integer<int>(codes[block * 32 + place]);
    return static_cast<float>(code < 128 ? code : code - 256) * f16_at(scales, 2 * block);
  }
  const int pair = std::to_integer<int>(codes[block * 16 + place % 16]);
  const int nibble = place < 16 ? pair % 16 : pair / 16;
  if (dtype == DType::kQ4_0) return static_cast<float>(nibble - 8) * f16_at(scales, 2 * block);
  return static_cast<float>(nibble) * f16_at(scales, 4 * block) + f16_at(scales, 4 * block + 2);
}

}  // namespace

TEST_CASE("split_blocks: the planes mean what the blocks mean, and are as large") {
  for (const DType dtype : {DType::kQ4_0, DType::kQ4_1, DType::kQ8_0}) {
    for (const auto& [rows, columns] :
         std::vector<std::pair<int64_t, int64_t>>{{1, 32}, {3, 96}, {5, 256}, {2, 4096}}) {
      INFO(kernels::facts(dtype).name << ", " << rows << " rows of " << columns);
      const StoredMatrix matrix = random_matrix(dtype, rows, columns, 1);
      const int64_t blocks = rows * columns / cuda::kBlockColumns;
      const cuda::BlockPlanes planes = cuda::block_planes(dtype);
      CHECK(planes.code_bytes + planes.scale_bytes == kernels::facts(dtype).block_bytes);
      std::vector<std::byte> codes(static_cast<size_t>(blocks * planes.code_bytes), std::byte{0xFF});
      std::vector<std::byte> scales(static_cast<size_t>(blocks * planes.scale_bytes), std::byte{0xFF});
      cuda::split_blocks(dtype, matrix.bytes, codes, scales);
      for (size_t i = 0; i < matrix.values.size(); ++i) {
        REQUIRE(static_cast<double>(value_in_planes(dtype, codes, scales, i / 32, i % 32)) == matrix.values[i]);
      }
    }
  }
}

TEST_CASE("split_blocks: sizes that disagree and plain types are refused") {
  std::vector<std::byte> blocks(36);
  std::vector<std::byte> codes(32);
  std::vector<std::byte> scales(4);
  CHECK_NOTHROW(cuda::split_blocks(DType::kQ4_0, blocks, codes, scales));
  CHECK_NOTHROW(cuda::split_blocks(DType::kQ4_0, {}, {}, {}));
  CHECK_THROWS_AS(cuda::split_blocks(DType::kQ8_0, blocks, codes, scales), BugError);
  CHECK_THROWS_AS(cuda::split_blocks(DType::kQ4_0, std::span(blocks).first(35), codes, scales), BugError);
  CHECK_THROWS_AS(cuda::split_blocks(DType::kQ4_0, blocks, std::span(codes).first(31), scales), BugError);
  CHECK_THROWS_AS(cuda::split_blocks(DType::kQ4_0, blocks, codes, std::span(scales).first(2)), BugError);
  CHECK_THROWS_AS(cuda::split_blocks(DType::kBF16, {}, {}, {}), BugError);
  CHECK_THROWS_AS(cuda::block_planes(DType::kF32), BugError);
}
