// Where ranks work: masks near a made-up GPU, and the plan of who goes where.
#include <catch2/catch.hpp>

#include "launch/host_topology.hpp"
#include "launch/workplaces.hpp"

using namespace shardscope;
using namespace shardscope::launch;
using Catch::Matchers::Contains;
using topology::NearGpu;
using topology::PlacedGroup;
using topology::Placement;
using List = std::vector<int>;

namespace {

/// One rank that may set its mask, and gets its old one back.
struct OneRank {
  parallel::World world{parallel::WorldOptions{}};
  Session session{.world = world, .launcher = {}, .argv = {}};
  List before = topology::probe_host().launcher_cores;

  OneRank() = default;
  OneRank(const OneRank&) = delete;
  OneRank& operator=(const OneRank&) = delete;
  ~OneRank() {
    topology::bind_process(before);
    topology::prefer_memory_of(std::nullopt);
  }
};

List mask() {
  return topology::probe_host().launcher_cores;
}

}  // namespace

TEST_CASE("take_place: cores of the GPU's NUMA node, where that is known and allowed") {
  OneRank rank;
  const int core = rank.before.back();
  SECTION("known") {
    const std::vector<NearGpu> gpus = {{.bus_id = "0000:01:00.0", .cores = {core, 90'000}, .numa_node = 0}};
    const Place place = take_place(rank.session, std::nullopt, gpus);
    CHECK(place.cores == List{core});
    CHECK(place.memory_node == 0);
    CHECK(mask() == List{core});
  }
  SECTION("not allowed, or not known: as without GPUs") {
    const List cores = take_place(rank.session, std::nullopt).cores;
    topology::bind_process(rank.before);
    const std::vector<NearGpu> elsewhere = {{.bus_id = "0000:01:00.0", .cores = {90'000}, .numa_node = 7}};
    const Place place = take_place(rank.session, std::nullopt, elsewhere);
    CHECK(place.cores == cores);
    CHECK_FALSE(place.memory_node);
    topology::bind_process(rank.before);
    CHECK(take_place(rank.session, std::nullopt, std::vector<NearGpu>(1)).cores == cores);
  }
}

TEST_CASE("take_place: a mask that keeps the rank from its GPU's node is a warning") {
  OneRank rank;
  topology::Topology machine;
  machine.gpus = {{.pci_bus_id = "0000:1b:00.0", .numa_nodes = {1}, .cpu_affinity = "60000-60003"}};
  machine.gpu_count = 1;
  BackendChoice choice{.on_devices = true, .device = 0, .facts = {{.pci_bus_id = "0000:1B:00.0"}}};
  const Place far = take_place(rank.session, std::nullopt, choice, machine);
  REQUIRE(far.warnings.size() == 1);
  CHECK_THAT(far.warnings[0], Contains("1 of 1 ranks may use no core near its GPU (rank 0") &&
                                  Contains("0000:1B:00.0 is near 60000-60003"));
  CHECK(place_warnings(rank.world, far).front() == far.warnings[0]);
  topology::bind_process(rank.before);
  machine.gpus[0].cpu_affinity = topology::core_list_text(rank.before);
  CHECK(take_place(rank.session, std::nullopt, choice, machine).warnings.empty());
  topology::bind_process(rank.before);
  machine.gpus[0].cpu_affinity = "";
  machine.gpus[0].numa_nodes = {};
  CHECK(take_place(rank.session, std::nullopt, choice, machine).warnings.empty());  // unknown: no claim
  choice.on_devices = false;
  CHECK(take_place(rank.session, std::nullopt, choice, machine).warnings.empty());
}

TEST_CASE("far_warnings: one for all ranks, with its cost and what to do") {
  CHECK(far_warnings({}, 8).empty());
  const FarRank one{
      .rank = 3, .host = "node7", .allowed = {0, 1, 2}, .gpu = {.bus_id = "0000:9d:00.0", .cores = {8, 9}}};
  FarRank another = one;
  another.rank = 5;
  const std::vector<std::string> warnings = far_warnings({one, another}, 8);
  REQUIRE(warnings.size() == 1);
  CHECK_THAT(warnings[0], Contains("2 of 8 ranks may use no core near their GPU (rank 3 on node7 may use 0-2, the GPU "
                                   "0000:9d:00.0 is near 8-9)") &&
                              Contains("crosses the link between the sockets") && Contains("let the launcher"));
}

TEST_CASE("plan_placements: linear alone needs nothing and asks nobody") {
  OneRank rank;
  const List degrees = {1};
  const std::vector<Placement> linear = {Placement::kLinear};
  const PlacementPlan plan = plan_placements(linear, degrees, {}, std::nullopt, {}, rank.session);
  CHECK(plan.groups.empty());
  CHECK(plan.seats.empty());
  CHECK_FALSE(plan.moves());
}

TEST_CASE("plan_placements: one rank is one group, whatever was asked for") {
  OneRank rank;
  const Place place = take_place(rank.session, 1);
  const List degrees = {1};
  const std::vector<Placement> asked = {Placement::kBest, Placement::kWorst};
  const PlacementPlan plan = plan_placements(asked, degrees, {}, std::nullopt, place, rank.session);
  REQUIRE(plan.groups.size() == 1);
  CHECK(plan.groups[0] ==
        std::vector<PlacedGroup>{{.placement = Placement::kBest, .also = {Placement::kWorst}, .places = {0}}});
  CHECK(plan.seats == std::vector<Seat>{{.cores = place.cores}});
  CHECK(plan.notes.empty());
  CHECK_FALSE(plan.moves());
}

TEST_CASE("PlacementPlan: who goes where during the sweep") {
  PlacementPlan plan;
  plan.seats.resize(4);
  plan.groups = {
      {topology::linear_group(1)},
      {{.placement = Placement::kBest, .places = {0, 2}}, {.placement = Placement::kWorst, .places = {0, 3}}}};
  CHECK(plan.moves());
  CHECK(plan.later_places(0).empty());
  CHECK(plan.later_places(1) == List{2, 3});
  CHECK(plan.later_places(2) == List{1});
  CHECK(plan.later_places(3) == List{1});
}
