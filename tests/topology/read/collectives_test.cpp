// Tables of all-reduce figures: every recorded file as INDEX.md describes it, and made-up ones.
#include <algorithm>
#include <cmath>

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

/// Rounded to a tenth, as INDEX.md gives them.
double tenth(double value) {
  return std::round(value * 10) / 10;
}

double median(std::vector<double> values) {
  REQUIRE_FALSE(values.empty());
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

struct Run {
  std::string file;
  size_t rows;
  int gpus;
  int64_t first, last;
  double median_to_4_kib, at_16_kib, at_128_kib, at_1_mib;  // us; 0: INDEX.md has none
  double last_busbw;
  bool complete = true;
};

/// INDEX.md, "nccl-tests"; number of GPUs by the files' names.
const std::vector<Run> kRuns = {
    {"azure-ndv4-8xa100-40gb-superbench", 34, 8, 0, 8589934592, 34.9, 36.2, 41.2, 74.8, 235.3},
    {"rtx4090-8gpu-sys-p2p-unavailable", 25, 8, 8, 134217728, 42.5, 43.1, 67.3, 222.8, 14.4},
    {"rtx4090-8gpu-sys-p2p-patched-driver", 25, 8, 8, 134217728, 41.2, 43.2, 72.0, 216.1, 20.6},
    {"digitalocean-h100-sxm-2gpu", 21, 2, 1024, 1073741824, 14.2, 12.2, 15.6, 26.3, 358.4},
    {"onprem-8xv100-16gb-cube-mesh-old-format", 25, 8, 8, 134217728, 48.6, 50.4, 56.6, 89.3, 129.1},
    {"gcp-a4-highgpu-8xb200-short-format", 12, 8, 8388608, 17179869184, 0, 0, 0, 0, 845.4},
    {"kaggle-2xt4-shm-4-rows", 4, 2, 8, 134217728, 16.4, 0, 0, 300.8, 4.0},
    {"h200-vm-4gpu-2rows", 2, 4, 1073741824, 1074790400, 0, 0, 0, 0, 353.4, false},
};

}  // namespace

TEST_CASE("read_nccl_tests: recorded runs are what INDEX.md says", "[nccl-tests]") {
  for (const Run& run : kRuns) {
    INFO(run.file);
    const Topology topology = recorded(fmt::format("nccl-tests/{}.txt", run.file));
    CHECK(name_of(topology.source) == "nccl-tests");
    CHECK(topology.complete == run.complete);
    CHECK(topology.gpu_count == run.gpus);
    CHECK(topology.gpus.size() == static_cast<size_t>(run.gpus));
    CHECK_FALSE(topology.links);
    CHECK_FALSE(topology.nics_known);
    REQUIRE(topology.measurements.size() == run.rows);
    CHECK(topology.measurements.front().bytes == run.first);
    CHECK(topology.measurements.back().bytes == run.last);
    CHECK(std::abs(*topology.measurements.back().busbw_gb_per_s - run.last_busbw) <= 0.0501);
    std::vector<double> small;
    for (const Measurement& each : topology.measurements) {
      CHECK(name_of(each.kind) == "allreduce");
      CHECK(each.gpu_count == run.gpus);
      CHECK(each.algorithm == "NCCL");
      CHECK_FALSE(each.from);
      CHECK_FALSE(each.p2p);
      if (*each.bytes <= 4096) small.push_back(*each.time_us);
      if (run.at_16_kib > 0 && each.bytes == 16384) CHECK(tenth(*each.time_us) == run.at_16_kib);
      if (run.at_128_kib > 0 && each.bytes == 131072) CHECK(tenth(*each.time_us) == run.at_128_kib);
      if (run.at_1_mib > 0 && each.bytes == 1048576) CHECK(tenth(*each.time_us) == run.at_1_mib);
    }
    if (run.median_to_4_kib > 0) CHECK(std::abs(median(small) - run.median_to_4_kib) <= 0.0501);
  }
}

TEST_CASE("read_nccl_tests: names, bus ids and what cuts a run", "[nccl-tests]") {
  const Topology h100 = recorded("nccl-tests/digitalocean-h100-sxm-2gpu.txt");
  CHECK(h100.gpus[1].name == "NVIDIA H100 80GB HBM3");
  CHECK(h100.gpus[1].pci_bus_id == "0000:3b:00.0");
  const Topology v100 = recorded("nccl-tests/onprem-8xv100-16gb-cube-mesh-old-format.txt");
  CHECK(v100.gpus[7].name == "Tesla V100-SXM2-16GB");
  CHECK(v100.gpus[7].pci_bus_id.empty());  // "0xdc": no domain
  CHECK(warned(recorded("nccl-tests/h200-vm-4gpu-2rows.txt"), {"line 15", "1074790400", "2147483648"}));
  CHECK(warned(recorded("nccl-tests/kaggle-2xt4-shm-4-rows.txt"), {"not told", "2 by the ratio"}));
}

