// Markdown tables as people write them, and quantities with units in their cells.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace shardscope::topology {

constexpr size_t kMostMarkdownColumns = 32;
constexpr size_t kLongestMarkdownLine = 4096;

/// Cells of "| a | b |", trimmed, without emphasis; none unless the line begins and ends with "|".
std::vector<std::string> markdown_cells(std::string_view line);

/// Whether these are cells of the line below a head: "---", ":---:".
bool is_markdown_ruler(const std::vector<std::string>& cells);

/// "1.44GBps", "64 KB", "6.1": a figure and its unit.
struct Quantity {
  double value = 0;
  std::string unit;
};
std::optional<Quantity> quantity_of(std::string_view cell);

/// nullopt for a unit that is no bandwidth, or one of bits.
std::optional<double> gb_per_s_of(std::string_view cell);

/// 0 for bytes, 1 for K, 2 for M, …; -1 for what is no unit of sizes.
int unit_power(std::string_view unit);

/// At most kLongestMarkdownLine characters, in lower case (ASCII).
std::string lower_text(std::string_view text);

}  // namespace shardscope::topology
