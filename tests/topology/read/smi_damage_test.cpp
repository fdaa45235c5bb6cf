// `nvidia-smi topo -m`: each kind of damage.
#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "tests/topology/read/smi_four.hpp"

using namespace shardscope;
using namespace shardscope::test;
using topology::Topology;

TEST_CASE("topo -m: damaged cells are named, and unknown unless the pair's other cell is whole") {
  const auto damaged = [](const std::string& text, std::initializer_list<std::string_view> words) {
    INFO(text);
    Topology topology = read(text);
    CHECK(!topology.complete);
    CHECK(warned(topology, words));
    return topology;
  };
  // The two cells of a pair disagree: neither is believed.
  Topology topology = damaged(with_line(kFour, 2, "GPU0\t X \tNV1\tSYS\tSYS\tPXB\t0-31\t0\t\tN/A"),
                              {"Lines 2 and 3", "NV1", "NV12", "unknown"});
  CHECK(link(topology, 0, 1).empty());
  CHECK(link(topology, 1, 0).empty());
  CHECK(link(topology, 2, 3) == "NV12");
  // No code: its mirror is.
  topology = damaged(with_line(kFour, 2, "GPU0\t X \tQV12\tSYS\tSYS\tPXB\t0-31\t0\t\tN/A"),
                     {"Line 2", "row GPU0", "column GPU1", "QV12"});
  CHECK(link(topology, 0, 1) == "NV12");
  // The first character of a column is lost.
  topology = damaged(with_line(kFour, 5, "GPU3\tSYS\tSYS\tV12\t X \tSYS\t32-63\t1\t\tN/A"),
                     {"Line 5", "row GPU3", "column GPU2", "V12"});
  CHECK(link(topology, 3, 2) == "NV12");
  CHECK(topology.gpus[3].cpu_affinity == "32-63");
  // X must be on the diagonal, and nothing else there.
  topology = damaged(with_line(kFour, 4, "GPU2\tSYS\tSYS\tSYS\tNV12\tSYS\t32-63\t1\t\tN/A"),
                     {"Line 4 (GPU2)", "SYS", "diagonal"});
  CHECK(link(topology, 2, 3).empty());
  CHECK(link(topology, 0, 1) == "NV12");
  topology = damaged(with(kFour, "NV12", "NV72"), {"Line 2", "column GPU1", "NV72"});
  CHECK(link(topology, 0, 1).empty());
  // NVLinks do not lead to NICs.
  topology = damaged(with_line(kFour, 2, "GPU0\t X \tNV12\tSYS\tSYS\tNV2\t0-31\t0\t\tN/A"),
                     {"Line 2", "column NIC0", "NV2", "NIC"});
  // A cell is lost amid a row: what stands behind it may be under the wrong column.
  topology = damaged(with_line(kFour, 2, "GPU0\t X \tSYS\tSYS\tPXB\t0-31\t0\t\tN/A"), {"Line 2", "GPU0", "4 cells"});
  check_four(topology);
  // Both cells of a pair are lost.
  topology = damaged(with_line(with_line(kFour, 2, "GPU0\t X \t??\tSYS\tSYS\tPXB\t0-31\t0\t\tN/A"), 3,
                               "GPU1\t??\t X \tSYS\tSYS\tNODE\t0-31\t0\t\tN/A"),
                     {"unknown", "GPU0-GPU1"});
  CHECK(link(topology, 0, 1).empty());
  // Two readings: NV12 and 0-31, or NV1 and 20-31.
  topology = damaged("\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV120-31\nGPU1\tNV12\t X \t0-31\n",
                     {"Line 2", "GPU1", "NV120-31"});
  CHECK(link(topology, 0, 1) == "NV12");
  CHECK(topology.gpus[0].cpu_affinity.empty());
}