TEST_CASE("read_nccl_tests: two runs in one file, P2P on and off", "[nccl-tests]") {
  const Topology topology = recorded("nccl-tests/dgx-a100-4gpu-p2p-on-and-off.txt");
  CHECK(topology.complete);
  CHECK(topology.gpu_count == 4);
  REQUIRE(topology.measurements.size() == 8);
  for (size_t i = 0; i < 8; ++i) {
    CHECK(topology.measurements[i].p2p == (i < 4 ? std::nullopt : std::optional(false)));
    CHECK(topology.measurements[i].gpu_count == 4);
    CHECK(topology.measurements[i].bytes == int64_t{1073741824} << (i % 4));
  }
  CHECK(topology.measurements[2].time_us == 27672);  // out of place; 39252 in place
  CHECK(tenth(*topology.measurements[3].busbw_gb_per_s) == 234.7);
  CHECK(tenth(*topology.measurements[7].busbw_gb_per_s) == 5.2);
}

namespace {

/// "one", "each" or "?": whether one process drove all GPUs; and whether in a graph.
std::string launched(const Measurement& figure) {
  const std::string graph = !figure.graph ? "?" : *figure.graph ? "graph" : "no graph";
  return fmt::format("{}, {}", !figure.one_process ? "?" : *figure.one_process ? "one" : "each", graph);
}

/// Of a text's first figure.
std::string launched(const std::string& text) {
  return launched(taken(topology::read_nccl_tests, text).measurements.front());
}

/// A run as nccl-tests prints it. options: of the second line; processes: of each rank; empty: no list.
std::string run_text(const std::string& command, const std::string& options, const std::vector<int>& processes,
                     int gpus) {
  std::string text = fmt::format("{}\n", command);
  if (!options.empty()) {
    text += fmt::format("# {} minBytes 1048576 maxBytes 1048576 step: 2(factor)\n#\n# Using devices\n", options);
  }
  for (size_t i = 0; i < processes.size(); ++i) {
    text += fmt::format("#  Rank  {0} Group  0 Pid  {1} on host device  {0} [0000:19:00] A GPU\n", i, processes[i]);
  }
  text += "#       size         count      type   redop    root     time   algbw   busbw\n";
  const double algbw = 1048576 / 20e3;
  return text + fmt::format("     1048576        262144     float     sum      -1    20.00   {:.2f}   {:.2f}\n", algbw,
                            algbw * 2 * (gpus - 1) / gpus);
}

}  // namespace

TEST_CASE("read_nccl_tests: how recorded runs were launched", "[nccl-tests]") {
  const std::vector<std::pair<std::string, std::string>> expected = {
      {"azure-ndv4-8xa100-40gb-superbench", "one, ?"},  // from before graphs
      {"rtx4090-8gpu-sys-p2p-unavailable", "one, no graph"},
      {"rtx4090-8gpu-sys-p2p-patched-driver", "one, no graph"},
      {"digitalocean-h100-sxm-2gpu", "one, no graph"},
      {"onprem-8xv100-16gb-cube-mesh-old-format", "one, no graph"},  // by its command
      {"gcp-a4-highgpu-8xb200-short-format", "one, ?"},
      {"kaggle-2xt4-shm-4-rows", "?, ?"},
      {"h200-vm-4gpu-2rows", "one, no graph"},
      {"dgx-a100-4gpu-p2p-on-and-off", "one, no graph"},  // by its command alone
      {"h200-8gpu-python-bench-markdown", "each, ?"},
      {"h200-algo-by-gpu-count-markdown", "?, ?"},
      {"rtxpro6000-4gpu-pcie-oneshot-vs-nccl-small-markdown", "?, ?"},
  };
  for (const auto& [file, how] : expected) {
    INFO(file);
    const Topology topology = recorded(fmt::format("nccl-tests/{}.txt", file));
    for (const Measurement& figure : topology.measurements) CHECK(launched(figure) == how);
  }
}

