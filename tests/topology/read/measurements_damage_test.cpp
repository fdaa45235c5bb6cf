// Damage to recorded tables and XML: only UserError may come out, in time, and no figure that the whole does not hold.
#include <ctime>
#include <random>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "tests/topology/topologies.hpp"

using namespace shardscope;
using namespace shardscope::test;
using topology::Measurement;
using topology::SourceText;
using topology::Topology;

namespace {

constexpr std::clock_t kMostTime = 20 * CLOCKS_PER_SEC;  // of this process; sanitizers take ten times as long

const std::vector<std::string> kTables = {
    "nccl-tests/azure-ndv4-8xa100-40gb-superbench.txt",
    "nccl-tests/dgx-a100-4gpu-p2p-on-and-off.txt",
    "nccl-tests/digitalocean-h100-sxm-2gpu.txt",
    "nccl-tests/gcp-a4-highgpu-8xb200-short-format.txt",
    "nccl-tests/h200-8gpu-python-bench-markdown.txt",
    "nccl-tests/h200-algo-by-gpu-count-markdown.txt",
    "nccl-tests/h200-vm-4gpu-2rows.txt",
    "nccl-tests/kaggle-2xt4-shm-4-rows.txt",
    "nccl-tests/onprem-8xv100-16gb-cube-mesh-old-format.txt",
    "nccl-tests/rtxpro6000-4gpu-pcie-oneshot-vs-nccl-small-markdown.txt",
    "p2p/nvbandwidth-gh200-480gb-v0.6-superbench.txt",
    "p2p/p2pbw-2x-rtx4090-narrow-pcie-links.txt",
    "p2p/p2pbw-8x-rtx4090-p2p-unavailable.txt",
    "p2p/p2pbw-8xh100-sxm-cut-in-enabled-matrix.txt",
    "p2p/p2pbw-wrx90-8x-rtxpro6000-3switch-bidir.txt",
    "p2p/p2pmark-asus-esc8000a-8x8-unidirectional-utf8-dash.txt",
};

const std::vector<std::string> kXml = {
    "nccl-xml/alibaba-2xa100-1cx6-dump.xml",
    "nccl-xml/aws-p5.48xl-topo-2026-gpu-no-nvlink.xml",
    "nccl-xml/azure-ncv4-topo-pairs.xml",
    "nccl-xml/azure-ncv4-graph.xml",
    "nccl-xml/hwloc-dgx-spark-gb10-no-nvlink.xml",
    "nccl-xml/hwloc-power8-4xp100-cuda-nvml-nvlinkbandwidth.xml",
    "nccl-xml/vm-8xh200-passthrough-dump-truncated-nvswitch-hidden.xml",
};

/// By whichever of the readers takes it; nullopt where none does, or it is refused.
std::optional<Topology> read(const std::string& text) {
  for (const auto reader :
       {topology::read_xml, topology::read_nccl_tests, topology::read_nvbandwidth, topology::read_p2p_bandwidth_test,
        topology::read_p2pmark, topology::read_collective_table}) {
    try {
      if (std::optional<Topology> topology = reader({.text = text, .file = "damaged"})) return topology;
    } catch (const UserError&) {
      return std::nullopt;
    }
  }
  return std::nullopt;
}

using Figure = std::tuple<Measurement::Kind, int, int, int64_t, double, double, double>;

std::multiset<Figure> figures_of(const Topology& topology) {
  std::multiset<Figure> figures;
  for (const Measurement& each : topology.measurements) {
    figures.insert({each.kind, each.from.value_or(-1), each.to.value_or(-1), each.bytes.value_or(-1),
                    each.time_us.value_or(-1), each.gb_per_s.value_or(-1), each.busbw_gb_per_s.value_or(-1)});
  }
  return figures;
}

/// The damaged text's figures are all among the whole's, and a number of GPUs that is another's is not told as certain.
/// Of two runs in a text, the second may be missing as a whole. whole_line: nothing is left of the damaged line, which
/// not every table shows.
void check_honest(const std::string& name, const std::string& text, const Topology& whole, size_t at,
                  bool whole_line = false) {
  const std::optional<Topology> part = read(text);
  if (!part) return;
  INFO(name << " at " << at << "\n" << text);
  const std::multiset<Figure> known = figures_of(whole), told = figures_of(*part);
  REQUIRE(std::includes(known.begin(), known.end(), told.begin(), told.end()));
  const bool largest_count = name.find("by-gpu-count") != std::string::npos;  // that the table happens to have
  if (part->complete && !largest_count) REQUIRE((!part->gpu_count || part->gpu_count == whole.gpu_count));
  const bool whole_run = name.find("p2p-on-and-off") != std::string::npos && told.size() == 4;
  // Nothing ends a Markdown table.
  const size_t end = text.find_last_not_of('\n');
  const bool whole_rows = name.find("markdown") != std::string::npos && end != std::string::npos && text[end] == '|';
  if (told.size() == known.size() || whole_line || whole_run || whole_rows) return;
  REQUIRE((!part->complete || !part->warnings.empty() || part->source != whole.source));
}

}  // namespace

