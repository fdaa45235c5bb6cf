#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>

#include "kernels/base/error.hpp"
#include "runtime/report/document.hpp"
#include "runtime/report/report_file.hpp"
#include "runtime/report/table.hpp"

using namespace shardscope;
using namespace shardscope::runtime;

namespace {

PointResult a_point(int tp, double tpot_ms) {
  PointResult point{.tp = tp, .workload = {.batch = 1, .prompt_tokens = 8, .output_tokens = 4}, .communicator = "shm"};
  const std::vector<double> samples = {tpot_ms, tpot_ms + 0.1, tpot_ms + 0.2, tpot_ms, tpot_ms + 0.1, tpot_ms + 0.2};
  point.tpot_ms = distribution_of(samples);
  point.ttft_ms = distribution_of(samples);
  point.mbu_achievable = Spread{.min = 0.5, .mean = 0.55, .max = 0.6};
  for (int rank = 0; rank < tp; ++rank) point.ranks.push_back({.rank = rank, .achievable_gb_per_s = 10});
  return point;
}

std::filesystem::path scratch_file(const char* name) {
  return std::filesystem::temp_directory_path() / (std::string(name) + std::to_string(getpid()));
}

std::string content(const std::filesystem::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

TEST_CASE("report_json: every field of the contract is there, unknown ones null") {
  const OpenedModel model = open_model({.model = "tiny"});
  const SweepOptions options{.workloads = {{.batch = 1, .prompt_tokens = 8, .output_tokens = 4}}};
  std::vector<PointResult> points = {a_point(1, 10), a_point(2, 6)};
  set_speedup(points[1], {points[0]});
  const Json document = report_json({.command = "scale"}, model, options, points, {}, {}, true);
  for (const char* key : {"schema", "command", "argv", "complete", "environment", "topology", "model", "workload",
                          "protocol", "comparable_key", "results", "advice", "warnings"}) {
    CHECK(document.contains(key));
  }
  CHECK(document["schema"] == "shardscope.report/1");
  CHECK(document["topology"].is_null());
  const Json& result = document["results"][1];
  for (const char* key : {"kind",
                          "status",
                          "tp",
                          "pp",
                          "placement",
                          "devices",
                          "batch",
                          "prompt_tokens",
                          "output_tokens",
                          "ttft_ms",
                          "tpot_ms",
                          "itl_ms",
                          "latency_ms",
                          "throughput_tokens_per_s",
                          "requests_per_s",
                          "mbu_nominal",
                          "mbu",
                          "mbu_achievable",
                          "mbu_useful",
                          "cache_resident",
                          "mfu_prefill",
                          "speedup",
                          "efficiency",
                          "comm_share",
                          "attribution",
                          "loss",
                          "ranks",
                          "memory_bytes_per_gpu",
                          "verdicts"}) {
    CAPTURE(key);
    CHECK(result.contains(key));
  }
  for (const char* key : {"mean", "p50", "p90", "p95", "p99", "min", "max", "stddev", "n", "ci95", "supported"}) {
    CHECK(result["tpot_ms"].contains(key));
  }
  CHECK(result["kind"] == "measured");
  CHECK(result["attribution"].is_null());
  CHECK(result["mbu"].is_null());
  CHECK(result["itl_ms"]["p50"].is_null());
  CHECK(result["itl_ms"]["n"] == 0);
  CHECK(result["mbu_achievable"]["max"] == 0.6);
  CHECK(result["ranks"].size() == 2);
  CHECK(result["speedup"].get<double>() == Approx(10.1 / 6.1));
  CHECK(result["tp_base"] == 1);
  CHECK(result["cache_resident"].is_null());
}

namespace {

std::vector<PointResult> with_speedups(std::vector<PointResult> points) {
  for (size_t i = 0; i < points.size(); ++i)
    set_speedup(points[i], {points.begin(), points.begin() + static_cast<long>(i)});
  return points;
}

}  // namespace

TEST_CASE("speedup_advice: one sentence per workload, about the fastest degree") {
  const auto points = with_speedups({a_point(1, 9.9), a_point(2, 4.9), a_point(4, 5.5)});
  CHECK(speedup_advice(points) ==
        std::vector<std::string>{"At batch 1 with 8 + 4 tokens, TP=2 is 2.00x faster than TP=1 (100 % of ideal)."});
  CHECK(speedup_advice({points[0]}).empty());
}

TEST_CASE("speedup_advice: nothing from few samples, shared cores or impossible points; no claim within the noise") {
  auto points = with_speedups({a_point(1, 9.9), a_point(2, 4.9)});
  SECTION("shared cores") {
    points[1].oversubscribed = true;
  }
  SECTION("impossible") {
    points[1].status = PointStatus::kInvalid;
  }
  SECTION("five samples") {
    const std::vector<double> five = {4.9, 5, 5.1, 4.9, 5};
    points[1].tpot_ms = distribution_of(five);
  }
  CHECK(speedup_advice(points).empty());
  const auto close = with_speedups({a_point(1, 5.0), a_point(2, 4.9)});  // 5.0 … 5.2 and 4.9 … 5.1 overlap
  REQUIRE(speedup_advice(close).size() == 1);
  CHECK(speedup_advice(close)[0].find("no degree is faster than TP=1 beyond its noise") != std::string::npos);
}

TEST_CASE("document_text: bytes that are not UTF-8 do not stop a report") {
  CHECK(document_text(Json{{"text", "caf\xc3"}}) == "{\n \"text\": \"caf\"\n}\n");
}

TEST_CASE("report file: the final name appears only when the run is complete") {
  const auto path = scratch_file("shardscope-report-");
  const std::filesystem::path partial = path.string() + ".partial";
  {
    ReportFile file(path.string());
    CHECK_FALSE(std::filesystem::exists(path));
    file.write_partial("one");
    CHECK(content(partial) == "one");
    CHECK_FALSE(std::filesystem::exists(path));
    file.finish("two");
  }
  CHECK(content(path) == "two");
  CHECK_FALSE(std::filesystem::exists(partial));
  std::filesystem::remove(path);
}

TEST_CASE("report file: a link is followed, a pipe or device is written to and stays what it is") {
  const auto real = scratch_file("shardscope-real-");
  const auto link = scratch_file("shardscope-link-");
  std::ofstream(real) << "old";
  std::filesystem::create_symlink(real, link);
  ReportFile(link.string()).finish("new");
  CHECK(std::filesystem::is_symlink(link));
  CHECK(content(real) == "new");
  std::filesystem::remove(link);
  std::filesystem::remove(real);
  ReportFile device("/dev/null");
  device.write_partial("part");
  device.finish("all");
  CHECK(std::filesystem::is_character_file("/dev/null"));
  CHECK_FALSE(std::filesystem::exists("/dev/null.partial"));
  CHECK_THROWS_AS(ReportFile("/dev/full").finish("all"), SystemError);
  CHECK_THROWS_AS(ReportFile(std::string(300, 'x')), UserError);
}

TEST_CASE("report file: a folder that does not exist is refused before anything is measured") {
  CHECK_THROWS_AS(ReportFile("/no/such/folder/report.json"), UserError);
  CHECK_THROWS_AS(ReportFile("/tmp"), UserError);
}

TEST_CASE("scale_table: aligned, within 100 columns, n/a where nothing is known") {
  PointResult lost{.tp = 4, .status = PointStatus::kOutOfMemory};
  lost.verdicts = {"out_of_memory: needs 1 GB"};
  std::vector<PointResult> points = {a_point(1, 12345.678), a_point(2, 6), lost};
  points[0].mbu_achievable.reset();
  const std::string table = scale_table(points);
  CHECK(table.find("n/a") != std::string::npos);
  CHECK(table.find("50..60") != std::string::npos);
  CHECK(table.find("OOM") != std::string::npos);
  CHECK(table.find("out_of_memory: needs 1 GB") != std::string::npos);
  size_t begin = 0;
  while (begin < table.size()) {
    const size_t end = table.find('\n', begin);
    CHECK(end - begin <= 100);
    begin = end + 1;
  }
}

TEST_CASE("shards_json: ranges are half-open and memory is there") {
  const OpenedModel model = open_model({.model = "smollm2-135m"});
  const Json document = shards_json(model, {2, 5}, {.batch = 1, .prompt_tokens = 8, .output_tokens = 8},
                                    {.slots = 1, .max_positions = 16});
  CHECK(document["schema"] == "shardscope.shards/1");
  REQUIRE(document["plans"].size() == 2);
  const Json& first = document["plans"][0]["ranks"][0];
  CHECK(first["query_heads"] == Json::array({0, 5}));
  CHECK(first["kv_heads"] == Json::array({0, 2}));
  CHECK(first["ffn"] == Json::array({0, 768}));
  CHECK(first["memory_bytes"]["weights"].get<int64_t>() > 0);
  CHECK(document["plans"][1]["ranks"].size() == 5);
}
