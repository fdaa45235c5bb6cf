// Which places a group of fewer ranks than there are takes, on recorded machines and on made-up ones.
#include "topology/placement.hpp"

#include "kernels/base/error.hpp"
#include "tests/topology/topologies.hpp"

using namespace shardscope;
using namespace shardscope::test;
using Catch::Matchers::Contains;
using topology::PlacedGroup;
using topology::Placement;
using topology::Places;
using topology::Topology;

namespace {

using List = std::vector<int>;
using Asked = std::vector<Placement>;
const Asked kAll = {Placement::kLinear, Placement::kBest, Placement::kWorst};

/// Bus ids, of which recorded matrices have none: 0000:0i:00.0 of GPU i.
Topology with_bus_ids(Topology topology) {
  for (size_t i = 0; i < topology.gpus.size(); ++i) {
    topology.gpus[i].pci_bus_id = "0000:0" + std::to_string(i) + ":00.0";
  }
  return topology;
}

/// Ranks on these GPUs of it.
Places ranks_on(const Topology& machine, const List& gpus) {
  std::vector<std::string> bus_ids;
  for (const int gpu : gpus) bus_ids.push_back("00000000:0" + std::to_string(gpu) + ":00.0");
  return topology::places_of_gpus(machine, bus_ids);
}

Places all_of(const Topology& machine) {
  List gpus;
  for (int gpu = 0; gpu < std::ssize(machine.gpus); ++gpu) gpus.push_back(gpu);
  return ranks_on(machine, gpus);
}

struct Outcome {
  std::vector<PlacedGroup> groups;
  std::vector<std::string> notes;
};
Outcome placed(const Places& places, int degree, const Asked& asked = kAll) {
  Outcome outcome;
  outcome.groups = topology::place_groups(places, degree, asked, outcome.notes);
  return outcome;
}

PlacedGroup group(Placement placement, const List& places, const Asked& also = {}) {
  return {.placement = placement, .also = also, .places = places};
}

std::string refusal(const Places& places, int degree, Placement asked) {
  try {
    placed(places, degree, {asked});
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("place_groups: bridged pairs: the first two are the best, the worst cross") {
  const Topology machine = with_bus_ids(recorded("nvidia-smi/azure-nc96ads-a100-v4-4xa100-pcie-pairs.txt"));
  const Outcome two = placed(all_of(machine), 2);
  CHECK(two.groups ==
        std::vector{group(Placement::kLinear, {0, 1}, {Placement::kBest}), group(Placement::kWorst, {0, 2})});
  CHECK(two.notes == std::vector<std::string>{"tp 2: linear and best are the same devices (0-1): measured once"});
  CHECK(placed(all_of(machine), 2, {Placement::kBest, Placement::kWorst}).groups ==
        std::vector{group(Placement::kBest, {0, 1}), group(Placement::kWorst, {0, 2})});
  const Outcome four = placed(all_of(machine), 4);
  CHECK(four.groups == std::vector{group(Placement::kLinear, {0, 1, 2, 3}, {Placement::kBest, Placement::kWorst})});
  CHECK(four.notes == std::vector<std::string>{"tp 4: linear, best and worst are the same group of all ranks: "
                                               "measured once"});
}

TEST_CASE("place_groups: places are ranks, whatever the GPUs' numbers") {
  const Topology machine = with_bus_ids(recorded("nvidia-smi/azure-nc96ads-a100-v4-4xa100-pcie-pairs.txt"));
  // Ranks 0, 1, 2 work on GPUs 3, 0, 2: GPUs 3 and 2 are the bridged pair.
  const Outcome two = placed(ranks_on(machine, {3, 0, 2}), 2);
  CHECK(two.groups ==
        std::vector{group(Placement::kLinear, {0, 1}, {Placement::kWorst}), group(Placement::kBest, {0, 2})});
}

TEST_CASE("place_groups: a cube mesh of V100s has fours with links between all, and fours without") {
  const Topology machine = with_bus_ids(recorded("nvidia-smi/onprem-8xv100-16gb-hcm-no-numa-column.txt"));
  const Outcome four = placed(all_of(machine), 4);
  REQUIRE(four.groups.size() == 2);
  CHECK(four.groups[0] == group(Placement::kLinear, {0, 1, 2, 3}, {Placement::kBest}));
  CHECK(four.groups[1].placement == Placement::kWorst);
  CHECK(four.groups[1].places == machine.groups.at(4).worst);
  // Of these ranks the first four stand across the cube.
  CHECK(placed(ranks_on(machine, {0, 5, 2, 7, 1, 3, 4, 6}), 4).groups[0].stands_for(Placement::kLinear));
  const Outcome mixed = placed(ranks_on(machine, {0, 5, 2, 7, 1, 3, 4, 6}), 4);
  const auto best = std::find_if(mixed.groups.begin(), mixed.groups.end(),
                                 [](const PlacedGroup& one) { return one.stands_for(Placement::kBest); });
  CHECK(best->places == List{0, 2, 4, 5});  // GPUs 0, 2, 1, 3
}

TEST_CASE("place_groups: where all are joined alike there is one group, unless they spread over more NUMA nodes") {
  Topology machine = with_bus_ids(joined(4, "NV12"));
  const Outcome alike = placed(all_of(machine), 2);
  CHECK(alike.groups == std::vector{group(Placement::kLinear, {0, 1}, {Placement::kBest, Placement::kWorst})});
  CHECK(alike.notes == std::vector<std::string>{"tp 2: linear, best and worst are the same devices (0-1), since all "
                                                "groups of 2 are joined alike: measured once"});
  machine.gpus[0].numa_nodes = machine.gpus[1].numa_nodes = {0};
  machine.gpus[2].numa_nodes = machine.gpus[3].numa_nodes = {1};
  CHECK(placed(all_of(machine), 2).groups ==
        std::vector{group(Placement::kLinear, {0, 1}, {Placement::kBest}), group(Placement::kWorst, {0, 2})});
}

TEST_CASE("place_groups: linear may be the worst, or neither") {
  Topology machine = with_bus_ids(joined(4, "PXB"));
  join(machine, 2, 3, "PIX");
  join(machine, 0, 2, "SYS");
  CHECK(placed(ranks_on(machine, {0, 2, 1, 3}), 2).groups ==
        std::vector{group(Placement::kLinear, {0, 1}, {Placement::kWorst}), group(Placement::kBest, {1, 3})});
  const Outcome neither = placed(all_of(machine), 2);
  CHECK(neither.groups == std::vector{group(Placement::kLinear, {0, 1}), group(Placement::kBest, {2, 3}),
                                      group(Placement::kWorst, {0, 2})});
  CHECK(neither.notes.empty());
}

TEST_CASE("place_groups: what is not known cannot be the best, and nothing known leaves linear alone") {
  Topology machine = with_bus_ids(joined(4, "SYS"));
  join(machine, 0, 1, "");
  CHECK(placed(all_of(machine), 2, {Placement::kBest}).groups == std::vector{group(Placement::kBest, {0, 2})});
  CHECK(placed(all_of(machine), 2, {Placement::kBest, Placement::kWorst}).notes ==
        std::vector<std::string>{"tp 2: best and worst are the same devices (0,2): measured once"});
  Topology dark = with_bus_ids(joined(4, "SYS"));
  for (int a = 0; a < 4; ++a) {
    for (int b = 0; b < a; ++b) join(dark, a, b, "");
  }
  CHECK_THAT(refusal(all_of(dark), 2, Placement::kBest),
             Contains("tp 2: what joins the devices is not known") && Contains("--placement best"));
  CHECK(placed(all_of(dark), 4).groups.size() == 1);  // all of them, whatever joins them
  dark.links.reset();
  dark.warnings = {"The driver does not answer."};
  CHECK(refusal(all_of(dark), 2, Placement::kWorst) ==
        "what joins the GPUs is not known (The driver does not answer.), --placement worst, use --placement linear");
  CHECK(placed(all_of(dark), 2, {Placement::kLinear}).groups == std::vector{topology::linear_group(2)});
  CHECK(placed(all_of(dark), 4, {Placement::kBest}).groups.size() == 1);
  CHECK(placed(all_of(dark), 1).groups ==
        std::vector{group(Placement::kLinear, {0}, {Placement::kBest, Placement::kWorst})});
  CHECK(placed(all_of(dark), 1).notes.empty());
}

TEST_CASE("places_of_gpus: a GPU that two ranks share, or that NVML does not list") {
  const Topology machine = with_bus_ids(joined(3, "SYS"));
  CHECK_THAT(refusal(ranks_on(machine, {0, 1, 1}), 2, Placement::kBest), Contains("ranks share the GPU 00000000:01"));
  CHECK_THAT(refusal(ranks_on(machine, {0, 1, 7}), 2, Placement::kBest), Contains("does not list the GPU 00000000:07"));
}

TEST_CASE("places_of_cores: a shared cache before a NUMA node before the rest") {
  topology::HostCpu host;
  host.last_level_caches = {{1000, {0, 1, 2, 3}}, {1000, {4, 5, 6, 7}}, {1000, {8, 9, 10, 11}}};
  const std::vector<topology::NumaNode> nodes = {{.id = 0, .cores = {0, 1, 2, 3, 4, 5, 6, 7}},
                                                 {.id = 1, .cores = {8, 9, 10, 11}}};
  const std::vector<List> cores = {{0, 1}, {8, 9}, {4, 5}, {2, 3}};
  const Places places = topology::places_of_cores(host, nodes, cores);
  REQUIRE(places.topology.links.has_value());
  CHECK(narrowest((*places.topology.links)[0][3]) == "PIX");
  CHECK(narrowest((*places.topology.links)[0][2]) == "NODE");
  CHECK(narrowest((*places.topology.links)[0][1]) == "SYS");
  const Outcome two = placed(places, 2);
  CHECK(two.groups ==
        std::vector{group(Placement::kLinear, {0, 1}, {Placement::kWorst}), group(Placement::kBest, {0, 3})});
  CHECK(two.notes == std::vector<std::string>{"tp 2: linear and worst are the same cores of ranks (0-1): measured "
                                              "once"});
  const std::vector<List> one_cache = {{0}, {1}, {2}};
  CHECK(placed(topology::places_of_cores(host, nodes, one_cache), 2).groups.size() == 1);
  const std::vector<List> apart = {{0}, {4}, {8}};
  CHECK_THAT(refusal(topology::places_of_cores(host, {}, apart), 2, Placement::kBest), Contains("not known"));
}

TEST_CASE("all_places: whoever stands where the group works goes to what it has left") {
  CHECK(topology::all_places(topology::linear_group(2), 4) == List{0, 1, 2, 3});
  CHECK(topology::all_places(group(Placement::kBest, {0, 2}), 4) == List{0, 2, 1, 3});
  CHECK(topology::all_places(group(Placement::kWorst, {4, 5}), 6) == List{4, 5, 2, 3, 0, 1});
  CHECK(topology::all_places(group(Placement::kWorst, {1, 3, 5}), 6) == List{1, 3, 5, 0, 4, 2});
}
