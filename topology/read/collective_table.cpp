// All-reduce figures in a Markdown table, as people publish them: columns of sizes or GPU counts, and of bandwidths or
// times. Only tables that say that they are of collectives are taken.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "topology/files.hpp"
#include "topology/read/collective_run.hpp"
#include "topology/read/limits.hpp"
#include "topology/read/markdown_table.hpp"
#include "topology/read/number_table.hpp"
#include "topology/read/reading.hpp"

namespace shardscope::topology {
namespace {

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

/// What a column holds.
enum class Column { kOther, kSize, kGpus, kBusbw, kAlgbw, kTime, kAlgorithm };

struct Head {
  int line = 0;
  std::vector<Column> columns;
  std::vector<std::string> algorithms;  // of each kTime column, out of its title; empty: not told
  std::vector<double> us;               // of each kTime column's unit
  std::vector<std::string> left_out;

  bool has(Column column) const { return std::find(columns.begin(), columns.end(), column) != columns.end(); }
};

Column column_of(const std::string& title) {
  for (const char* const name : {"payload", "size", "message size", "msg size", "bytes", "size (b)", "size (bytes)"}) {
    if (title == name) return Column::kSize;
  }
  for (const char* const name : {"gpus", "#gpus", "ranks", "world size", "num gpus", "number of gpus"}) {
    if (title == name) return Column::kGpus;
  }
  if (title.starts_with("algo ") || title == "algo" || title == "algorithm") return Column::kAlgorithm;
  if (title == "busbw" || title.starts_with("busbw (gb/s") || title.starts_with("busbw (gbps")) return Column::kBusbw;
  if (title == "algbw" || title.starts_with("algbw (gb/s") || title.starts_with("algbw (gbps")) return Column::kAlgbw;
  for (const char* const unit : {"(us)", "(\xC2\xB5s)", "(\xCE\xBCs)", "(ms)"}) {
    if (title.ends_with(unit)) return Column::kTime;
  }
  return Column::kOther;
}

Head head_of(const std::vector<std::string>& cells, int line) {
  Head head{.line = line, .columns = {}, .algorithms = {}, .us = {}, .left_out = {}};
  for (const std::string& cell : cells) {
    const std::string title = lower_text(cell);
    const Column column = column_of(title);
    // A second column of the same kind would mix two kinds of runs.
    const bool again = column != Column::kTime && column != Column::kOther && head.has(column);
    head.columns.push_back(again ? Column::kOther : column);
    if (head.columns.back() == Column::kOther && contains(title, "bw")) head.left_out.push_back(bounded_name(cell));
    std::string algorithm = trimmed(cell.substr(0, cell.rfind('(')));
    if (column != Column::kTime || lower_text(algorithm) == "time" || lower_text(algorithm) == "latency")
      algorithm.clear();
    head.algorithms.push_back(bounded_name(algorithm));
    head.us.push_back(title.ends_with("(ms)") ? 1000 : 1);
  }
  return head;
}

/// What a word of the command that made the table tells: "--nproc_per_node=8", "-g 8".
struct Told {
  size_t gpus = 0;
  bool of_process = false;  // else as many processes
};
std::optional<Told> gpus_told_in(std::string_view line) {
  for (const std::string_view option :
       {"--nproc_per_node=", "--nproc-per-node=", "--nproc_per_node ", "--ngpus ", " -g "}) {
    const size_t at = line.find(option);
    if (at == std::string_view::npos) continue;
    const std::string_view rest = line.substr(at + option.size());
    const std::optional<int64_t> count = count_of(rest.substr(0, rest.find_first_not_of("0123456789")));
    if (count && *count > 0 && static_cast<size_t>(*count) <= kMostGpus) {
      return Told{static_cast<size_t>(*count), option.find("nproc") == std::string_view::npos};
    }
  }
  return std::nullopt;
}

class TableReader {
 public:
  explicit TableReader(const SourceText& source) : cursor_{.rest = source.text} {
    topology_.source = SourceKind::kCollectiveTable;
    topology_.file = source.file;
    topology_.nics_known = false;
  }