TEST_CASE("read_nccl_tests: processes, threads and graphs of a run", "[nccl-tests]") {
  const std::string each = "nThread 1 nGpus 1", all = "nThread 1 nGpus 4";
  // By the list of ranks, which the options of one process do not contradict.
  CHECK(launched(run_text("", each, {7, 8, 9, 10}, 4)) == "each, ?");
  CHECK(launched(run_text("", all, {7, 7, 7, 7}, 4)) == "one, ?");
  CHECK(launched(run_text("", "nThread 1 nGpus 2", {7, 7, 8, 8}, 4)) == "?, ?");  // two processes of two
  CHECK(launched(run_text("", "nThread 4 nGpus 1", {7, 7, 7, 7}, 4)) == "?, ?");  // each its own thread
  // By options, where the ratio of the bandwidths tells how many GPUs took part.
  CHECK(launched(run_text("", each, {}, 4)) == "each, ?");
  CHECK(launched(run_text("", all, {}, 4)) == "one, ?");
  CHECK(launched(run_text("", "nThread 1 nGpus 2", {}, 4)) == "?, ?");
  CHECK(launched(run_text("", "nThread 2 nGpus 2", {}, 4)) == "?, ?");
  CHECK(launched(run_text("", each + " graph: 1", {}, 4)) == "each, graph");
  CHECK(launched(run_text("", each + " graph: 0", {}, 4)) == "each, no graph");
  // By commands.
  CHECK(launched(run_text("$ ./all_reduce_perf -g 4 -b 1M", "", {}, 4)) == "one, no graph");
  CHECK(launched(run_text("$ ./all_reduce_perf -b 1M --ngpus=4 -G 10", "", {}, 4)) == "one, graph");
  CHECK(launched(run_text("$ ./all_reduce_perf -b 1M -g4 -G0 | tee log; date -G 1 -t 8", "", {}, 4)) ==
        "one, no graph");
  CHECK(launched(run_text("$ mpirun -np 4 all_reduce_perf -b 1M", "", {}, 4)) == "each, no graph");
  CHECK(launched(run_text("$ mpirun -np 2 all_reduce_perf -b 1M -g 2", "", {}, 4)) == "?, no graph");
  CHECK(launched(run_text("$ ./all_reduce_perf -b 1M -g 4 -t 2", "", {}, 4)) == "?, no graph");
  // What stands elsewhere is not told: in a variable, on the next line, in a sentence.
  CHECK(launched(run_text("$ ./all_reduce_perf -g 4 $MORE", "", {}, 4)) == "?, ?");
  CHECK(launched(run_text("$ ./all_reduce_perf -b 1M \\", "", {}, 4)) == "?, ?");
  CHECK(launched(run_text("With all_reduce_perf I see this:", "", {}, 4)) == "?, ?");
}

TEST_CASE("read_nccl_tests: a run that failed, or another collective, is an error", "[nccl-tests]") {
  CHECK_THROWS_WITH(recorded("nccl-tests/h200-vm-4gpu-cuda-failure-no-rows.txt"),
                    Contains("Test CUDA failure") && Contains("line 14"));
  std::string text = recorded_text("nccl-tests/digitalocean-h100-sxm-2gpu.txt");
  text.replace(text.find("all_reduce"), 10, "all_gather");
  CHECK_THROWS_WITH(topology::read_nccl_tests({.text = text, .file = "f"}), Contains("all_gather_perf"));
  const size_t rows = text.find("        1024");
  CHECK_THROWS_AS(topology::read_nccl_tests({.text = std::string_view(text).substr(0, rows), .file = "f"}), UserError);
}

TEST_CASE("read_nccl_tests: figures that contradict each other are left out", "[nccl-tests]") {
  const std::string whole = recorded_text("nccl-tests/azure-ndv4-8xa100-40gb-superbench.txt");
  for (const auto& [good, bad] :
       std::vector<std::pair<std::string, std::string>>{{"63896", "6389"},
                                                        {" 2147483648   float", " 214748364   float"},
                                                        {"235.26", "235.2"},
                                                        {"134.44", "13.44"}}) {
    INFO(bad);
    std::string text = whole;
    text.replace(text.rfind(good), good.size(), bad);
    const Topology topology = taken(topology::read_nccl_tests, text);
    CHECK_FALSE(topology.complete);
    CHECK(topology.gpu_count == 8);
    CHECK(topology.measurements.size() == 33);
    CHECK(warned(topology, {"line 50", "left out"}));
  }
  std::string missing = whole;
  const size_t begin = missing.find("       65536 "), end = missing.find('\n', begin);
  missing.erase(begin, end - begin + 1);
  CHECK(warned(taken(topology::read_nccl_tests, missing), {"sizes between 32768 and 131072"}));
  // A rank's line lost: the ratio of bandwidths tells.
  std::string ranks = whole;
  ranks.erase(ranks.find("#   Rank  7"), ranks.find('\n', ranks.find("#   Rank  7")) - ranks.find("#   Rank  7") + 1);
  const Topology cut = taken(topology::read_nccl_tests, ranks);
  CHECK(cut.gpu_count == 8);
  CHECK_FALSE(cut.complete);
}

