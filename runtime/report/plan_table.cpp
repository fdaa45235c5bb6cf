// The tables of `plan`: its rows, and the parts of their TPOT.
#include "runtime/report/plan_tables.hpp"

#include <algorithm>
#include <functional>
#include <set>

#include <fmt/format.h>

#include "runtime/report/parts_table.hpp"
#include "runtime/report/table.hpp"
#include "runtime/report/table_text.hpp"

namespace shardscope::runtime {
namespace {

constexpr double kGB = 1e9;
/// More rows than these are shown without their shares.
constexpr size_t kRowsWithShares = 16;
/// Of more rows than these, only those of the first workload show their parts.
constexpr size_t kRowsWithParts = 32;

/// What goes first when a table is too wide.
enum class Drop : uint8_t { kNarrowGap, kPerGpu, kCommunication, kEfficiency, kNever };

struct Column {
  std::string name, unit;
  std::function<std::string(const PredictedRow&)> cell;
  Drop drop = Drop::kNever;
};

/// "16.0", "4.31", "132": three digits are more than a prediction is worth.
std::string short_figure(double value) {
  if (value >= 99.95) return fmt::format("{:.0f}", value);
  if (value >= 9.995) return fmt::format("{:.1f}", value);
  return value >= 0.9995 || value == 0 ? fmt::format("{:.2f}", value) : fmt::format("{:.3f}", value);
}

std::string short_figure(const std::optional<double>& value) {
  return value ? short_figure(*value) : kUnknown;
}

/// "16.0 (13.2..19.4)"
std::string ranged_text(const std::optional<double>& value, const std::optional<Bounds>& range) {
  if (!value || !range) return short_figure(value);
  return fmt::format("{} ({}..{})", short_figure(*value), short_figure(range->low), short_figure(range->high));
}

std::string per_gpu_text(const PointResult& point) {
  if (!point.throughput_tokens_per_s) return kUnknown;
  return short_figure(*point.throughput_tokens_per_s / (point.tp * point.pp));
}

std::string speedup_text(const PointResult& point) {
  return point.speedup ? fmt::format("{:.2f}", *point.speedup) : kUnknown;
}

/// The columns that say which row is which.
std::vector<Column> key_columns(const PlanReport& report) {
  const std::vector<PredictedRow>& rows = report.plan.rows;
  std::set<std::pair<int64_t, int64_t>> lengths;
  for (const PredictedRow& row : rows) {
    lengths.insert({row.point.workload.prompt_tokens, row.point.workload.output_tokens});
  }
  std::vector<Column> columns = {{"TP", "", [](const PredictedRow& row) {
                                    return fmt::format("{}{}", row.point.tp, row.uncalibrated.empty() ? "" : "*");
                                  }}};
  const auto add = [&](const char* name, const char* unit, auto value) {
    columns.push_back({name, unit, [value](const PredictedRow& row) { return fmt::format("{}", value(row.point)); }});
  };
  if (report.options.stages > 1) add("PP", "", [](const PointResult& point) { return point.pp; });
  add("batch", "", [](const PointResult& point) { return point.workload.batch; });
  if (lengths.size() > 1) {
    add("in", "tok", [](const PointResult& point) { return point.workload.prompt_tokens; });
    add("out", "tok", [](const PointResult& point) { return point.workload.output_tokens; });
  }
  return columns;
}

std::vector<Column> figure_columns(const PlanReport& report) {
  const auto point_of = [](auto text) { return [text](const PredictedRow& row) { return text(row.point); }; };
  const double usable_gb = report.plan.rows.front().gpu_bytes / kGB;
  return {
      {"TTFT (range)", "ms", [](const PredictedRow& row) { return ranged_text(row.point.ttft_ms.p50, row.ttft_ms); }},
      {"TPOT (range)", "ms", [](const PredictedRow& row) { return ranged_text(row.point.tpot_ms.p50, row.tpot_ms); }},
      {"tokens", "1/s", point_of([](const PointResult& point) { return short_figure(point.throughput_tokens_per_s); })},
      {"per GPU", "1/s", point_of(per_gpu_text), Drop::kPerGpu},
      {"MBU", "%", point_of([](const PointResult& point) { return percent_text(point.mbu); })},
      {"speedup", "x", point_of([](const PointResult& point) { return speedup_text(point); })},
      {"effic.", "%", point_of([](const PointResult& point) { return percent_text(point.efficiency); }),
       Drop::kEfficiency},
      {"comm.", "% TPOT", point_of([](const PointResult& point) { return percent_text(point.comm_share); }),
       Drop::kCommunication},
      {"memory", fmt::format("GB of {:.1f}", usable_gb),
       [](const PredictedRow& row) { return short_figure(row.needed_bytes / kGB); }}};
}

std::string layout(const std::vector<PredictedRow>& rows, const std::vector<Column>& keys,
                   const std::vector<Column>& figures, size_t gap) {
  std::vector<std::vector<std::string>> cells(2);
  for (const auto* columns : {&keys, &figures}) {
    for (const Column& column : *columns) {
      cells[0].push_back(column.name);
      cells[1].push_back(column.unit);
    }
  }
  for (const PredictedRow& row : rows) {
    std::vector<std::string>& line = cells.emplace_back();
    for (const Column& column : keys) line.push_back(column.cell(row));
    if (!row.fits()) continue;
    for (const Column& column : figures) line.push_back(column.cell(row));
  }
  std::string table = aligned(cells, gap);
  // Behind the keys of a row that does not fit: a sentence, as wide as it likes to be.
  std::string text;
  size_t line = 0;
  for (size_t begin = 0; begin < table.size(); ++line) {
    const size_t end = table.find('\n', begin);
    text += table.substr(begin, end - begin);
    if (line >= 2 && !rows[line - 2].fits()) {
      const PredictedRow& row = rows[line - 2];
      text += fmt::format("  does not fit: {} a GPU, {} may be used, {} too much", bytes_text(row.needed_bytes),
                          bytes_text(row.gpu_bytes), bytes_text(row.needed_bytes - row.gpu_bytes));
    }
    text += '\n';
    begin = end + 1;
  }
  return text;
}

std::vector<PointResult> shown_points(const PlanReport& report) {
  std::vector<PointResult> points;
  for (const PredictedRow& row : report.plan.rows) {
    if (row.fits() && row.point.attribution && row.point.tpot_ms.p50) points.push_back(row.point);
  }
  return points;
}

std::vector<KeyColumn> parts_keys(const std::vector<PointResult>& points) {
  std::vector<KeyColumn> keys = RowKeys(points).columns();
  if (std::any_of(points.begin(), points.end(), [](const PointResult& point) { return point.pp > 1; })) {
    keys.insert(keys.begin() + 1, {"PP", "", [](const PointResult& point) { return std::to_string(point.pp); }});
  }
  return keys;
}

std::string time_table(const std::vector<PointResult>& points) {
  if (points.empty()) return "";
  std::vector<PartsLine> lines;
  for (const PointResult& point : points) {
    lines.push_back({.point = &point,
                     .parts = &*point.attribution,
                     .totals = {short_figure(point.tpot_ms.p50)},
                     .whole_ms = point.tpot_ms.p50});
  }
  const PartsTable table{
      .keys = parts_keys(points), .totals = {{"TPOT", "ms"}}, .shares = lines.size() <= kRowsWithShares};
  return wrapped(fmt::format("where TPOT would go: ms, means of the ranks{}",
                             table.shares ? ", and % of TPOT below them" : "")) +
         parts_table_text(table, lines) + parts_legend() + "\n";
}

std::string loss_table(const std::vector<PointResult>& points) {
  std::vector<PartsLine> lines;
  for (const PointResult& point : points) {
    if (!point.loss || !point.tp_base || *point.tp_base == point.tp) continue;
    lines.push_back({.point = &point,
                     .parts = &*point.loss,
                     .totals = {fmt::format("TP {}", *point.tp_base), short_figure(point.loss->sum())},
                     .whole_ms = point.loss->sum()});
  }
  if (lines.empty()) return "";
  const PartsTable table{
      .keys = parts_keys(points), .totals = {{"base", ""}, {"loss", "ms"}}, .shares = lines.size() <= kRowsWithShares};
  return wrapped(fmt::format("what would be lost against ideal scaling, TPOT - TPOT of the base x base / TP: ms{}",
                             table.shares ? ", and % of the loss below them" : "")) +
         parts_table_text(table, lines) + "\n";
}

}  // namespace

std::string plan_row_table(const PlanReport& report) {
  const std::vector<PredictedRow>& rows = report.plan.rows;
  const std::vector<Column> keys = key_columns(report);
  std::vector<Column> figures = figure_columns(report);
  size_t gap = 2;
  std::string table = layout(rows, keys, figures, gap);
  for (const Drop drop : {Drop::kNarrowGap, Drop::kPerGpu, Drop::kCommunication, Drop::kEfficiency}) {
    if (widest_line(table) <= kTableColumns) break;
    if (drop == Drop::kNarrowGap) gap = 1;
    std::erase_if(figures, [&](const Column& column) { return column.drop == drop; });
    table = layout(rows, keys, figures, gap);
  }
  return table;
}

std::string plan_parts_tables(const PlanReport& report) {
  std::vector<PointResult> points = shown_points(report);
  std::string left_out;
  if (points.size() > kRowsWithParts) {
    const Workload first = points.front().workload;
    const size_t removed = std::erase_if(points, [&](const PointResult& point) { return point.workload != first; });
    left_out = wrapped(fmt::format("(of batch {}, {} + {} tokens; those of {} more rows are in the report)",
                                   first.batch, first.prompt_tokens, first.output_tokens, removed));
  }
  const std::string tables = time_table(points) + loss_table(points);
  return left_out.empty() ? tables : tables.substr(0, tables.size() - 1) + left_out + "\n";
}

}  // namespace shardscope::runtime
