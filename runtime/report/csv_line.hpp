// One line of a CSV file (RFC 4180) in the making: names and cells are listed together, once, so that they cannot drift
// apart.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace shardscope::runtime {

class CsvLine {
 public:
  void text(const std::string& name, const std::string& value) {
    names_.push_back(quoted(name));
    cells_.push_back(quoted(value));
  }
  /// The shortest text that reads back as the same number; unknown is an empty cell.
  template <typename Number>
  void number(const std::string& name, const std::optional<Number>& value) {
    text(name, value ? fmt::format("{}", *value) : "");
  }

  std::string header() const { return fmt::format("{}\r\n", fmt::join(names_, ",")); }
  std::string line() const { return fmt::format("{}\r\n", fmt::join(cells_, ",")); }

 private:
  static std::string quoted(const std::string& cell) {
    if (cell.find_first_of(",\"\r\n") == std::string::npos) return cell;
    std::string text = "\"";
    for (const char c : cell) {
      if (c == '"') text += '"';
      text += c;
    }
    return text + '"';
  }

  std::vector<std::string> names_;
  std::vector<std::string> cells_;
};

}  // namespace shardscope::runtime
