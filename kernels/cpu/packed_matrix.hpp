// Resident weights of the CPU backend. Rows are kept in panels of 16 whose elements are interleaved, so that a vector
// register holds 16 (or 8, or 4) rows at one column: products then need no sum across lanes, and results are stored
// as they are. Bytes are those of the stored format, only their order differs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/backend.hpp"
#include "kernels/cpu/memory.hpp"

namespace shardscope::kernels::cpu {

inline constexpr int64_t kPanelRows = 16;
inline constexpr int64_t kBlockColumns = 32;  // of every block format

/// One part. A panel of r rows (16; the last one has what remains) holds, in `values`,
///   plain:  [column][r] elements
///   block:  [block][4 (Q4) or 8 (Q8_0) quads][r] x 4 bytes, byte order within a row as stored
/// and in `scales`, for block formats, [block][r] fp16 d, Q4_1: [block][2][r] fp16 d then m.
/// Panel p begins at p * 16 rows' worth of bytes in both.
struct PackedPart {
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t value_row_bytes = 0;
  int64_t scale_row_bytes = 0;
  std::byte* values = nullptr;  // [rows * value_row_bytes], 64-byte aligned
  std::byte* scales = nullptr;  // [rows * scale_row_bytes], 64-byte aligned

  int64_t panels() const { return (rows + kPanelRows - 1) / kPanelRows; }
  int64_t panel_rows(int64_t panel) const { return std::min(kPanelRows, rows - panel * kPanelRows); }
  int64_t panel_bytes() const { return kPanelRows * (value_row_bytes + scale_row_bytes); }
  const std::byte* panel_values(int64_t panel) const { return values + panel * kPanelRows * value_row_bytes; }
  const std::byte* panel_scales(int64_t panel) const { return scales + panel * kPanelRows * scale_row_bytes; }
};

class PackedMatrix final : public Matrix {
 public:
  /// Allocates; the caller fills it with pack_rows.
  explicit PackedMatrix(std::span<const MatrixPart> parts);

  int64_t rows() const override { return rows_; }
  int64_t columns() const override { return columns_; }
  int64_t bytes() const override { return bytes_; }
  std::span<const PackedPart> parts() const { return parts_; }

  /// The whole memory of it, the gaps between planes (under 64 bytes each) included.
  std::span<std::byte> memory() const { return {memory_.data(), static_cast<size_t>(memory_.size())}; }

  /// Packs stored rows of a part, beginning at a multiple of 16.
  void pack_rows(int64_t part, Range rows, std::span<const std::byte> stored);

  /// out [columns] = row `row` in fp32.
  void unpack_row(int64_t row, float* out) const;

 private:
  std::vector<PackedPart> parts_;
  int64_t rows_ = 0;
  int64_t columns_ = 0;
  int64_t bytes_ = 0;
  AlignedBytes memory_;
};

}  // namespace shardscope::kernels::cpu
