// `nvidia-smi topo -m`: what lies between each two GPUs, and between GPUs and NICs. The table's damage is for
// gpu_table.hpp; here the cells get their meaning, and each pair's two cells must agree.
#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "topology/read/gpu_table.hpp"
#include "topology/read/reading.hpp"

namespace shardscope::topology {
namespace {

using ColumnKind = TableColumn::Kind;

constexpr int kMostLinks = 36;  // twice those of any GPU up to NVLink 5
constexpr std::array<std::string_view, 7> kWords = {"X", "PIX", "PXB", "PHB", "NODE", "SYS", "SOC"};

std::array<size_t, 2> starts_with_path(std::string_view text) {
  for (const std::string_view word : kWords) {
    if (text.starts_with(word)) return {word.size(), 0};
  }
  const std::array<bool, 2> valid = {path_of(text.substr(0, 4)).has_value(), path_of(text.substr(0, 3)).has_value()};
  if (valid[0] && text.size() >= 4) return {4, valid[1] ? size_t{3} : size_t{0}};
  return {valid[1] ? size_t{3} : size_t{0}, 0};
}

bool is_p2p_word(std::string_view word) {
  static constexpr std::array<std::string_view, 7> kP2p = {"OK", "CNS", "GNS", "TNS", "NS", "U", "DR"};
  return std::find(kP2p.begin(), kP2p.end(), word) != kP2p.end();
}

constexpr CellCodes kPathCodes = {.starts = starts_with_path, .foreign = is_p2p_word};

bool is_rocm(std::string_view text) {
  for (const std::string_view sign :
       {"Weight between two GPUs", "Hops between two GPUs", "Link Type between two GPUs", "(Topology) Numa",
        "ROCm System Management Interface", "LINK TYPE TABLE", "NUMA BW TABLE", "XGMI"}) {
    if (text.find(sign) != text.npos) return true;
  }
  return false;
}

/// What the lines outside the matrix say.
struct Surroundings {
  bool pcie_only = false;                                // of `topo -mp`
  std::map<std::string, std::string, std::less<>> nics;  // name -> device, by the NIC legend
};

Surroundings read_surroundings(std::string_view plain) {
  constexpr size_t kMostNics = 1024;
  Surroundings around;
  bool asked = false;
  bool pix = false;
  bool sys = false;
  bool nvlink = false;
  LineCursor cursor{plain};
  std::string_view line;
  while (cursor.next(line)) {
    const std::vector<std::string_view> words = split_words(line, 8);
    for (size_t i = 0; i + 1 < words.size(); ++i) {
      const std::string_view next = words[i + 1];
      asked = asked || (words[i] == "topo" && (next == "-mp" || next == "--matrix_pci"));
      if (next == "=") {
        pix = pix || words[i] == "PIX";
        sys = sys || words[i] == "SYS";
        nvlink = nvlink || words[i] == "NV#";
      }
      const bool legend = words[i].starts_with("NIC") && words[i].ends_with(":");
      const std::string_view name = words[i].substr(0, words[i].size() - 1);
      if (legend && number_after(name, "NIC") && around.nics.size() < kMostNics && next.size() <= 64) {
        around.nics.emplace(name, next);
      }
    }
  }
  around.pcie_only = asked || (pix && sys && !nvlink);
  return around;
}

class TopoReader {
 public:
  TopoReader(const GpuTable& table, Topology& topology, Faults& faults)
      : table_(table), topology_(topology), faults_(faults) {
    for (const TableColumn& column : table.columns) {
      position_.push_back(column.kind == ColumnKind::kGpu ? topology.gpus.size() : topology.nics.size());
      if (column.kind == ColumnKind::kGpu) topology.gpus.push_back({.index = column.gpu});
      if (column.kind == ColumnKind::kNic) topology.nics.push_back({.name = column.name});
    }
    topology.gpu_count = static_cast<int>(topology.gpus.size());
    topology.nics_known = table.nics_known;
  }

  void read_links() {
    const size_t gpus = topology_.gpus.size();
    PathMatrix links(gpus, std::vector<std::optional<Path>>(gpus));
    PathMatrix nic_links(gpus, std::vector<std::optional<Path>>(topology_.nics.size()));
    const size_t columns = table_.columns.size();
    const Matrix<std::optional<Path>> cells = paths_of_cells();
    std::vector<std::string> unknown;
    for (size_t a = 0; a < columns; ++a) {
      for (size_t b = a + 1; b < columns; ++b) {
        const TableColumn& one = table_.columns[a];
        const TableColumn& two = table_.columns[b];
        if (one.kind == ColumnKind::kElided || two.kind == ColumnKind::kElided) continue;
        if (one.kind == ColumnKind::kNic && two.kind == ColumnKind::kNic) continue;
        const std::optional<Path> path = agreed(cells, a, b);
        if (!path) unknown.push_back(fmt::format("{}-{}", one.name, two.name));
        if (one.kind == ColumnKind::kGpu && two.kind == ColumnKind::kGpu) {
          links[position_[a]][position_[b]] = links[position_[b]][position_[a]] = path;
        } else {
          const bool gpu_first = one.kind == ColumnKind::kGpu;
          nic_links[position_[gpu_first ? a : b]][position_[gpu_first ? b : a]] = path;
        }
      }
    }
    for (size_t gpu = 0; gpu < gpus; ++gpu) links[gpu][gpu] = Path{};
    if (!unknown.empty()) faults_.fault(fmt::format("The path is unknown between {}.", listed(unknown)));
    topology_.links = std::move(links);
    if (topology_.nics_known || !topology_.nics.empty()) topology_.nic_links = std::move(nic_links);
  }