  std::optional<Topology> read() {
    std::string_view line;
    std::vector<std::string> above;
    bool ours = false;
    while (cursor_.next(line)) {
      if (line.empty()) {
        above.clear();
        continue;
      }
      if (const std::optional<Told> told = gpus_told_in(line.substr(0, kLongestMarkdownLine)); told && !ours)
        told_ = told;
      std::vector<std::string> cells = markdown_cells(line);
      if (is_markdown_ruler(cells) && cells.size() == above.size() && above.size() <= kMostMarkdownColumns) {
        const Head head = head_of(above, cursor_.number - 1);
        if (is_collective(head, above)) {
          ours = true;
          read_table(head);
          break;  // one table: others in the text may be of other runs
        }
      }
      above = std::move(cells);
    }
    if (!ours) return std::nullopt;
    if (topology_.measurements.empty()) {
      throw UserError("a table of all-reduce figures without rows",
                      fmt::format("{}, line {}", topology_.file, cursor_.number), "give the whole table");
    }
    if (gpus_ > 0) fill_gpus(gpus_, topology_);
    std::move(faults_).move_to(topology_);
    return std::move(topology_);
  }

 private:
  static bool is_collective(const Head& head, const std::vector<std::string>& titles) {
    const bool figures = head.has(Column::kBusbw) || head.has(Column::kAlgbw) || head.has(Column::kTime);
    const bool named = std::any_of(titles.begin(), titles.end(), [](const std::string& cell) {
      const std::string title = lower_text(cell);
      return contains(title, "busbw") || contains(title, "algbw") || contains(title, "nccl") ||
             contains(title, "allreduce") || contains(title, "all-reduce") || contains(title, "all_reduce");
    });
    return figures && named && (head.has(Column::kSize) || head.has(Column::kGpus));
  }

  struct Row {
    int line = 0;
    std::vector<std::string> cells;
  };

  void read_table(const Head& head) {
    std::vector<Row> rows;
    std::string_view line;
    LineCursor ahead = cursor_;
    bool gap = false;
    while (ahead.next(line)) {
      const std::string text = trimmed(line.substr(0, kLongestMarkdownLine));
      if (text.empty()) {
        gap = true;
        continue;
      }
      if (!text.starts_with('|')) break;
      Row row{.line = ahead.number, .cells = markdown_cells(line)};
      LineCursor below = ahead;
      if (gap && below.next(line) && is_markdown_ruler(markdown_cells(line))) break;  // another table's head
      if (gap) faults_.fault(fmt::format("line {}: rows stand below a gap in the table", row.line));
      gap = false;
      cursor_ = ahead;
      if (row.cells.size() != head.columns.size()) {
        faults_.fault(
            fmt::format("line {}: a row is cut or has other columns than the head: it is left out", row.line));
        continue;
      }
      if (rows.size() == kMostMeasurements) {
        throw UserError(fmt::format("more than {} rows", kMostMeasurements), topology_.file, "give one run's table");
      }
      rows.push_back(std::move(row));
    }
    for (const std::string& column : head.left_out) faults_.note(fmt::format("The column \"{}\" is left out", column));
    const bool binary = binary_sizes(head, rows);
    const std::optional<size_t> gpus = head.has(Column::kGpus) ? std::nullopt : gpus_of_table(head, rows);
    if (gpus) gpus_ = *gpus;
    for (const Row& row : rows) read_row(head, row, binary, gpus);
    if (head.has(Column::kGpus)) {
      faults_.note(fmt::format("The machine has at least {} GPUs, by the column of GPUs: more is not told", gpus_));
    }
  }

  /// Tables of powers of two mean 1024 by "KB", as NCCL's own tools do; others 1000. "KiB" is 1024 anyhow.
  static bool binary_sizes(const Head& head, const std::vector<Row>& rows) {
    const size_t column = index_of(head, Column::kSize);
    return std::all_of(rows.begin(), rows.end(), [&](const Row& row) {
      const std::optional<Quantity> size = column < row.cells.size() ? quantity_of(row.cells[column]) : std::nullopt;
      if (!size) return true;
      const double power = std::log2(size->value);
      return power == std::floor(power);
    });
  }

  static size_t index_of(const Head& head, Column column) {
    return static_cast<size_t>(std::find(head.columns.begin(), head.columns.end(), column) - head.columns.begin());
  }

