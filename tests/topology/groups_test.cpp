#include "topology/groups.hpp"

#include "tests/topology/topologies.hpp"

using namespace shardscope;
using namespace shardscope::test;
using topology::Group;
using topology::Topology;

namespace {

std::map<int, Group> groups_of(const Topology& topology) {
  return topology::best_and_worst_groups(topology);
}

Topology pairs_of_four() {
  Topology topology = joined(4, "SYS");
  join(topology, 0, 1, "NV12");
  join(topology, 2, 3, "NV12");
  return topology;
}

}  // namespace

TEST_CASE("groups: one of each degree from 2 to the number of GPUs") {
  for (const int gpus : {2, 3, 5, 8, 16, 17, 24}) {
    const std::map<int, Group> groups = groups_of(joined(gpus, "NV4"));
    REQUIRE(std::ssize(groups) == gpus - 1);
    for (int degree = 2; degree <= gpus; ++degree) {
      const Group& group = groups.at(degree);
      CHECK(std::ssize(group.best) == degree);
      CHECK(std::ssize(group.worst) == degree);
      CHECK(std::is_sorted(group.best.begin(), group.best.end()));
      CHECK(narrowest(group.best_narrowest) == "NV4");
    }
  }
  CHECK(groups_of(joined(1, "NV4")).empty());
  Topology unlinked = joined(4, "NV4");
  unlinked.links.reset();
  CHECK(groups_of(unlinked).empty());
}

TEST_CASE("groups: the farthest pair inside decides") {
  const std::map<int, Group> groups = groups_of(pairs_of_four());
  CHECK(groups.at(2).best == std::vector<int>{0, 1});
  CHECK(narrowest(groups.at(2).best_narrowest) == "NV12");
  CHECK(groups.at(2).worst == std::vector<int>{0, 2});
  CHECK(narrowest(groups.at(2).worst_narrowest) == "SYS");
  CHECK(narrowest(groups.at(3).best_narrowest) == "SYS");
  CHECK(groups.at(4).best == groups.at(4).worst);
}

TEST_CASE("groups: of groups with equally far pairs that with fewer of them, then with more NVLinks") {
  Topology topology = joined(4, "SYS");
  join(topology, 1, 2, "PIX");  // 1, 2, x: two pairs at SYS; 0, 1, 3 three
  CHECK(groups_of(topology).at(3).best == std::vector<int>{0, 1, 2});
  CHECK(groups_of(topology).at(3).worst == std::vector<int>{0, 1, 3});
  Topology meshed = joined(4, "NV1");
  for (const auto& [a, b] : {std::pair(1, 2), std::pair(2, 3), std::pair(1, 3)}) join(meshed, a, b, "NV2");
  CHECK(groups_of(meshed).at(3).best == std::vector<int>{1, 2, 3});
}

TEST_CASE("groups: of equal links those on fewer NUMA nodes") {
  Topology topology = joined(4, "NV12");
  for (size_t gpu = 0; gpu < 4; ++gpu) topology.gpus[gpu].numa_nodes = {gpu % 2 == 0 ? 0 : 1};
  CHECK(groups_of(topology).at(2).best == std::vector<int>{0, 2});
  CHECK(groups_of(topology).at(2).worst == std::vector<int>{0, 1});
}

TEST_CASE("groups: a group with an unknown pair is neither the best nor the worst while another is known") {
  Topology topology = joined(3, "SYS");
  join(topology, 0, 1, "");
  const Group two = groups_of(topology).at(2);
  CHECK(two.best == std::vector<int>{0, 2});
  CHECK(narrowest(two.worst_narrowest) == "SYS");
  Topology cut = joined(4, "NV6");  // rows 0 and 1 alone
  join(cut, 2, 3, "");
  CHECK(groups_of(cut).at(3).best == std::vector<int>{0, 1, 2});
  CHECK(groups_of(joined(4, "")).at(3).best == std::vector<int>{0, 1, 2});
  const Group three = groups_of(topology).at(3);
  CHECK(narrowest(three.best_narrowest) == "unknown");
}

TEST_CASE("groups: the recorded V100 cube mesh has fours with NVLinks between all, and eights that cross the sockets") {
  const Topology topology = recorded("nvidia-smi/onprem-8xv100-16gb-hcm-no-numa-column.txt");
  const std::map<int, Group>& groups = topology.groups;
  CHECK(groups.at(4).best == std::vector<int>{0, 1, 2, 3});
  CHECK(narrowest(groups.at(4).best_narrowest) == "NV1");
  CHECK(narrowest(groups.at(4).worst_narrowest) == "SYS");
  CHECK(narrowest(groups.at(8).best_narrowest) == "SYS");
  CHECK(narrowest(groups.at(2).best_narrowest) == "NV2");
}

TEST_CASE("groups: beyond 16 GPUs the pairs of a large machine are found, too") {
  Topology topology = joined(20, "SYS");
  join(topology, 17, 18, "NV4");
  CHECK(groups_of(topology).at(2).best == std::vector<int>{17, 18});
  CHECK(narrowest(groups_of(topology).at(2).worst_narrowest) == "SYS");
}
