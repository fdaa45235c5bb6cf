// `environment` of a report. Every key is always there; what is unknown is null. Lists of what a run has or was given
// (devices, ranks, variables, libraries) are empty where there is none.
#include "runtime/report/json_values.hpp"

namespace shardscope::runtime {
namespace {

Json positive_or_null(int64_t value) {
  return value > 0 ? Json(value) : Json(nullptr);
}

Json list_or_null(const std::vector<std::string>& words) {
  return words.empty() ? Json(nullptr) : Json(words);
}

Json map_json(const std::map<std::string, std::string>& map) {
  Json object = Json::object();
  for (const auto& [name, value] : map) object[name] = value;
  return object;
}

Json numa_nodes_json(const std::vector<topology::NumaNode>& nodes) {
  if (nodes.empty()) return nullptr;
  Json list = Json::array();
  for (const topology::NumaNode& node : nodes) {
    list.push_back({{"id", node.id}, {"cores", node.cores}, {"memory_bytes", value_or_null(node.memory_bytes)}});
  }
  return list;
}

Json ranks_json(const std::vector<RankPlace>& places) {
  Json list = Json::array();
  for (const RankPlace& place : places) {
    list.push_back({{"rank", place.rank},
                    {"host", place.host},
                    {"device", place.device},
                    {"launcher_cores", place.launcher_cores},
                    {"cores", place.cores}});
  }
  return list;
}

Json devices_json(const std::vector<DeviceEntry>& devices) {
  const auto positive_number = [](double value) { return value > 0 ? Json(value) : Json(nullptr); };
  Json list = Json::array();
  for (const DeviceEntry& device : devices) {
    list.push_back({{"rank", device.rank},
                    {"ordinal", device.ordinal},
                    {"name", text_or_null(device.name)},
                    {"uuid", text_or_null(device.uuid)},
                    {"pci_bus_id", text_or_null(device.pci_bus_id)},
                    {"compute_capability", text_or_null(device.compute_capability)},
                    {"memory_bytes", positive_or_null(device.memory_bytes)},
                    {"multiprocessors", positive_or_null(device.multiprocessors)},
                    {"l2_bytes", positive_or_null(device.l2_bytes)},
                    {"highest_mhz", positive_number(device.mhz)},
                    {"highest_memory_mhz", positive_number(device.memory_mhz)},
                    {"memory_bus_bits", positive_or_null(device.memory_bus_bits)}});
  }
  return list;
}

}  // namespace

Json environment_json(const Environment& e) {
  const topology::SystemFacts& system = e.system;
  return {// The run and the program
          {"time", text_or_null(e.time)},
          {"version", text_or_null(e.build.version)},
          {"commit", text_or_null(e.build.commit)},
          {"compiler", text_or_null(e.build.compiler)},
          {"build_type", text_or_null(e.build.build_type)},
          {"libraries", map_json(e.build.libraries)},
          {"mpi", text_or_null(e.mpi)},
          {"launcher", text_or_null(e.launcher)},
          // The host
          {"host", text_or_null(e.host)},
          {"machine", text_or_null(system.machine)},
          {"virtual_machine", value_or_null(system.virtual_machine)},
          {"container", text_or_null(system.container)},
          {"kernel", text_or_null(system.kernel)},
          {"distribution", text_or_null(system.distribution)},
          {"load_average", value_or_null(system.load_average)},
          // CPU
          {"cpu", text_or_null(e.cpu)},
          {"cpu_flags", list_or_null(system.cpu_flags)},
          {"sockets", value_or_null(system.sockets)},
          {"smt_active", value_or_null(system.smt_active)},
          {"allowed_cores", positive_or_null(e.allowed_cores)},
          {"cpu_quota_cores", value_or_null(e.cpu_quota_cores)},
          {"last_level_cache_bytes", positive_or_null(e.last_level_cache_bytes)},
          {"governor", text_or_null(system.governor)},
          {"frequency_driver", text_or_null(system.frequency_driver)},
          {"lowest_mhz", value_or_null(system.lowest_mhz)},
          {"highest_mhz", value_or_null(system.highest_mhz)},
          {"turbo", value_or_null(system.turbo)},
          // Memory
          {"memory_bytes", value_or_null(system.memory_bytes)},
          {"memory_limit_bytes", positive_or_null(e.memory_limit_bytes)},
          {"memory_available_bytes", value_or_null(system.memory_available_bytes)},
          {"swap_bytes", value_or_null(system.swap_bytes)},
          {"transparent_hugepages", text_or_null(system.transparent_hugepages)},
          {"numa_balancing", value_or_null(system.numa_balancing)},
          {"numa_nodes", numa_nodes_json(system.numa_nodes)},
          // Devices
          {"devices", devices_json(e.devices)},
          {"cuda", text_or_null(e.cuda)},
          {"nccl", text_or_null(e.nccl)},
          {"backend", text_or_null(e.backend)},
          {"threads_per_rank", positive_or_null(e.threads_per_rank)},
          {"oversubscribed", e.oversubscribed},
          {"peak_gb_per_s", value_or_null(e.peak_gb_per_s)},
          {"peak_tflops", value_or_null(e.peak_tflops)},
          {"ranks", ranks_json(e.ranks)},
          {"variables", map_json(e.variables)}};
}

}  // namespace shardscope::runtime
