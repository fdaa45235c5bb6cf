#include "launch/topology_files.hpp"

#include <catch2/catch.hpp>

#include "kernels/base/error.hpp"

using namespace shardscope;
using Catch::Matchers::Contains;

namespace {

topology::Topology named(const std::string& name) {
  parallel::World world({.use_mpi = false});
  launch::Session session{.world = world, .launcher = {}, .argv = {}};
  return launch::topology_named(name, session);
}

}  // namespace

TEST_CASE("topology_named: a machine of the catalogue, ours or its vendor's name, before any file") {
  CHECK(named("aws-p4d").topology_class == topology::TopologyClass::kNvSwitch);
  CHECK(named("p4d.24xlarge").file == "aws-p4d");
  CHECK(named("Standard_NC96ads_A100_v4").topology_class == topology::TopologyClass::kPairs);
  CHECK(named("aws-p4d").source == topology::SourceKind::kCatalogue);
  // With a folder before it a file is meant.
  CHECK_THROWS_WITH(named("./aws-p4d"), Contains("./aws-p4d"));
}

TEST_CASE("topology_named: a file") {
  const std::string file = SHARDSCOPE_TEST_DATA "/topologies/nvidia-smi/azure-nc96ads-a100-v4-4xa100-pcie-pairs.txt";
  const topology::Topology machine = named(file);
  CHECK(machine.source == topology::SourceKind::kNvidiaSmiTopo);
  CHECK(machine.gpu_count == 4);
}

TEST_CASE("topology_named: neither is an error with the nearest name and the way to all of them") {
  CHECK_THROWS_AS(named("aws-p4"), UserError);
  CHECK_THROWS_WITH(named("aws-p4"), Contains("'aws-p4' is no machine") &&
                                         Contains("did you mean aws-p4d or aws-p4de?") && Contains("--topology") &&
                                         Contains("plan --list"));
  CHECK_THROWS_WITH(named("nc96"), Contains("did you mean azure-nc96ads-v4?"));
  CHECK_THROWS_WITH(named("p4d.24xlage"), Contains("did you mean p4d.24xlarge?"));
  CHECK_THROWS_WITH(named("zzzzzzzzzzzzzzzz.txt"), Contains("plan --list") && !Contains("did you mean"));
  CHECK_THROWS_AS(named(""), UserError);
}