  std::optional<size_t> gpus_of_table(const Head& head, const std::vector<Row>& rows) {
    CollectiveRun run{.line = head.line};
    if (told_) run.told_gpus = told_->gpus;
    for (const Row& row : rows) {
      CollectiveRow each;
      for (size_t i = 0; i < row.cells.size(); ++i) {
        if (head.columns[i] == Column::kBusbw) each.busbw_gb_per_s = gb_per_s_of(row.cells[i]);
        if (head.columns[i] == Column::kAlgbw) each.gb_per_s = gb_per_s_of(row.cells[i]);
      }
      run.rows.push_back(std::move(each));
    }
    if (!told_ && !(head.has(Column::kBusbw) && head.has(Column::kAlgbw))) return std::nullopt;
    return gpus_of_run(run, faults_);
  }

  std::optional<int64_t> bytes_of(std::string_view cell, bool binary) const {
    const std::optional<Quantity> size = quantity_of(cell);
    const int power = size ? unit_power(size->unit) : -1;
    if (power < 0) return std::nullopt;
    const double unit = std::pow(binary || contains(size->unit, "i") ? 1024 : 1000, power);
    const double bytes = std::round(size->value * unit);
    return bytes < 1e15 ? std::optional(static_cast<int64_t>(bytes)) : std::nullopt;
  }

  void read_row(const Head& head, const Row& row, bool binary, std::optional<size_t> gpus) {
    CollectiveRow values{.line = row.line};
    std::string algorithm;
    std::vector<std::pair<std::string, double>> times;
    bool damaged = false;
    for (size_t i = 0; i < row.cells.size(); ++i) {
      const std::string& cell = row.cells[i];
      bool good = true;
      switch (head.columns[i]) {
        case Column::kOther:
          break;
        case Column::kSize:
          values.bytes = bytes_of(cell, binary);
          good = values.bytes.has_value();
          break;
        case Column::kGpus: {
          const std::optional<int64_t> count = count_of(cell);
          good = count && *count > 0 && static_cast<size_t>(*count) <= kMostGpus;
          if (good) gpus = static_cast<size_t>(*count);
          break;
        }
        case Column::kBusbw:
          values.busbw_gb_per_s = gb_per_s_of(cell);
          good = values.busbw_gb_per_s.has_value();
          break;
        case Column::kAlgbw:
          values.gb_per_s = gb_per_s_of(cell);
          good = values.gb_per_s.has_value();
          break;
        case Column::kTime:
          if (const std::optional<Figure> time = figure_of(cell); time && time->value > 0) {
            times.emplace_back(head.algorithms[i], time->value * head.us[i]);
          } else {
            good = false;
          }
          break;
        case Column::kAlgorithm:
          algorithm = bounded_name(cell);
          break;
      }
      if (good) continue;
      damaged = true;
      faults_.fault(fmt::format("line {}: column {}: {} cannot be read: unknown", row.line, i + 1, quoted(cell)));
    }
    if (damaged && times.empty()) return;
    CollectiveRun run{.line = row.line, .algorithm = algorithm};
    if (told_ && told_->of_process) {
      run.threads = 1;
      run.gpus_of_thread = told_->gpus;
      run.one_process = one_process_of(run, gpus);
    } else if (told_) {
      run.one_process = false;
    }
    if (times.empty()) {
      run.rows.push_back(values);
      drop_damaged_rows(run, gpus, faults_);
      for (CollectiveRow& each : run.rows) derive_time(each);
      append_rows(run, gpus, topology_);
    }
    for (const auto& [name, us] : times) {
      run.rows = {values};
      run.rows.front().time_us = us;
      if (!name.empty()) run.algorithm = name;
      append_rows(run, gpus, topology_);
    }
    if (gpus) gpus_ = std::max(gpus_, *gpus);
  }

  /// By definition of the algorithm bandwidth: size / time.
  static void derive_time(CollectiveRow& row) {
    if (!row.time_us && row.bytes && row.gb_per_s && *row.gb_per_s > 0) {
      row.time_us = static_cast<double>(*row.bytes) / (*row.gb_per_s * 1000);
    }
  }

  LineCursor cursor_;
  Topology topology_;
  Faults faults_;
  std::optional<Told> told_;
  size_t gpus_ = 0;
};

}  // namespace

std::optional<Topology> read_collective_table(const SourceText& source) {
  return TableReader(source).read();
}

}  // namespace shardscope::topology
