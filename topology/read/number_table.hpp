// Square tables of figures between GPUs, as measuring tools print them: a head of column numbers, and rows that begin
// with their own. What is cut or odd becomes unknown; a figure that may have lost digits is never taken as whole.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topology/read/text_table.hpp"
#include "topology/topology.hpp"

namespace shardscope::topology {

struct NumberTable {
  int line = 0;                         // of the head
  size_t size = 0;                      // GPUs: columns of the head, or more if rows show more
  Matrix<std::optional<double>> cells;  // [row][column], size x size; nullopt: unknown or not measured

  /// Whether every known figure is 0 or 1, and there are some.
  bool is_boolean() const;
};

/// How a tool labels columns and rows.
enum class TableLabels { kNumbers, kGpuNames };  // "0 1 2" and "0"; "GPU0 GPU1" and "GPU0:"

/// The number of columns if the words from `first` on are the labels of all columns in order, and nothing else.
std::optional<size_t> columns_of_head(const std::vector<std::string_view>& words, size_t first, TableLabels labels);

/// Reads the rows below a head; `cursor` moves behind the last one. Lines of other things between rows are passed over,
/// but not lines for which `ends` holds. Fewer rows than columns are a fault unless `any_rows`.
NumberTable read_number_table(LineCursor& cursor, size_t columns, TableLabels labels, bool any_rows,
                              const std::function<bool(std::string_view)>& ends, Faults& faults);

/// What all figures of a table have in common.
struct TableMeaning {
  Measurement::Kind kind = Measurement::Kind::kP2pBandwidth;
  std::optional<bool> p2p, both_ways;
  bool row_receives = false;  // data flow from the column's GPU to the row's
  double unit = 1;            // of GB/s or us
  std::string algorithm;
};

/// Appends the figures between two different GPUs; the diagonal, a GPU's copy to itself, says nothing of links. Throws
/// UserError for more measurements than any run gives.
void append_measurements(const NumberTable& table, const TableMeaning& meaning, Topology& topology);

/// Fills topology.gpus with `count` GPUs, numbered from 0, and gpu_count.
void fill_gpus(size_t count, Topology& topology);

/// A figure: digits, with a decimal point or without; nullopt for anything else. decimals: behind the point.
struct Figure {
  double value = 0;
  int decimals = 0;
};
std::optional<Figure> figure_of(std::string_view word);

}  // namespace shardscope::topology
