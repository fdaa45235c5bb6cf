#include "topology/topology_json.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "topology/topology_names.hpp"
#include "topology/understanding.hpp"

namespace shardscope::topology {
namespace {

using Json = nlohmann::ordered_json;

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}
Json text_or_null(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}
Json path_json(const std::optional<Path>& path) {
  return path ? Json(text_of(*path)) : Json(nullptr);
}

template <class T, class ToJson>
Json matrix_json(const std::optional<Matrix<T>>& matrix, const ToJson& to_json) {
  if (!matrix) return nullptr;
  Json rows = Json::array();
  for (const std::vector<T>& row : *matrix) {
    Json cells = Json::array();
    for (const T& cell : row) cells.push_back(to_json(cell));
    rows.push_back(std::move(cells));
  }
  return rows;
}

Json port_json(const NvLinkPort& port) {
  const auto remote =
      std::find_if(kRemotes.begin(), kRemotes.end(), [&](const auto& entry) { return entry.first == port.remote; });
  return {{"link", port.link},
          {"active", or_null(port.active)},
          {"remote", remote->second},
          {"remote_bus_id", text_or_null(port.remote_bus_id)},
          {"gb_per_s", or_null(port.gb_per_s)},
          {"generation", or_null(port.generation)}};
}

Json gpu_json(const Topology& topology, size_t position) {
  const Gpu& gpu = topology.gpus[position];
  const bool conclusions = position < topology.nearest_nics.size();
  Json json = {
      {"index", gpu.index},
      {"name", text_or_null(gpu.name)},
      {"numa_nodes", gpu.numa_nodes.empty() ? Json(nullptr) : Json(gpu.numa_nodes)},
      {"cpu_affinity", text_or_null(gpu.cpu_affinity)},
      {"gpu_numa_id", or_null(gpu.gpu_numa_id)},
      {"nearest_nics", conclusions ? Json(topology.nearest_nics[position]) : Json::array()},
      {"nearest_nic_link", conclusions ? path_json(topology.nearest_nic_links[position]) : Json(nullptr)},
      {"uuid", text_or_null(gpu.uuid)},
      {"pci_bus_id", text_or_null(gpu.pci_bus_id)},
      {"compute_capability", or_null(gpu.compute)},
      {"nvlinks", or_null(gpu.nvlinks)},
      {"ports", Json::array()},
      {"pcie_generation", or_null(gpu.pcie_generation)},
      {"pcie_width", or_null(gpu.pcie_width)},
      {"pcie_generation_most", or_null(gpu.pcie_generation_most)},
      {"pcie_width_most", or_null(gpu.pcie_width_most)},
      {"pcie_gt_per_s", or_null(gpu.pcie_gt_per_s)},
      {"memory_bytes", or_null(gpu.memory_bytes)},
      {"memory_clock_mhz", or_null(gpu.memory_clock_mhz)},
      {"memory_bus_bits", or_null(gpu.memory_bus_bits)},
      {"clock_mhz", or_null(gpu.clock_mhz)},
      {"clock_mhz_most", or_null(gpu.clock_mhz_most)},
      {"slowed_by", gpu.slowed_by},
      {"temperature_celsius", or_null(gpu.temperature_celsius)},
      {"power_watts", or_null(gpu.power_watts)},
      {"power_limit_watts", or_null(gpu.power_limit_watts)},
      {"persistence", or_null(gpu.persistence)},
      {"mig", or_null(gpu.mig)},
      {"fabric", text_or_null(gpu.fabric)},
      {"processes", or_null(gpu.processes)},
  };
  for (const NvLinkPort& port : gpu.ports) json["ports"].push_back(port_json(port));
  return json;
}

Json measurement_json(const Measurement& figure) {
  return {{"kind", name_of(figure.kind)},
          {"from", or_null(figure.from)},
          {"to", or_null(figure.to)},
          {"p2p", or_null(figure.p2p)},
          {"direction", figure.both_ways ? Json(*figure.both_ways ? "bi" : "uni") : Json(nullptr)},
          {"gpu_count", or_null(figure.gpu_count)},
          {"bytes", or_null(figure.bytes)},
          {"time_us", or_null(figure.time_us)},
          {"gb_per_s", or_null(figure.gb_per_s)},
          {"busbw_gb_per_s", or_null(figure.busbw_gb_per_s)},
          {"algorithm", text_or_null(figure.algorithm)},
          {"one_process", or_null(figure.one_process)},
          {"graph", or_null(figure.graph)}};
}

Json group_json(const Topology& topology, const Group& group) {
  const auto indices = [&](const std::vector<int>& positions) {
    std::vector<int> list;
    for (const int position : positions) list.push_back(topology.gpus[static_cast<size_t>(position)].index);
    return list;
  };
  return {{"best", indices(group.best)},
          {"best_narrowest", path_json(group.best_narrowest)},
          {"worst", indices(group.worst)},
          {"worst_narrowest", path_json(group.worst_narrowest)}};
}

}  // namespace

Json topology_json(const Topology& topology) {
  Json json = {{"schema", kTopologySchema},
               {"source", {{"kind", name_of(topology.source)}, {"file", text_or_null(topology.file)}}},
               {"complete", topology.complete},
               {"host", text_or_null(topology.host)},
               {"platform", text_or_null(topology.platform)},
               {"virtual_machine", or_null(topology.virtual_machine)},
               {"cpu", text_or_null(topology.cpu)},
               {"numa_nodes", Json::array()},
               {"gpu_count", or_null(topology.gpu_count)},
               {"gpus", Json::array()},
               {"nics_known", topology.nics_known},
               {"nics", topology.nics_known || !topology.nics.empty() ? Json::array() : Json(nullptr)}};
  for (const NumaNode& node : topology.numa_nodes) {
    json["numa_nodes"].push_back(
        {{"id", node.id}, {"cores", node.cores}, {"memory_bytes", or_null(node.memory_bytes)}});
  }
  for (size_t position = 0; position < topology.gpus.size(); ++position) {
    json["gpus"].push_back(gpu_json(topology, position));
  }
  for (const Nic& nic : topology.nics) {
    json["nics"].push_back(
        {{"name", nic.name}, {"device", text_or_null(nic.device)}, {"numa_node", or_null(nic.numa_node)}});
  }
  json["links"] = matrix_json(topology.links, path_json);
  json["nic_links"] = matrix_json(topology.nic_links, path_json);
  json["link_gb_per_s"] = matrix_json(topology.link_gb_per_s, or_null<double>);
  json["p2p"] = matrix_json(topology.p2p, text_or_null);
  json["switched"] = or_null(topology.switched);
  json["class"] = name_of(topology.topology_class);
  json["meaning"] = meaning_of(topology);
  json["groups"] = Json::object();
  for (const auto& [degree, group] : topology.groups) {
    json["groups"][fmt::format("{}", degree)] = group_json(topology, group);
  }
  json["measurements"] = Json::array();
  for (const Measurement& figure : topology.measurements) json["measurements"].push_back(measurement_json(figure));
  json["warnings"] = topology.warnings;
  return json;
}

}  // namespace shardscope::topology
