// `nvidia-smi topo -p2p`: whether the driver claims that two GPUs can reach each other's memory.
#include <algorithm>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "topology/read/gpu_table.hpp"
#include "topology/read/reading.hpp"

namespace shardscope::topology {
namespace {

// No code begins with another: a word without blanks has one reading.
constexpr std::array<std::string_view, 8> kCodes = {"X", "OK", "CNS", "GNS", "TNS", "NS", "U", "DR"};

std::array<size_t, 2> starts_with_status(std::string_view text) {
  for (const std::string_view code : kCodes) {
    if (text.starts_with(code)) return {code.size(), 0};
  }
  return {0, 0};
}

bool is_path(std::string_view word) {
  return word != "X" && path_of(word).has_value();
}

constexpr CellCodes kP2pCodes = {.starts = starts_with_status, .foreign = is_path};

/// The letter behind "-p2p" in the text, or '\0'. `legend`: whether the legend is that of this table.
char mode_of(std::string_view plain, bool& legend) {
  char mode = '\0';
  LineCursor cursor{plain};
  std::string_view line;
  while (cursor.next(line)) {
    const std::vector<std::string_view> words = split_words(line, 16);
    for (size_t i = 0; i + 1 < words.size(); ++i) {
      const bool asked = words[i] == "-p2p" || words[i] == "--p2pstatus";
      if (asked && mode == '\0') mode = words[i + 1].front();
      legend = legend || (words[i] == "OK" && words[i + 1] == "=");
    }
  }
  return mode;
}

bool has_status(const GpuTable& table) {
  for (const TableRow& row : table.rows) {
    for (const std::optional<std::string>& cell : row.cells) {
      if (cell && *cell != "X" && is_code(*cell, kP2pCodes)) return true;
    }
  }
  return false;
}

struct P2pReader {
  const GpuTable& table;
  Faults& faults;

  /// [gpu][gpu]; empty: unknown.
  Matrix<std::string> cells() const {
    const size_t columns = table.columns.size();
    Matrix<std::string> status(columns, std::vector<std::string>(columns));
    for (const TableRow& row : table.rows) {
      for (size_t i = 0; i < row.cells.size(); ++i) {
        if (!row.cells[i]) continue;
        if (is_code(*row.cells[i], kP2pCodes)) {
          status[row.column][i] = *row.cells[i];
        } else {
          faults.fault(fmt::format("Line {}, row {}, column {}: {} is no known code.", row.line,
                                   table.columns[row.column].name, table.columns[i].name, quoted(*row.cells[i])));
        }
      }
    }
    for (size_t i = 0; i < columns; ++i) status[i][i].assign(1, 'X');
    return status;
  }

  /// Both directions of a pair agree on every machine that was seen: where they do not, a cell is damaged.
  void compare_directions(Matrix<std::string>& status) const {
    std::vector<std::string> unknown;
    for (size_t a = 0; a < status.size(); ++a) {
      for (size_t b = a + 1; b < status.size(); ++b) {
        if (!status[a][b].empty() && !status[b][a].empty() && status[a][b] != status[b][a]) {
          faults.fault(fmt::format("{} to {} is {}, but {} to {} is {}: taken as unknown.", table.columns[a].name,
                                   table.columns[b].name, status[a][b], table.columns[b].name, table.columns[a].name,
                                   status[b][a]));
          status[a][b].clear();
          status[b][a].clear();
        }
        for (const auto& [from, to] : {std::pair(a, b), std::pair(b, a)}) {
          if (status[from][to].empty()) {
            unknown.push_back(fmt::format("{}-{}", table.columns[from].name, table.columns[to].name));
          }
        }
      }
    }
    if (!unknown.empty()) faults.fault(fmt::format("Peer access is unknown from GPU to GPU: {}.", listed(unknown)));
  }
};

}  // namespace

std::optional<Topology> read_nvidia_smi_p2p(const SourceText& source) {
  if (source.text.find("PU") == source.text.npos) return std::nullopt;
  const std::string plain = plain_text(source.text);
  Faults faults;
  const std::optional<GpuTable> table = find_gpu_table(plain, source.file, kP2pCodes, faults);
  bool legend = false;
  const char mode = mode_of(plain, legend);
  if (!table || table->rows.empty()) {
    if (mode == '\0' || !table) return std::nullopt;
    throw UserError("a matrix of `nvidia-smi topo -p2p` without rows", source.file, "give its whole output");
  }
  if (!has_status(*table) && mode == '\0' && !legend) return std::nullopt;
  for (const TableColumn& column : table->columns) {
    if (column.kind != TableColumn::Kind::kGpu) return std::nullopt;
  }
  Topology topology{.source = SourceKind::kNvidiaSmiP2p, .file = source.file, .nics_known = false};
  for (const TableColumn& column : table->columns) topology.gpus.push_back({.index = column.gpu});
  topology.gpu_count = static_cast<int>(topology.gpus.size());
  const P2pReader reader{*table, faults};
  Matrix<std::string> status = reader.cells();
  reader.compare_directions(status);
  if (mode == 'n' || mode == 'a' || mode == 'p') {
    // These ask for more than reading: only a yes tells something of it.
    for (std::vector<std::string>& row : status) {
      for (std::string& cell : row) {
        if (cell != "X" && cell != "OK") cell.clear();
      }
    }
    faults.note(fmt::format(
        "This is `topo -p2p {}`, which asks for more than reads and writes: pairs that are not OK in it are unknown.",
        mode));
  }
  topology.p2p = std::move(status);
  std::move(faults).move_to(topology);
  return topology;
}

}  // namespace shardscope::topology
