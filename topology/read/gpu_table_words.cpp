// The words of a table's header and rows, also where the blanks between them are lost.
#include <algorithm>

#include <fmt/format.h>

#include "topology/read/gpu_table.hpp"

namespace shardscope::topology {
namespace {

constexpr size_t kLongestWord = 2048;  // a whole row without a blank is shorter
constexpr size_t kMostElements = 1024;
constexpr int kMostCores = 64 * 1024;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_letter(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

/// Lists of cores and of nodes, numbers, and the words for none.
bool is_tail(std::string_view word) {
  if (word == "N/A" || word == "-") return true;
  if (word.ends_with("N/A")) word.remove_suffix(3);
  const auto fits = [](char c) { return is_digit(c) || c == ',' || c == '-'; };
  return !word.empty() && std::all_of(word.begin(), word.end(), fits) &&
         std::any_of(word.begin(), word.end(), is_digit);
}

/// What may follow a code that lost its blank: a list that is whole.
bool is_whole_tail(std::string_view text) {
  if (text == "N/A" || text == "...") return true;
  if (text.ends_with("N/A")) text.remove_suffix(3);
  return is_ascending_list(text, kMostCores);
}

using Kind = TableElement::Kind;

/// A word that is no code: its parts if it can be read in one way only, else none.
std::vector<TableElement> fused_parts(std::string_view word, const CellCodes& codes) {
  std::vector<TableElement> parts;
  while (!word.empty()) {
    std::optional<size_t> chosen;
    for (const size_t length : codes.starts(word)) {
      if (length == 0) continue;
      const std::string_view next = word.substr(length);
      if (!next.empty() && codes.starts(next)[0] == 0 && !is_whole_tail(next)) continue;
      if (chosen) return {};  // two readings
      chosen = length;
    }
    if (!chosen) {
      if (parts.empty() || !is_whole_tail(word)) return {};
      parts.push_back({.kind = word == "..." ? Kind::kDots : Kind::kTail, .text = std::string(word)});
      return parts;
    }
    parts.push_back({.kind = Kind::kCode, .text = std::string(word.substr(0, *chosen))});
    word.remove_prefix(*chosen);
  }
  return parts;
}

/// The name of a NIC that `text` starts with, up to what is fused to it; 0: none.
size_t nic_name_length(std::string_view text) {
  const auto digits_from = [&](size_t at) {
    while (at < text.size() && is_digit(text[at])) ++at;
    return at;
  };
  if (text.starts_with("NIC") && digits_from(3) > 3) return digits_from(3);
  if (text.starts_with("mlx")) {
    const size_t kind = digits_from(3);
    if (kind > 3 && kind < text.size() && text[kind] == '_' && digits_from(kind + 1) > kind + 1) {
      return digits_from(kind + 1);
    }
  }
  if (text.empty() || text.size() > 64 || !is_letter(text.front())) return 0;
  const auto fits = [](char c) { return is_letter(c) || is_digit(c) || c == '_' || c == '-' || c == '.'; };
  if (!std::all_of(text.begin(), text.end(), fits) || std::none_of(text.begin(), text.end(), is_digit)) return 0;
  return text.ends_with("CPU") ? text.size() - 3 : text.size();
}

/// The columns behind the cells by the header's words, blanks left out; nullopt: damaged.
std::optional<std::vector<TailColumn>> tail_of(std::string_view text, bool& elided) {
  std::vector<TailColumn> columns;
  const auto eat = [&](std::string_view word, TailColumn column) {
    if (!text.starts_with(word)) return;
    text.remove_prefix(word.size());
    columns.push_back(column);
  };
  eat("CPUAffinity", TailColumn::kCpus);
  eat("NUMAAffinity", TailColumn::kNuma);
  eat("GPUNUMAID", TailColumn::kGpuNuma);
  if (text == "...") {
    elided = true;
    text = {};
  }
  return text.empty() ? std::optional(columns) : std::nullopt;
}

}  // namespace

bool is_code(std::string_view word, const CellCodes& codes) {
  const std::array<size_t, 2> lengths = codes.starts(word);
  return !word.empty() && (lengths[0] == word.size() || lengths[1] == word.size());
}

std::optional<TableHeader> header_of(const std::vector<std::string_view>& words, const CellCodes& codes) {
  TableHeader header;
  std::string tail;
  const auto take = [&](std::string_view word) {
    bool first = true;
    while (!word.empty()) {
      if (!tail.empty() || word.starts_with("CPU") || word.starts_with("NUMA") || word == "GPU") {
        if (tail.size() < 64) tail += word.substr(0, 64);
        header.fused = header.fused || (!first && !word.empty());
        return true;
      }
      size_t length = 0;
      if (word == "...") {
        length = word.size();
        header.columns.push_back({.kind = TableColumn::Kind::kElided, .name = "..."});
      } else if (word.starts_with("GPU")) {
        length = 3;
        while (length < word.size() && is_digit(word[length])) ++length;
        const std::optional<int> index = number_after(word.substr(0, length), "GPU");
        if (!index) return false;
        header.columns.push_back({.name = fmt::format("GPU{}", *index), .gpu = *index});
      } else {
        length = codes.starts(word)[0] > 0 ? 0 : nic_name_length(word);
        if (length == 0) return false;
        header.columns.push_back(
            {.kind = TableColumn::Kind::kNic, .name = std::string(word.substr(0, length)), .gpu = -1});
      }
      header.fused = header.fused || !first;
      first = false;
      word.remove_prefix(length);
    }
    return true;
  };
  for (const std::string_view word : words) {
    if (word.size() > kLongestWord || !take(word)) return std::nullopt;
  }
  header.tail = tail_of(tail, header.elided);
  while (!header.columns.empty() && header.columns.back().kind == TableColumn::Kind::kElided) {
    header.elided = true;
    header.columns.pop_back();
  }
  const auto is_gpu = [](const TableColumn& column) { return column.kind == TableColumn::Kind::kGpu; };
  if (std::none_of(header.columns.begin(), header.columns.end(), is_gpu)) return std::nullopt;
  return header;
}

std::vector<TableElement> elements_of(std::string_view text, const CellCodes& codes, bool& fused) {
  std::vector<TableElement> elements;
  for (const std::string_view word : split_words(text, kMostElements)) {
    if (is_code(word, codes)) {
      elements.push_back({.kind = Kind::kCode, .text = std::string(word)});
      continue;
    }
    const bool dots = word == "...";
    if (dots || word.size() > kLongestWord || is_tail(word)) {
      const bool tail = !dots && word.size() <= kLongestWord;
      // A list goes on behind a comma: "0-31, 64-95".
      const bool joins =
          tail && !elements.empty() && elements.back().kind == Kind::kTail && elements.back().text.ends_with(',');
      if (joins) {
        elements.back().text += word;
      } else {
        elements.push_back({.kind = dots   ? Kind::kDots
                                    : tail ? Kind::kTail
                                           : Kind::kOther,
                            .text = std::string(word.substr(0, kLongestWord))});
      }
      continue;
    }
    std::vector<TableElement> parts = fused_parts(word, codes);
    if (parts.empty()) {
      elements.push_back({.kind = Kind::kOther, .text = std::string(word)});
      continue;
    }
    fused = true;
    for (TableElement& part : parts) elements.push_back(std::move(part));
  }
  return elements;
}

}  // namespace shardscope::topology
