#include "runtime/report/parts_table.hpp"

#include <algorithm>
#include <span>

#include "runtime/report/table_text.hpp"

namespace shardscope::runtime {
namespace {

constexpr const char* kLegend =
    "ideal: bytes at the read speed that is achievable here; then what is above it: matrices (products of weights), "
    "attn (attention), small (look-up, norms); transfer, wait: in all-reduces, once the last rank has come and until "
    "then; head: LM head and sampling; gaps: between operations; resid: what the parts leave unexplained";

using Rows = std::vector<std::vector<std::string>>;

Rows head_of(const PartsTable& table, std::span<const Part> parts) {
  Rows head(2);
  const auto add = [&](const std::string& name, const std::string& unit) {
    head[0].push_back(name);
    head[1].push_back(unit);
  };
  for (const KeyColumn& key : table.keys) add(key.name, key.unit);
  for (const auto& [name, unit] : table.totals) add(name, unit);
  for (const Part part : parts) add(short_name(part), "ms");
  return head;
}

std::string layout_text(const PartsTable& table, const std::vector<PartsLine>& lines, std::span<const Part> parts,
                        size_t gap) {
  Rows rows = head_of(table, parts);
  for (const PartsLine& line : lines) {
    std::vector<std::string> figures;
    for (const KeyColumn& key : table.keys) figures.push_back(key.cell(*line.point));
    figures.insert(figures.end(), line.totals.begin(), line.totals.end());
    std::vector<std::string> shares(figures.size());
    shares.back().push_back('%');
    for (const Part part : parts) {
      const double ms = (*line.parts)[part];
      const bool known = line.point->knows(part);
      figures.push_back(known ? figure_text(ms) : kUnknown);
      shares.push_back(known && line.whole_ms ? percent_text(std::optional(ms / *line.whole_ms)) : kUnknown);
    }
    rows.push_back(std::move(figures));
    if (table.shares) rows.push_back(std::move(shares));
  }
  return aligned(rows, gap);
}

}  // namespace

const char* short_name(Part part) {
  switch (part) {
    case Part::kIdealMemory:
      return "ideal";
    case Part::kMatrixLoss:
      return "matrices";
    case Part::kAttention:
      return "attn";
    case Part::kElementwise:
      return "small";
    case Part::kAllreduceTransfer:
      return "transfer";
    case Part::kAllreduceWait:
      return "wait";
    case Part::kHeadAndSampling:
      return "head";
    case Part::kGaps:
      return "gaps";
    case Part::kResidual:
      return "resid";
  }
  return "";
}

std::string parts_legend() {
  return wrapped(kLegend);
}

std::string parts_table_text(const PartsTable& table, const std::vector<PartsLine>& lines) {
  for (size_t tables = 1; tables <= kParts.size(); ++tables) {
    const size_t each = (kParts.size() + tables - 1) / tables;
    for (const size_t gap : {size_t{2}, size_t{1}}) {
      std::string text;
      bool fits = true;
      for (size_t first = 0; first < kParts.size(); first += each) {
        const auto parts = std::span(kParts).subspan(first, std::min(each, kParts.size() - first));
        const std::string part = layout_text(table, lines, parts, gap);
        fits = fits && widest_line(part) <= kTableColumns;
        text += part;
      }
      if (fits || tables == kParts.size()) return text;
    }
  }
  return "";
}

}  // namespace shardscope::runtime
