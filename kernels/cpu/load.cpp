// Loading of resident weights: rows are read in chunks as stored, and packed by all threads.
#include "kernels/cpu/load.hpp"

#include <algorithm>
#include <cstring>

namespace shardscope::kernels::cpu {
namespace {

constexpr int64_t kChunkBytes = int64_t{4} << 20;

/// Lets every member write its share of the memory first, so that its pages come from that member's NUMA node.
/// Products share out rows by bytes in the same way.
void touch_first(const PackedMatrix& matrix, ThreadTeam& team) {
  if (team.size() == 1) return;
  team.run([&](int member) {
    const Range share = even_share(std::ssize(matrix.memory()), member, team.size());
    if (!share.empty()) std::memset(matrix.memory().data() + share.begin, 0, static_cast<size_t>(share.size()));
  });
}

}  // namespace

std::unique_ptr<PackedMatrix> load_packed(std::span<const MatrixPart> parts, const RowReader& read, ThreadTeam& team) {
  auto matrix = std::make_unique<PackedMatrix>(parts);
  touch_first(*matrix, team);
  std::vector<std::byte> chunk;
  for (int64_t part = 0; part < std::ssize(parts); ++part) {
    const int64_t stored_row = row_bytes(parts[part].dtype, parts[part].columns);
    if (stored_row == 0) continue;
    const int64_t chunk_rows = std::max<int64_t>(kChunkBytes / stored_row / kPanelRows, 1) * kPanelRows;
    for (int64_t row = 0; row < parts[part].rows; row += chunk_rows) {
      const Range rows = {row, std::min(row + chunk_rows, parts[part].rows)};
      chunk.resize(static_cast<size_t>(rows.size() * stored_row));
      read(part, rows, chunk);
      const int64_t panels = (rows.size() + kPanelRows - 1) / kPanelRows;
      team.run([&](int member) {
        const Range share = even_share(panels, member, team.size());
        const Range mine = {row + share.begin * kPanelRows, std::min(row + share.end * kPanelRows, rows.end)};
        if (!mine.empty()) matrix->pack_rows(part, mine, std::span(chunk).subspan((mine.begin - row) * stored_row));
      });
    }
  }
  return matrix;
}

}  // namespace shardscope::kernels::cpu
