// A topology as text: what it is, the matrix, groups, places, figures, warnings.
#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "topology/draw/figures_text.hpp"
#include "topology/draw/islands.hpp"
#include "topology/draw/places_text.hpp"
#include "topology/draw/plain_text.hpp"
#include "topology/draw/source_words.hpp"
#include "topology/drawing.hpp"
#include "topology/host.hpp"
#include "topology/understanding.hpp"

namespace shardscope::topology {
namespace {

constexpr const char* kUnknown = "?";

size_t at(int position) {
  return static_cast<size_t>(position);
}

std::string gpu_name(const Topology& topology, size_t position) {
  return fmt::format("GPU{}", topology.gpus[position].index);
}

std::string cell_text(const std::optional<Path>& path) {
  return path ? text_of(*path) : kUnknown;
}

// ---- the matrix -----------------------------------------------------------------------------------------------------

/// Head and cells of each column: GPUs, then NICs.
std::vector<Row> matrix_columns(const Topology& topology) {
  std::vector<Row> columns;
  const size_t gpus = topology.gpus.size();
  for (size_t column = 0; topology.links && column < gpus; ++column) {
    Row cells = {gpu_name(topology, column)};
    for (const auto& row : *topology.links) cells.push_back(column < row.size() ? cell_text(row[column]) : kUnknown);
    columns.push_back(std::move(cells));
  }
  for (size_t column = 0; topology.nic_links && column < topology.nics.size(); ++column) {
    Row cells = {printable(topology.nics[column].name)};
    for (const auto& row : *topology.nic_links) {
      cells.push_back(column < row.size() ? cell_text(row[column]) : kUnknown);
    }
    columns.push_back(std::move(cells));
  }
  return columns;
}

size_t width_of(const Row& column) {
  size_t width = 0;
  for (const std::string& cell : column) width = std::max(width, display_width(cell));
  return width;
}

/// As many columns side by side as fit, the others below.
std::string matrix_text(const Topology& topology, size_t width) {
  constexpr size_t kGap = 2;
  const std::vector<Row> columns = matrix_columns(topology);
  Row names = {""};
  for (size_t gpu = 0; gpu < topology.gpus.size(); ++gpu) names.push_back(gpu_name(topology, gpu));
  std::string text;
  for (size_t first = 0; first < columns.size();) {
    size_t used = width_of(names);
    size_t end = first;
    while (end < columns.size() && (end == first || used + kGap + width_of(columns[end]) <= width)) {
      used += kGap + width_of(columns[end++]);
    }
    std::vector<Row> rows;
    for (size_t row = 0; row < names.size(); ++row) {
      rows.push_back({names[row]});
      for (size_t column = first; column < end; ++column) rows.back().push_back(columns[column].at(row));
    }
    text += first > 0 ? "\n" : "";
    text += aligned(rows, "l");
    first = end;
  }
  return text;
}

std::string_view words_of(PathKind kind) {
  switch (kind) {
    case PathKind::kNvLink:
      return "NVn: n NVLinks";
    case PathKind::kPix:
      return "PIX: one PCIe switch";
    case PathKind::kPxb:
      return "PXB: several PCIe switches";
    case PathKind::kPhb:
      return "PHB: a CPU's host bridge";
    case PathKind::kNode:
      return "NODE: host bridges of one NUMA node";
    case PathKind::kSys:
      return "SYS: the link between CPU sockets";
    case PathKind::kSoc:
      return "SOC: the link between CPU sockets";
    case PathKind::kSelf:
      break;
  }
  return "X: itself";
}

/// Of the codes that occur.
std::string codes_text(const Topology& topology, size_t width) {
  std::set<PathKind> kinds;
  bool unknown = false;
  for (const std::optional<PathMatrix>& matrix : {topology.links, topology.nic_links}) {
    if (!matrix) continue;
    for (const auto& row : *matrix) {
      for (const std::optional<Path>& path : row) {
        if (path) kinds.insert(path->kind);
        unknown = unknown || !path;
      }
    }
  }
  std::vector<std::string> parts;
  for (const PathKind kind : kinds) {
    if (kind != PathKind::kSelf) parts.emplace_back(words_of(kind));
  }
  if (unknown) parts.emplace_back("?: unknown");
  return parts.empty() ? "" : wrapped(fmt::format("{}", fmt::join(parts, "; ")), width, 0, 0);
}

// ---- groups ---------------------------------------------------------------------------------------------------------

std::string members_text(const Topology& topology, const std::vector<int>& members) {
  std::vector<int> indices;
  for (const int member : members) indices.push_back(topology.gpus[at(member)].index);
  std::sort(indices.begin(), indices.end());
  return ranges_text(indices);
}

/// Of the pairs that are as far as the farthest: the slowest, if all are known.
std::string rate_text(const Topology& topology, const std::vector<int>& members, const std::optional<Path>& narrowest) {
  std::optional<double> slowest;
  if (!narrowest || !topology.link_gb_per_s) return kUnknown;
  for (const int a : members) {
    for (const int b : members) {
      if (a >= b || path_between(topology, a, b) != narrowest) continue;
      const std::optional<double> rate = (*topology.link_gb_per_s)[at(a)][at(b)];
      if (!rate) return kUnknown;
      slowest = slowest ? std::min(*slowest, *rate) : *rate;
    }
  }
  return slowest ? short_figure(*slowest) : kUnknown;
}

/// Each degree up to 16, then powers of two and all GPUs.
bool shown_degree(const Topology& topology, int degree) {
  constexpr int kAllUpTo = 16;
  return degree <= kAllUpTo || (degree & (degree - 1)) == 0 || at(degree) == topology.gpus.size();
}

std::string groups_text(const Topology& topology) {
  if (topology.groups.empty()) return "";
  const bool rates = topology.link_gb_per_s.has_value();
  Row head = {"TP", "best GPUs", "narrowest"};
  if (rates) head.emplace_back("GB/s");
  head.insert(head.end(), {"worst GPUs", "narrowest"});
  if (rates) head.emplace_back("GB/s");
  std::vector<Row> rows = {head};
  for (const auto& [degree, group] : topology.groups) {
    if (!shown_degree(topology, degree)) continue;
    Row row = {fmt::format("{}", degree), members_text(topology, group.best), cell_text(group.best_narrowest)};
    if (rates) row.push_back(rate_text(topology, group.best, group.best_narrowest));
    row.push_back(group.best == group.worst ? "the same" : members_text(topology, group.worst));
    row.push_back(cell_text(group.worst_narrowest));
    if (rates) row.push_back(rate_text(topology, group.worst, group.worst_narrowest));
    rows.push_back(std::move(row));
  }
  std::string text = "Groups for tensor parallelism, with the narrowest link inside";
  text += rates ? " and what it carries each way:\n" : ":\n";
  return text + aligned(rows, rates ? "rllrllr" : "rllll", 2);
}

// ---- peer access ----------------------------------------------------------------------------------------------------

/// "OK 56 of 56": ordered pairs by the driver's word.
std::string peer_access_text(const Topology& topology, size_t width) {
  if (!topology.p2p) return "";
  std::map<std::string, int> counts;
  int pairs = 0;
  for (size_t i = 0; i < topology.p2p->size(); ++i) {
    for (size_t j = 0; j < (*topology.p2p)[i].size(); ++j) {
      if (i == j) continue;
      const std::string& word = (*topology.p2p)[i][j];
      ++counts[word.empty() ? "unknown" : printable(word)];
      ++pairs;
    }
  }
  std::vector<std::string> parts;
  for (const auto& [word, count] : counts) parts.push_back(fmt::format("{} {} of {}", word, count, pairs));
  if (parts.empty()) return "";
  return wrapped(fmt::format("Peer access as the driver claims it, ordered pairs: {}.", fmt::join(parts, ", ")), width);
}

// ---- the host -------------------------------------------------------------------------------------------------------

/// CPUs and NUMA nodes, where the source tells them.
std::string cpus_text(const Topology& topology, size_t width) {
  std::string text = topology.cpu.empty() ? "" : wrapped(fmt::format("CPU: {}", printable(topology.cpu)), width);
  if (topology.numa_nodes.empty()) return text;
  std::vector<Row> rows = {{"NUMA", "cores", "memory"}};
  for (const NumaNode& node : topology.numa_nodes) {
    constexpr double kGibi = 1 << 30;
    rows.push_back({fmt::format("{}", node.id), node.cores.empty() ? "-" : core_list_text(node.cores),
                    node.memory_bytes ? fmt::format("{:.1f} GiB", static_cast<double>(*node.memory_bytes) / kGibi)
                                      : std::string(kUnknown)});
  }
  return text + aligned(rows, "rlr", 2);
}

// ---- the whole ------------------------------------------------------------------------------------------------------

std::string heading_text(const Topology& topology, size_t width) {
  std::string text = wrapped(fmt::format("{} ({})", gpus_in_words(topology), origin_in_words(topology)), width);
  const bool known = topology.topology_class != TopologyClass::kUnknown;
  text += wrapped(fmt::format("class: {}{}. {}", name_of(topology.topology_class),
                              known ? fmt::format(", {}", class_in_words(topology.topology_class)) : "",
                              printable(meaning_of(topology))),
                  width);
  if (!topology.complete) text += wrapped("The source is cut or damaged: what is missing is unknown here.", width);
  return text;
}

void add_part(std::string& text, const std::string& part) {
  if (!part.empty()) text += fmt::format("\n{}", part);
}

}  // namespace

std::string topology_text(const Topology& topology, int width) {
  constexpr int kNarrowest = 40;
  const size_t columns = at(std::max(width, kNarrowest));
  std::string text = heading_text(topology, columns);
  add_part(text, matrix_text(topology, columns) + codes_text(topology, columns));
  add_part(text, peer_access_text(topology, columns));
  add_part(text, groups_text(topology));
  add_part(text, places_text(topology, columns));
  if (!topology.nics_known && topology.links) {
    add_part(text, wrapped("NICs: this source does not show them all.", columns));
  }
  add_part(text, figures_text(topology));
  add_part(text, cpus_text(topology, columns));
  std::string warnings;
  for (const std::string& warning : topology.warnings) {
    warnings += wrapped(fmt::format("Warning: {}", printable(warning)), columns);
  }
  add_part(text, warnings);
  return text;
}

}  // namespace shardscope::topology
