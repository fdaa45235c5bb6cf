// The table of `scale`: one row a point, as many columns as fit, what must be known before believing a row, and where
// its time goes.
#include <algorithm>
#include <functional>
#include <iterator>
#include <map>

#include <fmt/format.h>

#include "runtime/report/attribution_table.hpp"
#include "runtime/report/rehearsal_text.hpp"
#include "runtime/report/row_keys.hpp"
#include "runtime/report/table.hpp"
#include "runtime/report/table_text.hpp"

namespace shardscope::runtime {
namespace {

/// What goes first when a table is too wide; kNarrowGap: one space between columns instead of two.
enum class Drop : uint8_t { kPerRank, kTail, kNarrowGap, kPeak, kCommunication, kEfficiency, kNever };

struct Column {
  const char* name;
  const char* unit;
  std::function<std::string(const PointResult&)> cell;
  Drop drop = Drop::kNever;
};

using Points = std::vector<PointResult>;

bool any(const Points& points, bool (*holds)(const PointResult&)) {
  return std::any_of(points.begin(), points.end(), holds);
}

std::string throughput_per_rank(const PointResult& point) {
  return point.throughput_tokens_per_s ? figure_text(*point.throughput_tokens_per_s / (point.tp * point.group.replicas))
                                       : kUnknown;
}

/// Fixed digits behind the point, so that small values stand under each other.
std::string rounded(double value, int digits) {
  return value < 100 ? fmt::format("{:.{}f}", value, digits) : figure_text(value);
}

std::string noise_text(const PointResult& point) {
  return point.noise.relative ? rounded(*point.noise.relative * 100, 1) : "open";
}

std::string speedup_text(const PointResult& point) {
  return point.speedup ? rounded(*point.speedup, 2) : kUnknown;
}

std::string tail_text(const PointResult& point) {
  return point.tpot_ms.p95_supported ? figure_text(point.tpot_ms.p95) : kUnknown;
}

/// Of TPOT, in all-reduces and waiting for their ranks.
std::string communication_text(const PointResult& point) {
  return point.comm_share ? percent_text(point.comm_share) : "-";
}

/// What was found there.
std::vector<Column> figure_columns(const Points& points) {
  const bool tail = any(points, [](const PointResult& p) { return p.tpot_ms.p95_supported; });
  const bool peak = any(points, [](const PointResult& p) { return p.mbu.has_value(); });
  const bool communication = any(points, [](const PointResult& p) { return p.comm_share.has_value(); });
  std::vector<Column> columns = {{"TTFT p50", "ms", [](const PointResult& p) { return figure_text(p.ttft_ms.p50); }},
                                 {"TPOT p50", "ms", [](const PointResult& p) { return figure_text(p.tpot_ms.p50); }},
                                 {"±", "%", noise_text}};
  if (tail) columns.push_back({"TPOT p95", "ms", tail_text, Drop::kTail});
  columns.push_back({"ITL p99", "ms", [](const PointResult& p) { return figure_text(p.itl_ms.p99); }});
  columns.push_back({"tokens", "1/s", [](const PointResult& p) { return figure_text(p.throughput_tokens_per_s); }});
  columns.push_back({"per rank", "1/s", throughput_per_rank, Drop::kPerRank});
  columns.push_back({"MBU", "% ach.", [](const PointResult& p) { return percent_text(p.mbu_achievable); }});
  if (peak) {
    columns.push_back({"MBU", "% peak", [](const PointResult& p) { return percent_text(p.mbu); }, Drop::kPeak});
  }
  columns.push_back({"speedup", "x", speedup_text});
  columns.push_back(
      {"effic.", "%", [](const PointResult& p) { return percent_text(p.efficiency); }, Drop::kEfficiency});
  if (communication) columns.push_back({"comm.", "% TPOT", communication_text, Drop::kCommunication});
  return columns;
}

std::string layout(const Points& points, const std::vector<KeyColumn>& keys, const std::vector<Column>& figures,
                   size_t gap) {
  std::vector<std::string> names;
  std::vector<std::string> units;
  const auto head = [&](const auto& columns) {
    for (const auto& column : columns) {
      names.emplace_back(column.name);
      units.emplace_back(column.unit);
    }
  };
  head(keys);
  head(figures);
  std::vector<std::vector<std::string>> rows = {names, units};
  for (const PointResult& point : points) {
    std::vector<std::string> row;
    row.reserve(names.size());
    for (const KeyColumn& column : keys) row.push_back(column.cell(point));
    if (point.status == PointStatus::kOutOfMemory) {
      row.emplace_back("OOM");
    } else {
      for (const Column& column : figures) row.push_back(column.cell(point));
    }
    rows.push_back(std::move(row));
  }
  return aligned(rows, gap);
}

std::string fitting_table(const Points& points) {
  const std::vector<KeyColumn> keys = RowKeys(points).columns();
  std::vector<Column> figures = figure_columns(points);
  size_t gap = 2;
  std::string table = layout(points, keys, figures, gap);
  for (const Drop drop :
       {Drop::kPerRank, Drop::kTail, Drop::kNarrowGap, Drop::kPeak, Drop::kCommunication, Drop::kEfficiency}) {
    if (widest_line(table) <= kTableColumns) break;
    if (drop == Drop::kNarrowGap) gap = 1;
    std::erase_if(figures, [&](const Column& column) { return column.drop == drop; });
    table = layout(points, keys, figures, gap);
  }
  return table;
}

/// Which devices the placements are, a line a degree, where there are several.
std::string device_lines(const Points& points) {
  const RowKeys keys(points);
  if (keys.placements() < 2) return "";
  std::map<int, std::vector<std::string>> lines;  // of each degree
  for (const PointResult& point : points) {
    const std::string group =
        fmt::format("{} {}", keys.placement(point.group), topology::core_list_text(point.places()));
    std::vector<std::string>& line = lines[point.tp];
    if (std::find(line.begin(), line.end(), group) == line.end()) line.push_back(group);
  }
  std::string text;
  for (const auto& [tp, line] : lines) {
    if (line.size() > 1) text += wrapped(fmt::format("TP {}: devices of {}", tp, fmt::join(line, "; ")));
  }
  return text;
}

/// The first few of many, so that a sweep of many rows stays readable.
std::string names_text(const std::vector<std::string>& rows) {
  constexpr size_t kNamed = 3;
  const auto end = rows.begin() + static_cast<std::ptrdiff_t>(std::min(rows.size(), kNamed));
  std::string text = fmt::format("{}", fmt::join(rows.begin(), end, "; "));
  if (rows.size() > kNamed) text += fmt::format("; and {} more", rows.size() - kNamed);
  return text;
}

/// The rows that share the first word of a verdict, and the first one's explanation.
struct VerdictGroup {
  std::string word;
  std::string example;
  std::vector<std::string> rows;
};

std::vector<VerdictGroup> verdict_groups(const Points& points) {
  const RowKeys keys(points);
  std::vector<VerdictGroup> groups;
  for (const PointResult& point : points) {
    const std::string row = keys.name(point);
    for (const std::string& verdict : point.verdicts) {
      const size_t colon = verdict.find(": ");
      const std::string word = verdict.substr(0, colon);
      auto group = std::find_if(groups.begin(), groups.end(), [&](const VerdictGroup& g) { return g.word == word; });
      if (group == groups.end()) {
        groups.push_back({word, colon == std::string::npos ? "" : verdict.substr(colon + 2), {}});
        group = std::prev(groups.end());
      }
      if (group->rows.empty() || group->rows.back() != row) group->rows.push_back(row);
    }
  }
  return groups;
}

/// One line a kind of verdict, so that a sweep of many rows on a busy machine stays readable.
std::string verdict_lines(const Points& points) {
  std::string text;
  bool shortened = false;
  for (const VerdictGroup& group : verdict_groups(points)) {
    if (group.rows.size() == 1) {
      text += wrapped(fmt::format("{}: {}: {}", group.rows.front(), group.word, group.example));
      continue;
    }
    shortened = true;
    const std::string where = group.rows.size() == points.size() ? "all rows"
                                                                 : fmt::format("{} of {} rows ({})", group.rows.size(),
                                                                               points.size(), names_text(group.rows));
    text += wrapped(fmt::format("{}: {}; {}: {}", where, group.word, group.rows.front(), group.example));
  }
  if (shortened) text += "(-v and the report have the verdicts of every row)\n";
  return text;
}

}  // namespace

std::string scale_table(const std::vector<PointResult>& points) {
  std::string text = rehearsal_lines(points) + fitting_table(points);
  if (any(points, [](const PointResult& p) { return p.status == PointStatus::kIncomplete; })) {
    text += "* measured once; the second visit is missing\n";
  }
  if (any(points, [](const PointResult& p) { return p.status == PointStatus::kInvalid; })) {
    text += "! a utilisation over 100 %: see the verdict\n";
  }
  text += device_lines(points);
  for (const std::string& block : {verdict_lines(points), attribution_table(points)}) {
    if (!block.empty()) text += "\n" + block;
  }
  return text;
}

}  // namespace shardscope::runtime
