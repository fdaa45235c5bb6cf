// Tables of figures between two GPUs: every recorded file as INDEX.md describes it, and made-up ones.
#include <algorithm>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "tests/topology/topologies.hpp"

using namespace shardscope;
using namespace shardscope::test;
using topology::Measurement;
using topology::SourceText;
using topology::Topology;

namespace {

using Catch::Matchers::Contains;

/// Figures between GPUs that `wanted` picks.
template <class Wanted>
std::vector<double> figures(const Topology& topology, Measurement::Kind kind, const Wanted& wanted) {
  std::vector<double> values;
  for (const Measurement& each : topology.measurements) {
    if (each.kind != kind || !wanted(each)) continue;
    const std::optional<double>& value = kind == Measurement::Kind::kP2pLatency ? each.time_us : each.gb_per_s;
    REQUIRE(value);
    values.push_back(*value);
  }
  return values;
}

void check_within(const std::vector<double>& values, size_t count, double least, double most) {
  REQUIRE(values.size() == count);
  CHECK(*std::min_element(values.begin(), values.end()) >= least);
  CHECK(*std::max_element(values.begin(), values.end()) <= most);
}

bool same_socket(const Measurement& each) {
  return (*each.from < 4) == (*each.to < 4);
}

}  // namespace

TEST_CASE("read_p2p_bandwidth_test: a machine without P2P", "[p2p]") {
  const Topology topology = recorded("p2p/p2pbw-8x-rtx4090-p2p-unavailable.txt");
  CHECK(name_of(topology.source) == "p2p-bandwidth-test");
  CHECK(topology.complete);
  CHECK(topology.gpu_count == 8);
  CHECK_FALSE(topology.links);
  REQUIRE(topology.p2p);
  CHECK((*topology.p2p)[3][3] == "X");
  CHECK((*topology.p2p)[3][4] == "NS");
  const auto one_way = [](const Measurement& each) { return each.both_ways == false; };
  check_within(figures(topology, Measurement::Kind::kP2pBandwidth, one_way), 56, 18.4, 20.6);
  check_within(figures(topology, Measurement::Kind::kP2pLatency, [](const Measurement&) { return true; }), 56, 11,
               20.6);
  for (const Measurement& each : topology.measurements) CHECK(each.p2p == false);  // under the title P2P=Enabled
  CHECK(warned(topology, {"staged through the host"}));
}

TEST_CASE("read_p2p_bandwidth_test: the same machine with P2P", "[p2p]") {
  const Topology topology = recorded("p2p/p2pbw-8x-rtx4090-p2p-patched-driver.txt");
  CHECK(topology.complete);
  CHECK(topology.warnings.empty());
  REQUIRE(topology.p2p);
  CHECK((*topology.p2p)[0][7] == "OK");
  check_within(figures(topology, Measurement::Kind::kP2pBandwidth,
                       [](const Measurement& each) { return each.both_ways == false && same_socket(each); }),
               24, 25.5, 26.1);
  check_within(figures(topology, Measurement::Kind::kP2pBandwidth,
                       [](const Measurement& each) { return each.both_ways == false && !same_socket(each); }),
               32, 20.5, 22.6);
  check_within(figures(topology, Measurement::Kind::kP2pBandwidth,
                       [](const Measurement& each) { return each.both_ways == true && same_socket(each); }),
               24, 49.7, 50.7);
  check_within(figures(topology, Measurement::Kind::kP2pLatency, [](const Measurement&) { return true; }), 56, 1.17,
               1.7);
  for (const Measurement& each : topology.measurements) CHECK(each.p2p == true);
  const auto found = std::find_if(topology.measurements.begin(), topology.measurements.end(),
                                  [](const Measurement& each) { return each.from == 4 && each.to == 1; });
  REQUIRE(found != topology.measurements.end());
  CHECK(found->gb_per_s == 21.61);  // row 4, column 1
}

TEST_CASE("read_p2p_bandwidth_test: cut in the Enabled matrix", "[p2p]") {
  const Topology topology = recorded("p2p/p2pbw-8xh100-sxm-cut-in-enabled-matrix.txt");
  CHECK_FALSE(topology.complete);
  CHECK(topology.gpu_count == 8);
  check_within(
      figures(topology, Measurement::Kind::kP2pBandwidth, [](const Measurement& each) { return each.p2p == false; }),
      56, 36, 38.1);
  // Row 0 to column 6; column 7 is cut: "375.6".
  const std::vector<double> enabled =
      figures(topology, Measurement::Kind::kP2pBandwidth, [](const Measurement& each) { return each.p2p == true; });
  CHECK(enabled == std::vector<double>{371.02, 376.65, 376.60, 376.82, 375.59, 375.94});
  CHECK(warned(topology, {"line 23", "row 0", "column 7", "375.6"}));
  CHECK(warned(topology, {"rows of the table are missing"}));
}

