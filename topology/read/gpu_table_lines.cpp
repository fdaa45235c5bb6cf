// Which lines of a text are a table's header and rows.
#include <algorithm>
#include <cctype>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "topology/read/gpu_table.hpp"

namespace shardscope::topology {
namespace {

constexpr size_t kMostWords = 1024;      // of a line: more than 64 GPUs and 256 NICs need
constexpr size_t kMostText = 64 * 1024;  // characters of a line that are kept
constexpr size_t kMostPrefix = 4;        // words before a label: "#", "node01:", a time
constexpr size_t kMostParts = 4;         // lines that one row is wrapped into
constexpr size_t kMostRows = 512;
constexpr int kMostLines = 4096;  // rows and headers, repeated ones too

struct Label {
  TableColumn column;
  size_t word = 0;        // where it stands
  std::string_view rest;  // what is fused to it
};

bool is_upper_word(std::string_view word) {
  return word.size() <= 64 && std::all_of(word.begin(), word.end(), [](char c) {
           return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == ',' || c == '/' || c == '.';
         });
}

bool looks_like_nic(std::string_view word) {
  static constexpr std::array<std::string_view, 8> kPrefixes = {"NIC", "mlx",  "ib",  "bnxt",
                                                                "hfi", "roce", "efa", "ird"};
  if (word.empty() || word.back() < '0' || word.back() > '9' || word.size() > 64) return false;
  return std::any_of(kPrefixes.begin(), kPrefixes.end(), [&](std::string_view p) { return word.starts_with(p); });
}

class Finder {
 public:
  Finder(const std::string& file, const CellCodes& codes, Faults& faults)
      : file_(file), codes_(codes), faults_(faults) {}

  /// False once the first table is complete and another begins.
  bool take(std::string_view line, int number) {
    if (std::none_of(line.begin(), line.end(), [](unsigned char c) { return std::isalnum(c) || c == '.'; })) {
      open_ = Open::kNone;
      return true;
    }
    last_text_ = number;
    if (table_.rows.empty() && open_ == Open::kNone && line.find("PU") == line.npos) return true;
    const std::vector<std::string_view> words = split_words(line, kMostWords);
    if (const std::optional<Label> label = label_of(words)) {
      if (take_header(words, *label, number)) return true;
      const std::string text = text_behind(words, *label);
      if (is_row(text)) return take_row(*label, text, number);
      const bool cut = text.empty() && open_ == Open::kRow && number == last_taken_ + 1;
      if (cut && !rows_of_.contains(label->column.name)) return take_row(*label, text, number);
    }
    if (number == last_taken_ + 1 && take_continuation(words)) {
      last_taken_ = number;
    } else {
      open_ = Open::kNone;
    }
    return true;
  }

  std::optional<FoundTable> finish(bool whole_text) {
    if (!table_.rows.empty()) {
      if (whole_text && last_row_end_ == last_text_) table_.rows.back().ends_text = true;
      return std::move(table_);
    }
    if (!affinity_header_) return std::nullopt;
    return FoundTable{.header_line = affinity_header_};
  }

 private:
  enum class Open : uint8_t { kNone, kHeader, kRow };  // what the next line may continue

  std::optional<Label> label_of(const std::vector<std::string_view>& words) const {
    for (size_t at = 0; at < std::min(words.size(), kMostPrefix + 1); ++at) {
      const std::string_view word = words[at];
      if (is_code(word, codes_)) return std::nullopt;
      const size_t name = word.starts_with("GPU") ? 3 : word.starts_with("PU") ? 2 : 0;  // "PU": a column cut off
      if (name > 0) {
        size_t end = name;
        while (end < word.size() && word[end] >= '0' && word[end] <= '9') ++end;
        const std::optional<int> index = number_after(word.substr(0, end), word.substr(0, name));
        const std::string_view rest = word.substr(end);
        const bool fused = rest.empty() || codes_.starts(rest)[0] > 0 || (name == 3 && !rest.starts_with(":"));
        if (index && fused) return Label{{.name = fmt::format("GPU{}", *index), .gpu = *index}, at, rest};
      } else if (looks_like_nic(word) || std::find(nics_.begin(), nics_.end(), word) != nics_.end()) {
        return Label{{.kind = TableColumn::Kind::kNic, .name = std::string(word)}, at, {}};
      }
    }
    return std::nullopt;
  }

  std::string text_behind(const std::vector<std::string_view>& words, const Label& label) const {
    std::string text(label.rest);
    for (size_t at = label.word + 1; at < words.size() && text.size() < kMostText; ++at) {
      text += text.empty() ? "" : " ";
      text += words[at].substr(0, kMostText);
    }
    return text;
  }

  /// A row has codes, and more of them than of other words; one with another table's codes is that table's.
  bool is_row(std::string_view text) const {
    bool fused = false;
    size_t codes = 0;
    size_t paths = 0;
    size_t others = 0;
    bool foreign = false;
    for (const TableElement& element : elements_of(text, codes_, fused)) {
      codes += element.kind == TableElement::Kind::kCode ? 1 : 0;
      paths += element.kind == TableElement::Kind::kCode && element.text != "X" ? 1 : 0;
      others += element.kind == TableElement::Kind::kOther ? 1 : 0;
      foreign = foreign || codes_.foreign(element.text);
    }
    return codes > 0 && others <= codes && (!foreign || paths > 0);
  }

