#include "topology/read/gpu_table_layout.hpp"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "topology/read/limits.hpp"

namespace shardscope::topology {
namespace {

constexpr int kMostCores = 64 * 1024;

using Kind = TableElement::Kind;
using ColumnKind = TableColumn::Kind;

bool is_self(const std::string& cell) {
  return cell == "X";
}

/// How many of the elements are cells. First choice: as many as there are columns, if that is sane; else up to the
/// last code (what stands behind it can only be tail).
size_t cell_count(const std::vector<TableElement>& elements, size_t columns, std::optional<size_t> own) {
  if (elements.size() >= columns) {
    bool sane = columns == elements.size() || elements[columns].kind != Kind::kCode;
    for (size_t i = 0; i < columns; ++i) {
      if (elements[i].kind == Kind::kTail || (is_self(elements[i].text) && own != i)) sane = false;
    }
    if (sane) return columns;
  }
  size_t count = elements.size();
  while (count > 0 && elements[count - 1].kind != Kind::kCode) --count;
  while (count < std::min(columns, elements.size()) && elements[count].kind == Kind::kOther) ++count;
  return count;
}

bool is_sane_tail(const std::vector<std::string>& tail, const TableColumn& label, const TableLayout& layout) {
  if (label.kind == ColumnKind::kNic) return tail.empty();
  if (layout.tail ? tail.size() != layout.tail->size() : tail.size() > 3) return false;
  return std::all_of(tail.begin(), tail.end(),
                     [](const std::string& word) { return word == "N/A" || is_ascending_list(word, kMostCores); });
}

DealtRow deal(std::string_view text, const TableColumn& label, const TableLayout& layout, const CellCodes& codes) {
  DealtRow dealt;
  std::vector<TableElement> elements = elements_of(text, codes, dealt.fused);
  while (!elements.empty() && elements.back().kind == Kind::kDots) elements.pop_back();
  const std::optional<size_t> own = layout.column_of(label);
  const size_t count = cell_count(elements, layout.columns.size(), own);
  dealt.fits = count == layout.columns.size();
  for (size_t i = 0; i < elements.size(); ++i) {
    (i < count ? dealt.cells : dealt.tail).push_back(std::move(elements[i].text));
    if (i < count && is_self(dealt.cells.back()) && own != i) dealt.fits = false;
  }
  // A code in the diagonal: the row stands under wrong columns, or is another's.
  if (dealt.fits && own && !is_self(dealt.cells[*own]) && is_code(dealt.cells[*own], codes)) {
    dealt.fits = false;
    dealt.diagonal_taken = true;
  }
  dealt.whole_tail = is_sane_tail(dealt.tail, label, layout);
  return dealt;
}

/// Whether names are as nvidia-smi gives them: GPUs from 0, and NICs (if they are numbered) from 0.
bool is_plain_numbering(const std::vector<TableColumn>& columns) {
  int gpus = 0;
  int nics = 0;
  for (const TableColumn& column : columns) {
    if (column.kind == ColumnKind::kGpu && column.gpu != gpus++) return false;
    if (column.kind == ColumnKind::kNic && column.name.starts_with("NIC") &&
        number_after(column.name, "NIC") != nics++) {
      return false;
    }
  }
  return true;
}

bool are_unique(const std::vector<TableColumn>& columns) {
  std::set<std::string_view> names;
  return std::all_of(columns.begin(), columns.end(), [&](const TableColumn& column) {
    return column.kind == ColumnKind::kElided || names.insert(column.name).second;
  });
}

/// How well rows fit a layout.
struct Fit {
  size_t rows = 0;   // with as many cells as columns, and "X" where it should be
  size_t tails = 0;  // of those, such that fill the columns behind the cells too
};

Fit fit_of(const std::vector<FoundRow>& rows, const TableLayout& layout, const CellCodes& codes) {
  Fit fit;
  for (const FoundRow& row : rows) {
    bool wrapped = false;
    const std::optional<DealtRow> dealt = deal_row(row, layout, codes, wrapped);
    const std::optional<size_t> own = layout.column_of(row.label);
    if (!dealt || !dealt->fits || (own && !is_self(dealt->cells[*own]))) continue;
    ++fit.rows;
    fit.tails += dealt->whole_tail ? 1 : 0;
  }
  return fit;
}

/// Names that are as nvidia-smi gives them outweigh two rows.
size_t weight_of(const Fit& fit, bool plain) {
  return 2 * fit.rows + fit.tails + (plain ? 6 : 0);
}

}  // namespace

std::optional<size_t> TableLayout::column_of(const TableColumn& label) const {
  const auto found = std::find(columns.begin(), columns.end(), label);
  return found == columns.end() ? std::nullopt : std::optional<size_t>(found - columns.begin());
}

std::optional<DealtRow> deal_row(const FoundRow& row, const TableLayout& layout, const CellCodes& codes,
                                 bool& wrapped) {
  DealtRow plain = deal(row.parts.front(), row.label, layout, codes);
  wrapped = false;
  if (row.parts.size() == 1 || (plain.fits && plain.whole_tail)) return plain;
  std::vector<DealtRow> ways;
  const size_t joints = row.parts.size() - 1;
  for (size_t ways_joined = 0; ways_joined < size_t{1} << joints; ++ways_joined) {
    std::string text = row.parts.front();
    for (size_t i = 0; i < joints; ++i) {
      text += fmt::format("{}{}", (ways_joined >> i & 1) != 0 ? "" : " ", row.parts[i + 1]);
    }
    DealtRow dealt = deal(text, row.label, layout, codes);
    dealt.fused = false;
    if (!dealt.fits || !dealt.whole_tail || std::find(ways.begin(), ways.end(), dealt) != ways.end()) continue;
    ways.push_back(std::move(dealt));
  }
  if (ways.empty()) return plain;
  wrapped = true;
  return ways.size() == 1 ? std::optional(std::move(ways.front())) : std::nullopt;
}

std::vector<TableColumn> columns_of_rows(const std::vector<FoundRow>& rows) {
  std::map<int, TableColumn> gpus;
  std::map<int, TableColumn> nics;
  std::vector<TableColumn> other_nics;
  for (const FoundRow& row : rows) {
    if (row.label.kind == ColumnKind::kGpu) {
      gpus.emplace(row.label.gpu, row.label);
    } else if (const std::optional<int> number = number_after(row.label.name, "NIC")) {
      nics.emplace(*number, row.label);
    } else {
      other_nics.push_back(row.label);
    }
  }
  // Numbers that are left out are those of rows that are lost.
  const auto last = [](const std::map<int, TableColumn>& columns) {
    return columns.empty() || columns.rbegin()->first >= static_cast<int>(kMostGpus) ? -1 : columns.rbegin()->first;
  };
  for (int i = 0; i <= last(gpus); ++i) gpus.emplace(i, TableColumn{.name = fmt::format("GPU{}", i), .gpu = i});
  for (int i = 0; i <= last(nics); ++i) {
    nics.emplace(i, TableColumn{.kind = ColumnKind::kNic, .name = fmt::format("NIC{}", i)});
  }
  std::vector<TableColumn> columns;
  for (const auto& [number, column] : gpus) columns.push_back(column);
  for (const auto& [number, column] : nics) columns.push_back(column);
  columns.insert(columns.end(), other_nics.begin(), other_nics.end());
  return columns;
}

TableChoice choose_layout(const FoundTable& found, const CellCodes& codes, Faults& faults) {
  TableChoice rows{.layout = {.columns = columns_of_rows(found.rows)}};
  TableChoice best;
  size_t best_weight = 0;
  bool fused = false;
  std::string joined;
  for (const std::string& part : found.header_parts) {
    for (const char* joint : {" ", ""}) {
      if (joined.empty() && *joint == '\0') continue;
      const std::string text = joined.empty() ? part : fmt::format("{}{}{}", joined, joint, part);
      const std::optional<TableHeader> header = header_of(split_words(text, 1024), codes);
      if (!header) continue;
      if (header->tail && !header->tail->empty()) rows.layout.tail = header->tail;
      if (!are_unique(header->columns)) continue;
      TableChoice choice{{header->columns, header->tail}, true, header->elided};
      const Fit fit = fit_of(found.rows, choice.layout, codes);
      const size_t weight = weight_of(fit, is_plain_numbering(header->columns));
      if (best.by_header && weight <= best_weight) continue;
      best_weight = weight;
      best = std::move(choice);
      best.fitting = fit.rows;
      fused = header->fused;
    }
    joined += fmt::format("{}{}", joined.empty() ? "" : " ", part);
  }
  const Fit fit = fit_of(found.rows, rows.layout, codes);
  rows.fitting = fit.rows;
  const bool plain = fit.rows == found.rows.size() && is_plain_numbering(rows.layout.columns);
  if (best.by_header && (fit.rows == 0 || weight_of(fit, plain) <= best_weight)) {
    if (fused) {
      faults.note(
          fmt::format("Line {}: names of columns without a blank between them were split.", *found.header_line));
    }
    return best;
  }
  if (!found.header_line) {
    if (found.rows.size() == 1) faults.fault("There is one row and no line of column names: GPUs may be missing.");
    faults.note(
        "The matrix has no line of column names: its columns are taken to be those of its rows, in their order.");
  } else {
    faults.note(fmt::format("Line {}: the column names are damaged; the columns are taken to be those of the rows.",
                            *found.header_line));
  }
  return rows;
}

}  // namespace shardscope::topology
