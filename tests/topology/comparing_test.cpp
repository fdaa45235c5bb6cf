// Machines side by side: what counts as a difference, in which order, and what is said about it.
#include "topology/comparing.hpp"

#include <algorithm>

#include <catch2/catch.hpp>

#include "tests/topology/topologies.hpp"
#include "topology/draw/plain_text.hpp"

using namespace shardscope;
using namespace shardscope::test;
using topology::compare_topologies;
using topology::Comparison;
using topology::Difference;
using topology::Measurement;
using topology::Topology;

namespace {

using Catch::Matchers::Contains;
using Values = std::vector<std::string>;

const Difference* find(const Comparison& comparison, const std::string& what) {
  const auto found = std::find_if(comparison.differences.begin(), comparison.differences.end(),
                                  [&](const Difference& difference) { return difference.what == what; });
  return found == comparison.differences.end() ? nullptr : &*found;
}

/// Values of the difference of that name; empty: there is none.
Values values_of(const Comparison& comparison, const std::string& what) {
  const Difference* const difference = find(comparison, what);
  return difference == nullptr ? Values{} : difference->values;
}

Topology named(Topology topology, const std::string& name) {
  for (topology::Gpu& gpu : topology.gpus) gpu.name = name;
  return topology;
}

Topology two_pairs() {
  Topology pairs = joined(4, "SYS");
  join(pairs, 0, 1, "NV12");
  join(pairs, 2, 3, "NV12");
  return pairs;
}

void add_all_reduce(Topology& machine, int gpus, int64_t bytes, double time_us, double busbw) {
  machine.measurements.push_back({.kind = Measurement::Kind::kAllReduce,
                                  .gpu_count = gpus,
                                  .bytes = bytes,
                                  .time_us = time_us,
                                  .busbw_gb_per_s = busbw});
}

TEST_CASE("compare_topologies: eight A100s on switches and four in pairs, as recorded at two clouds") {
  const Comparison comparison = compare_topologies({recorded("nvidia-smi/aws-p4-8xa100-sxm4-nv12.txt"),
                                                    recorded("nvidia-smi/azure-nc96ads-a100-v4-4xa100-pcie-pairs.txt")},
                                                   {"AWS", "Azure"});
  REQUIRE_FALSE(comparison.differences.empty());
  CHECK(comparison.differences[0].what == "class");
  CHECK(comparison.differences[0].values == Values{"nvswitch", "nvlink-pairs"});
  CHECK(values_of(comparison, "narrowest link of the best 4 GPUs") == Values{"NV12", "SYS"});
  CHECK(values_of(comparison, "narrowest link of the best 2 GPUs").empty());
  CHECK(values_of(comparison, "narrowest link of the best 8 GPUs").empty());  // one of them has four
  CHECK(values_of(comparison, "GPUs") == Values{"8", "4"});
  CHECK_THAT(comparison.summary, Contains("Equal on both: TP=2 inside the best group (narrowest link NV12)."));
  CHECK_THAT(comparison.summary,
             Contains("For TP=4 AWS is ahead: on AWS every pair of the best four has 12 NVLinks through switches; on "
                      "Azure only 0-1 and 2-3 are linked (12 NVLinks each), and TP=4 crosses PCIe and the link between "
                      "CPU sockets (SYS) twice a layer."));
  CHECK_THAT(comparison.summary, Contains("On Azure replicas of TP=2 stay on NVLink."));
}

TEST_CASE("compare_topologies: equal machines do not differ") {
  const Topology machine = recorded("nvidia-smi/aws-p4-8xa100-sxm4-nv12.txt");
  for (const size_t count : {size_t{2}, size_t{3}}) {
    const Comparison comparison =
        compare_topologies(std::vector<Topology>(count, machine), std::vector<std::string>(count, "p4"));
    CHECK(comparison.differences.empty());
    CHECK_THAT(comparison.summary, Contains("do not differ in anything that their sources tell"));
    CHECK_THAT(comparison.summary, Contains("TP=2, TP=4 and TP=8"));
  }
}

TEST_CASE("compare_topologies: what one source does not tell is no difference, and comes last") {
  Topology told = named(joined(4, "NV18"), "NVIDIA H100 80GB HBM3");
  told.virtual_machine = true;
  for (topology::Gpu& gpu : told.gpus) gpu.pcie_generation_most = 5;
  const Topology untold = joined(4, "NV12");
  const Comparison comparison = compare_topologies({understood(told), understood(untold)}, {"told", "untold"});
  for (const char* const what :
       {"virtual machine", "PCIe generation of the GPUs", "GPU model", "GPU memory bandwidth"}) {
    INFO(what);
    const Difference* const difference = find(comparison, what);
    REQUIRE(difference != nullptr);
    CHECK(difference->values.back() == "unknown");
    CHECK(difference->weight == 0);
    CHECK_THAT(difference->effect, Contains("Not told of all"));
  }
  CHECK(std::is_sorted(comparison.differences.begin(), comparison.differences.end(),
                       [](const auto& a, const auto& b) { return a.weight > b.weight; }));
  CHECK_THAT(comparison.summary, Contains("Not told of all machines: "));
  // 18 links against 12 of unknown speed.
  CHECK_THAT(comparison.summary,
             Contains("told is ahead by the number of links (the speed of one is not told of all)"));
}

TEST_CASE("compare_topologies: of three machines, two that differ are enough") {
  Topology first = joined(2, "PHB");
  Topology second = joined(2, "PHB");
  first.virtual_machine = true;
  second.virtual_machine = false;
  const Comparison comparison =
      compare_topologies({understood(first), understood(second), understood(joined(2, "PHB"))}, {"a", "b", "c"});
  REQUIRE(comparison.differences.size() == 1);
  CHECK(comparison.differences[0].values == Values{"yes", "no", "unknown"});
  CHECK(comparison.differences[0].weight > 0);
  CHECK_THAT(comparison.summary, Contains("Equal on all machines: TP=2"));
}

TEST_CASE("compare_topologies: links of one count and another speed") {
  const Topology a40 = understood(named(joined(2, "NV4"), "NVIDIA A40"));
  const Topology p100 = understood(named(joined(2, "NV4"), "Tesla P100-SXM2-16GB"));
  const Comparison comparison = compare_topologies({a40, p100}, {"a40", "p100"});
  // 4 x 14.0625 and 4 x 20 GB/s.
  CHECK(values_of(comparison, "what it carries each way (2 GPUs)") == Values{"56.2 GB/s", "80.0 GB/s"});
  CHECK_THAT(comparison.summary, Contains("For TP=2 p100 is ahead:"));
}

TEST_CASE("compare_topologies: a measured copy beats the data sheet, and noise is no difference") {
  Topology measured = named(joined(2, "NV12"), "NVIDIA A100-SXM4-80GB");
  Topology nominal = measured;
  const auto copy = [&](int from, int to, double gb_per_s) {
    measured.measurements.push_back({.from = from, .to = to, .p2p = true, .gb_per_s = gb_per_s});
  };
  copy(0, 1, 280);
  SECTION("one direction alone does not speak for the pair") {
    const Comparison comparison = compare_topologies({understood(measured), understood(nominal)}, {"a", "b"});
    CHECK(comparison.differences.empty());
  }
  SECTION("almost as much as the other") {
    copy(1, 0, 279);
    const Comparison comparison = compare_topologies({understood(measured), understood(nominal)}, {"a", "b"});
    CHECK(comparison.differences.empty());
  }
  SECTION("much less") {
    copy(1, 0, 120);
    const Comparison comparison = compare_topologies({understood(measured), understood(nominal)}, {"a", "b"});
    CHECK(values_of(comparison, "what it carries each way (2 GPUs)") == Values{"120 GB/s measured", "300 GB/s"});
  }
}

TEST_CASE("compare_topologies: all-reduces of the same size on as many GPUs") {
  Topology slow;
  slow.gpu_count = 4;
  Topology fast = slow;
  add_all_reduce(slow, 4, 65536, 40, 2);
  add_all_reduce(slow, 4, 1 << 30, 80000, 20);
  add_all_reduce(slow, 8, 65536, 90, 1);  // on more GPUs: nothing to compare with
  add_all_reduce(fast, 4, 65536, 10, 8);
  add_all_reduce(fast, 4, 65536, 11, 7);  // another algorithm: the best counts
  add_all_reduce(fast, 4, 1 << 30, 8000, 200);
  const Comparison comparison = compare_topologies({understood(slow), understood(fast)}, {"slow", "fast"});
  CHECK(values_of(comparison, "all-reduce of 64 KiB on 4 GPUs, measured") == Values{"40.0 us", "10.0 us"});
  CHECK(values_of(comparison, "all-reduce of 1 GiB on 4 GPUs, measured") ==
        Values{"20.0 GB/s (bus)", "200 GB/s (bus)"});
  CHECK(find(comparison, "all-reduce of 64 KiB on 8 GPUs, measured") == nullptr);
  // 160 x 40 us and 160 x 10 us.
  CHECK_THAT(find(comparison, "all-reduce of 64 KiB on 4 GPUs, measured")->effect, Contains("6.40 ms against 1.60 ms"));
}

TEST_CASE("compare_topologies: with peer access off on purpose is not what a machine can do") {
  Topology off;
  off.gpu_count = 4;
  Topology on = off;
  add_all_reduce(off, 4, 65536, 40, 2);
  off.measurements.back().p2p = false;
  add_all_reduce(on, 4, 65536, 10, 8);
  const Comparison comparison = compare_topologies({understood(off), understood(on)}, {"off", "on"});
  CHECK(comparison.differences.empty());
}

TEST_CASE("compare_topologies: the order is that of effect") {
  Topology pairs = named(two_pairs(), "NVIDIA A100 80GB PCIe");
  pairs.virtual_machine = true;
  Topology pcie = named(joined(4, "PIX"), "NVIDIA L40S");
  pcie.virtual_machine = false;
  const Comparison comparison = compare_topologies({understood(pairs), understood(pcie)}, {"pairs", "pcie"});
  std::vector<std::string> order;
  for (const Difference& difference : comparison.differences) {
    if (difference.weight > 0) order.push_back(difference.what);
  }
  CHECK(order == std::vector<std::string>{"class", "narrowest link of the best 2 GPUs",
                                          "narrowest link of the best 4 GPUs", "GPU memory bandwidth", "GPU model",
                                          "virtual machine"});
  CHECK(values_of(comparison, "GPU memory bandwidth") == Values{"1935 GB/s", "864 GB/s"});
  // For two GPUs the bridge wins, for four the switch.
  CHECK_THAT(comparison.summary, Contains("For TP=2 pairs is ahead"));
  CHECK_THAT(comparison.summary, Contains("For TP=4 pcie is ahead"));
}

TEST_CASE("compare_topologies: a GPU with too few links is named") {
  Topology weak = named(joined(4, "NV12"), "NVIDIA A100-SXM4-80GB");
  for (int other = 0; other < 3; ++other) join(weak, 3, other, "NV10");
  weak.switched = true;
  Topology sound = named(joined(4, "NV12"), "NVIDIA A100-SXM4-80GB");
  sound.switched = true;
  const Comparison comparison = compare_topologies({understood(weak), understood(sound)}, {"weak", "sound"});
  CHECK(values_of(comparison, "GPUs with too few NVLinks") == Values{"GPU3 10 of 12", "none"});
}

TEST_CASE("compare_topologies: the driver's clock and width come before the table of names") {
  Topology clocked = named(joined(2, "PHB"), "NVIDIA GeForce RTX 4090");
  for (topology::Gpu& gpu : clocked.gpus) {
    gpu.memory_clock_mhz = 5001;  // 2 x 5001 MHz x 384 bit = 480 GB/s
    gpu.memory_bus_bits = 384;
  }
  const Topology usual = named(joined(2, "PHB"), "NVIDIA GeForce RTX 4090");
  const Comparison comparison = compare_topologies({understood(clocked), understood(usual)}, {"a", "b"});
  CHECK(values_of(comparison, "GPU memory bandwidth") == Values{"480 GB/s", "1008 GB/s"});
}

TEST_CASE("compare_topologies: old and new names of the link between sockets are one") {
  const Comparison comparison =
      compare_topologies({understood(joined(2, "SOC")), understood(joined(2, "SYS"))}, {"old", "new"});
  CHECK(comparison.differences.empty());
}

TEST_CASE("compare_topologies: the farthest machines of all kinds can be compared") {
  const std::vector<std::string> files = {"nvidia-smi/azure-nd40rs-v2-8xv100.txt",
                                          "nvidia-smi/dgx2-16xv100-nv6-10hca-truncated.txt",
                                          "nvidia-smi/onprem-8xh200-8nic-trailing-tabs.txt",
                                          "p2p/p2pbw-8x-rtx4090-p2p-patched-driver.txt",
                                          "nccl-tests/azure-ndv4-8xa100-40gb-superbench.txt",
                                          "nccl-xml/hwloc-power8-4xp100-cuda-nvml-nvlinkbandwidth.xml",
                                          "p2p/nvlink-s-v100-two-inactive-links.txt"};
  std::vector<Topology> machines;
  for (const std::string& file : files) machines.push_back(recorded(file));
  const Comparison comparison = compare_topologies(machines, files);
  CHECK(comparison.names == files);
  for (const Difference& difference : comparison.differences) {
    CHECK(difference.values.size() == files.size());
    CHECK_FALSE(difference.effect.empty());
  }
  CHECK_FALSE(comparison.summary.empty());
}

TEST_CASE("comparison_text: the summary, a table that fits, and an effect for each difference") {
  const std::vector<Topology> machines = {recorded("nvidia-smi/aws-p4-8xa100-sxm4-nv12.txt"),
                                          recorded("nvidia-smi/azure-nc96ads-a100-v4-4xa100-pcie-pairs.txt")};
  const std::string text = comparison_text(compare_topologies(machines, {"AWS", "Azure"}));
  CHECK_THAT(text, Contains("narrowest link of the best 4 GPUs  NV12      SYS\n"));
  CHECK_THAT(text, Contains("AWS       Azure\n"));
  const std::string long_name(60, 'n');
  const std::string wide = comparison_text(compare_topologies(machines, {long_name, "b"}));
  CHECK_THAT(wide, Contains("[1] " + long_name + "\n[2] b\n"));
  for (const std::string& whole : {text, wide}) {
    size_t begin = 0;
    for (size_t end = whole.find('\n'); end != std::string::npos; begin = end + 1, end = whole.find('\n', begin)) {
      CHECK(topology::display_width(whole.substr(begin, end - begin)) <= 100);
    }
  }
  const Topology& same = machines.front();
  CHECK_THAT(comparison_text(compare_topologies({same, same}, {"a", "b"})), !Contains("largest effect"));
}

TEST_CASE("comparison_text: names cannot command a terminal") {
  const Topology machine = understood(joined(2, "PHB"));
  const Topology other = understood(joined(2, "SYS"));
  const std::string text = comparison_text(compare_topologies({machine, other}, {"a\x1b[2J", "b\n"}));
  CHECK_THAT(text, Contains("a?[2J") && Contains("b?"));
}

}  // namespace
