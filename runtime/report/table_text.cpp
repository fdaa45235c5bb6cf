#include "runtime/report/table_text.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace shardscope::runtime {
namespace {

/// Where `text` may be cut so that what is before has `width` characters; its size where it is shorter.
size_t cut_after(std::string_view text, size_t width) {
  size_t end = 0;
  while (end < text.size()) {
    size_t next = end + 1;
    while (next < text.size() && display_width(text.substr(next, 1)) == 0) ++next;
    if (width-- == 0) break;
    end = next;
  }
  return end;
}

/// The last space at or before `most` where a line may end: not between a number and its unit, if it can be helped.
size_t break_before(std::string_view text, size_t most) {
  const size_t last = text.rfind(' ', most);
  size_t space = last;
  while (space != std::string_view::npos && space > 0 && text[space - 1] >= '0' && text[space - 1] <= '9') {
    space = text.rfind(' ', space - 1);
  }
  return space == std::string_view::npos || space == 0 ? last : space;
}

}  // namespace

std::string figure_text(double value) {
  const double size = std::abs(value);
  if (size < 0.9995) return fmt::format("{:.3f}", value);
  if (size < 99.995) return fmt::format("{:.2f}", value);
  if (size < 9999.95) return fmt::format("{:.1f}", value);
  if (size < 9999999.5) return fmt::format("{:.0f}", value);
  return fmt::format("{:.1e}", value);
}

std::string figure_text(const std::optional<double>& value) {
  return value ? figure_text(*value) : kUnknown;
}

std::string percent_text(const std::optional<double>& fraction) {
  if (!fraction) return kUnknown;
  const double percent = *fraction * 100;
  return std::abs(percent) < 9999.5 ? fmt::format("{:.0f}", percent) : fmt::format("{:.0e}", percent);
}

std::string percent_text(const std::optional<Spread>& spread) {
  if (!spread) return kUnknown;
  const std::string low = percent_text(std::optional(spread->min));
  const std::string high = percent_text(std::optional(spread->max));
  return low == high ? low : low + ".." + high;
}

size_t display_width(std::string_view text) {
  const auto begins_character = [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U; };
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), begins_character));
}

size_t widest_line(std::string_view text) {
  size_t widest = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    widest = std::max(widest, display_width(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return widest;
}

std::string aligned(const std::vector<std::vector<std::string>>& rows, size_t gap) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], display_width(row[i]));
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - display_width(row[i]), ' ');
      line += i == 0 ? row[i] + padding : std::string(gap, ' ') + padding + row[i];
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string wrapped(std::string_view sentence) {
  std::string text;
  std::string indent;
  while (display_width(sentence) + indent.size() > kTableColumns) {
    const size_t most = cut_after(sentence, kTableColumns - indent.size());
    size_t end = break_before(sentence, most);
    if (end == std::string_view::npos || end == 0) end = most;  // one long word
    text += indent + std::string(sentence.substr(0, end)) + "\n";
    sentence.remove_prefix(end);
    sentence.remove_prefix(std::min(sentence.find_first_not_of(' '), sentence.size()));
    indent = "  ";
  }
  if (!sentence.empty()) text += indent + std::string(sentence) + "\n";
  std::replace(text.begin(), text.end(), kNoBreak, ' ');
  return text;
}

}  // namespace shardscope::runtime
