// The catalogue against itself, against what classes of machines are, and against recorded machines.
#include "topology/catalogue.hpp"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "tests/topology/topologies.hpp"
#include "topology/drawing.hpp"
#include "topology/gpu_names.hpp"
#include "topology/topology_json.hpp"

using namespace shardscope;
using namespace shardscope::test;
using topology::Machine;
using topology::Topology;
using topology::TopologyClass;

namespace {

using Catch::Matchers::Contains;

Topology machine_named(std::string_view name) {
  const Machine* const machine = topology::find_machine(name);
  REQUIRE(machine != nullptr);
  return topology_of(*machine);
}

std::string lower(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return lower;
}

std::string class_of(std::string_view name) {
  return std::string(name_of(machine_named(name).topology_class));
}

/// GB/s of one direction between two GPUs.
double rate(const Topology& topology, size_t a, size_t b) {
  REQUIRE(topology.link_gb_per_s);
  return (*topology.link_gb_per_s)[a][b].value_or(-1);
}

/// What must hold of whatever the catalogue gives.
void check_whole(const Topology& topology, std::string_view gpu, int gpus) {
  CHECK(topology.complete);
  CHECK(topology.gpu_count == gpus);
  REQUIRE(std::ssize(topology.gpus) == gpus);
  REQUIRE(topology.links);
  for (size_t i = 0; i < topology.gpus.size(); ++i) {
    CHECK(topology.gpus[i].index == static_cast<int>(i));
    const topology::DevicePeaks* const peaks = topology::peaks_of_name(topology.gpus[i].name);
    REQUIRE(peaks != nullptr);
    CHECK(peaks->name == gpu);
    REQUIRE((*topology.links)[i].size() == topology.gpus.size());
    for (size_t j = 0; j < topology.gpus.size(); ++j) CHECK((*topology.links)[i][j] == (*topology.links)[j][i]);
  }
  CHECK(std::ssize(topology.groups) == gpus - 1);
  for (int degree = 2; degree <= gpus; ++degree) {
    REQUIRE(topology.groups.count(degree) == 1);
    CHECK(std::ssize(topology.groups.at(degree).best) == degree);
    CHECK(topology.groups.at(degree).best_narrowest);
    CHECK(topology.groups.at(degree).worst_narrowest);
  }
  // Nothing that a machine without faults would be warned of.
  for (const std::string& warning : topology.warnings) {
    INFO(warning);
    for (const char* const fault : {"degraded", "fault", "dropped", "down", "unknown"}) {
      CHECK(warning.find(fault) == std::string::npos);
    }
  }
}

}  // namespace

