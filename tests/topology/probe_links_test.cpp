// How GPUs are joined, by the far ends of their NVLinks.
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/topology/nvml_answers.hpp"

namespace shardscope::test {
namespace {

using Catch::Contains;
using Remote = NvLinkPort::Remote;

}  // namespace

TEST_CASE("probe: through switches a pair has the lesser count of its GPUs") {
  NvmlAnswers it = answers(3);
  for (const int i : {0, 1, 2})
    link(it.gpus[static_cast<size_t>(i)], i == 1 ? 11 : 12, Remote::kSwitch, "0000:c5:00.0");
  const Topology topology = joined(it);
  CHECK(text_of(topology.links) == Cells{{"X", "NV11", "NV12"}, {"NV11", "X", "NV11"}, {"NV12", "NV11", "X"}});
  CHECK(topology.switched == true);
  CHECK(topology.warnings.empty());
}

TEST_CASE("probe: direct links are counted by the addresses of their ends, PCIe is between the others") {
  NvmlAnswers it = answers(3);
  link(it.gpus[0], 3, Remote::kUnknown, bus_of(1));  // the address is enough
  link(it.gpus[1], 3, Remote::kGpu, bus_of(0));
  it.gpus[0].ports.push_back({.link = 3, .active = false});
  const Topology topology = joined(it);
  CHECK(text_of(topology.links) == Cells{{"X", "NV3", "SYS"}, {"NV3", "X", "SYS"}, {"SYS", "SYS", "X"}});
  CHECK(topology.switched == false);
  CHECK(topology.gpus[0].ports[0].remote == Remote::kGpu);
  CHECK(topology.warnings.empty());
}

TEST_CASE("probe: where the ends of a bridge disagree the lower number counts, and a warning says so") {
  NvmlAnswers it = answers(2);
  link(it.gpus[0], 4, Remote::kGpu, bus_of(1));
  link(it.gpus[1], 3, Remote::kGpu, bus_of(0));
  const Topology topology = joined(it);
  CHECK(text_of(topology.links) == Cells{{"X", "NV3"}, {"NV3", "X"}});
  CHECK_THAT(all_warnings(topology), Contains("GPU0 (0000:00:00.0) has 4 NVLinks up to GPU1") && Contains("3 back"));
}

TEST_CASE("probe: links to CPUs join no GPUs") {
  NvmlAnswers it = answers(2);
  for (Gpu& gpu : it.gpus) link(gpu, 2, Remote::kCpu, "0004:00:01.0");
  const Topology topology = joined(it);
  CHECK(text_of(topology.links) == Cells{{"X", "SYS"}, {"SYS", "X"}});
  CHECK(topology.switched == false);
}

TEST_CASE("probe: hidden ends of GPUs that all reach each other are taken for a switch, with a warning") {
  NvmlAnswers it = answers(4);
  for (Gpu& gpu : it.gpus) link(gpu, 18, Remote::kUnknown);
  reach(it, {0, 1, 2, 3});
  const Topology topology = joined(it);
  CHECK(text_of(topology.links)[0] == std::vector<std::string>{"X", "NV18", "NV18", "NV18"});
  CHECK_FALSE(topology.switched);
  CHECK_THAT(all_warnings(topology), Contains("GPUs 0, 1, 2, 3 are hidden") && Contains("taken for an NVSwitch"));
}

TEST_CASE("probe: hidden ends of pairs are told by who reaches whom") {
  NvmlAnswers it = answers(4);
  for (Gpu& gpu : it.gpus) link(gpu, 12, Remote::kUnknown);
  reach(it, {0, 1});
  reach(it, {2, 3});
  const Topology topology = joined(it);
  CHECK(text_of(topology.links) == Cells{{"X", "NV12", "SYS", "SYS"},
                                         {"NV12", "X", "SYS", "SYS"},
                                         {"SYS", "SYS", "X", "NV12"},
                                         {"SYS", "SYS", "NV12", "X"}});
  CHECK_FALSE(topology.switched);
  CHECK_THAT(all_warnings(topology), Contains("are hidden") && !Contains("taken for"));
}

TEST_CASE("probe: hidden ends that fit several wirings stay unknown") {
  SECTION("the driver does not tell who reaches whom") {
    NvmlAnswers it = answers(4);
    for (Gpu& gpu : it.gpus) link(gpu, 12, Remote::kUnknown);
    it.reached_by_nvlink.assign(4, std::vector<std::optional<bool>>(4));
    const Topology topology = joined(it);
    CHECK(text_of(topology.links)[0] == std::vector<std::string>{"X", "?", "?", "?"});
    CHECK_THAT(all_warnings(topology), Contains("is unknown"));
  }
  SECTION("one reaches two others, which do not reach each other") {
    NvmlAnswers it = answers(3);
    for (Gpu& gpu : it.gpus) link(gpu, 6, Remote::kUnknown);
    reach(it, {0, 1});
    reach(it, {0, 2});
    CHECK(text_of(joined(it).links) == Cells{{"X", "?", "?"}, {"?", "X", "SYS"}, {"?", "SYS", "X"}});
  }
  SECTION("they are GPUs, so that nothing of a switch is between") {
    NvmlAnswers it = answers(4);
    for (Gpu& gpu : it.gpus) link(gpu, 12, Remote::kGpu);
    reach(it, {0, 1, 2, 3});
    CHECK(text_of(joined(it).links)[3] == std::vector<std::string>{"?", "?", "?", "X"});
  }
}

TEST_CASE("probe: links to a GPU that a container does not show are named") {
  NvmlAnswers it = answers(2);
  link(it.gpus[0], 12, Remote::kGpu, "0000:0f:00.0");
  const Topology topology = joined(it);
  CHECK(text_of(topology.links) == Cells{{"X", "SYS"}, {"SYS", "X"}});
  CHECK_THAT(all_warnings(topology),
             Contains("NVLinks of GPUs 0 lead to GPUs that this machine or container does not"));
}

}  // namespace shardscope::test
