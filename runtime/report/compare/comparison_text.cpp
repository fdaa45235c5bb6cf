// A comparison of reports for a terminal: the summary, what differs, a row a point, and where differences come from.
#include <algorithm>

#include <fmt/format.h>

#include "runtime/model/json_file.hpp"
#include "runtime/report/compare/comparing.hpp"
#include "runtime/report/parts_table.hpp"
#include "runtime/report/row_keys.hpp"
#include "runtime/report/table_text.hpp"
#include "topology/comparing.hpp"

namespace shardscope::runtime {
namespace {

/// A longer value of a fact is cut on a terminal; the document has it whole.
constexpr size_t kLongestValue = 36;

std::vector<PointResult> points_of(const ReportComparison& comparison) {
  std::vector<PointResult> points;
  for (const ComparedPoint& pair : comparison.points) points.push_back(*pair.first);
  for (const LonePoint& lone : comparison.lone) points.push_back(*lone.point);
  return points;
}

/// "[2]", where there are several others.
std::string letter(size_t report) {
  return fmt::format("[{}]", report + 1);
}

std::string noisy(const PointResult& point) {
  return point.noise.relative
             ? fmt::format("{} ± {:.1f} %", figure_text(point.tpot_ms.p50), *point.noise.relative * 100)
             : figure_text(point.tpot_ms.p50);
}

std::string signed_text(const std::optional<double>& ms) {
  if (!ms) return kUnknown;
  return fmt::format("{}{}", *ms < 0 ? "-" : "+", figure_text(std::abs(*ms)));
}

std::string bounds_text(const ComparedPoint& pair) {
  if (!pair.ratio_bounds) return "open";
  return fmt::format("{:.2f}..{:.2f}", pair.ratio_bounds->low, pair.ratio_bounds->high);
}

std::string point_table(const ReportComparison& comparison, const RowKeys& keys, bool several) {
  const std::vector<KeyColumn> columns = keys.columns();
  std::vector<std::vector<std::string>> rows(2);
  const auto head = [&](const char* name, const char* unit) {
    rows[0].emplace_back(name);
    rows[1].emplace_back(unit);
  };
  for (const KeyColumn& column : columns) head(column.name, column.unit);
  if (several) head("of", "");
  head("TPOT [1]", "ms");
  head(several ? "TPOT" : "TPOT [2]", "ms");
  head("change", "ms");
  head("ratio", "x");
  head("within", "x");
  head("verdict", "");
  for (const ComparedPoint& pair : comparison.points) {
    std::vector<std::string> row;
    for (const KeyColumn& column : columns) row.push_back(column.cell(*pair.first));
    if (several) row.push_back(letter(pair.report));
    row.push_back(noisy(*pair.first));
    row.push_back(noisy(*pair.other));
    row.push_back(signed_text(pair.difference_ms));
    row.push_back(pair.ratio ? fmt::format("{:.2f}", *pair.ratio) : kUnknown);
    row.push_back(bounds_text(pair));
    row.emplace_back(name_of(pair.verdict));
    rows.push_back(std::move(row));
  }
  const std::string text = aligned(rows, 2);
  return widest_line(text) <= kTableColumns ? text : aligned(rows, 1);
}

std::string pair_name(const ComparedPoint& pair, const RowKeys& keys, bool several) {
  return several ? fmt::format("{} {}", letter(pair.report), keys.name(*pair.first)) : keys.name(*pair.first);
}

/// What explains a verdict, or why there is none; points that share a reason share a line.
std::string reason_lines(const ReportComparison& comparison, const RowKeys& keys, bool several) {
  std::vector<std::pair<std::string, std::vector<std::string>>> lines;  // reason, points
  std::string text;
  for (const ComparedPoint& pair : comparison.points) {
    if (!pair.words.empty()) text += wrapped(fmt::format("{}: {}", pair_name(pair, keys, several), pair.words));
    if (pair.reason.empty()) continue;
    auto line = std::find_if(lines.begin(), lines.end(), [&](const auto& one) { return one.first == pair.reason; });
    if (line == lines.end()) line = lines.insert(lines.end(), {pair.reason, {}});
    line->second.push_back(pair_name(pair, keys, several));
  }
  for (const auto& [reason, points] : lines) {
    text += wrapped(fmt::format("unclear: {}: {}", fmt::join(points, "; "), reason));
  }
  return text.empty() ? text : fmt::format("\n{}", text);
}

std::string explained_table(const ReportComparison& comparison, const RowKeys& keys, bool several) {
  std::vector<PartsLine> lines;
  for (const ComparedPoint& pair : comparison.points) {
    if (!pair.explained) continue;
    const bool told = pair.verdict == PointVerdict::kFaster || pair.verdict == PointVerdict::kSlower;
    PartsLine line{.point = pair.first, .parts = &*pair.explained, .totals = {}};
    if (several) line.totals.push_back(letter(pair.report));
    line.totals.push_back(signed_text(pair.difference_ms));
    if (told) line.whole_ms = pair.difference_ms;
    lines.push_back(std::move(line));
  }
  if (lines.empty()) return "";
  const bool any = std::any_of(lines.begin(), lines.end(), [](const PartsLine& line) { return line.whole_ms; });
  PartsTable table{.keys = keys.columns(), .totals = {}, .shares = any};
  if (several) table.totals.emplace_back("of", "");
  table.totals.emplace_back("change", "ms");
  return fmt::format(
      "\nwhere it comes from: ms of each part more than in [1], and % of the change where there is one\n{}{}",
      parts_table_text(table, lines), parts_legend());
}

std::string lone_lines(const ReportComparison& comparison, const RowKeys& keys) {
  std::vector<std::pair<std::string, std::vector<std::string>>> lines;
  for (const LonePoint& lone : comparison.lone) {
    const std::string where = fmt::format("in {}, not in {}", letter(lone.report), letter(lone.lacks));
    auto line = std::find_if(lines.begin(), lines.end(), [&](const auto& one) { return one.first == where; });
    if (line == lines.end()) line = lines.insert(lines.end(), {where, {}});
    line->second.push_back(keys.name(*lone.point));
  }
  std::string text;
  for (const auto& [where, points] : lines) text += wrapped(fmt::format("{}: {}", where, fmt::join(points, "; ")));
  return text.empty() ? text : fmt::format("\n{}", text);
}

}  // namespace

std::string comparison_text(const ReportComparison& comparison, const std::vector<ReadReport>& reports, int width) {
  topology::Comparison runs{.names = {}, .differences = comparison.differences, .summary = comparison.summary};
  for (const ReadReport& report : reports) runs.names.push_back(printable(report.name));
  for (topology::Difference& difference : runs.differences) {
    for (std::string& value : difference.values) value = printable(value, kLongestValue);
  }
  std::string text = topology::comparison_text(runs, width);
  if (comparison.points.empty() && comparison.lone.empty()) return text;
  const RowKeys keys(points_of(comparison));
  const bool several = reports.size() > 2;
  if (!comparison.points.empty()) {
    text += "\n";
    for (size_t at = 0; at < reports.size(); ++at) text += wrapped(fmt::format("{} {}", letter(at), runs.names[at]));
    text += fmt::format("\n{}", point_table(comparison, keys, several));
    text += reason_lines(comparison, keys, several) + explained_table(comparison, keys, several);
  }
  return text + lone_lines(comparison, keys);
}

}  // namespace shardscope::runtime
