#include "topology/files.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

namespace shardscope::topology {
namespace {

constexpr int kMostCores = 64 * 1024;  // a list that names more is no list of cores

/// "3" or "0-3".
bool append_range(std::string_view text, std::vector<int>& cores) {
  const size_t dash = text.find('-');
  const std::optional<int64_t> first = count_of(text.substr(0, dash));
  const std::optional<int64_t> last = dash == std::string_view::npos ? first : count_of(text.substr(dash + 1));
  if (!first || !last || *first > *last || *last >= kMostCores) return false;
  for (int64_t core = *first; core <= *last; ++core) cores.push_back(static_cast<int>(core));
  return true;
}

template <typename Number>
std::optional<Number> whole_number(std::string_view text) {
  Number value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

}  // namespace

bool path_exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

std::string trimmed(std::string_view text) {
  const auto blank = [](char c) { return c >= '\0' && c <= ' '; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return std::string(text);
}

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return trimmed(line);
}

std::vector<std::string> read_lines(const std::string& path) {
  std::vector<std::string> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream stream(text);
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

std::optional<double> number_of(std::string_view text) {
  const std::optional<double> value = whole_number<double>(text);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

std::optional<int64_t> count_of(std::string_view text) {
  const std::optional<int64_t> value = whole_number<int64_t>(text);
  return value && *value >= 0 ? value : std::nullopt;
}

std::optional<bool> read_switch(const std::string& path) {
  const std::optional<int64_t> value = count_of(first_line(path));
  return value ? std::optional(*value != 0) : std::nullopt;
}

std::optional<std::vector<int>> core_list_of(std::string_view text) {
  std::vector<int> cores;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    if (!append_range(text.substr(0, comma), cores)) return std::nullopt;
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
    if (text.empty()) return std::nullopt;
  }
  std::sort(cores.begin(), cores.end());
  cores.erase(std::unique(cores.begin(), cores.end()), cores.end());
  return cores;
}

std::vector<int> numbered_entries(const std::string& folder, std::string_view prefix) {
  std::vector<int> numbers;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(prefix)) continue;
    const std::optional<int64_t> number = count_of(std::string_view(name).substr(prefix.size()));
    if (number && *number <= std::numeric_limits<int>::max()) numbers.push_back(static_cast<int>(*number));
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

}  // namespace shardscope::topology
