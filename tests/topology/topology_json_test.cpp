#include "topology/topology_json.hpp"

#include "kernels/base/error.hpp"
#include "tests/topology/topologies.hpp"

using namespace shardscope;
using namespace shardscope::test;
using nlohmann::json;
using topology::Measurement;
using topology::NvLinkPort;
using topology::Topology;

namespace {

Topology full() {
  Topology topology = joined(2, "NV12");
  topology.host = "node7";
  topology.platform = "a machine";
  topology.virtual_machine = true;
  topology.cpu = "a CPU";
  topology.numa_nodes = {{.id = 0, .cores = {0, 1, 2}, .memory_bytes = 1 << 30}, {.id = 1}};
  topology.switched = true;
  topology::Gpu& gpu = topology.gpus[0];
  gpu.name = "NVIDIA A100-SXM4-80GB";
  gpu.uuid = "GPU-1";
  gpu.pci_bus_id = "0000:1b:00.0";
  gpu.numa_nodes = {0, 3};
  gpu.cpu_affinity = "0-23,48-71";
  gpu.gpu_numa_id = 2;
  gpu.compute = "8.0";
  gpu.nvlinks = 12;
  gpu.ports = {{.link = 3,
                .active = false,
                .remote = NvLinkPort::Remote::kSwitch,
                .remote_bus_id = "0000:c3:00.0",
                .gb_per_s = 25.0,
                .generation = 3},
               {.link = 4}};
  gpu.pcie_generation = 1;
  gpu.pcie_width = 8;
  gpu.pcie_generation_most = 4;
  gpu.pcie_width_most = 16;
  gpu.pcie_gt_per_s = 16;
  gpu.memory_bytes = int64_t{80} << 30;
  gpu.memory_clock_mhz = 1593;
  gpu.memory_bus_bits = 5120;
  gpu.clock_mhz = 210;
  gpu.clock_mhz_most = 1410;
  gpu.slowed_by = {"sw-power-cap"};
  gpu.temperature_celsius = 34;
  gpu.power_watts = 61.5;
  gpu.power_limit_watts = 400;
  gpu.persistence = true;
  gpu.mig = false;
  gpu.fabric = "completed";
  gpu.processes = 1;
  topology.gpus[1].name = gpu.name;
  topology.nics = {{.name = "NIC0", .device = "mlx5_0", .numa_node = 1}, {.name = "NIC1"}};
  topology.nic_links = {{topology::path_of("PIX"), topology::path_of("SYS")}, {topology::path_of("PHB"), std::nullopt}};
  topology.p2p = {{"X", "OK"}, {"GNS", "X"}};
  topology.measurements = {{.kind = Measurement::Kind::kP2pBandwidth,
                            .from = 0,
                            .to = 1,
                            .p2p = true,
                            .both_ways = false,
                            .gb_per_s = 240.5},
                           {.kind = Measurement::Kind::kAllReduce,
                            .gpu_count = 2,
                            .bytes = 8192,
                            .time_us = 9.5,
                            .busbw_gb_per_s = 1.5,
                            .algorithm = "ring",
                            .one_process = true,
                            .graph = false}};
  topology.warnings = {"From the source."};
  return understood(topology);
}

Topology read_again(const Topology& topology) {
  return topology::topology_of_json(json::parse(topology_json(topology).dump()), "a file");
}

std::string refusal(const json& document) {
  try {
    topology::topology_of_json(document, "t.json");
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

json as_json(const Topology& topology) {
  return json::parse(topology_json(topology).dump());
}

}  // namespace

TEST_CASE("topology_json: every field comes back") {
  Topology wanted = full();
  wanted.source = topology::SourceKind::kShardscope;
  wanted.file = "a file";
  CHECK(read_again(full()) == wanted);
  Topology bare = understood(joined(3, "SYS"));
  bare.nics_known = false;
  bare.complete = false;
  bare.links->at(0).at(1) = std::nullopt;
  bare.links->at(1).at(0) = std::nullopt;
  understand(bare);
  wanted = bare;
  wanted.source = topology::SourceKind::kShardscope;
  wanted.file = "a file";
  CHECK(read_again(bare) == wanted);
}

TEST_CASE("topology_json: the contract's names, and null for what is not known") {
  const json document = as_json(full());
  CHECK(document.at("schema") == "shardscope.topology/1");
  CHECK(document.at("source") == json({{"kind", "nvidia-smi-topo"}, {"file", nullptr}}));
  CHECK(document.at("links") == json::array({json::array({"X", "NV12"}), json::array({"NV12", "X"})}));
  CHECK(document.at("link_gb_per_s").at(0) == json::array({nullptr, 300.0}));
  CHECK(document.at("p2p") == json::array({json::array({"X", "OK"}), json::array({"GNS", "X"})}));
  CHECK(document.at("class") == "nvswitch");
  CHECK(document.at("groups") ==
        json({{"2", {{"best", {0, 1}}, {"best_narrowest", "NV12"}, {"worst", {0, 1}}, {"worst_narrowest", "NV12"}}}}));
  CHECK(document.at("gpus").at(0).at("nearest_nics") == json({"NIC0"}));
  CHECK(document.at("gpus").at(0).at("nearest_nic_link") == "PIX");
  CHECK(document.at("gpus").at(1).at("numa_nodes").is_null());
  CHECK(document.at("measurements").at(0).at("direction") == "uni");
  CHECK(document.at("measurements").at(1).at("from").is_null());
  CHECK(document.at("measurements").at(1).at("one_process") == true);
  CHECK(document.at("measurements").at(1).at("graph") == false);
  CHECK(document.at("measurements").at(0).at("graph").is_null());
  Topology unknown = joined(2, "SYS");
  unknown.links.reset();
  unknown.nics_known = false;
  const json bare = as_json(understood(unknown));
  for (const char* name : {"links", "link_gb_per_s", "p2p", "nics", "nic_links", "switched", "host"}) {
    CHECK(bare.at(name).is_null());
  }
  CHECK(bare.at("class") == "unknown");
}

TEST_CASE("topology_of_json: a topology within a report of ours") {
  const json report = {{"schema", "shardscope.report/1"}, {"topology", as_json(full())}};
  CHECK(topology::topology_of_json(report, "r.json").gpus.size() == 2);
}

TEST_CASE("topology_of_json: what is incomplete without a word gets one") {
  const Topology bare = topology::topology_of_json({{"schema", "shardscope.topology/1"}}, "t.json");
  CHECK_FALSE(bare.complete);
  CHECK(warned(bare, {"incomplete"}));
}

TEST_CASE("topology_of_json: what is wrong is named with its place") {
  CHECK(refusal({{"a", 1}}).find("JSON that shardscope did not write, t.json, ") == 0);
  CHECK(refusal({{"schema", "shardscope.comm/1"}}).find("shardscope.comm/1") != std::string::npos);
  CHECK(refusal({{"schema", "shardscope.report/1"}, {"topology", nullptr}}).find("holds no topology") !=
        std::string::npos);
  const json good = as_json(full());
  const auto changed = [&](const char* pointer, json value) {
    json document = good;
    document[json::json_pointer(pointer)] = std::move(value);
    return refusal(document);
  };
  CHECK(changed("/gpu_count", 3).find("gpus is not a list of gpu_count = 3 entries, t.json") == 0);
  CHECK(changed("/gpu_count", "2").find("gpu_count is not a whole number") == 0);
  CHECK(changed("/gpu_count", 1e30).find("gpu_count is not a whole number") == 0);
  CHECK(changed("/gpu_count", uint64_t{1} << 63).find("gpu_count is not a whole number") == 0);
  CHECK(changed("/links/0/1", "NVX").find("links[0][1] is not one of X") == 0);
  CHECK(changed("/links/0", json::array({"X"})).find("links[0] is not a list of 2") == 0);
  CHECK(changed("/links/0/1", "SYS").find("links is not symmetric (rows 0 and 1)") == 0);
  CHECK(changed("/links/0/0", "SYS").find("links is not a matrix with X on its diagonal alone") == 0);
  CHECK(changed("/links/0/1", "X").find("links is not a matrix with X on its diagonal alone") == 0);
  CHECK(changed("/gpus/1/index", 0).find("gpus is not a list in which index 0 stands once") == 0);
  CHECK(changed("/gpus/0/power_watts", -1).find("gpus[0].power_watts is not a number from 0") == 0);
  CHECK(changed("/links", json::array()).find("links is not a list of 2 rows") == 0);
  CHECK(changed("/gpus/0/index", -1).find("gpus[0].index is not a whole number from 0") == 0);
  CHECK(changed("/gpus/0/power_watts", "61").find("gpus[0].power_watts is not a number") == 0);
  CHECK(changed("/gpus/0", 7).find("gpus[0] is not an object") == 0);
  CHECK(changed("/measurements/0/kind", "speed").find("measurements[0].kind is not one of") == 0);
  CHECK(changed("/warnings", "none").find("warnings is not a list") == 0);
  CHECK(changed("/complete", 1).find("complete is not true or false") == 0);
}

TEST_CASE("read_topology: JSON that is cut, or somebody else's") {
  const auto refused = [](const std::string& text) {
    try {
      topology::read_topology({.text = text, .file = "x.json"});
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(refused("{\"schema\": \"shardsc").find("JSON that cannot be read") == 0);
  CHECK(refused("{\"a\": 1}").find("JSON that shardscope did not write, x.json") == 0);
  CHECK(refused(" \n").find("an empty file is no topology, x.json") == 0);
  CHECK(refused("hello\nworld\n").find("nothing that is known to describe a topology, x.json") == 0);
}
