// `nvidia-smi topo -p2p` and `nvidia-smi nvlink -s`.
#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "tests/topology/topologies.hpp"
#include "topology/read/text_table.hpp"

using namespace shardscope;
using namespace shardscope::test;
using topology::Topology;

namespace {

Topology read(const std::string& text) {
  return topology::read_topology({.text = text, .file = "machine.txt"});
}

const std::string kThree =
    " \tGPU0\tGPU1\tGPU2\t\n GPU0\tX\tOK\tTNS\t\n GPU1\tOK\tX\tCNS\t\n GPU2\tTNS\tCNS\tX\t\n\n"
    "Legend:\n\n  X    = Self\n  OK   = Status Ok\n";

/// Links of a GPU of `nvlink -s`.
std::string links(int count, const char* speed = "26.562 GB/s") {
  std::string text;
  for (int link = 0; link < count; ++link) text += fmt::format("\t Link {}: {}\n", link, speed);
  return text;
}

std::string h100(int gpu, const std::string& ports) {
  return fmt::format("GPU {}: NVIDIA H100 80GB HBM3 (UUID: GPU-0000-{})\n{}", gpu, gpu, ports);
}

}  // namespace

TEST_CASE("topo -p2p: the recorded machines") {
  const Topology h100s = recorded("p2p/smi-p2p-r-8xh100-all-ok.txt");
  CHECK(h100s.source == topology::SourceKind::kNvidiaSmiP2p);
  CHECK(h100s.gpu_count == 8);
  CHECK(h100s.complete);
  CHECK(!h100s.links);
  CHECK(!h100s.nics_known);
  REQUIRE(h100s.p2p);
  int ok = 0;
  for (size_t i = 0; i < 8; ++i) {
    for (size_t j = 0; j < 8; ++j) {
      ok += (*h100s.p2p)[i][j] == "OK" ? 1 : 0;
      CHECK(((*h100s.p2p)[i][j] == "X") == (i == j));
    }
  }
  CHECK(ok == 56);

  const Topology geforce = recorded("p2p/smi-p2p-rw-2x-rtx5090-gns-dr-legend.txt");
  CHECK(geforce.source == topology::SourceKind::kNvidiaSmiP2p);
  CHECK(geforce.gpu_count == 2);
  CHECK(geforce.complete);
  REQUIRE(geforce.p2p);
  CHECK((*geforce.p2p)[0] == std::vector<std::string>{"X", "GNS"});
  CHECK((*geforce.p2p)[1] == std::vector<std::string>{"GNS", "X"});
}

TEST_CASE("topo -p2p: codes, damage, and the tables of other questions") {
  Topology topology = read(kThree);
  CHECK(topology.complete);
  CHECK((*topology.p2p)[0] == std::vector<std::string>{"X", "OK", "TNS"});
  CHECK((*topology.p2p)[2] == std::vector<std::string>{"TNS", "CNS", "X"});

  const auto with = [](std::string text, const std::string& from, const std::string& to) {
    const size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    return text.replace(at, from.size(), to);
  };
  topology = read(with(with(kThree, "OK\tTNS", "DR\tU"), "OK\tX\tCNS\t\n GPU2\tTNS", "DR\tX\tCNS\t\n GPU2\tU"));
  CHECK(topology.complete);
  CHECK((*topology.p2p)[1][0] == "DR");
  CHECK((*topology.p2p)[2][0] == "U");
  // An unknown code, a pair that disagrees, a fused row, and one that is cut.
  topology = read(with(kThree, "OK\tTNS", "OK\tQNS"));
  CHECK(!topology.complete);
  CHECK((*topology.p2p)[0][1] == "OK");
  CHECK((*topology.p2p)[0][2].empty());
  CHECK((*topology.p2p)[2][0] == "TNS");
  topology = read(with(kThree, "X\tOK\tTNS", "X\tGQS\tTNS"));
  CHECK(!topology.complete);
  CHECK(warned(topology, {"Line 2", "GPU0", "GPU1", "GQS"}));
  CHECK((*topology.p2p)[0][1].empty());
  topology = read(with(kThree, "X\tOK\tTNS", "X\tCNS\tTNS"));
  CHECK(!topology.complete);
  CHECK(warned(topology, {"GPU0 to GPU1 is CNS", "GPU1 to GPU0 is OK"}));
  CHECK((*topology.p2p)[0][1].empty());
  CHECK((*topology.p2p)[1][0].empty());
  topology = read(with(kThree, "X\tOK\tTNS", "XOKTNS"));
  CHECK(topology.complete);
  CHECK((*topology.p2p)[0][2] == "TNS");
  CHECK(warned(topology, {"Line 2", "split"}));
  topology = read(kThree.substr(0, kThree.find("\n GPU2") + 9));
  CHECK(topology.gpu_count == 3);
  CHECK(!topology.complete);
  CHECK((*topology.p2p)[0][1] == "OK");
  // What is asked of writes is an answer; of more than that only a yes is.
  CHECK((*read("$ nvidia-smi topo -p2p w\n" + kThree).p2p)[0][2] == "TNS");
  topology = read("$ nvidia-smi topo -p2p n\n" + kThree);
  CHECK((*topology.p2p)[0][1] == "OK");
  CHECK((*topology.p2p)[0][2].empty());
  CHECK(warned(topology, {"-p2p n"}));
  CHECK(read("$ nvidia-smi topo -p2p r\n\tGPU0\n GPU0\tX\n").source == topology::SourceKind::kNvidiaSmiP2p);
}

