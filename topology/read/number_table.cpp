#include "topology/read/number_table.hpp"

#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "topology/read/limits.hpp"

namespace shardscope::topology {
namespace {

constexpr size_t kMostWords = kMostGpus + 16;  // of a line that can be a row
constexpr int kMostOthers = 8;                 // lines of other things between two rows
constexpr int kMostDecimals = 6;

/// "—", "N/A" and the like: nothing measured.
bool is_nothing(std::string_view word) {
  static constexpr std::array<std::string_view, 8> kMarks = {"\xE2\x80\x94", "\xE2\x80\x93", "-", "--", "X", "x",
                                                             "N/A",          "n/a"};
  return std::find(kMarks.begin(), kMarks.end(), word) != kMarks.end();
}

/// The row's number, if these words are a row.
std::optional<size_t> row_of(const std::vector<std::string_view>& words, TableLabels labels) {
  if (words.size() < 2 || (!is_nothing(words[1]) && !figure_of(words[1]))) return std::nullopt;
  std::string_view label = words[0];
  if (labels == TableLabels::kGpuNames) {
    if (!label.ends_with(':')) return std::nullopt;
    label.remove_suffix(1);
  }
  const std::optional<int> row = number_after(label, labels == TableLabels::kGpuNames ? "GPU" : "");
  return row ? std::optional(static_cast<size_t>(*row)) : std::nullopt;
}

struct Cell {
  std::string_view word;
  std::optional<Figure> figure;
};

struct Row {
  int line = 0;
  bool last = false;     // of the text
  bool unended = false;  // by a newline
  std::vector<Cell> cells;
};

/// What most figures have behind the point; of equal counts the larger: a cut figure has fewer.
int usual_decimals(const std::vector<std::optional<Row>>& rows) {
  std::array<int, kMostDecimals + 1> counts{};
  for (const std::optional<Row>& row : rows) {
    if (!row) continue;
    for (const Cell& cell : row->cells) {
      if (cell.figure) ++counts[static_cast<size_t>(cell.figure->decimals)];
    }
  }
  int usual = 0;
  for (int decimals = 0; decimals <= kMostDecimals; ++decimals) {
    if (counts[static_cast<size_t>(decimals)] >= counts[static_cast<size_t>(usual)]) usual = decimals;
  }
  return usual;
}

/// The number of cells that more than half of the rows have, at most kMostGpus; 0: there is none.
size_t usual_cells(const std::vector<std::optional<Row>>& rows) {
  std::vector<size_t> counts(kMostGpus + 1);
  for (const std::optional<Row>& row : rows) {
    if (row) ++counts[std::min(row->cells.size(), kMostGpus)];
  }
  const auto most = std::max_element(counts.begin(), counts.end());
  return 2 * *most > rows.size() ? static_cast<size_t>(most - counts.begin()) : 0;
}

/// Checks one row of `columns` cells and puts it into the table.
void place_row(size_t number, const Row& row, size_t columns, int decimals, NumberTable& table, Faults& faults) {
  const size_t cells = row.cells.size();
  if (cells > columns || (cells < columns && !row.last)) {
    faults.fault(fmt::format("line {}: row {} has {} cells, not {}: which are missing cannot be told, all are unknown",
                             row.line, number, cells, columns));
    return;
  }
  if (cells < columns) {
    faults.fault(fmt::format("line {}: row {} is cut after column {}", row.line, number, cells - 1));
  }
  for (size_t column = 0; column < cells; ++column) {
    const Cell& cell = row.cells[column];
    if (!cell.figure) {
      if (!is_nothing(cell.word)) {
        faults.fault(
            fmt::format("line {}: row {}, column {}: {} is no figure", row.line, number, column, quoted(cell.word)));
      }
      continue;
    }
    // A whole number may have lost digits without a trace.
    const bool end_of_text = row.last && column + 1 == cells && (cells < columns || row.unended);
    if (cell.figure->decimals != decimals || (decimals == 0 && end_of_text)) {
      faults.fault(fmt::format("line {}: row {}, column {}: {} may have lost digits: unknown", row.line, number, column,
                               quoted(cell.word)));
      continue;
    }
    table.cells[number][column] = cell.figure->value;
  }
}

}  // namespace

std::optional<Figure> figure_of(std::string_view word) {
  if (word.empty() || word.size() > 16) return std::nullopt;
  const size_t point = std::min(word.find('.'), word.size());
  if (point == 0 || !std::all_of(word.begin(), word.end(), [](char c) { return (c >= '0' && c <= '9') || c == '.'; })) {
    return std::nullopt;
  }
  Figure figure;
  const char* const end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data(), end, figure.value);
  figure.decimals = point == word.size() ? 0 : static_cast<int>(word.size() - point) - 1;
  if (error != std::errc() || stop != end || figure.decimals > kMostDecimals) return std::nullopt;
  if (point + 1 == word.size()) return std::nullopt;  // "37."
  return figure;
}

