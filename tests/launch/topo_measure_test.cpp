#include "launch/topo_measure.hpp"

#include <catch2/catch.hpp>

using namespace shardscope;
using launch::add_copies;
using parallel::PeerCopies;
using topology::Measurement;
using topology::Topology;

namespace {

/// Two GPUs, which CUDA counts the other way round.
Topology two_gpus() {
  Topology topology;
  topology.gpu_count = 2;
  topology.gpus = {{.index = 0, .pci_bus_id = "0000:1b:00.0"}, {.index = 1, .pci_bus_id = "0000:43:00.0"}};
  topology.links = {{topology::path_of("X"), topology::path_of("SYS")},
                    {topology::path_of("SYS"), topology::path_of("X")}};
  return topology;
}

PeerCopies two_devices() {
  PeerCopies copies;
  copies.devices = {{.ordinal = 0, .pci_bus_id = "0000:43:00.0"}, {.ordinal = 1, .pci_bus_id = "0000:1B:00.0"}};
  return copies;
}

bool warned(const Topology& topology, std::string_view words) {
  return std::any_of(topology.warnings.begin(), topology.warnings.end(),
                     [&](const std::string& warning) { return warning.find(words) != std::string::npos; });
}

}  // namespace

TEST_CASE("add_copies: figures in the topology's numbers, with units") {
  Topology topology = two_gpus();
  PeerCopies copies = two_devices();
  copies.figures = {{.from = 0, .to = 1, .peer_access = false, .bytes = 64 << 20, .us = 64},
                    {.from = 1, .to = 0, .peer_access = true, .bytes = 16, .us = 1.5},
                    {.from = 1, .to = 0, .peer_access = true, .together = true, .bytes = 1000, .us = 2}};
  add_copies(topology, copies, /*emulated=*/false);
  REQUIRE(topology.measurements.size() == 3);
  const Measurement& staged = topology.measurements[0];
  CHECK(staged.kind == Measurement::Kind::kP2pBandwidth);
  CHECK((staged.from == 1 && staged.to == 0 && staged.p2p == false && staged.both_ways == false));
  CHECK(*staged.gb_per_s == Approx(1048.576));
  const Measurement& tiny = topology.measurements[1];
  CHECK(tiny.kind == Measurement::Kind::kP2pLatency);
  CHECK((tiny.from == 0 && tiny.to == 1 && tiny.time_us == 1.5 && !tiny.gb_per_s));
  CHECK(topology.measurements[2].algorithm == "all at once");
  CHECK(*topology.measurements[2].gb_per_s == Approx(0.5));
}

TEST_CASE("add_copies: data that did not arrive, and flows that collapse together, are said") {
  Topology topology = two_gpus();
  PeerCopies copies = two_devices();
  copies.figures = {{.from = 0, .to = 1, .peer_access = true, .bytes = 64 << 20, .us = 1000, .right = false},
                    {.from = 0, .to = 1, .peer_access = true, .together = true, .bytes = 64 << 20, .us = 20000}};
  add_copies(topology, copies, /*emulated=*/false);
  CHECK(warned(topology, "did not arrive (GPU1 to GPU0)"));
  CHECK(warned(topology, "GPU1 to GPU0 carries 3.4 GB/s of 67.1 GB/s alone"));
  topology = two_gpus();
  copies.figures[0].right = true;
  copies.figures[1].us = 2000;
  add_copies(topology, copies, /*emulated=*/false);
  CHECK_FALSE(warned(topology, "did not arrive"));
  CHECK_FALSE(warned(topology, "alone"));
  topology = two_gpus();
  add_copies(topology, copies, /*emulated=*/true);
  CHECK(warned(topology, "emulated"));
}

TEST_CASE("add_copies: both ways is the sum of both flows, and what did not arrive has no rate") {
  Topology topology = two_gpus();
  PeerCopies copies = two_devices();
  copies.figures = {{.from = 0, .to = 1, .peer_access = true, .both_ways = true, .bytes = 10'000, .us = 1},
                    {.from = 1, .to = 0, .peer_access = true, .both_ways = true, .bytes = 10'000, .us = 2},
                    {.from = 1, .to = 0, .peer_access = false, .bytes = 10'000, .us = 2, .right = false}};
  add_copies(topology, copies, /*emulated=*/false);
  REQUIRE(topology.measurements.size() == 2);
  for (const Measurement& figure : topology.measurements) CHECK(*figure.gb_per_s == Approx(15.0));
  CHECK(warned(topology, "through host memory did not arrive (GPU0 to GPU1)"));
  CHECK_FALSE(warned(topology, "by peer access did not arrive"));
}

TEST_CASE("add_copies: devices that the topology does not have are left out") {
  Topology topology = two_gpus();
  topology.gpus[1].pci_bus_id = "";
  PeerCopies copies = two_devices();
  copies.figures = {{.from = 0, .to = 1, .peer_access = true, .bytes = 64, .us = 1},
                    {.from = 0, .to = 1, .peer_access = true, .bytes = 4096, .us = 1, .right = false}};
  add_copies(topology, copies, /*emulated=*/true);
  CHECK(topology.measurements.empty());
  CHECK(warned(topology, "did not arrive (CUDA device 0 to GPU0)"));
}
