#include "topology/read/text_table.hpp"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "topology/read/limits.hpp"

namespace shardscope::topology {
namespace {

constexpr size_t kLongestCode = 256;  // a terminal code that does not end by then is none
constexpr size_t kMostFaults = 16;    // that are told one by one

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_blank(char c) {
  return c == ' ' || c == '\t';
}

/// Length of the escape sequence that `text` starts with: CSI ("ESC [ … letter"), OSC ("ESC ] … BEL"), or two bytes.
size_t escape_length(std::string_view text) {
  const size_t most = std::min(text.size(), kLongestCode);
  if (most < 2) return most;
  if (text[1] == '[') {
    for (size_t at = 2; at < most && text[at] != '\n'; ++at) {
      if (text[at] >= '@' && text[at] <= '~') return at + 1;
      if (text[at] < ' ') return at;
    }
    return 2;
  }
  if (text[1] == ']') {
    for (size_t at = 2; at < most && text[at] != '\n'; ++at) {
      if (text[at] == '\a') return at + 1;
    }
  }
  return text[1] == '\n' ? 1 : 2;
}

/// Length of a colour code without its ESC ("[4m", "^[[4m") that `text` starts with; 0: none.
size_t bare_colour_length(std::string_view text) {
  size_t at = text.starts_with("^[[") ? 3 : text.starts_with("[") ? 1 : 0;
  if (at == 0) return 0;
  const size_t most = std::min(text.size(), at + 12);
  while (at < most && (is_digit(text[at]) || text[at] == ';')) ++at;
  return at < most && text[at] == 'm' ? at + 1 : 0;
}

/// Calls take(first, last) for each range of a list of ascending numbers; false where it is none.
template <typename Take>
bool walk_ranges(std::string_view text, int largest, Take take) {
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto number = [&](int& value) {
    if (at == end || !is_digit(*at)) return false;
    const std::from_chars_result result = std::from_chars(at, end, value);
    at = result.ptr;
    return result.ec == std::errc{} && value <= largest;
  };
  int before = -1;
  while (true) {
    int first = 0;
    if (!number(first) || first <= before) return false;
    int last = first;
    if (at != end && *at == '-') {
      ++at;
      if (!number(last) || last < first) return false;
    }
    take(first, last);
    if (at == end) return true;
    if (*at++ != ',') return false;
    before = last;
  }
}

}  // namespace

std::string plain_text(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  std::string plain;
  plain.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    const std::string_view rest = text.substr(at);
    if (c == '\x1B') {
      at += escape_length(rest);
    } else if (const size_t colour = c == '[' || c == '^' ? bare_colour_length(rest) : 0; colour > 0) {
      at += colour;
    } else if (rest.starts_with("\xE2\x80\xA6")) {
      plain += "...";
      at += 3;
    } else if (rest.starts_with("\xC2\xA0")) {
      plain += ' ';
      at += 2;
    } else {
      const bool blank = (c >= '\0' && c < ' ' && c != '\n') || c == '|' || c == '\x7F';
      plain += blank ? ' ' : c;
      ++at;
    }
  }
  return plain;
}

bool LineCursor::next(std::string_view& line) {
  if (rest.empty()) return false;
  const size_t end = rest.find('\n');
  line = rest.substr(0, end);
  rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  ++number;
  return true;
}

std::vector<std::string_view> split_words(std::string_view line, size_t most) {
  std::vector<std::string_view> words;
  for (size_t at = 0; at < line.size() && words.size() < most;) {
    if (is_blank(line[at])) {
      ++at;
      continue;
    }
    size_t end = at;
    while (end < line.size() && !is_blank(line[end])) ++end;
    words.push_back(line.substr(at, end - at));
    at = end;
  }
  return words;
}

std::string joined_words(std::string_view line) {
  std::string joined;
  for (const char c : line) {
    if (!is_blank(c)) {
      joined += c;
    } else if (!joined.empty() && joined.back() != ' ') {
      joined += ' ';
    }
  }
  if (joined.ends_with(' ')) joined.pop_back();
  return joined;
}

bool is_ascending_list(std::string_view text, int largest) {
  return walk_ranges(text, largest, [](int, int) {});
}

std::optional<std::vector<int>> ascending_list(std::string_view text, int largest) {
  std::vector<int> list;
  const bool whole = walk_ranges(text, largest, [&](int first, int last) {
    for (int value = first; value <= last; ++value) list.push_back(value);
  });
  return whole ? std::optional(std::move(list)) : std::nullopt;
}

std::optional<int> number_after(std::string_view word, std::string_view name) {
  if (!word.starts_with(name)) return std::nullopt;
  word.remove_prefix(name.size());
  if (word.empty() || word.size() > 4 || !std::all_of(word.begin(), word.end(), is_digit)) return std::nullopt;
  if (word.size() > 1 && word.front() == '0') return std::nullopt;
  int value = 0;
  std::from_chars(word.data(), word.data() + word.size(), value);
  return value <= kLargestGpuIndex ? std::optional(value) : std::nullopt;
}

std::string quoted(std::string_view text) {
  constexpr size_t kMost = 32;
  std::string shown(text.substr(0, kMost));
  for (char& c : shown) {
    if (c < ' ' || c > '~' || c == '"') c = '?';
  }
  return fmt::format("\"{}{}\"", shown, text.size() > kMost ? "..." : "");
}

std::string listed(const std::vector<std::string>& names) {
  constexpr size_t kMost = 8;
  std::string text;
  const size_t shown = std::min(names.size(), kMost);
  for (size_t i = 0; i < shown; ++i) {
    const bool last = i + 1 == names.size();
    text += fmt::format("{}{}", i == 0 ? "" : last ? " and " : ", ", names[i]);
  }
  if (names.size() > kMost) text += fmt::format(" and {} more", names.size() - kMost);
  return text;
}

void Faults::fault(std::string text) {
  if (faults_.size() < kMostFaults) {
    faults_.push_back(std::move(text));
  } else {
    ++faults_left_out_;
  }
}

void Faults::note(std::string text) {
  if (notes_.size() < kMostFaults) notes_.push_back(std::move(text));
}

void Faults::move_to(Topology& topology) && {
  if (!faults_.empty()) topology.complete = false;
  for (std::string& text : notes_) topology.warnings.push_back(std::move(text));
  for (std::string& text : faults_) topology.warnings.push_back(std::move(text));
  if (faults_left_out_ > 0) topology.warnings.push_back(fmt::format("{} more faults like these.", faults_left_out_));
}

}  // namespace shardscope::topology
