// Topologies as text: what stands there, that nothing is claimed of what is unknown, and that it fits a terminal.
#include "topology/drawing.hpp"

#include <filesystem>
#include <sstream>

#include <catch2/catch.hpp>

#include "kernels/base/error.hpp"
#include "tests/topology/topologies.hpp"
#include "topology/draw/plain_text.hpp"

using namespace shardscope;
using namespace shardscope::test;
using topology::Topology;

namespace {

using Catch::Matchers::Contains;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

/// The other words of the first line that begins with `first`, from where `from` stands.
std::vector<std::string> words_after(const std::string& whole, const std::string& first, const char* from = "\n\n") {
  const std::string text = whole.substr(whole.find(from));
  for (const std::string& line : lines_of(text)) {
    std::istringstream in(line);
    std::vector<std::string> words;
    for (std::string word; in >> word;) words.push_back(word);
    if (!words.empty() && words.front() == first) return {words.begin() + 1, words.end()};
  }
  return {};
}

using Words = std::vector<std::string>;

/// Two pairs with NVLinks, between them the link between sockets.
Topology two_pairs() {
  Topology pairs = joined(4, "SYS");
  join(pairs, 0, 1, "NV12");
  join(pairs, 2, 3, "NV12");
  for (size_t gpu = 0; gpu < 4; ++gpu) {
    pairs.gpus[gpu].name = "NVIDIA A100 80GB PCIe";
    pairs.gpus[gpu].numa_nodes = {static_cast<int>(gpu / 2)};
    pairs.gpus[gpu].cpu_affinity = gpu < 2 ? "0-23" : "24-47";
  }
  return understood(pairs);
}

TEST_CASE("topology_text: GPUs, class, matrix, groups with what their narrowest links carry, and places") {
  const std::string text = topology_text(two_pairs());
  CHECK_THAT(text, Contains("4 x NVIDIA A100 80GB PCIe (nvidia-smi topo -m)"));
  CHECK_THAT(text, Contains("class: nvlink-pairs, NVLink pairs."));
  CHECK(words_after(text, "GPU1") == Words{"NV12", "X", "SYS", "SYS"});
  CHECK_THAT(text, Contains("NVn: n NVLinks; SYS: the link between CPU sockets"));
  // Of a group of two: 12 links of 25 GB/s; what goes from socket to socket is on no data sheet.
  CHECK(words_after(text, "2", "Groups") == Words{"0,1", "NV12", "300", "0,2", "SYS", "?"});
  CHECK(words_after(text, "4", "Groups") == Words{"0-3", "SYS", "?", "the", "same", "SYS", "?"});
  CHECK_THAT(text, Contains("  3  1     24-47"));
  CHECK(text.back() == '\n');
}

TEST_CASE("topology_text: what is unknown is a question mark, and a cut source is called so") {
  Topology cut = joined(3, "PIX");
  join(cut, 1, 2, "");
  cut.complete = false;
  const std::string text = topology_text(understood(cut));
  CHECK(words_after(text, "GPU1") == Words{"PIX", "X", "?"});
  CHECK_THAT(text, Contains("?: unknown"));
  CHECK_THAT(text, Contains("The source is cut or damaged"));
  CHECK(words_after(text, "3", "Groups").at(1) == "?");
}

TEST_CASE("topology_text: NICs stand beside their GPUs only where their paths are known") {
  Topology machine = joined(3, "PHB");
  machine.nics = {{.name = "NIC0", .device = "mlx5_0"}, {.name = "NIC1"}};
  machine.nic_links.emplace(3, std::vector<std::optional<topology::Path>>(2));
  (*machine.nic_links)[0] = {topology::path_of("PIX"), topology::path_of("SYS")};
  (*machine.nic_links)[1] = {topology::path_of("SYS"), topology::path_of("NODE")};
  const std::string text = topology_text(understood(machine));
  CHECK_THAT(text, Contains("    0  NIC0 mlx5_0 (PIX)\n"));
  CHECK_THAT(text, Contains("    1  -\n"));
  CHECK_THAT(text, Contains("    2  ?\n"));
}

TEST_CASE("topology_text: machines without GPUs, with one, and of an unknown number") {
  Topology none;
  none.gpu_count = 0;
  CHECK_THAT(topology_text(understood(none)), Contains("no GPU") && Contains("class: none"));
  Topology one = joined(1, "");
  one.gpus[0].name = "NVIDIA L4";
  CHECK_THAT(topology_text(understood(one)), Contains("1 x NVIDIA L4") && Contains("class: single"));
  Topology table;
  table.source = topology::SourceKind::kCollectiveTable;
  CHECK_THAT(topology_text(understood(table)), Contains("an untold number of GPUs") && Contains("class: unknown"));
  Topology mixed = joined(3, "PHB");
  mixed.gpus[0].name = mixed.gpus[2].name = "B";
  CHECK_THAT(topology_text(understood(mixed)), Contains("2 x B, 1 x unnamed GPU"));
}

TEST_CASE("topology_text: figures by path and peer access, with least, middle and most") {
  Topology machine = two_pairs();
  const auto copy = [&](int from, int to, double gb_per_s, bool p2p) {
    machine.measurements.push_back({.from = from, .to = to, .p2p = p2p, .both_ways = false, .gb_per_s = gb_per_s});
  };
  copy(0, 0, 1300, true);  // within a GPU: no link
  copy(0, 1, 270, true);
  copy(1, 0, 272, true);
  copy(0, 2, 20, true);
  copy(2, 0, 22, true);
  copy(1, 3, 27, true);
  copy(0, 1, 9, false);
  machine.measurements.push_back({.kind = topology::Measurement::Kind::kAllReduce,
                                  .gpu_count = 4,
                                  .bytes = 1024,
                                  .time_us = 14.5,
                                  .busbw_gb_per_s = 0.1,
                                  .algorithm = "ring"});
  machine.measurements.push_back({.kind = topology::Measurement::Kind::kAllReduce,
                                  .gpu_count = 4,
                                  .bytes = 1 << 30,
                                  .time_us = 9000,
                                  .busbw_gb_per_s = 178,
                                  .algorithm = "ring"});
  const std::string text = topology_text(machine);
  CHECK_THAT(text, Contains("GB/s    SYS   on           one                     3  20.0    22.0  27.0"));
  CHECK_THAT(text, Contains("GB/s    NV12  on           one                     2   270     271   272"));
  CHECK_THAT(text, Contains("GB/s    NV12  off          one                     1  9.00    9.00  9.00"));
  CHECK_THAT(text, !Contains("1300"));
  CHECK_THAT(text, Contains("     4  ring       ?               2  1 KiB  1 GiB            14.5            178"));
}

TEST_CASE("topology_text: what a file says cannot command a terminal") {
  Topology machine = joined(2, "PHB");
  machine.gpus[0].name = machine.gpus[1].name = "evil\x1b[2J\x07 \xff name\xe2\x80\xae";
  machine.host = "h\nost";
  machine.warnings = {
      "\x9b"
      "31m"};
  const std::string text = topology_text(understood(machine));
  CHECK(
      std::all_of(text.begin(), text.end(), [](char c) { return c == '\n' || static_cast<unsigned char>(c) >= 0x20; }));
  CHECK_THAT(text, Contains("evil?[2J? ? name?") && Contains("h?ost") && Contains("Warning: ?31m"));
}

TEST_CASE("topology_text: a matrix wider than the terminal goes on below") {
  const std::string text = topology_text(understood(joined(40, "NV18")));
  for (const std::string& line : lines_of(text)) CHECK(topology::display_width(line) <= 100);
  // Every row once for each block of columns.
  const std::vector<std::string> lines = lines_of(text);
  const auto rows =
      std::count_if(lines.begin(), lines.end(), [](const std::string& line) { return line.starts_with("GPU39"); });
  CHECK(rows == 3);
  size_t cells = 0;
  for (const std::string& line : lines) {
    if (!line.starts_with("GPU39")) continue;
    std::istringstream words(line);
    for (std::string word; words >> word;) ++cells;
  }
  CHECK(cells == 40 + 3);
}

TEST_CASE("topology_text: every recorded machine fits a terminal of 100 columns") {
  for_recorded([](const Topology& machine) {
    for (const std::string& line : lines_of(topology_text(machine))) {
      // A single word, such as a list of CPUs or a file's name, may be longer.
      if (line.find(' ', line.find_first_not_of(' ')) != std::string::npos) CHECK(topology::display_width(line) <= 100);
    }
  });
}

TEST_CASE("printable: characters stay, everything else becomes a question mark") {
  CHECK(topology::printable("A·é漢\U0001F600") == "A·é漢\U0001F600");
  CHECK(topology::printable(std::string("a\0b", 3)) == "a?b");
  CHECK(topology::printable("\xc0\xaf") == "?");          // too long for "/"
  CHECK(topology::printable("\xed\xa0\x80") == "?");      // half of a pair of UTF-16
  CHECK(topology::printable("\xe2\x82") == "??");         // cut
  CHECK(topology::printable("\xf4\x90\x80\x80") == "?");  // beyond Unicode
  CHECK(topology::printable("\xef\xbf\xbf") == "?");      // no character, and forbidden in XML
}

TEST_CASE("wrapped, ranges_text, short_figure, bytes_text: small texts") {
  CHECK(topology::wrapped("aaa bbb ccc", 7) == "aaa bbb\n  ccc\n");
  CHECK(topology::wrapped("aaaaaaaaaa b", 4, 2, 1) == "  aaaaaaaaaa\n b\n");
  CHECK(topology::wrapped("", 4) == "\n");
  CHECK(topology::ranges_text({0, 1, 2, 3, 6, 8, 9}) == "0-3,6,8,9");
  CHECK(topology::ranges_text({}).empty());
  CHECK(topology::short_figure(0.356) == "0.36");
  CHECK(topology::short_figure(34.94) == "34.9");
  CHECK(topology::short_figure(345.6) == "346");
  CHECK(topology::bytes_text(8) == "8 B");
  CHECK(topology::bytes_text(65536) == "64 KiB");
  CHECK(topology::bytes_text(1536LL << 20) == "1.5 GiB");
}

}  // namespace
