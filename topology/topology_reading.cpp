// Documents of topology_json.hpp back to values. Whatever may stand in a file is checked here.
#include <limits>
#include <set>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "topology/read/limits.hpp"
#include "topology/topology_json.hpp"
#include "topology/topology_names.hpp"
#include "topology/understanding.hpp"

namespace shardscope::topology {
namespace {

using In = nlohmann::json;

constexpr size_t kMostWarnings = 10000;

/// A place in the document, and what it must be.
class Field {
 public:
  Field(const In& value, std::string path, const std::string& file)
      : value_(value), path_(std::move(path)), file_(file) {}

  [[noreturn]] void refuse(std::string_view expected) const {
    throw UserError(fmt::format("{} is not {}", path_, expected), file_,
                    "write the file anew with `shardscope topo --json FILE`");
  }

  bool null() const { return value_.is_null(); }

  /// A field that is missing reads as null.
  Field operator[](const char* key) const {
    static const In kNull;
    if (!value_.is_object()) refuse("an object");
    const auto found = value_.find(key);
    return {found == value_.end() ? kNull : *found, path_.empty() ? key : fmt::format("{}.{}", path_, key), file_};
  }

  std::vector<Field> list(size_t most) const {
    if (!value_.is_array()) refuse("a list");
    if (value_.size() > most) refuse(fmt::format("a list of at most {} entries", most));
    std::vector<Field> fields;
    for (size_t i = 0; i < value_.size(); ++i) fields.emplace_back(value_[i], fmt::format("{}[{}]", path_, i), file_);
    return fields;
  }
  std::vector<Field> list_or_none(size_t most) const { return null() ? std::vector<Field>{} : list(most); }

  std::string text() const {
    if (!value_.is_string()) refuse("a text");
    return value_.get<std::string>();
  }
  std::string text_or_empty() const { return null() ? std::string() : text(); }

  template <class Integer = int>
  Integer whole(int64_t least = 0, int64_t most = std::numeric_limits<Integer>::max()) const {
    const bool fits =
        value_.is_number_integer() && !(value_.is_number_unsigned() && value_.get<uint64_t>() > INT64_MAX);
    if (!fits || value_.get<int64_t>() < least || value_.get<int64_t>() > most) {
      refuse(fmt::format("a whole number from {} to {}", least, most));
    }
    return static_cast<Integer>(value_.get<int64_t>());
  }
  template <class Integer = int>
  std::optional<Integer> whole_or_null(int64_t least = 0, int64_t most = std::numeric_limits<Integer>::max()) const {
    return null() ? std::nullopt : std::optional(whole<Integer>(least, most));
  }
  std::optional<double> number_or_null() const {
    if (null()) return std::nullopt;
    constexpr double kMost = 1e15;  // of any unit here
    const double number = value_.is_number() ? value_.get<double>() : -1;
    if (!(number >= 0 && number <= kMost)) refuse("a number from 0 to 1e15");
    return number;
  }
  std::optional<bool> truth_or_null() const {
    if (null()) return std::nullopt;
    if (!value_.is_boolean()) refuse("true or false");
    return value_.get<bool>();
  }
  std::optional<Path> path_or_null() const {
    if (null()) return std::nullopt;
    const std::optional<Path> path = path_of(text());
    if (!path) refuse("one of X, NV1 to NV99, PIX, PXB, PHB, NODE, SYS, SOC");
    return path;
  }