TEST_CASE("readers of tables: a text cut anywhere tells no figure that the whole does not", "[cut]") {
  for (const std::string& name : kTables) {
    const std::string text = recorded_text(name);
    const std::optional<Topology> whole = read(text);
    REQUIRE(whole);
    for (size_t cut = 0; cut < text.size(); ++cut) {
      // With and without the newline that an editor adds.
      check_honest(name, text.substr(0, cut), *whole, cut);
      const bool integers = name.find("wrx90") != std::string::npos;  // where a lost digit leaves no trace
      if (cut % 3 == 0 && !integers) check_honest(name, text.substr(0, cut) + "\n", *whole, cut);
    }
  }
}

TEST_CASE("readers of tables: a line cut anywhere tells no figure that the whole does not", "[cut]") {
  for (const std::string& name : kTables) {
    if (name.find("wrx90") != std::string::npos) continue;  // integers: a lost digit leaves no trace
    const std::string text = recorded_text(name);
    const std::optional<Topology> whole = read(text);
    REQUIRE(whole);
    for (size_t cut = 0; cut < text.size(); cut += 2) {
      const size_t end = std::min(text.find('\n', cut), text.size());
      const size_t begin = text.find_last_of('\n', cut == 0 ? 0 : cut - 1);
      const std::string_view left = std::string_view(text).substr(begin == std::string::npos ? 0 : begin, cut - begin);
      const bool whole_line = left.find_first_not_of(" \n") == std::string_view::npos;
      check_honest(name, text.substr(0, cut) + text.substr(end), *whole, cut, whole_line);
    }
  }
}

TEST_CASE("readers: any damage gives a topology or UserError, in time", "[mutation]") {
  std::vector<std::string> texts;
  for (const std::vector<std::string>* const names : {&kTables, &kXml}) {
    for (const std::string& name : *names) texts.push_back(recorded_text(name));
  }
  for (unsigned seed = 0; seed < 3000; ++seed) {
    std::mt19937 random(seed);
    std::string text = texts[seed % texts.size()];
    const auto below = [&](size_t count) {
      return std::uniform_int_distribution<size_t>(0, std::max<size_t>(count, 1) - 1)(random);
    };
    const size_t changes = 1 + below(6);
    for (size_t change = 0; change < changes; ++change) {
      const size_t at = below(text.size()), length = std::min(text.size() - at, below(200));
      switch (below(7)) {
        case 0:  // a piece lost
          text.erase(at, length);
          break;
        case 1:  // a piece twice
          text.insert(at, text.substr(at, length));
          break;
        case 2:  // a byte changed
          if (!text.empty()) text[at] = static_cast<char>(below(256));
          break;
        case 3:  // cells or lines fused
          text.erase(std::remove(text.begin() + static_cast<ptrdiff_t>(at),
                                 text.begin() + static_cast<ptrdiff_t>(at + length), below(2) == 0 ? ' ' : '\n'),
                     text.begin() + static_cast<ptrdiff_t>(at + length));
          break;
        case 4:  // a piece of another file
          text.insert(at, texts[below(texts.size())].substr(0, length));
          break;
        case 5:  // numbers beyond all bounds
          text.insert(at, std::string(below(40), '9'));
          break;
        case 6:
          text.insert(at, std::string(below(4), "<>\"'|\0&#"[below(8)]));
          break;
      }
    }
    INFO("seed " << seed);
    const std::clock_t begin = std::clock();
    std::optional<Topology> topology;
    REQUIRE_NOTHROW(topology = read(text));
    CHECK(std::clock() - begin < kMostTime);
    if (!topology) continue;
    REQUIRE(topology->gpus.size() == static_cast<size_t>(topology->gpu_count.value_or(0)));
    REQUIRE(topology->gpus.size() <= 64);
    if (!topology->complete) REQUIRE_FALSE(topology->warnings.empty());
    REQUIRE_NOTHROW(topology::understand(*topology));
  }
}

TEST_CASE("readers: large texts are read or refused in time", "[mutation]") {
  const auto repeated = [](const std::string& text) {
    std::string large;
    while (large.size() < (2U << 20)) large += text;
    return large;
  };
  std::string head = "D\\D";
  for (int i = 0; i < 64; ++i) head += fmt::format(" {}", i);
  const std::string row = "        1024           256     float     sum      -1    15.75    0.07    0.07      0\n";
  for (const std::string& text : {
           repeated(head + "\n"),
           repeated(head),
           repeated("\n"),
           repeated(" "),
           repeated("<!--"),
           repeated("| a "),
           repeated("Running x.\nmemcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)\n0 1\n"),
           repeated("GPU0 GPU1\n"),
           repeated("Device: 0, A, pciBusID: 1, pciDeviceID: 0, pciDomainID:0\n") + "P2P Connectivity Matrix\n",
           repeated("# nThread 1 nGpus 8 step: 2(factor)\n"),
           "#  size count type redop root time algbw busbw #wrong\n" + repeated(row),
           repeated("Device=0 CAN Access Peer Device=1\n") + "P2P=Enabled Matrix\n",
           repeated("#   Rank  0 Pid 1 on h device  0 [0x00] A\n"),
           fmt::format("<system {}", repeated("a=\"\" ")),
           fmt::format("<system>{}", repeated("<")),
           fmt::format("<topology>{}", repeated("<object type=\"NUMANode\">")),
           repeated("|size|busbw|\n|--|--|\n"),
       }) {
    INFO(text.substr(0, 80));
    const std::clock_t begin = std::clock();
    REQUIRE_NOTHROW(read(text));
    CHECK(std::clock() - begin < kMostTime);
  }
}