  bool take_header(const std::vector<std::string_view>& words, const Label& label, int number) {
    if (label.column.kind != TableColumn::Kind::kGpu) return false;
    // A name alone behind rows is a row that was cut.
    if (words.size() == 1 && label.rest.empty() && !table_.rows.empty()) return false;
    const std::optional<TableHeader> header = header_of({words.begin() + label.word, words.end()}, codes_);
    if (!header) return false;
    count_line(number);
    std::string text(words[label.word]);
    for (size_t at = label.word + 1; at < words.size() && text.size() < kMostText; ++at) {
      text += fmt::format(" {}", words[at]);
    }
    if (header->tail && !header->tail->empty()) affinity_header_ = affinity_header_.value_or(number);
    const bool goes_on = open_ == Open::kHeader && number == last_taken_ + 1 && pending_parts_.size() < kMostParts &&
                         pending_last_gpu_ + 1 == label.column.gpu;
    if (!goes_on) pending_parts_.clear();
    if (!goes_on) pending_line_ = number;
    pending_parts_.push_back(std::move(text));
    for (const TableColumn& column : header->columns) {
      if (column.kind == TableColumn::Kind::kGpu) pending_last_gpu_ = column.gpu;
    }
    if (table_.rows.empty() && !goes_on) nics_.clear();
    for (const TableColumn& column : header->columns) {
      if (column.kind == TableColumn::Kind::kNic && nics_.size() < kMostRows) nics_.push_back(column.name);
    }
    open_ = Open::kHeader;
    last_taken_ = number;
    return true;
  }

  bool take_row(const Label& label, const std::string& text, int number) {
    count_line(number);
    const auto known = rows_of_.find(label.column.name);
    if (known != rows_of_.end()) {
      FoundRow& row = table_.rows[known->second];
      const bool repeated = row.parts.front() == text;
      if (pending_line_ || (!repeated && label.column == table_.rows.front().label && table_.rows.size() > 1)) {
        // A new table begins: this one ends, unless it was but a line of prose.
        const bool prose = !table_.header_line && table_.rows.size() == 1 && pending_line_;
        if (!prose) {
          faults_.note(
              fmt::format("Another matrix begins in line {}: only the first is read.", pending_line_.value_or(number)));
          return false;
        }
        table_ = {};
        rows_of_.clear();
      } else if (repeated) {
        faults_.note(fmt::format("Line {} repeats line {} ({}).", number, row.line, label.column.name));
        take_end(number);
        open_ = Open::kNone;
        return true;
      } else {
        row.doubtful = true;
        faults_.fault(
            fmt::format("Lines {} and {} both are {}, and differ: neither is used.", row.line, number, row.label.name));
        take_end(number);
        open_ = Open::kNone;
        return true;
      }
    }
    adopt_header();
    if (table_.rows.size() >= kMostRows) return true;
    rows_of_[label.column.name] = table_.rows.size();
    table_.rows.push_back({.line = number, .label = label.column, .parts = {text}});
    take_end(number);
    return true;
  }

  /// Lines that repeat without end are refused rather than read.
  void count_line(int number) {
    if (++lines_ > kMostLines) {
      throw UserError(fmt::format("not a topology: over {} lines that look like a matrix", kMostLines),
                      fmt::format("{} line {}", file_, number), "give the output of one `nvidia-smi topo -m`");
    }
  }

  void take_end(int number) {
    open_ = Open::kRow;
    last_taken_ = number;
    last_row_end_ = number;
  }

  /// A header amid rows: of a table that is printed in pages, or of which two lines changed places.
  void adopt_header() {
    if (!pending_line_) return;
    if (!table_.header_line) {
      table_.header_line = pending_line_;
      table_.header_parts = pending_parts_;
    }
    pending_line_.reset();
    pending_parts_.clear();
  }

  bool take_continuation(const std::vector<std::string_view>& words) {
    if (open_ == Open::kNone) return false;
    const auto fits = [&](std::string_view word) {
      return open_ == Open::kHeader ? word.size() <= 64 : is_upper_word(word);
    };
    if (!std::all_of(words.begin(), words.end(), fits)) return false;
    std::vector<std::string>& parts = open_ == Open::kHeader ? pending_parts_ : table_.rows.back().parts;
    if (parts.size() >= kMostParts) return false;
    std::string text;
    for (const std::string_view word : words) text += fmt::format("{}{}", text.empty() ? "" : " ", word);
    parts.push_back(std::move(text));
    if (open_ == Open::kRow) last_row_end_ = last_text_;
    return true;
  }

  const std::string& file_;
  const CellCodes& codes_;
  Faults& faults_;
  FoundTable table_;
  std::map<std::string, size_t, std::less<>> rows_of_;  // name -> position in table_.rows
  std::vector<std::string> nics_;                       // that the header names
  std::optional<int> affinity_header_;
  std::optional<int> pending_line_;  // a header whose rows have not come yet
  std::vector<std::string> pending_parts_;
  int pending_last_gpu_ = -1;
  Open open_ = Open::kNone;
  int lines_ = 0;
  int last_taken_ = 0, last_row_end_ = 0, last_text_ = 0;  // lines
};

}  // namespace

std::optional<FoundTable> find_table_lines(std::string_view plain, const std::string& file, const CellCodes& codes,
                                           Faults& faults) {
  Finder finder(file, codes, faults);
  LineCursor cursor{plain};
  std::string_view line;
  while (cursor.next(line)) {
    if (!finder.take(line, cursor.number)) return finder.finish(false);
  }
  return finder.finish(true);
}

}  // namespace shardscope::topology