 private:
  const In& value_;
  std::string path_;
  const std::string& file_;
};

template <class T, class Read>
std::optional<Matrix<T>> matrix_of(const Field& field, size_t rows, size_t columns, const Read& read) {
  if (field.null()) return std::nullopt;
  Matrix<T> matrix;
  for (const Field& row : field.list(rows)) {
    matrix.emplace_back();
    for (const Field& cell : row.list(columns)) matrix.back().push_back(read(cell));
    if (matrix.back().size() != columns) row.refuse(fmt::format("a list of {} entries", columns));
  }
  if (matrix.size() != rows) field.refuse(fmt::format("a list of {} rows", rows));
  return matrix;
}

NvLinkPort port_of(const Field& field) {
  NvLinkPort port{.link = field["link"].whole(0, 255),
                  .active = field["active"].truth_or_null(),
                  .remote = NvLinkPort::Remote::kUnknown,
                  .remote_bus_id = field["remote_bus_id"].text_or_empty(),
                  .gb_per_s = field["gb_per_s"].number_or_null(),
                  .generation = field["generation"].whole_or_null(0, 99)};
  const std::string remote = field["remote"].text_or_empty();
  for (const auto& [value, name] : kRemotes) {
    if (remote == name) port.remote = value;
  }
  return port;
}

Gpu gpu_of(const Field& field) {
  Gpu gpu;
  gpu.index = field["index"].whole(0, kLargestGpuIndex);
  gpu.name = field["name"].text_or_empty();
  gpu.uuid = field["uuid"].text_or_empty();
  gpu.pci_bus_id = field["pci_bus_id"].text_or_empty();
  for (const Field& node : field["numa_nodes"].list_or_none(1024)) gpu.numa_nodes.push_back(node.whole(0, 65535));
  gpu.cpu_affinity = field["cpu_affinity"].text_or_empty();
  gpu.gpu_numa_id = field["gpu_numa_id"].whole_or_null(0, 65535);
  if (!field["compute_capability"].null()) gpu.compute = field["compute_capability"].text();
  gpu.nvlinks = field["nvlinks"].whole_or_null(0, 255);
  for (const Field& port : field["ports"].list_or_none(256)) gpu.ports.push_back(port_of(port));
  gpu.pcie_generation = field["pcie_generation"].whole_or_null(0, 99);
  gpu.pcie_width = field["pcie_width"].whole_or_null(0, 99);
  gpu.pcie_generation_most = field["pcie_generation_most"].whole_or_null(0, 99);
  gpu.pcie_width_most = field["pcie_width_most"].whole_or_null(0, 99);
  gpu.pcie_gt_per_s = field["pcie_gt_per_s"].number_or_null();
  gpu.memory_bytes = field["memory_bytes"].whole_or_null<int64_t>();
  gpu.memory_clock_mhz = field["memory_clock_mhz"].number_or_null();
  gpu.memory_bus_bits = field["memory_bus_bits"].whole_or_null();
  gpu.clock_mhz = field["clock_mhz"].number_or_null();
  gpu.clock_mhz_most = field["clock_mhz_most"].number_or_null();
  for (const Field& reason : field["slowed_by"].list_or_none(64)) gpu.slowed_by.push_back(reason.text());
  gpu.temperature_celsius = field["temperature_celsius"].whole_or_null(-273);
  gpu.power_watts = field["power_watts"].number_or_null();
  gpu.power_limit_watts = field["power_limit_watts"].number_or_null();
  gpu.persistence = field["persistence"].truth_or_null();
  gpu.mig = field["mig"].truth_or_null();
  gpu.fabric = field["fabric"].text_or_empty();
  gpu.processes = field["processes"].whole_or_null();
  return gpu;
}

NumaNode numa_node_of(const Field& field) {
  NumaNode node{
      .id = field["id"].whole(0, 65535), .cores = {}, .memory_bytes = field["memory_bytes"].whole_or_null<int64_t>()};
  for (const Field& core : field["cores"].list_or_none(65536)) node.cores.push_back(core.whole(0, 1 << 20));
  return node;
}

Measurement measurement_of(const Field& field) {
  Measurement figure;
  const std::string kind = field["kind"].text();
  bool known = false;
  for (const Measurement::Kind one :
       {Measurement::Kind::kP2pBandwidth, Measurement::Kind::kP2pLatency, Measurement::Kind::kAllReduce}) {
    if (kind != name_of(one)) continue;
    figure.kind = one;
    known = true;
  }
  if (!known) field["kind"].refuse("one of p2p_bandwidth, p2p_latency, allreduce");
  figure.from = field["from"].whole_or_null(0, kLargestGpuIndex);
  figure.to = field["to"].whole_or_null(0, kLargestGpuIndex);
  figure.p2p = field["p2p"].truth_or_null();
  if (const std::string direction = field["direction"].text_or_empty(); !direction.empty()) {
    if (direction != "uni" && direction != "bi") field["direction"].refuse("one of uni, bi");
    figure.both_ways = direction == "bi";
  }
  figure.gpu_count = field["gpu_count"].whole_or_null(0, 1 << 20);
  figure.bytes = field["bytes"].whole_or_null<int64_t>();
  figure.time_us = field["time_us"].number_or_null();
  figure.gb_per_s = field["gb_per_s"].number_or_null();
  figure.busbw_gb_per_s = field["busbw_gb_per_s"].number_or_null();
  figure.algorithm = field["algorithm"].text_or_empty();
  figure.one_process = field["one_process"].truth_or_null();
  figure.graph = field["graph"].truth_or_null();
  return figure;
}

/// Of a whole report the part that is a topology.
const In& topology_part(const In& document, const std::string& file) {
  const auto schema = document.find("schema");
  const bool named = schema != document.end() && schema->is_string();
  if (named && *schema == kTopologySchema) return document;
  const auto inner = document.find("topology");
  if (named && schema->get<std::string>().starts_with("shardscope.") && inner != document.end() && inner->is_object()) {
    return *inner;
  }
  throw UserError(named ? fmt::format("JSON of schema \"{}\" holds no topology", schema->get<std::string>())
                        : std::string("JSON that shardscope did not write"),
                  file, "give a file of `shardscope topo --json FILE`");
}

void check_indices(const Topology& topology, const Field& gpus) {
  std::set<int> indices;
  for (const Gpu& gpu : topology.gpus) {
    if (!indices.insert(gpu.index).second) gpus.refuse(fmt::format("a list in which index {} stands once", gpu.index));
  }
}

/// X on the diagonal and nowhere else; both cells of a pair the same.
void check_links(const PathMatrix& links, const Field& field) {
  for (size_t i = 0; i < links.size(); ++i) {
    for (size_t j = 0; j < links.size(); ++j) {
      const bool self = links[i][j] && links[i][j]->kind == PathKind::kSelf;
      if (self != (i == j))
        field.refuse(fmt::format("a matrix with X on its diagonal alone (row {}, column {})", i, j));
      if (links[i][j] != links[j][i]) field.refuse(fmt::format("symmetric (rows {} and {})", i, j));
    }
  }
}

}  // namespace

Topology topology_of_json(const In& document, const std::string& file) {
  const Field field(topology_part(document, file), "", file);
  Topology topology;
  topology.source = SourceKind::kShardscope;
  topology.file = file;
  topology.complete = field["complete"].truth_or_null().value_or(false);
  topology.host = field["host"].text_or_empty();
  topology.platform = field["platform"].text_or_empty();
  topology.virtual_machine = field["virtual_machine"].truth_or_null();
  topology.cpu = field["cpu"].text_or_empty();
  for (const Field& node : field["numa_nodes"].list_or_none(1024)) topology.numa_nodes.push_back(numa_node_of(node));
  topology.gpu_count = field["gpu_count"].whole_or_null(0, kMostGpus);
  for (const Field& gpu : field["gpus"].list_or_none(kMostGpus)) topology.gpus.push_back(gpu_of(gpu));
  if (topology.gpu_count && *topology.gpu_count != std::ssize(topology.gpus)) {
    field["gpus"].refuse(fmt::format("a list of gpu_count = {} entries", *topology.gpu_count));
  }
  topology.nics_known = field["nics_known"].truth_or_null().value_or(!field["nics"].null());
  for (const Field& nic : field["nics"].list_or_none(kMostNics)) {
    topology.nics.push_back({.name = nic["name"].text(),
                             .device = nic["device"].text_or_empty(),
                             .numa_node = nic["numa_node"].whole_or_null(0, 65535)});
  }
  check_indices(topology, field["gpus"]);
  const size_t gpus = topology.gpus.size();
  const auto path = [](const Field& cell) { return cell.path_or_null(); };
  topology.links = matrix_of<std::optional<Path>>(field["links"], gpus, gpus, path);
  if (topology.links) check_links(*topology.links, field["links"]);
  topology.nic_links = matrix_of<std::optional<Path>>(field["nic_links"], gpus, topology.nics.size(), path);
  topology.p2p =
      matrix_of<std::string>(field["p2p"], gpus, gpus, [](const Field& cell) { return cell.text_or_empty(); });
  topology.switched = field["switched"].truth_or_null();
  for (const Field& figure : field["measurements"].list_or_none(kMostMeasurements)) {
    topology.measurements.push_back(measurement_of(figure));
  }
  for (const Field& warning : field["warnings"].list_or_none(kMostWarnings))
    topology.warnings.push_back(warning.text());
  if (!topology.complete && topology.warnings.empty()) {
    topology.warnings.emplace_back("The document says that it is incomplete.");
  }
  understand(topology);
  return topology;
}

}  // namespace shardscope::topology