TEST_CASE("read_p2p_bandwidth_test: devices, narrow links, a cut last figure", "[p2p]") {
  const Topology topology = recorded("p2p/p2pbw-2x-rtx4090-narrow-pcie-links.txt");
  CHECK_FALSE(topology.complete);
  CHECK(topology.gpu_count == 2);
  CHECK(topology.gpus[0].name == "NVIDIA GeForce RTX 4090");
  CHECK(topology.gpus[1].pci_bus_id == "0000:17:00.0");
  const auto enabled = [](const Measurement& each) { return each.p2p == true && each.both_ways == false; };
  CHECK(figures(topology, Measurement::Kind::kP2pBandwidth, enabled) == std::vector<double>{6.60, 6.60});
  CHECK(warned(topology, {"line 29", "\"924\"", "lost digits"}));
}

TEST_CASE("read_p2p_bandwidth_test: a table without a title", "[p2p]") {
  const Topology topology = recorded("p2p/p2pbw-wrx90-8x-rtxpro6000-3switch-bidir.txt");
  CHECK(topology.complete);
  CHECK(topology.gpu_count == 8);
  CHECK_FALSE(topology.p2p);
  check_within(figures(topology, Measurement::Kind::kP2pBandwidth, [](const Measurement&) { return true; }), 56, 103,
               105);
  for (const Measurement& each : topology.measurements) {
    CHECK_FALSE(each.p2p);
    CHECK_FALSE(each.both_ways);
  }
  CHECK(warned(topology, {"without a title", "not told"}));
}

TEST_CASE("read_p2p_bandwidth_test: damage is named, and reads go the other way", "[p2p]") {
  const std::string head = "P2P Connectivity Matrix\n D\\D 0 1\n 0 1 1\n 1 0 1\n";
  const Topology one_sided = taken(topology::read_p2p_bandwidth_test,
                                   head +
                                       "Unidirectional P2P=Enabled Bandwidth (P2P Reads) Matrix (GB/s)\n D\\D 0 1\n"
                                       " 0 900.00 11.00\n WARN: noise\n 1 22.00 900.00\n");
  CHECK_FALSE(one_sided.complete);
  REQUIRE(one_sided.p2p);
  CHECK((*one_sided.p2p)[0][1].empty());
  CHECK(warned(one_sided, {"differs by direction"}));
  REQUIRE(one_sided.measurements.size() == 2);
  CHECK(one_sided.measurements[0].from == 1);  // GPU 0 reads from GPU 1
  CHECK(one_sided.measurements[0].to == 0);
  CHECK(one_sided.measurements[0].gb_per_s == 11.0);
  CHECK_FALSE(one_sided.measurements[0].p2p);
  const Topology damaged = taken(topology::read_p2p_bandwidth_test,
                                 "Bidirectional P2P=Disabled Bandwidth Matrix (GB/s)\n D\\D 0 1 2\n 0 9.00 1x.00 3.00\n"
                                 " 1 4.00 9.00\n 2 7.00 8.0 9.00\n");
  CHECK_FALSE(damaged.complete);
  CHECK(damaged.gpu_count == 3);
  REQUIRE(damaged.measurements.size() == 2);
  CHECK(damaged.measurements[0].gb_per_s == 3.0);  // 0 to 2
  CHECK(damaged.measurements[1].gb_per_s == 7.0);  // 2 to 0
  CHECK(warned(damaged, {"line 3", "row 0, column 1", "1x.00"}));
  CHECK(warned(damaged, {"line 4", "2 cells, not 3"}));
  CHECK(warned(damaged, {"line 5", "row 2, column 1", "8.0"}));
  CHECK_THROWS_AS(topology::read_p2p_bandwidth_test({.text = "P2P Connectivity Matrix\n", .file = "f"}), UserError);
  CHECK_FALSE(topology::read_p2p_bandwidth_test({.text = "GPU 0 1\n0 1 2\n", .file = "f"}));
}

