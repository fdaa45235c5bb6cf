#include "runtime/report/attribution_table.hpp"

#include <fmt/format.h>

#include "runtime/report/loss.hpp"
#include "runtime/report/parts_table.hpp"
#include "runtime/report/table_text.hpp"

namespace shardscope::runtime {
namespace {

/// More rows than these are shown without their shares.
constexpr size_t kRowsWithShares = 16;

std::string share_note(const PartsTable& layout, const char* of) {
  return layout.shares ? fmt::format(", and % of {} below them", of) : "";
}

std::string time_table(const std::vector<PointResult>& points, const RowKeys& keys) {
  std::vector<PartsLine> lines;
  for (const PointResult& point : points) {
    if (!point.attribution || !point.tpot_ms.p50) continue;
    lines.push_back({.point = &point,
                     .parts = &*point.attribution,
                     .totals = {figure_text(point.tpot_ms.p50)},
                     .whole_ms = point.tpot_ms.p50});
  }
  if (lines.empty()) return "";
  const PartsTable layout{
      .keys = keys.columns(), .totals = {{"TPOT", "ms"}}, .shares = lines.size() <= kRowsWithShares};
  return wrapped(fmt::format("where TPOT goes: ms, means of the ranks{}", share_note(layout, "TPOT"))) +
         parts_table_text(layout, lines) + parts_legend();
}

std::string loss_table(const std::vector<PointResult>& points, const RowKeys& keys) {
  std::vector<PartsLine> lines;
  bool lost_in_noise = false;
  for (const PointResult& point : points) {
    if (!point.loss || !point.tp_base || *point.tp_base == point.tp) continue;
    const double loss_ms = point.loss->sum();
    const bool beyond = loss_beyond_noise(point, points);
    lost_in_noise = lost_in_noise || !beyond;
    lines.push_back({.point = &point,
                     .parts = &*point.loss,
                     .totals = {fmt::format("TP {}", *point.tp_base), figure_text(loss_ms)},
                     .whole_ms = beyond ? std::optional(loss_ms) : std::nullopt});
  }
  if (lines.empty()) return "";
  const PartsTable layout{
      .keys = keys.columns(), .totals = {{"base", ""}, {"loss", "ms"}}, .shares = lines.size() <= kRowsWithShares};
  std::string text =
      fmt::format("\n{}{}",
                  wrapped(fmt::format("what is lost against ideal scaling, TPOT - TPOT of the base x base / TP: ms{}",
                                      share_note(layout, "the loss"))),
                  parts_table_text(layout, lines));
  if (layout.shares && lost_in_noise) text += "n/a: a loss that is not beyond the noise of the two rows\n";
  return text;
}

std::string slowest_lines(const std::vector<PointResult>& points, const RowKeys& keys) {
  std::string text;
  for (const PointResult& point : points) {
    const std::optional<SlowestRank> slowest = slowest_rank(point);
    if (!slowest) continue;
    text += wrapped(fmt::format("{}: rank {} is waited for: it {}", keys.name(point), slowest->rank,
                                slowest->waits(point.ranks.size())));
  }
  return text.empty() ? text : fmt::format("\n{}", text);
}

}  // namespace

std::string attribution_table(const std::vector<PointResult>& points) {
  const RowKeys keys(points);
  std::string text = time_table(points, keys);
  if (text.empty()) return text;
  return text + loss_table(points, keys) + slowest_lines(points, keys);
}

std::string rank_parts_line(const PointResult& point, const RankFigures& figures) {
  if (!figures.attribution) return "";
  std::vector<std::string> parts;
  for (const Part part : kParts) {
    const std::optional<double> ms = point.knows(part) ? std::optional((*figures.attribution)[part]) : std::nullopt;
    parts.push_back(fmt::format("{} {}", short_name(part), figure_text(ms)));
  }
  return fmt::format("{} ms", fmt::join(parts, ", "));
}

}  // namespace shardscope::runtime
