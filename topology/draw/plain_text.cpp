#include "topology/draw/plain_text.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

namespace shardscope::topology {
namespace {

struct Character {
  size_t bytes = 1;
  bool shown = false;
};

/// What `text` begins with.
Character first_character(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(text[i])); };
  if (byte(0) < 0x80) return {1, byte(0) >= 0x20 && byte(0) != 0x7f};
  size_t length = 0;
  uint32_t code = 0;
  uint32_t least = 0;  // a smaller code must not be written so long
  if ((byte(0) & 0xe0U) == 0xc0U) {
    length = 2, code = byte(0) & 0x1fU, least = 0x80;
  } else if ((byte(0) & 0xf0U) == 0xe0U) {
    length = 3, code = byte(0) & 0x0fU, least = 0x800;
  } else if ((byte(0) & 0xf8U) == 0xf0U) {
    length = 4, code = byte(0) & 0x07U, least = 0x10000;
  }
  if (length == 0 || text.size() < length) return {};
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0U) != 0x80U) return {};
    code = code << 6U | (byte(i) & 0x3fU);
  }
  const auto within = [&](uint32_t low, uint32_t high) { return code >= low && code <= high; };
  const bool control = within(0x80, 0x9f) || within(0x2028, 0x2029);
  const bool direction = within(0x200e, 0x200f) || within(0x202a, 0x202e) || within(0x2066, 0x2069);
  const bool none = code < least || code > 0x10ffff || within(0xd800, 0xdfff) || (code & 0xfffeU) == 0xfffeU;
  return {length, !control && !direction && !none};
}

}  // namespace

std::string printable(std::string_view text) {
  std::string shown;
  shown.reserve(text.size());
  while (!text.empty()) {
    const Character character = first_character(text);
    shown += character.shown ? text.substr(0, character.bytes) : std::string_view("?");
    text.remove_prefix(character.bytes);
  }
  return shown;
}

size_t display_width(std::string_view text) {
  const auto begins_character = [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U; };
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), begins_character));
}

std::string aligned(const std::vector<Row>& rows, std::string_view alignment, size_t indent) {
  std::vector<size_t> widths;
  for (const Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], display_width(row[i]));
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line(indent, ' ');
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - display_width(row[i]), ' ');
      const bool left = alignment.empty() || alignment[std::min(i, alignment.size() - 1)] == 'l';
      if (i > 0) line += "  ";
      line += left ? row[i] : padding;
      line += left ? padding : row[i];
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line;
    text += '\n';
  }
  return text;
}

std::string wrapped(std::string_view text, size_t width, size_t first, size_t indent) {
  std::string lines;
  std::string line(first, ' ');
  bool empty = true;
  while (!text.empty()) {
    const size_t end = std::min(text.find_first_of(" \n"), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (word.empty()) continue;
    if (!empty && display_width(line) + 1 + display_width(word) > width) {
      lines += line;
      lines += '\n';
      line.assign(indent, ' ');
      empty = true;
    }
    if (!empty) line += ' ';
    line += word;
    empty = false;
  }
  lines += line;
  lines += '\n';
  return lines;
}

std::string ranges_text(const std::vector<int>& numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    if (!text.empty()) text += ',';
    if (end - i > 2) {
      text += fmt::format("{}-{}", numbers[i], numbers[end - 1]);
      i = end;
    } else {
      text += fmt::format("{}", numbers[i++]);
    }
  }
  return text;
}

std::string short_figure(double value) {
  const double size = std::abs(value);
  if (size < 9.995) return fmt::format("{:.2f}", value);
  if (size < 99.95) return fmt::format("{:.1f}", value);
  return size < 99999.5 ? fmt::format("{:.0f}", value) : fmt::format("{:.1e}", value);
}

std::string bytes_text(int64_t bytes) {
  constexpr std::array<const char*, 6> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (std::abs(value) >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  const bool whole = std::abs(value - std::round(value)) < 0.05;
  return whole ? fmt::format("{:.0f} {}", value, kUnits[unit]) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string counted(int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

}  // namespace shardscope::topology
