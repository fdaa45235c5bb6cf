// How a table's rows are dealt out to its columns; for gpu_table.cpp alone.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topology/read/gpu_table.hpp"

namespace shardscope::topology {

/// Columns, and what is known of those behind the cells.
struct TableLayout {
  std::vector<TableColumn> columns;
  std::optional<std::vector<TailColumn>> tail;

  std::optional<size_t> column_of(const TableColumn& label) const;
};

/// A row's elements, dealt to cells and tail.
struct DealtRow {
  std::vector<std::string> cells;
  std::vector<std::string> tail;
  bool fits = false;            // as many cells as columns, "X" under the row's own label alone
  bool diagonal_taken = false;  // does not fit, because of a code where "X" should be
  bool whole_tail = false;
  bool fused = false;

  bool operator==(const DealtRow&) const = default;
};

/// The row as it stands, or with the lines that continue it where only so it fits (sets `wrapped`); nullopt where there
/// are two ways to join them.
std::optional<DealtRow> deal_row(const FoundRow& row, const TableLayout& layout, const CellCodes& codes, bool& wrapped);

/// The columns that the rows' own labels make, as a table is square; also those between them whose row is lost.
std::vector<TableColumn> columns_of_rows(const std::vector<FoundRow>& rows);

struct TableChoice {
  TableLayout layout;
  bool by_header = false;
  bool elided = false;
  size_t fitting = 0;  // rows that fit, with "X" under their own label; those whose label has no column without an "X"
};
/// The header's columns, unless the rows' own labels fit more of them.
TableChoice choose_layout(const FoundTable& found, const CellCodes& codes, Faults& faults);

}  // namespace shardscope::topology