TEST_CASE("read_collective_table: recorded tables are what INDEX.md says", "[collective-table]") {
  const Topology sizes = recorded("nccl-tests/h200-8gpu-python-bench-markdown.txt");
  CHECK(name_of(sizes.source) == "collective-table");
  CHECK(sizes.complete);
  CHECK(sizes.gpu_count == 8);
  REQUIRE(sizes.measurements.size() == 20);
  for (size_t i = 0; i < 20; ++i) {
    const Measurement& each = sizes.measurements[i];
    CHECK(each.bytes == int64_t{32768} << i);
    CHECK(each.gpu_count == 8);
    CHECK(*each.time_us == Approx(static_cast<double>(*each.bytes) / (*each.gb_per_s * 1000)));
  }
  CHECK(sizes.measurements[0].gb_per_s == 0.82);
  CHECK(sizes.measurements[19].busbw_gb_per_s == 482.26);

  const Topology counts = recorded("nccl-tests/h200-algo-by-gpu-count-markdown.txt");
  CHECK(counts.gpu_count == 8);
  REQUIRE(counts.measurements.size() == 5);
  for (int i = 0; i < 5; ++i) {
    const Measurement& each = counts.measurements[static_cast<size_t>(i)];
    CHECK(each.gpu_count == 4 + i);
    CHECK(each.algorithm == (i == 0 ? "Ring" : "NVLS"));
    CHECK_FALSE(each.bytes);
    CHECK_FALSE(each.time_us);
  }
  CHECK(counts.measurements[4].busbw_gb_per_s == 473.1);
  CHECK(warned(counts, {"NVLS off", "left out"}));

  const Topology times = recorded("nccl-tests/rtxpro6000-4gpu-pcie-oneshot-vs-nccl-small-markdown.txt");
  CHECK(times.complete);
  CHECK_FALSE(times.gpu_count);
  CHECK(times.gpus.empty());
  REQUIRE(times.measurements.size() == 20);  // 10 rows, two algorithms
  CHECK(times.measurements[0].algorithm == "PCIe oneshot");
  CHECK(times.measurements[0].bytes == 1024);
  CHECK(times.measurements[0].time_us == 6.1);
  CHECK(times.measurements[11].algorithm == "NCCL");
  CHECK(times.measurements[11].bytes == 65536);
  CHECK(times.measurements[11].time_us == 71.2);  // the outlier
  CHECK(times.measurements[19].bytes == 1048576);
}

TEST_CASE("read_collective_table: decimal sizes, odd cells, tables of other things", "[collective-table]") {
  const Topology decimal =
      taken(topology::read_collective_table, "| Size | NCCL (ms) |\n|---|---|\n| 100 KB | 0.5 |\n| 10 KiB | 0.25 |\n");
  REQUIRE(decimal.measurements.size() == 2);
  CHECK(decimal.measurements[0].bytes == 100000);
  CHECK(decimal.measurements[0].time_us == 500);
  CHECK(decimal.measurements[1].bytes == 10240);
  const Topology odd =
      taken(topology::read_collective_table,
            "| size | busbw | algbw |\n|--|--|--|\n| 1MiB | 17.5Gbps | 10GBps |\n| 2MiB | 35GBps | 20GBps "
            "|\n| 4MiB | 70GBps | 60GBps |\n| 6MiB | 52.5GBps | 30GBps |\n| 8MiB | 140GBps | 80GB");
  CHECK_FALSE(odd.complete);
  REQUIRE(odd.measurements.size() == 2);
  CHECK(odd.measurements[0].bytes == 2 << 20);
  CHECK(odd.gpu_count == 8);  // 35 / 20 = 2 x 7/8
  CHECK(warned(odd, {"line 3", "Gbps"}));
  CHECK(warned(odd, {"line 5", "contradict"}));
  CHECK(warned(odd, {"line 7", "cut"}));
  for (const char* const text : {"| Model | TPOT (ms) |\n|---|---|\n| 8B | 5 |\n", "no table", "| a |\n|---|\n", ""}) {
    CHECK_FALSE(topology::read_collective_table({.text = text, .file = "f"}));
  }
  CHECK_THROWS_AS(topology::read_collective_table({.text = "| size | busbw |\n|--|--|\n", .file = "f"}), UserError);
}
