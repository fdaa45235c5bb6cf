// Q4_0 in planes, against the plain definition of the format.
#include "kernels/cuda/q4_planes.hpp"

#include <catch2/catch.hpp>

#include "kernels/base/error.hpp"
#include "tests/kernels/reference.hpp"

using namespace shardscope;
using namespace shardscope::test;

TEST_CASE("split_q4_0: the planes mean what the blocks mean, and are no larger") {
  for (const auto& [rows, columns] : std::vector<std::pair<int64_t, int64_t>>{{1, 32}, {3, 96}, {5, 256}, {2, 4096}}) {
    INFO(rows << " rows of " << columns);
    const StoredMatrix matrix = random_matrix(kernels::DType::kQ4_0, rows, columns, 1);
    const int64_t nibble_row = cuda::q4_nibble_row_bytes(columns);
    const int64_t scale_row = cuda::q4_scale_row_bytes(columns);
    CHECK(nibble_row % 16 == 0);
    CHECK(scale_row % 16 == 0);
    CHECK(nibble_row + scale_row <= kernels::row_bytes(kernels::DType::kQ4_0, columns) + 15);
    std::vector<std::byte> nibbles(static_cast<size_t>(rows * nibble_row), std::byte{0xFF});
    std::vector<std::byte> scales(static_cast<size_t>(rows * scale_row), std::byte{0xFF});
    cuda::split_q4_0(matrix.bytes, rows, columns, nibbles, scales);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t column = 0; column < columns; ++column) {
        const int64_t block = column / 32;
        const int64_t place = column % 32;
        const int pair = std::to_integer<int>(nibbles[row * nibble_row + block * 16 + place % 16]);
        const int nibble = place < 16 ? pair % 16 : pair / 16;
        const std::byte* scale = &scales[row * scale_row + block * 2];
        const float d = kernels::f16_to_f32(
            static_cast<uint16_t>(std::to_integer<int>(scale[0]) + 256 * std::to_integer<int>(scale[1])));
        REQUIRE(static_cast<double>(static_cast<float>(nibble - 8) * d) == matrix.values[row * columns + column]);
      }
      for (int64_t i = columns / 32 * 2; i < scale_row; ++i) CHECK(scales[row * scale_row + i] == std::byte{0});
    }
  }
}

TEST_CASE("split_q4_0: sizes that disagree are refused") {
  std::vector<std::byte> blocks(18);
  std::vector<std::byte> nibbles(16);
  std::vector<std::byte> scales(16);
  CHECK_NOTHROW(cuda::split_q4_0(blocks, 1, 32, nibbles, scales));
  CHECK_THROWS_AS(cuda::split_q4_0(blocks, 1, 31, nibbles, scales), BugError);
  CHECK_THROWS_AS(cuda::split_q4_0(blocks, 2, 32, nibbles, scales), BugError);
  CHECK_THROWS_AS(cuda::split_q4_0(blocks, 1, 32, std::span(nibbles).first(15), scales), BugError);
  CHECK_THROWS_AS(cuda::split_q4_0(blocks, 1, 32, nibbles, std::span(scales).first(2)), BugError);
}
