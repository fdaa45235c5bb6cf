// p2pmark: one table of all ordered pairs, "GPU0:" before each row, destinations in the head.
#include <algorithm>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "topology/read/limits.hpp"
#include "topology/read/number_table.hpp"
#include "topology/read/reading.hpp"

namespace shardscope::topology {
namespace {

constexpr int kMostHeads = 64;  // that are tried

std::string lower(std::string_view text) {
  std::string result(text.substr(0, 200));
  for (char& c : result) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
  return result;
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

/// Where "GPU0" stands, with at most three words of a corner before it ("Dst→").
std::optional<size_t> first_label(const std::vector<std::string_view>& words) {
  for (size_t i = 0; i < std::min<size_t>(words.size(), 4); ++i) {
    if (words[i] == "GPU0") return i;
  }
  return std::nullopt;
}

bool has_corner(const std::vector<std::string_view>& words, size_t labels) {
  return std::any_of(words.begin(), words.begin() + static_cast<ptrdiff_t>(labels),
                     [](std::string_view word) { return contains(word, "Dst") || contains(word, "Src"); });
}

/// By the title that stands above, if there is one.
TableMeaning meaning_of_title(const std::string& title) {
  TableMeaning meaning;
  if (contains(title, "latency")) meaning.kind = Measurement::Kind::kP2pLatency;
  if (contains(title, "unidirectional")) meaning.both_ways = false;
  if (contains(title, "bidirectional")) meaning.both_ways = true;
  return meaning;
}

}  // namespace

std::optional<Topology> read_p2pmark(const SourceText& source) {
  const std::string text = plain_text(source.text);
  Topology topology{.source = SourceKind::kP2pmark, .file = source.file, .nics_known = false};
  Faults faults;
  LineCursor cursor{.rest = text};
  size_t gpus = 0;
  bool ours = false;
  std::string title;
  std::string_view line;
  const auto ends = [](std::string_view each) { return first_label(split_words(each, 5)).has_value(); };
  for (int heads = 0; heads < kMostHeads && cursor.next(line);) {
    const std::vector<std::string_view> words = split_words(line, kMostGpus + 8);
    const std::optional<size_t> label = first_label(words);
    const size_t first = label.value_or(words.size());
    const bool corner = label && has_corner(words, first);
    const std::optional<size_t> columns = columns_of_head(words, first, TableLabels::kGpuNames);
    if (!columns) {
      if (corner) {
        ours = true;
        faults.fault(fmt::format("line {}: the head of a table is damaged: its figures are unknown", cursor.number));
      }
      if (!words.empty()) title = lower(line);
      continue;
    }
    ++heads;
    // Rows "GPU0:" tell this table from a matrix of nvidia-smi, which has the same head.
    LineCursor ahead = cursor;
    Faults of_table;
    const NumberTable table = read_number_table(ahead, *columns, TableLabels::kGpuNames, false, ends, of_table);
    const bool any_row = ahead.number != cursor.number;
    if (!any_row && !corner) continue;
    ours = true;
    if (!any_row) continue;
    cursor = ahead;
    faults = std::move(of_table);
    gpus = std::max(gpus, table.size);
    append_measurements(table, meaning_of_title(title), topology);
    if (!contains(title, "directional")) {
      faults.note(
          fmt::format("line {}: whether figures are of one direction or of both at once is not told", table.line));
    }
    break;  // one table a run
  }
  if (!ours) return std::nullopt;
  if (topology.measurements.empty()) {
    throw UserError("a table of p2pmark without figures", source.file, "give the whole output of one run");
  }
  fill_gpus(gpus, topology);
  std::move(faults).move_to(topology);
  return topology;
}

}  // namespace shardscope::topology