 private:
  /// [row's column][column]
  Matrix<std::optional<Path>> paths_of_cells() const {
    const size_t columns = table_.columns.size();
    Matrix<std::optional<Path>> paths(columns, std::vector<std::optional<Path>>(columns));
    for (const TableRow& row : table_.rows) {
      for (size_t i = 0; i < row.cells.size(); ++i) {
        if (!row.cells[i]) continue;
        const TableColumn& own = table_.columns[row.column];
        const TableColumn& column = table_.columns[i];
        if (column.kind == ColumnKind::kElided) continue;
        const std::optional<Path> path = path_of(*row.cells[i]);
        const bool nvlink = path && path->kind == PathKind::kNvLink;
        std::string wrong;
        if (!path) {
          wrong = "is no known code";
        } else if (nvlink && path->nvlinks > kMostLinks) {
          wrong = "is more NVLinks than GPUs have";
        } else if (nvlink && (own.kind != ColumnKind::kGpu || column.kind != ColumnKind::kGpu)) {
          wrong = "cannot be the path to a NIC";
        }
        if (wrong.empty()) {
          paths[row.column][i] = path;
        } else {
          faults_.fault(fmt::format("Line {}, row {}, column {}: {} {}.", row.line, own.name, column.name,
                                    quoted(*row.cells[i]), wrong));
        }
      }
    }
    return paths;
  }

  /// What both cells of a pair say; one alone will do where the other is lost.
  std::optional<Path> agreed(const Matrix<std::optional<Path>>& cells, size_t a, size_t b) const {
    const std::optional<Path>& there = cells[a][b];
    const std::optional<Path>& back = cells[b][a];
    if (!there || !back || *there == *back) return there ? there : back;
    const auto line_of = [&](size_t column) {
      const auto own = [&](const TableRow& row) { return row.column == column; };
      return std::find_if(table_.rows.begin(), table_.rows.end(), own)->line;
    };
    faults_.fault(fmt::format("Lines {} and {} disagree: {} to {} is {}, but {} to {} is {}: taken as unknown.",
                              line_of(a), line_of(b), table_.columns[a].name, table_.columns[b].name, text_of(*there),
                              table_.columns[b].name, table_.columns[a].name, text_of(*back)));
    return std::nullopt;
  }

  const GpuTable& table_;
  Topology& topology_;
  Faults& faults_;
  std::vector<size_t> position_;  // of each column, among its kind
};

bool has_path(const GpuTable& table) {
  for (const TableRow& row : table.rows) {
    for (const std::optional<std::string>& cell : row.cells) {
      if (cell && *cell != "X" && path_of(*cell)) return true;
    }
  }
  return false;
}

bool shows_nvlink(const Topology& topology) {
  for (const auto& row : *topology.links) {
    for (const std::optional<Path>& path : row) {
      if (path && path->kind == PathKind::kNvLink) return true;
    }
  }
  return false;
}

}  // namespace

std::optional<Topology> read_nvidia_smi_topo(const SourceText& source) {
  if (source.text.find("PU") == source.text.npos) return std::nullopt;
  const std::string plain = plain_text(source.text);
  Faults faults;
  const std::optional<GpuTable> table = find_gpu_table(plain, source.file, kPathCodes, faults);
  if (!table || table->rows.empty()) {
    if (is_rocm(plain)) {
      throw UserError("output of rocm-smi for AMD GPUs, which shardscope does not read", source.file,
                      "give that of `nvidia-smi topo -m`");
    }
    if (!table) return std::nullopt;
    throw UserError("a matrix of `nvidia-smi topo -m` without rows", source.file, "give its whole output");
  }
  // A table of `topo -p2p` for one GPU, or one whose other cells are lost.
  if (plain.find("-p2p") != plain.npos && !has_path(*table)) return std::nullopt;
  Topology topology{.source = SourceKind::kNvidiaSmiTopo, .file = source.file};
  TopoReader(*table, topology, faults).read_links();
  if (topology.gpus.empty()) {
    throw UserError("a matrix of `nvidia-smi topo -m` without GPUs", source.file, "give its whole output");
  }
  read_smi_tails(*table, topology, faults);
  const Surroundings around = read_surroundings(plain);
  for (Nic& nic : topology.nics) {
    const auto device = around.nics.find(nic.name);
    if (device != around.nics.end()) nic.device = device->second;
    if (!nic.name.starts_with("NIC")) nic.device = nic.name;
  }
  if (around.pcie_only && topology.gpus.size() > 1 && !shows_nvlink(topology)) {
    topology.links.reset();
    faults.note(
        "This is the matrix of `nvidia-smi topo -mp`, or its legend was cut: it shows PCIe paths, and GPUs may be "
        "linked by NVLink or not, so that links are unknown. `nvidia-smi topo -m` tells.");
  }
  std::move(faults).move_to(topology);
  return topology;
}

}  // namespace shardscope::topology
