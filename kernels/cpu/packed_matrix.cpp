#include "kernels/cpu/packed_matrix.hpp"

#include <algorithm>
#include <cstring>

#include "kernels/base/error.hpp"

namespace shardscope::kernels::cpu {
namespace {

constexpr int64_t kQuadBytes = 4;   // what one row has in a 32-bit lane
constexpr int64_t kScaleBytes = 2;  // fp16

int64_t line_up(int64_t bytes) {
  return (bytes + 63) / 64 * 64;
}

int64_t scales_per_block(DType dtype) {
  if (!facts(dtype).block_quantised) return 0;
  return dtype == DType::kQ4_1 ? 2 : 1;
}

/// The size of the interleaved unit: an element of a plain type, a quad of a block format.
int64_t unit_bytes(DType dtype) {
  return facts(dtype).block_quantised ? kQuadBytes : facts(dtype).block_bytes;
}

/// Where lane `lane` of a panel of `lanes` rows has its units and scales: one row, taken apart or put together.
/// `Copy` is called with (stored byte, packed value byte or null, packed scale byte or null, bytes).
template <typename Copy>
void for_each_unit(const PackedPart& part, int64_t columns, int64_t lanes, int64_t lane, const Copy& copy) {
  const DTypeFacts& type = facts(part.dtype);
  const int64_t unit = unit_bytes(part.dtype);
  const int64_t scales = scales_per_block(part.dtype);
  const int64_t units = (type.block_bytes - scales * kScaleBytes) / unit;  // per block
  for (int64_t block = 0; block < columns / type.block_elements; ++block) {
    const int64_t stored = block * type.block_bytes;
    for (int64_t s = 0; s < scales; ++s) {
      copy(stored + s * kScaleBytes, -1, ((block * scales + s) * lanes + lane) * kScaleBytes, kScaleBytes);
    }
    for (int64_t u = 0; u < units; ++u) {
      copy(stored + scales * kScaleBytes + u * unit, ((block * units + u) * lanes + lane) * unit, -1, unit);
    }
  }
}

/// memcpy of 2 or 4 bytes, which the compiler turns into a load and a store.
void copy_unit(std::byte* to, const std::byte* from, int64_t bytes) {
  if (bytes == 2) {
    std::memcpy(to, from, 2);
  } else {
    std::memcpy(to, from, 4);
  }
}

}  // namespace

PackedMatrix::PackedMatrix(std::span<const MatrixPart> parts) {
  require(!parts.empty(), "load_matrix: no parts");
  columns_ = parts.front().columns;
  int64_t total = 0;
  std::vector<int64_t> offsets;
  for (const MatrixPart& part : parts) {
    require(part.columns == columns_, "load_matrix: part " + part.name + " has another number of columns");
    require(part.rows >= 0, "load_matrix: part " + part.name + " has a negative number of rows");
    PackedPart packed;
    packed.dtype = part.dtype;
    packed.rows = part.rows;
    packed.scale_row_bytes = columns_ / facts(part.dtype).block_elements * scales_per_block(part.dtype) * kScaleBytes;
    packed.value_row_bytes = row_bytes(part.dtype, columns_) - packed.scale_row_bytes;
    rows_ += part.rows;
    bytes_ += part.rows * row_bytes(part.dtype, columns_);
    for (const int64_t plane : {packed.value_row_bytes, packed.scale_row_bytes}) {
      offsets.push_back(total);
      total += line_up(part.rows * plane);
    }
    parts_.push_back(packed);
  }
  memory_ = AlignedBytes(total);
  for (size_t i = 0; i < parts_.size(); ++i) {
    parts_[i].values = memory_.data() + offsets[2 * i];
    parts_[i].scales = memory_.data() + offsets[2 * i + 1];
  }
}

void PackedMatrix::pack_rows(int64_t part_index, Range rows, std::span<const std::byte> stored) {
  const PackedPart& part = parts_[part_index];
  const int64_t stored_row = part.value_row_bytes + part.scale_row_bytes;
  require(rows.begin % kPanelRows == 0 && rows.end <= part.rows, "pack_rows: not whole panels");
  require(std::ssize(stored) >= rows.size() * stored_row, "pack_rows: too few bytes");
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const int64_t panel = row / kPanelRows;
    const std::byte* from = stored.data() + (row - rows.begin) * stored_row;
    std::byte* values = part.values + panel * kPanelRows * part.value_row_bytes;
    std::byte* scales = part.scales + panel * kPanelRows * part.scale_row_bytes;
    for_each_unit(part, columns_, part.panel_rows(panel), row % kPanelRows,
                  [&](int64_t at, int64_t value, int64_t scale, int64_t bytes) {
                    copy_unit(scale < 0 ? values + value : scales + scale, from + at, bytes);
                  });
  }
}

void PackedMatrix::unpack_row(int64_t row, float* out) const {
  size_t index = 0;
  for (; row >= parts_[index].rows; ++index) row -= parts_[index].rows;
  const PackedPart& part = parts_[index];
  const int64_t panel = row / kPanelRows;
  const std::byte* values = part.panel_values(panel);
  const std::byte* scales = part.panel_scales(panel);
  // Stored order is restored piece by piece on the stack, so that the plain definition of the format applies.
  constexpr int64_t kPieceColumns = 4 * kBlockColumns;
  const DTypeFacts& type = facts(part.dtype);
  std::array<std::byte, kPieceColumns * 4> piece;
  const int64_t lanes = part.panel_rows(panel);
  const int64_t scale_step = part.scale_row_bytes == 0 ? 0 : scales_per_block(part.dtype) * kScaleBytes;
  for (int64_t column = 0; column < columns_; column += kPieceColumns) {
    const int64_t count = std::min(kPieceColumns, columns_ - column);
    const int64_t blocks_before = column / type.block_elements;
    const std::byte* piece_values = values + blocks_before * (type.block_bytes - scale_step) * lanes;
    const std::byte* piece_scales = scales + blocks_before * scale_step * lanes;
    for_each_unit(part, count, lanes, row % kPanelRows, [&](int64_t at, int64_t value, int64_t scale, int64_t bytes) {
      copy_unit(piece.data() + at, scale < 0 ? piece_values + value : piece_scales + scale, bytes);
    });
    const auto stored = static_cast<size_t>(row_bytes(part.dtype, count));
    dequantise_row(part.dtype, std::span(piece).first(stored), {out + column, static_cast<size_t>(count)});
  }
}

}  // namespace shardscope::kernels::cpu