TEST_CASE("topo -m: rows and columns that are lost") {
  Topology topology = read(with_line(kFour, 4, ""));
  CHECK(!topology.complete);
  CHECK(warned(topology, {"GPU2", "row"}));
  CHECK(link(topology, 2, 3) == "NV12");  // from row GPU3
  CHECK(topology.gpus[2].cpu_affinity.empty());
  // A wrong label: the row is no other GPU's.
  topology = read(with(kFour, "\nGPU2\t", "\nGPU7\t"));
  CHECK(topology.gpu_count == 4);
  CHECK(!topology.complete);
  CHECK(warned(topology, {"Line 4", "GPU7"}));
  topology = read(with(kFour, "\nGPU2\t", "\nGPU1\t"));
  CHECK(topology.gpu_count == 4);
  CHECK(!topology.complete);
  CHECK(warned(topology, {"Lines 3 and 4", "GPU1"}));
  CHECK(link(topology, 0, 1) == "NV12");
  CHECK(link(topology, 2, 3) == "NV12");
  CHECK(link(topology, 1, 2).empty());
  // A column that is lost in all lines.
  topology = read(
      "\tGPU0\tGPU1\tGPU3\tCPU Affinity\nGPU0\t X \tNV4\tSYS\t0-7\nGPU1\tNV4\t X \tPIX\t0-7\n"
      "GPU2\tSYS\tSYS\tNV4\t0-7\nGPU3\tSYS\tPIX\t X \t0-7\n");
  CHECK(!topology.complete);
  REQUIRE(topology.gpu_count == 4);
  const auto position = [&](int index) {
    size_t at = 0;
    while (topology.gpus[at].index != index) ++at;
    return static_cast<int>(at);
  };
  CHECK(link(topology, position(2), position(3)) == "NV4");
  CHECK(link(topology, position(0), position(2)) == "SYS");
  CHECK(link(topology, position(1), position(3)) == "PIX");
  // Columns that were left out by hand.
  topology = read(
      "\tGPU0\tGPU1\t...\tGPU7\nGPU0\t X \tNV12\t...\tNV12\nGPU1\tNV12\t X \t...\tNV12\n"
      "...\nGPU7\tNV12\tNV12\t...\t X \n");
  CHECK(!topology.complete);
  CHECK(topology.gpu_count == 3);
  CHECK(link(topology, 0, 2) == "NV12");
  CHECK(topology.gpus[2].index == 7);
}

TEST_CASE("topo -m: numbers of GPUs that are left out tell that rows and columns are") {
  const Topology topology = read("\tGPU0\tGPU2\nGPU0\t X \tNV4\nGPU2\tNV4\t X \n");
  CHECK(topology.gpu_count == 2);
  CHECK(link(topology, 0, 1) == "NV4");
  CHECK(!topology.complete);
  CHECK(warned(topology, {"no GPU1"}));
}

TEST_CASE("topo -m: a text that ends amid a row") {
  for (size_t length = kFour.find("GPU2\tSYS"); length < kFour.find("\nNIC0"); ++length) {
    const std::string text = kFour.substr(0, length);
    INFO(text);
    const Topology topology = read(text);
    REQUIRE(topology.gpu_count == 4);
    CHECK(!topology.complete);
    CHECK(!topology.warnings.empty());
    CHECK(link(topology, 0, 1) == "NV12");
    CHECK(link(topology, 1, 3) == "SYS");
    CHECK((link(topology, 2, 3) == "NV12" || link(topology, 2, 3).empty()));
    for (const topology::Gpu& gpu : topology.gpus) {
      const std::string cores = gpu.index < 2 ? "0-31" : "32-63";
      CHECK((gpu.cpu_affinity.empty() || gpu.cpu_affinity == cores));
    }
  }
}

TEST_CASE("topo -m: huge and strange texts end soon") {
  const std::string line(1 << 20, 'x');
  CHECK_THROWS_AS(read("GPU0 " + line), UserError);
  check_four(read(line + "\n" + kFour + line));
  std::string cells = "GPU0";
  for (int i = 0; i < 100'000; ++i) cells += " SYS";
  CHECK(!read(kFour.substr(0, kFour.find("GPU0\t X")) + cells + "\nGPU1\tSYS X SYS SYS SYS\n").complete);
  CHECK_THROWS_AS(read("GPU0 GPU1\nGPU0 X0-65000" + line), UserError);
  std::string rows;
  for (int i = 0; i < 100'000; ++i) rows += "GPU0 X NV1\n";
  CHECK_THROWS_AS(read(rows), UserError);
  check_four(read(std::string(1 << 16, '\0') + "\n" + kFour));
  check_four(read(std::string(1 << 20, '\n') + kFour));
  CHECK(!read(std::string("GPU0\0X\0", 7)).complete);
}
