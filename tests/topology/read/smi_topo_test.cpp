// `nvidia-smi topo -m`: every layout that was seen.
#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "tests/topology/read/smi_four.hpp"
#include "topology/topology_json.hpp"

using namespace shardscope;
using namespace shardscope::test;
using topology::Topology;

TEST_CASE("topo -m: rocm-smi is refused by its name") {
  CHECK_THROWS_WITH(recorded("nvidia-smi/rocm-smi-showtopo-4gpu-xgmi-not-nvidia.txt"),
                    Catch::Contains("rocm-smi") && Catch::Contains("nvidia-smi topo -m"));
}

TEST_CASE("topo -m: layouts that lose nothing") {
  check_four(read(kFour));
  CHECK(read(kFour).complete);
  CHECK(read(kFour).nics[0].device == "mlx5_7");
  const size_t warnings = read(kFour).warnings.size();
  const auto lossless = [&](const std::string& text) {
    INFO(text);
    const Topology topology = read(text);
    check_four(topology);
    CHECK(topology.complete);
    CHECK(topology.warnings.size() == warnings);
  };
  lossless(with(kFour, "\n", "\r\n"));
  lossless(with(kFour, "\t", "        "));
  lossless(with(kFour, "\t", "  "));
  lossless(with(kFour, "\n", "\n    "));
  lossless(with("# " + kFour, "\n", "\n# "));
  lossless(with("> " + kFour, "\n", "\n> "));
  lossless(with("| " + with(kFour, "\t", " | "), "\n", " |\n| "));
  lossless(with("node07: " + kFour, "\n", "\nnode07: "));
  lossless(with(kFour, "\tGPU0\tGPU1", "GPU0\tGPU1"));
  lossless("\t\x1B[4m" + with(kFour, "GPU NUMA ID", "GPU NUMA ID\x1B[0m").substr(1));
  lossless("\t[4m" + with(kFour, "GPU NUMA ID", "GPU NUMA ID[0m").substr(1));
  lossless(with(kFour, "1\t\tN/A\nNIC0", "1N/A\nNIC0"));
  lossless(with(kFour, "\tNUMA Affinity\tGPU NUMA ID\n", "\nNUMA Affinity GPU NUMA ID\n"));
  lossless("```\n$ nvidia-smi topo -m\n" + kFour + "```\nand more text\n");
  lossless("srun: job 17 queued\n[sudo] password for user:\n\n" + kFour);
  lossless("\xEF\xBB\xBF" + kFour);
  lossless(kFour.substr(0, kFour.find("\nLegend")));
  lossless(kFour.substr(0, kFour.find("\n\nNIC Legend") - 20) + "\n\nNIC Legend:\n  NIC0: mlx5_7\n");  // legend cut
}

TEST_CASE("topo -m: what is fused or missing and has one reading is read, with a warning") {
  const auto mended = [&](const std::string& text, std::initializer_list<std::string_view> words) {
    INFO(text);
    const Topology topology = read(text);
    check_four(topology);
    CHECK(topology.complete);
    CHECK(warned(topology, words));
  };
  mended(with(kFour, "\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\t", "GPU0GPU1GPU2GPU3NIC0"), {"Line 1", "split"});
  mended(with(kFour, "SYS\tSYS\tPXB", "SYSSYSPXB"), {"Line 2", "split"});
  mended(with(kFour, "SYS\t32-63\t1\t\tN/A\nNIC0", "SYS32-63\t1\t\tN/A\nNIC0"), {"Line 5", "split"});
  mended(kFour.substr(kFour.find('\n') + 1), {"no line of column names"});
  mended(with(kFour, "GPU3\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n", "GPU3\n"), {"Line 1", "damaged"});
  mended(with(kFour, "GPU2\tGPU3\tNIC0\tCPU", "GPU2\tGQU3\tNIC0\tCPU"), {"Line 1", "damaged"});
  mended(with(kFour, "NUMA ID", "NU"), {"Line 1", "last columns"});
  // One line twice, and two that changed places.
  mended(with(kFour, "GPU2\tSYS", "GPU1\tNV12\t X \tSYS\tSYS\tNODE\t0-31\t0\t\tN/A\nGPU2\tSYS"), {"repeats line 3"});
  // Wrapped at a blank, and amid a word.
  mended(with(kFour, "NODE\t0-31\t0\t\tN/A", "NODE\n0-31\t0\t\tN/A"), {"Line 3", "wrapped"});
  mended(with(kFour, "SYS\tNODE\t0-31", "SY\nS\tNODE\t0-31"), {"Line 3", "wrapped"});
}

TEST_CASE("topo -m: lines in another order lose nothing") {
  std::string text = with(kFour, "GPU0\t X \tNV12\tSYS\tSYS\tPXB\t0-31\t0\t\tN/A\n", "");
  text = "GPU0\t X \tNV12\tSYS\tSYS\tPXB\t0-31\t0\t\tN/A\n" + text;
  check_four(read(text));
  CHECK(read(text).complete);
}