TEST_CASE("nvlink -s: the recorded GPU with two inactive links") {
  const Topology v100 = recorded("p2p/nvlink-s-v100-two-inactive-links.txt");
  CHECK(v100.source == topology::SourceKind::kNvlinkStatus);
  REQUIRE(v100.gpus.size() == 1);
  const topology::Gpu& gpu = v100.gpus[0];
  CHECK(gpu.index == 3);
  CHECK(gpu.name == "Tesla V100-SXM2-32GB");
  CHECK(gpu.uuid.empty());
  REQUIRE(gpu.ports.size() == 6);
  CHECK(gpu.nvlinks == 4);
  for (const int link : {0, 1, 2, 4}) {
    CHECK(gpu.ports[static_cast<size_t>(link)].active == true);
    CHECK(gpu.ports[static_cast<size_t>(link)].gb_per_s == 25.781);
  }
  for (const size_t link : {3, 5}) {
    CHECK(gpu.ports[link].active == false);
    CHECK(!gpu.ports[link].gb_per_s);
  }
  CHECK(!v100.links);
  CHECK(!v100.complete);
  CHECK(warned(v100, {"GPU3 alone"}));
  CHECK(name_of(v100.topology_class) == "unknown");
}

TEST_CASE("nvlink -s: machines that are whole, and such that are cut") {
  const std::string whole = h100(0, links(18)) + h100(1, links(18)) + h100(2, links(18, "<inactive>"));
  Topology topology = read(whole);
  CHECK(topology.gpu_count == 3);
  CHECK(topology.complete);
  CHECK(topology.gpus[0].nvlinks == 18);
  CHECK(topology.gpus[0].uuid == "GPU-0000-0");
  CHECK(topology.gpus[2].nvlinks == 0);
  CHECK(topology.gpus[1].name == "NVIDIA H100 80GB HBM3");
  CHECK(!topology.links);
  // Cut behind a whole line: GPUs of one model have equally many links.
  topology = read(h100(0, links(18)) + h100(1, links(17)));
  CHECK(!topology.complete);
  CHECK(topology.gpus[0].nvlinks == 18);
  CHECK(!topology.gpus[1].nvlinks);
  CHECK(warned(topology, {"GPU 1", "17", "18"}));
  topology = read(h100(0, links(17)));
  CHECK(!topology.complete);
  CHECK(!topology.gpus[0].nvlinks);
  // A link is lost, one is not clear, and one is cut.
  topology = read(h100(0, links(2) + "\t Link 3: 26.562 GB/s\n" + "\t Link 4: 26.5"));
  CHECK(!topology.complete);
  CHECK(!topology.gpus[0].nvlinks);
  CHECK(warned(topology, {"Line 4", "link 3", "link 2"}));
  CHECK(warned(topology, {"Line 5", "link 4", "not clear"}));
  for (const char* damaged : {"26.5q2 GB/s", "-26 GB/s", "nan GB/s", "1e9 GB/s", "26.562 GB", "<inactiv", ""}) {
    INFO(damaged);
    topology = read(h100(0, links(17) + fmt::format("\t Link 17: {}\n", damaged)));
    CHECK(!topology.complete);
    CHECK(!topology.gpus[0].nvlinks);
    CHECK(topology.gpus[0].ports.size() == 18);
    CHECK(!topology.gpus[0].ports[17].active);
  }
  topology = read(h100(0, links(18)) + h100(0, links(17)));
  CHECK(topology.gpu_count == 1);
  CHECK(!topology.complete);
  CHECK(topology.gpus[0].nvlinks == 18);
  std::string many;
  for (int gpu = 0; gpu < 65; ++gpu) many += h100(gpu, links(18));
  CHECK_THROWS_WITH(read(many), Catch::Contains("64 GPUs"));
  // Other lists of GPUs and links.
  CHECK_THROWS_AS(read(h100(0, "") + h100(1, "")), UserError);
  CHECK_THROWS_AS(read(h100(0, "\t Link 0: Remote Device 00000000:CB:00.0: Link 0\n")), UserError);
}

TEST_CASE("ascending_list: lists of numbers, and nothing else") {
  using List = std::vector<int>;
  CHECK(topology::ascending_list("0", 9) == List{0});
  CHECK(topology::ascending_list("0-3,8", 9) == List{0, 1, 2, 3, 8});
  CHECK(topology::ascending_list("0-0,8-8", 9) == List{0, 8});
  for (const char* text : {"", "-", "-3", "3-", "3-1", "1,1", "1-3,2", "1,", ",1", "1 2", "10", "0-10", "1-2-3", "+1",
                           "99999999999999999999", "0x1"}) {
    INFO(text);
    CHECK(!topology::ascending_list(text, 9));
    CHECK(!topology::is_ascending_list(text, 9));
  }
}
