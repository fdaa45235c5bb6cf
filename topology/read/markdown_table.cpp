#include "topology/read/markdown_table.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "topology/files.hpp"
#include "topology/read/number_table.hpp"

namespace shardscope::topology {

std::string lower_text(std::string_view text) {
  std::string result(text.substr(0, kLongestMarkdownLine));
  for (char& c : result) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
  return result;
}

std::vector<std::string> markdown_cells(std::string_view line) {
  const std::string text = trimmed(line.substr(0, kLongestMarkdownLine));
  std::vector<std::string> cells;
  if (text.size() < 2 || text.front() != '|' || text.back() != '|') return cells;
  for (size_t at = 1; at < text.size() && cells.size() <= kMostMarkdownColumns;) {
    const size_t end = text.find('|', at);
    std::string cell = trimmed(std::string_view(text).substr(at, end - at));
    while (cell.starts_with('*')) cell.erase(0, 1);
    while (cell.ends_with('*')) cell.pop_back();
    cells.push_back(cell);
    at = end + 1;
  }
  return cells;
}

bool is_markdown_ruler(const std::vector<std::string>& cells) {
  return !cells.empty() && std::all_of(cells.begin(), cells.end(), [](const std::string& cell) {
    return cell.find('-') != std::string::npos && cell.find_first_not_of("-: ") == std::string::npos;
  });
}

std::optional<Quantity> quantity_of(std::string_view cell) {
  const size_t end = std::min(cell.find_first_not_of("0123456789."), cell.size());
  const std::optional<Figure> figure = figure_of(cell.substr(0, end));
  if (!figure) return std::nullopt;
  return Quantity{.value = figure->value, .unit = trimmed(cell.substr(end))};
}

std::optional<double> gb_per_s_of(std::string_view cell) {
  const std::optional<Quantity> quantity = quantity_of(cell);
  if (!quantity) return std::nullopt;
  const std::string& unit = quantity->unit;
  if (unit.empty() || unit == "GBps" || unit == "GB/s") return quantity->value;
  if (unit == "MBps" || unit == "MB/s") return quantity->value / 1000;
  if (unit == "TBps" || unit == "TB/s") return quantity->value * 1000;
  return std::nullopt;  // "Gbps" would be bits
}

int unit_power(std::string_view unit) {
  static constexpr std::array<std::string_view, 5> kLetters = {"", "K", "M", "G", "T"};
  for (size_t i = 0; i < kLetters.size(); ++i) {
    const std::string upper = fmt::format("{}B", kLetters[i]), binary = fmt::format("{}iB", kLetters[i]);
    if (unit == upper || unit == binary || unit == kLetters[i] || (i == 1 && unit == "kB")) return static_cast<int>(i);
  }
  return unit == "bytes" ? 0 : -1;
}

}  // namespace shardscope::topology