bool NumberTable::is_boolean() const {
  bool any = false;
  for (const auto& row : cells) {
    for (const std::optional<double>& cell : row) {
      if (cell && *cell != 0 && *cell != 1) return false;
      any = any || cell;
    }
  }
  return any;
}

std::optional<size_t> columns_of_head(const std::vector<std::string_view>& words, size_t first, TableLabels labels) {
  const std::string_view name = labels == TableLabels::kGpuNames ? "GPU" : "";
  if (words.size() <= first || words.size() - first > kMostGpus) return std::nullopt;
  for (size_t i = first; i < words.size(); ++i) {
    if (number_after(words[i], name) != static_cast<int>(i - first)) return std::nullopt;
  }
  return words.size() - first;
}

NumberTable read_number_table(LineCursor& cursor, size_t columns, TableLabels labels, bool any_rows,
                              const std::function<bool(std::string_view)>& ends, Faults& faults) {
  NumberTable table{.line = cursor.number, .size = columns, .cells = {}};
  std::vector<std::optional<Row>> rows(columns);
  LineCursor ahead = cursor;
  std::string_view line;
  int others = 0;
  while (others <= kMostOthers && ahead.next(line)) {
    const std::vector<std::string_view> words = split_words(line, kMostWords);
    if (words.empty()) continue;
    if (ends(line)) break;
    const std::optional<size_t> number = row_of(words, labels);
    if (!number || *number >= kMostGpus) {
      ++others;
      continue;
    }
    others = 0;
    cursor = ahead;
    Row row{.line = ahead.number, .cells = {}};
    row.last = ahead.rest.find_first_not_of(" \t\r\n") == std::string_view::npos;
    row.unended = ahead.rest.empty() && (line.data() + line.size() == ahead.rest.data());
    for (size_t i = 1; i < words.size(); ++i) row.cells.push_back({.word = words[i], .figure = figure_of(words[i])});
    if (*number >= rows.size()) rows.resize(*number + 1);
    table.size = std::max(table.size, *number + 1);
    if (rows[*number]) {
      faults.fault(fmt::format("line {}: row {} stands in line {} already", row.line, *number, rows[*number]->line));
    } else {
      rows[*number] = std::move(row);
    }
    if (std::all_of(rows.begin(), rows.end(), [](const auto& each) { return each.has_value(); }) &&
        rows.size() >= columns) {
      // More rows than columns still follow where the head has lost some.
      LineCursor next = ahead;
      if (!next.next(line) || row_of(split_words(line, kMostWords), labels) != rows.size()) break;
    }
  }
  if (!any_rows) table.size = std::max(table.size, usual_cells(rows));
  table.cells.assign(table.size, std::vector<std::optional<double>>(table.size));
  const int decimals = usual_decimals(rows);
  if (table.size > columns && !any_rows) {
    faults.fault(fmt::format("line {}: the head has {} columns, the rows show {}", table.line, columns, table.size));
  }
  std::vector<std::string> missing;
  for (size_t number = 0; number < rows.size(); ++number) {
    if (rows[number]) {
      place_row(number, *rows[number], columns, decimals, table, faults);
    } else {
      missing.push_back(fmt::format("{}", number));
    }
  }
  if (!missing.empty() && !any_rows) {
    faults.fault(fmt::format("line {}: rows of the table are missing: {}", table.line, listed(missing)));
  }
  return table;
}

void append_measurements(const NumberTable& table, const TableMeaning& meaning, Topology& topology) {
  for (size_t row = 0; row < table.size; ++row) {
    for (size_t column = 0; column < table.size; ++column) {
      if (row == column || !table.cells[row][column]) continue;
      if (topology.measurements.size() == kMostMeasurements) {
        throw UserError(fmt::format("more than {} figures", kMostMeasurements), topology.file, "give one run's output");
      }
      Measurement each{.kind = meaning.kind, .p2p = meaning.p2p, .both_ways = meaning.both_ways};
      each.from = static_cast<int>(meaning.row_receives ? column : row);
      each.to = static_cast<int>(meaning.row_receives ? row : column);
      const double value = *table.cells[row][column] * meaning.unit;
      (meaning.kind == Measurement::Kind::kP2pLatency ? each.time_us : each.gb_per_s) = value;
      each.algorithm = meaning.algorithm;
      topology.measurements.push_back(std::move(each));
    }
  }
}

void fill_gpus(size_t count, Topology& topology) {
  topology.gpu_count = static_cast<int>(count);
  topology.gpus.resize(count);
  for (size_t i = 0; i < count; ++i) topology.gpus[i].index = static_cast<int>(i);
}

}  // namespace shardscope::topology
