#include "kernels/cuda/weight_layout.hpp"

#include "kernels/base/error.hpp"
#include "kernels/cuda/block_planes.hpp"

namespace shardscope::cuda {
namespace {

using kernels::DType;

int64_t rounded_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

int64_t value_row_bytes(DType dtype, int64_t columns) {
  constexpr int64_t kRowAlignment = 16;  // bytes, as the kernels load them
  if (kernels::facts(dtype).block_quantised) return columns / kBlockColumns * block_planes(dtype).code_bytes;
  return rounded_up(kernels::row_bytes(dtype, columns), kRowAlignment);
}

int64_t scale_row_bytes(DType dtype, int64_t columns) {
  if (!kernels::facts(dtype).block_quantised) return 0;
  return columns / kBlockColumns * block_planes(dtype).scale_bytes;
}

std::vector<PieceLayout> piece_layouts(std::span<const kernels::MatrixPart> parts) {
  require(!parts.empty(), "load_matrix: no parts");
  const int64_t columns = parts.front().columns;
  std::vector<PieceLayout> pieces;
  for (size_t i = 0; i < parts.size(); ++i) {
    const DType dtype = parts[i].dtype;
    require(parts[i].columns == columns, "load_matrix: parts differ in columns");
    if (pieces.empty() || pieces.back().dtype != dtype) {
      pieces.push_back({.dtype = dtype,
                        .first_part = i,
                        .value_row_bytes = value_row_bytes(dtype, columns),
                        .scale_row_bytes = scale_row_bytes(dtype, columns)});
    }
    pieces.back().end_part = i + 1;
    pieces.back().rows += parts[i].rows;
  }
  return pieces;
}

int64_t placed_bytes(int64_t plane_bytes) {
  return rounded_up(plane_bytes, kPlaneAlignment);
}

int64_t allocation_bytes(const kernels::ExpectedWeights& weights) {
  int64_t bytes = 0;
  for (const std::vector<kernels::MatrixPart>& parts : weights.matrices) {
    for (const PieceLayout& piece : piece_layouts(parts)) {
      bytes += placed_bytes(piece.value_bytes()) + placed_bytes(piece.scale_bytes());
    }
  }
  for (const int64_t size : weights.vectors) bytes += placed_bytes(size * static_cast<int64_t>(sizeof(float)));
  return bytes;
}

}  // namespace shardscope::cuda
