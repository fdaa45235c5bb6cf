#include <algorithm>

#include <fmt/format.h>

#include "topology/comparing.hpp"
#include "topology/draw/plain_text.hpp"

namespace shardscope::topology {

std::string comparison_text(const Comparison& comparison, int width) {
  constexpr int kNarrowest = 40;
  constexpr size_t kGap = 2;
  const auto columns = static_cast<size_t>(std::max(width, kNarrowest));
  std::string text = wrapped(comparison.summary, columns, 0, 0);
  if (comparison.differences.empty()) return text;
  // Long names of machines would make the table wide: letters stand for them there.
  size_t widest = 0;
  for (const Difference& difference : comparison.differences) widest = std::max(widest, display_width(difference.what));
  size_t needed = widest;
  std::vector<std::string> heads = comparison.names;
  for (size_t i = 0; i < heads.size(); ++i) {
    size_t column = display_width(heads[i]);
    for (const Difference& difference : comparison.differences) {
      column = std::max(column, display_width(difference.values[i]));
    }
    needed += kGap + column;
  }
  std::string key;
  if (needed > columns) {
    for (size_t i = 0; i < heads.size(); ++i) {
      std::string letter = fmt::format("[{}]", i + 1);
      key += wrapped(fmt::format("{} {}", letter, heads[i]), columns, 0, letter.size() + 1);
      heads[i] = std::move(letter);
    }
    key += "\n";
  }
  std::vector<Row> rows = {{"largest effect first"}};
  rows.front().insert(rows.front().end(), heads.begin(), heads.end());
  for (const Difference& difference : comparison.differences) {
    Row row = {difference.what};
    row.insert(row.end(), difference.values.begin(), difference.values.end());
    rows.push_back(std::move(row));
  }
  text += fmt::format("\n{}{}\n", key, aligned(rows, "l"));
  for (const Difference& difference : comparison.differences) {
    if (difference.weight <= 0) continue;
    text += wrapped(fmt::format("{}: {}", difference.what, difference.effect), columns);
  }
  return text;
}

}  // namespace shardscope::topology