TEST_CASE("read_p2pmark: a table with UTF-8 dashes", "[p2p]") {
  const Topology topology = recorded("p2p/p2pmark-asus-esc8000a-8x8-unidirectional-utf8-dash.txt");
  CHECK(name_of(topology.source) == "p2pmark");
  CHECK(topology.complete);
  CHECK(topology.gpu_count == 8);
  check_within(figures(topology, Measurement::Kind::kP2pBandwidth, same_socket), 24, 53.1, 53.9);
  check_within(
      figures(topology, Measurement::Kind::kP2pBandwidth, [](const Measurement& each) { return !same_socket(each); }),
      32, 35.9, 40.2);
  CHECK(topology.measurements[0].from == 0);
  CHECK(topology.measurements[0].to == 1);
  const Topology titled = taken(topology::read_p2pmark, "Bidirectional\n GPU0 GPU1\nGPU0: - 90.1\nGPU1: 90.2 -\n");
  CHECK(titled.measurements.at(1).both_ways == true);
  CHECK_FALSE(topology::read_p2pmark({.text = " GPU0 GPU1\nGPU0 X NV12\nGPU1 NV12 X\n", .file = "f"}));
  CHECK_THROWS_AS(topology::read_p2pmark({.text = "Dst> GPU0 GPU1\n", .file = "f"}), UserError);
}

TEST_CASE("read_nvbandwidth: tables between CPU and GPU tell nothing of pairs", "[p2p]") {
  const Topology topology = recorded("p2p/nvbandwidth-gh200-480gb-v0.6-superbench.txt");
  CHECK(name_of(topology.source) == "nvbandwidth");
  CHECK(topology.gpu_count == 1);
  CHECK(topology.gpus.at(0).name == "NVIDIA GH200 480GB");
  CHECK(topology.gpus.at(0).pci_bus_id == "0009:01:00.0");
  CHECK(topology.measurements.empty());
  CHECK_FALSE(topology.links);
  CHECK_FALSE(topology.complete);  // a table was edited to 3 GPUs, one is listed
  CHECK(warned(topology, {"line 12", "3 GPUs", "1 device"}));
  CHECK(warned(topology, {"17 tests were waived"}));
}

TEST_CASE("read_nvbandwidth: pairs by direction, both ways, latency", "[p2p]") {
  const std::string text =
      "nvbandwidth Version: v0.6\nDevice 0: NVIDIA H100 (00000000:01:00)\nDevice 1: NVIDIA H100 (00000000:02:00)\n"
      "Running device_to_device_memcpy_read_ce.\nmemcpy CE GPU(row) <- GPU(column) bandwidth (GB/s)\n"
      "           0         1\n 0       N/A    276.07\n 1    277.36       N/A\n\n"
      "SUM device_to_device_memcpy_read_ce 553.43\n"
      "Running device_to_device_bidirectional_memcpy_write_ce.\n"
      "memcpy CE GPU(row) <-> GPU(column) Write1 bandwidth (GB/s)\n           0         1\n 0       N/A    200.00\n"
      " 1    200.00       N/A\n"
      "memcpy CE GPU(row) <-> GPU(column) Total bandwidth (GB/s)\n           0         1\n 0       N/A    400.00\n"
      " 1    401.00       N/A\n"
      "Running device_to_device_latency_sm.\nDevice to Device Latency SM GPU(row) <-> GPU(column) (ns)\n"
      "           0         1\n 0       N/A    610.50\n 1    611.50       N/A\n";
  const Topology topology = taken(topology::read_nvbandwidth, text);
  CHECK(topology.complete);
  CHECK(topology.gpu_count == 2);
  REQUIRE(topology.measurements.size() == 6);
  CHECK(topology.measurements[0].from == 1);  // read: from the column's
  CHECK(topology.measurements[0].to == 0);
  CHECK(topology.measurements[0].gb_per_s == 276.07);
  CHECK(topology.measurements[0].both_ways == false);
  CHECK(topology.measurements[0].p2p == true);
  CHECK(topology.measurements[0].algorithm == "device_to_device_memcpy_read_ce");
  CHECK(topology.measurements[3].gb_per_s == 401.0);
  CHECK(topology.measurements[3].both_ways == true);
  CHECK(topology.measurements[4].time_us == Approx(0.6105));
  CHECK_FALSE(topology::read_nvbandwidth({.text = "Running late (row) (column)\n", .file = "f"}));
  CHECK_THROWS_AS(topology::read_nvbandwidth({.text = "nvbandwidth Version: v0.6\n", .file = "f"}), UserError);
}