TEST_CASE("catalogue: names are unique, in small letters, and found in capitals, too") {
  std::set<std::string> names;
  for (const Machine& machine : topology::machines()) {
    INFO(machine.name);
    CHECK(machine.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-.") == std::string_view::npos);
    CHECK(names.insert(lower(machine.name)).second);
    CHECK(names.insert(lower(machine.instance)).second);
    CHECK(topology::find_machine(machine.name) == &machine);
    CHECK(topology::find_machine(machine.instance) == &machine);
    CHECK_FALSE(machine.what.empty());
    CHECK_FALSE(machine.network.empty());
    CHECK_FALSE(machine.source.empty());
    CHECK(topology::find_device_peaks(machine.gpu) != nullptr);
    CHECK(std::ssize(machine.numa) == machine.gpus);
  }
  CHECK(topology::find_machine("AWS-P4D") == topology::find_machine("p4d.24xlarge"));
  CHECK(topology::find_machine("standard_nc96ads_a100_v4") == topology::find_machine("azure-nc96ads-v4"));
  for (const char* const unknown : {"", "aws", "aws-p4", "aws-p4d ", "aws-p4dx"}) {
    CHECK(topology::find_machine(unknown) == nullptr);
  }
}

TEST_CASE("topology_of: every machine is understood as the class that it has, in groups of all degrees") {
  for (const Machine& machine : topology::machines()) {
    INFO(machine.name);
    const Topology topology = topology_of(machine);
    check_whole(topology, machine.gpu, machine.gpus);
    CHECK(topology.topology_class == machine.fabric);
    CHECK(topology.file == machine.name);
    CHECK(name_of(topology.source) == "catalogue");
    CHECK(machine.what.starts_with(topology.platform));
    CHECK(warned(topology, {"was not recorded", machine.source}) == !machine.recorded);
  }
}

TEST_CASE("topology_of: classes and links of machines that differ") {
  CHECK(class_of("aws-p4d") == "nvswitch");
  CHECK(class_of("gcp-a2-megagpu-16g") == "nvswitch");
  CHECK(class_of("gb200-tray") == "nvswitch");
  CHECK(class_of("azure-nc96ads-v4") == "nvlink-pairs");
  CHECK(class_of("azure-nc80adis-h100-v5") == "nvlink-pairs");
  CHECK(class_of("aws-p3dn") == "nvlink-cube-mesh");
  CHECK(class_of("leonardo") == "nvlink-mesh");
  CHECK(class_of("aws-g5-48xlarge") == "pcie");
  CHECK(rate(machine_named("aws-p4d"), 0, 7) == 300);
  CHECK(rate(machine_named("aws-p5"), 0, 7) == 450);
  CHECK(rate(machine_named("aws-p6-b200"), 0, 7) == 900);
  CHECK(rate(machine_named("leonardo"), 0, 3) == 100);
  CHECK(rate(machine_named("aws-p3"), 0, 3) == 50);
  CHECK(rate(machine_named("aws-p3"), 0, 1) == 25);
  const Topology pairs = machine_named("azure-nc96ads-v4");
  CHECK(rate(pairs, 2, 3) == 300);
  CHECK(rate(pairs, 1, 2) == -1);  // through CPUs: no figure of the GPUs' data sheets
  CHECK(narrowest(pairs.groups.at(2).best_narrowest) == "NV12");
  CHECK(narrowest(pairs.groups.at(4).best_narrowest) == "SYS");
  const Topology cards = machine_named("aws-g5-48xlarge");
  CHECK(narrowest(cards.groups.at(4).best_narrowest) == "PHB");
  CHECK(narrowest(cards.groups.at(4).worst_narrowest) == "SYS");
  CHECK(narrowest(cards.groups.at(5).best_narrowest) == "SYS");
}

TEST_CASE("topology_of: each V100 of a cube mesh has its six links, and they lead both ways") {
  for (const Machine& machine : topology::machines()) {
    if (machine.fabric != TopologyClass::kCubeMesh) continue;
    INFO(machine.name);
    const Topology topology = topology_of(machine);
    for (size_t i = 0; i < topology.gpus.size(); ++i) {
      int sum = 0;
      for (const auto& path : (*topology.links)[i]) sum += path->nvlinks;
      CHECK(sum == 6);
      CHECK(topology.gpus[i].nvlinks == 6);
    }
  }
}

TEST_CASE("topology_of: what recorded machines show") {
  const std::multimap<std::string, std::string> recordings = {
      {"aws-p4d", "nvidia-smi/aws-p4-8xa100-sxm4-nv12.txt"},
      {"aws-p4d", "nccl-xml/aws-p4d-24xl-topo.xml"},
      {"aws-p4de", "nvidia-smi/aws-p4-8xa100-sxm4-nv12.txt"},
      {"azure-nd40rs-v2", "nvidia-smi/azure-nd40rs-v2-8xv100.txt"},
      {"azure-nc96ads-v4", "nvidia-smi/azure-nc96ads-a100-v4-4xa100-pcie-pairs.txt"},
      {"azure-nc96ads-v4", "nccl-xml/azure-ncv4-topo-pairs.xml"},
      {"azure-nd96isr-h100-v5", "nccl-xml/azure-ndv5-topo.xml"},
      {"oci-bm-gpu4.8", "nccl-xml/oci-bm-gpu4.8-a100-flattened.xml"},
      {"dgx-h100", "nvidia-smi/dgx-h100-12nic-cut-after-nic5.txt"},
      {"gb200-tray", "nvidia-smi/gb200-compute-tray-4gpu-8nic-gpu-numa-ids.txt"},
      {"leonardo", "nvidia-smi/leonardo-booster-4xa100-64gb-nv4.txt"},
  };
  for (const Machine& machine : topology::machines()) {
    INFO(machine.name);
    CHECK(machine.recorded == (recordings.count(std::string(machine.name)) > 0));
  }
  for (const auto& [name, file] : recordings) {
    INFO(name << ", " << file);
    const Topology ours = machine_named(name);
    const Topology theirs = recorded(file);
    CHECK(ours.gpu_count == theirs.gpu_count);
    REQUIRE(ours.gpus.size() == theirs.gpus.size());
    for (size_t i = 0; i < ours.gpus.size(); ++i) {
      REQUIRE_FALSE(theirs.gpus[i].numa_nodes.empty());
      CHECK(ours.gpus[i].numa_nodes.front() == theirs.gpus[i].numa_nodes.front());
    }
    // Topology files to be injected leave NVLinks out: their class is unknown.
    if (theirs.topology_class == TopologyClass::kUnknown) continue;
    CHECK(ours.topology_class == theirs.topology_class);
    for (int degree = 2; degree <= *ours.gpu_count; ++degree) {
      INFO(degree);
      CHECK(narrowest(ours.groups.at(degree).best_narrowest) == narrowest(theirs.groups.at(degree).best_narrowest));
      CHECK(narrowest(ours.groups.at(degree).worst_narrowest) == narrowest(theirs.groups.at(degree).worst_narrowest));
    }
    if (file.starts_with("nvidia-smi")) CHECK(ours.links == theirs.links);
  }
}

TEST_CASE("topology_of: what is not in a recording of the machine, but in one of its GPUs, agrees") {
  const Topology p5 = recorded("nccl-xml/aws-p5.48xl-topo-2026-gpu-no-nvlink.xml");
  CHECK(p5.gpu_count == machine_named("aws-p5").gpu_count);  // it puts all GPUs at one node, and shows no NVLink
  CHECK(recorded("nccl-tests/gcp-a4-highgpu-8xb200-short-format.txt").gpus.at(7).name ==
        machine_named("gcp-a4-highgpu-8g").gpus.at(7).name);
  const Topology azure = recorded("nccl-tests/azure-ndv4-8xa100-40gb-superbench.txt");
  CHECK(topology::peaks_of_name(azure.gpus.at(0).name) ==
        topology::peaks_of_name(machine_named("azure-nd96asr-v4").gpus.at(0).name));
}

TEST_CASE("topology_of: its document comes back, and it can be drawn") {
  for (const Machine& machine : topology::machines()) {
    INFO(machine.name);
    const Topology topology = topology_of(machine);
    const auto document = nlohmann::json::parse(topology_json(topology).dump());
    CHECK(document.at("source") == nlohmann::json({{"kind", "catalogue"}, {"file", machine.name}}));
    Topology again = topology::topology_of_json(document, "a file");
    CHECK(again.links == topology.links);
    CHECK(again.groups == topology.groups);
    CHECK(again.warnings == topology.warnings);
    CHECK_THAT(topology::topology_text(topology), Contains("catalogue of machines"));
    CHECK(topology::topology_svg(topology).starts_with("<svg"));
  }
}

TEST_CASE("usual_topology: every GPU has a board, and a sentence says which was assumed") {
  for (const topology::DevicePeaks& peaks : topology::device_peaks()) {
    INFO(peaks.name);
    const Topology topology = usual_topology(peaks);
    check_whole(topology, peaks.name, topology.gpu_count.value_or(0));
    CHECK(warned(topology, {"No machine was named", peaks.name, topology.platform}));
  }
  const auto usual = [](std::string_view gpu) {
    const Topology topology = usual_topology(*topology::find_device_peaks(gpu));
    return fmt::format("{} {}", *topology.gpu_count, name_of(topology.topology_class));
  };
  CHECK(usual("v100-sxm2-32gb") == "8 nvlink-cube-mesh");
  CHECK(usual("a100-40gb") == "8 nvswitch");
  CHECK(usual("a100-80gb-pcie") == "8 pcie");
  CHECK(usual("h100-nvl") == "8 nvlink-pairs");
  CHECK(usual("h200") == "8 nvswitch");
  CHECK(usual("gh200-96gb") == "1 single");
  CHECK(usual("gb200") == "4 nvswitch");
  CHECK(usual("rtx-4090") == "8 pcie");
  CHECK_THROWS_AS(usual_topology(topology::DevicePeaks{.name = "made-up"}), BugError);
}
