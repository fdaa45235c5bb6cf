// How weights lie in device memory: planes of rows, and how many bytes they take, known before anything is there.
// Plain C++: no CUDA here.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/backend.hpp"

namespace shardscope::cuda {

/// Of planes in a common allocation, as cudaMalloc aligns those of their own. Bytes.
inline constexpr int64_t kPlaneAlignment = 256;

/// Adjacent parts of a matrix in one dtype: one matrix in device memory, of a plane of values and, in a block format,
/// one of scales.
struct PieceLayout {
  kernels::DType dtype = kernels::DType::kF32;
  size_t first_part = 0;
  size_t end_part = 0;
  int64_t rows = 0;
  int64_t value_row_bytes = 0;  // a plain type's are padded to 16 bytes; of a block format: its codes
  int64_t scale_row_bytes = 0;  // 0 for plain types

  int64_t value_bytes() const { return rows * value_row_bytes; }
  int64_t scale_bytes() const { return rows * scale_row_bytes; }
};

/// Throws BugError for no parts, or parts that differ in columns.
std::vector<PieceLayout> piece_layouts(std::span<const kernels::MatrixPart> parts);

/// Bytes of a row in the plane of values, and in that of scales.
int64_t value_row_bytes(kernels::DType dtype, int64_t columns);
int64_t scale_row_bytes(kernels::DType dtype, int64_t columns);

/// Bytes that a plane takes up in a common allocation.
int64_t placed_bytes(int64_t plane_bytes);

/// Bytes of the one allocation that holds all of them: exact.
int64_t allocation_bytes(const kernels::ExpectedWeights& weights);

}  // namespace shardscope::cuda
