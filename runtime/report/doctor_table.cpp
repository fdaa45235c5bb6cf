#include <algorithm>

#include <fmt/format.h>

#include "runtime/report/doctor_report.hpp"
#include "runtime/report/table_text.hpp"

namespace shardscope::runtime {
namespace {

constexpr size_t kGap = 2;
constexpr size_t kLeastText = 24;  // columns of evidence, however narrow the terminal
constexpr std::string_view kRemedyMark = "-> ";

/// `text` at the end of `head`, in lines of `columns`; all but the first begin as far right as the text did.
std::string hanging(std::string_view head, std::string_view text, size_t columns) {
  const size_t indent = display_width(head);
  const size_t most = std::max(columns, indent + kLeastText);
  std::string page;
  std::string line(head);
  size_t width = indent;
  bool empty = true;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (word.empty()) continue;
    if (!empty && width + 1 + display_width(word) > most) {
      page += line + "\n";
      line.assign(indent, ' ');
      width = indent;
      empty = true;
    }
    if (!empty) line += ' ';
    width += display_width(word) + (empty ? 0 : 1);
    line += word;
    empty = false;
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return page + line + "\n";
}

/// Several lines become one: the table has its own.
std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

std::string padded(std::string_view text, size_t width) {
  return std::string(text) + std::string(width - std::min(width, display_width(text)) + kGap, ' ');
}

}  // namespace

std::string counts_text(std::span<const Finding> findings) {
  std::vector<std::string> parts;
  for (const Verdict verdict : kVerdicts) {
    const auto count =
        std::count_if(findings.begin(), findings.end(), [&](const Finding& f) { return f.verdict == verdict; });
    const bool plural = count > 1 && (verdict == Verdict::kProblem || verdict == Verdict::kWarning);
    if (count > 0) parts.push_back(fmt::format("{} {}{}", count, name_of(verdict), plural ? "s" : ""));
  }
  return parts.empty() ? "nothing was checked" : fmt::format("{}", fmt::join(parts, ", "));
}

std::string doctor_table(std::span<const Finding> findings, size_t columns) {
  constexpr std::string_view kFirst = "verdict";
  constexpr std::string_view kSecond = "check";
  size_t width = kSecond.size();
  for (const Finding& finding : findings) width = std::max(width, display_width(finding.check));
  std::string text = padded(kFirst, kFirst.size()) + padded(kSecond, width) + "evidence\n";
  for (const Verdict verdict : kVerdicts) {
    for (const Finding& finding : findings) {
      if (finding.verdict != verdict) continue;
      const std::string head = padded(name_of(verdict), kFirst.size()) + padded(finding.check, width);
      text += hanging(head, one_line(finding.evidence), columns);
      if (finding.remedy.empty()) continue;
      const std::string mark = std::string(kFirst.size() + kGap, ' ') + std::string(kRemedyMark);
      text += hanging(mark, one_line(finding.remedy), columns);
    }
  }
  return text + "\n" + counts_text(findings) + "\n";
}

}  // namespace shardscope::runtime
