#include "topology/draw/places_text.hpp"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "topology/draw/plain_text.hpp"

namespace shardscope::topology {
namespace {

constexpr const char* kUnknown = "?";

std::string nics_text(const Topology& topology, size_t gpu) {
  if (gpu >= topology.nearest_nics.size()) return kUnknown;
  if (topology.nearest_nics[gpu].empty()) {
    const auto& row = (*topology.nic_links)[gpu];
    const bool all_known = std::all_of(row.begin(), row.end(), [](const auto& path) { return path.has_value(); });
    return all_known ? "-" : kUnknown;
  }
  std::vector<std::string> names;
  for (const std::string& name : topology.nearest_nics[gpu]) {
    const auto nic =
        std::find_if(topology.nics.begin(), topology.nics.end(), [&](const Nic& n) { return n.name == name; });
    const bool device = nic != topology.nics.end() && !nic->device.empty() && nic->device != name;
    names.push_back(printable(device ? fmt::format("{} {}", name, nic->device) : name));
  }
  const std::optional<Path>& path = topology.nearest_nic_links[gpu];
  return fmt::format("{} ({})", fmt::join(names, ", "), path ? text_of(*path) : kUnknown);
}

std::string links_up_text(const Gpu& gpu) {
  const auto up =
      std::count_if(gpu.ports.begin(), gpu.ports.end(), [](const auto& port) { return port.active == true; });
  const bool told =
      std::any_of(gpu.ports.begin(), gpu.ports.end(), [](const auto& port) { return port.active.has_value(); });
  if (told) return fmt::format("{} of {}", up, gpu.ports.size());
  return gpu.nvlinks ? fmt::format("{}", *gpu.nvlinks) : kUnknown;
}

std::string pcie_text(const Gpu& gpu) {
  const std::optional<int> generation = gpu.pcie_generation_most ? gpu.pcie_generation_most : gpu.pcie_generation;
  const std::optional<int> width = gpu.pcie_width ? gpu.pcie_width : gpu.pcie_width_most;
  const std::string lanes = width ? fmt::format("x{}", *width) : "x?";
  if (generation) return fmt::format("{} {}", *generation, lanes);
  if (gpu.pcie_gt_per_s) return fmt::format("{} GT/s {}", short_figure(*gpu.pcie_gt_per_s), lanes);
  return width ? lanes : kUnknown;
}

struct Column {
  std::string head;
  std::vector<std::string> cells;
};

}  // namespace

std::string places_text(const Topology& topology, size_t width) {
  std::vector<Column> columns(8);
  columns[0].head = "GPU";
  columns[1].head = "model";
  columns[2].head = "NUMA";
  columns[3].head = "memory's NUMA";
  columns[4].head = "NVLinks up";
  columns[5].head = "PCIe";
  columns[6].head = "nearest NICs";
  columns[7].head = "CPUs";
  std::set<std::string> models;
  for (size_t i = 0; i < topology.gpus.size(); ++i) {
    const Gpu& gpu = topology.gpus[i];
    models.insert(gpu.name);
    columns[0].cells.push_back(fmt::format("{}", gpu.index));
    columns[1].cells.push_back(gpu.name.empty() ? kUnknown : printable(gpu.name));
    columns[2].cells.push_back(gpu.numa_nodes.empty() ? kUnknown : ranges_text(gpu.numa_nodes));
    columns[3].cells.push_back(gpu.gpu_numa_id ? fmt::format("{}", *gpu.gpu_numa_id) : kUnknown);
    columns[4].cells.push_back(links_up_text(gpu));
    columns[5].cells.push_back(pcie_text(gpu));
    columns[6].cells.push_back(topology.nic_links ? nics_text(topology, i) : kUnknown);
    columns[7].cells.push_back(gpu.cpu_affinity.empty() ? kUnknown : printable(gpu.cpu_affinity));
  }
  if (models.size() < 2) std::fill(columns[1].cells.begin(), columns[1].cells.end(), kUnknown);
  std::erase_if(columns, [](const Column& column) {
    return std::all_of(column.cells.begin(), column.cells.end(),
                       [](const std::string& cell) { return cell == kUnknown; });
  });
  if (columns.size() < 2) return "";
  size_t used = 2;
  for (Column& column : columns) {
    column.cells.insert(column.cells.begin(), column.head);
    // The last column gets what room is left, and says when it is cut.
    constexpr size_t kLeast = 20;
    if (&column == &columns.back()) {
      const size_t room = std::max(kLeast, width > used ? width - used : 0);
      for (std::string& cell : column.cells) {
        if (display_width(cell) > room && cell.size() > room - 3) cell = printable(cell.substr(0, room - 3)) + "...";
      }
    }
    size_t widest = 0;
    for (const std::string& cell : column.cells) widest = std::max(widest, display_width(cell));
    used += widest + 2;
  }
  std::vector<Row> rows(topology.gpus.size() + 1);
  for (const Column& column : columns) {
    for (size_t row = 0; row < rows.size(); ++row) rows[row].push_back(column.cells[row]);
  }
  return aligned(rows, "rl", 2);
}

}  // namespace shardscope::topology