TEST_CASE("topo -m: cores fused with the NUMA node are split where only one way makes sense") {
  const std::string two =
      "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\n"
      "GPU0\t X \tNV12\t0-31,64-950\n"
      "GPU1\tNV12\t X \t32-63,96-1271\n";
  const Topology fused = read(two);
  CHECK(fused.gpus[0].cpu_affinity == "0-31,64-95");
  CHECK(fused.gpus[0].numa_nodes == std::vector<int>{0});
  CHECK(fused.gpus[1].cpu_affinity == "32-63,96-127");
  CHECK(fused.gpus[1].numa_nodes == std::vector<int>{1});
  CHECK(fused.complete);
  CHECK(warned(fused, {"Line 2", "0-31,64-950"}));

  const Topology unclear = read(with(with(two, "0-31,64-950", "0-231"), "32-63,96-1271", "24-471"));
  CHECK(unclear.gpus[0].numa_nodes.empty());
  CHECK(!unclear.complete);
  CHECK(warned(unclear, {"GPU0", "affinity"}));

  const Topology by_other = read(with(two, "32-63,96-1271", "0-31,64-95\t0"));
  CHECK(by_other.gpus[0].cpu_affinity == "0-31,64-95");
  CHECK(by_other.gpus[0].numa_nodes == std::vector<int>{0});

  const Topology lost = read(with(two, "0-31,64-950", "-31,64-95\t0"));
  CHECK(lost.gpus[0].cpu_affinity.empty());
  CHECK(lost.gpus[0].numa_nodes == std::vector<int>{0});
  CHECK(!lost.complete);
  CHECK(warned(lost, {"Line 2", "-31,64-95"}));
}

TEST_CASE("topo -m: several matrices, the first is read") {
  const Topology topology = read(kFour + "\n" + with(kFour, "NV12", "NV4"));
  check_four(topology);
  CHECK(topology.complete);
  CHECK(warned(topology, {"Another matrix", "line 17"}));
  // One that is no such matrix stands before it.
  check_four(read(" \tGPU0\tGPU1\n GPU0\tX\tGNS\n GPU1\tGNS\tX\n\n" + kFour));
}

TEST_CASE("topo -mp: shows no NVLinks, which is no sign that there are none") {
  std::string text = with(kFour, "NV12", "PHB");
  text = with(text, "  NV#  = Connection traversing a bonded set of # NVLinks\n",
              "  SYS  = Connection over SMP\n  PIX  = Connection traversing at most a single PCIe bridge\n");
  Topology topology = read(text);
  CHECK(!topology.links);
  CHECK(name_of(topology.topology_class) == "unknown");
  CHECK(warned(topology, {"topo -mp"}));
  CHECK(text_of(*(*topology.nic_links)[0][0]) == "PXB");
  topology = read("$ nvidia-smi topo -mp\n" + with(kFour, "NV12", "PHB"));
  CHECK(!topology.links);
  check_four(read("$ nvidia-smi topo -mp\n$ nvidia-smi topo -m\n" + kFour));
}

TEST_CASE("topo -m: numbers of GPUs and NICs") {
  const auto matrix = [](int gpus) {
    std::string text;
    for (int gpu = 0; gpu < gpus; ++gpu) text += fmt::format("\tGPU{}", gpu);
    text += "\n";
    for (int row = 0; row < gpus; ++row) {
      text += fmt::format("GPU{}", row);
      for (int column = 0; column < gpus; ++column) text += row == column ? "\t X " : "\tNV18";
      text += "\n";
    }
    return text;
  };
  for (const int gpus : {1, 3, 11, 16, 64}) {
    const Topology topology = read(matrix(gpus));
    CHECK(topology.gpu_count == gpus);
    CHECK(topology.complete);
  }
  CHECK_THROWS_WITH(read(matrix(65)), Catch::Contains("65 GPUs") && Catch::Contains("machine.txt"));
  CHECK_THROWS_AS(read(matrix(900)), UserError);
  CHECK_THROWS_WITH(read("\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\n"), Catch::Contains("without rows"));
}

TEST_CASE("topo -m: the largest number of a GPU is one that topo --json can be read with") {
  const Topology topology = read("\tGPU7\tGPU1023\nGPU7\t X \tNV4\nGPU1023\tNV4\t X \n");
  REQUIRE(topology.gpu_count == 2);
  CHECK(topology.gpus[1].index == 1023);
  const std::string json = topology::topology_json(topology).dump();
  CHECK(topology::read_topology({.text = json, .file = "t.json"}).gpus == topology.gpus);
  CHECK_THROWS_AS(topology::read_topology({.text = "\tGPU7\tGPU1024\nGPU1024\tNV4\t X \n", .file = "t"}), UserError);
}
