#include "topology/read/gpu_table.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "topology/read/gpu_table_layout.hpp"
#include "topology/read/limits.hpp"

namespace shardscope::topology {
namespace {

using ColumnKind = TableColumn::Kind;

bool is_self(const std::string& cell) {
  return cell == "X";
}

void limit_size(const std::vector<TableColumn>& columns, const std::string& file) {
  const auto count = [&](ColumnKind kind) {
    return static_cast<size_t>(
        std::count_if(columns.begin(), columns.end(), [&](const TableColumn& column) { return column.kind == kind; }));
  };
  if (count(ColumnKind::kGpu) > kMostGpus || count(ColumnKind::kNic) > kMostNics) {
    throw UserError(fmt::format("not a topology of one machine: {} GPUs and {} NICs, more than {} and {}",
                                count(ColumnKind::kGpu), count(ColumnKind::kNic), kMostGpus, kMostNics),
                    file, "give the matrix of one machine");
  }
}

/// Puts rows' cells under the columns of a layout.
class Builder {
 public:
  Builder(const FoundTable& found, TableChoice choice, Faults& faults)
      : found_(found), choice_(std::move(choice)), faults_(faults) {
    table_.columns = choice_.layout.columns;
    table_.tail = choice_.layout.tail;
    rows_missing_ = !std::all_of(table_.columns.begin(), table_.columns.end(),
                                 [&](const TableColumn& column) { return has_row(column); });
  }

  void add(const FoundRow& row, const CellCodes& codes) {
    if (row.doubtful) return;
    bool wrapped = false;
    const std::optional<DealtRow> dealt = deal_row(row, choice_.layout, codes, wrapped);
    const std::string where = fmt::format("Line {} ({}):", row.line, row.label.name);
    if (!dealt) return faults_.fault(where + " is wrapped, with two ways to join it: left out.");
    if (wrapped) faults_.note(where + " is wrapped; its lines were joined.");
    if (dealt->fused) faults_.note(where + " cells without a blank between them were split.");
    std::optional<size_t> own = choice_.layout.column_of(row.label);
    if (!own) {
      faults_.fault(fmt::format("{} there is no column of that name{}.", where,
                                dealt->fits ? "" : ", and the row does not fit: left out"));
      if (!dealt->fits) return;
      own = table_.columns.size();
      table_.columns.push_back(row.label);
    }
    TableRow& kept =
        table_.rows.emplace_back(TableRow{.line = row.line, .column = *own, .cells = {}, .tail = dealt->tail});
    const size_t left = deal_cells(row, *dealt, where, kept);
    if (!row.ends_text || !rows_missing_) return;
    // The text may end inside the row's last word: "0-23,4" of "0-23,48-71".
    kept.cut = true;
    if (!kept.tail.empty()) {
      kept.tail.pop_back();
    } else if (left > 0) {
      kept.cells[left - 1].reset();
    }
  }

  GpuTable finish() {
    std::vector<std::string> missing;
    for (const TableColumn& column : table_.columns) {
      if (!has_row(column)) missing.push_back(column.name);
    }
    if (!missing.empty()) {
      faults_.fault(fmt::format("The matrix is cut: there {} for {}.",
                                missing.size() == 1 ? "is no row" : "are no rows", listed(missing)));
    }
    report_gaps();
    for (TableRow& row : table_.rows) {
      for (const size_t column : doubtful_) row.cells[column].reset();
    }
    const bool elided = choice_.elided || std::any_of(table_.columns.begin(), table_.columns.end(),
                                                      [](const auto& c) { return c.kind == ColumnKind::kElided; });
    if (elided) faults_.fault("Columns are left out (\"...\"): what they would tell is unknown.");
    table_.nics_known = !elided && (choice_.by_header || choice_.fitting == found_.rows.size());
    return std::move(table_);
  }

 private:
  /// nvidia-smi numbers GPUs from 0: where a number is missing, a row and a column were cut out.
  void report_gaps() {
    std::vector<int> numbers;
    for (const TableColumn& column : table_.columns) {
      if (column.kind == ColumnKind::kGpu) numbers.push_back(column.gpu);
    }
    std::sort(numbers.begin(), numbers.end());
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (numbers[i] == static_cast<int>(i)) continue;
      faults_.fault(fmt::format("The matrix has no GPU{}: GPUs were left out of it.", i));
      return;
    }
  }

  bool has_row(const TableColumn& column) const {
    return column.kind == ColumnKind::kElided ||
           std::any_of(found_.rows.begin(), found_.rows.end(), [&](const FoundRow& r) { return r.label == column; });
  }

  /// Cells up to "X" stand under their columns if "X" does, those from it on if as many follow as columns do. Returns
  /// how many are certain from the left.
  size_t deal_cells(const FoundRow& row, const DealtRow& dealt, const std::string& where, TableRow& kept) {
    const size_t columns = choice_.layout.columns.size();
    const size_t count = dealt.cells.size();
    kept.cells.resize(columns);
    if (dealt.diagonal_taken) {
      faults_.fault(fmt::format("{} {} stands in the diagonal; the cells of this row and column are left out.", where,
                                quoted(dealt.cells[kept.column])));
      doubtful_.push_back(kept.column);
      return 0;
    }
    size_t left = count;
    size_t right = count;
    const bool trusted = 2 * choice_.fitting >= found_.rows.size();  // else those that fit do so by chance
    if (!dealt.fits || !trusted) {
      const auto self = std::find_if(dealt.cells.begin(), dealt.cells.end(), is_self);
      const size_t at = static_cast<size_t>(self - dealt.cells.begin());
      const bool one = self != dealt.cells.end() && std::none_of(self + 1, dealt.cells.end(), is_self);
      const bool right_fits = trusted && one && kept.column < columns && count - at == columns - kept.column;
      left = one && at == kept.column ? at + 1 : 0;
      right = right_fits ? at : count;
      // Where the text was cut, the cells are the first ones of their row.
      if (trusted && row.ends_text && left > 0 && !right_fits && count < columns && kept.tail.empty()) left = count;
      faults_.fault(fmt::format("{} {} cells for {} columns; those under an uncertain column are left out.", where,
                                count, columns));
    }
    for (size_t i = 0; i < left; ++i) kept.cells[i] = dealt.cells[i];
    for (size_t i = right; i < count; ++i) kept.cells[columns - (count - i)] = dealt.cells[i];
    return left;
  }

  const FoundTable& found_;
  TableChoice choice_;
  Faults& faults_;
  GpuTable table_;
  bool rows_missing_ = false;
  std::vector<size_t> doubtful_;  // columns that may be another GPU's
};

}  // namespace

std::optional<GpuTable> find_gpu_table(std::string_view plain, const std::string& file, const CellCodes& codes,
                                       Faults& faults) {
  const std::optional<FoundTable> found = find_table_lines(plain, file, codes, faults);
  if (!found) return std::nullopt;
  if (found->rows.empty()) return GpuTable{};
  limit_size(columns_of_rows(found->rows), file);
  const TableChoice choice = choose_layout(*found, codes, faults);
  limit_size(choice.layout.columns, file);
  if (choice.by_header && !choice.layout.tail) {
    faults.note(fmt::format("Line {}: the names of the last columns are damaged.", *found->header_line));
  }
  Builder builder(*found, choice, faults);
  for (const FoundRow& row : found->rows) builder.add(row, codes);
  return builder.finish();
}

}  // namespace shardscope::topology
