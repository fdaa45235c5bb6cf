#include "runtime/plan/calibration_files.hpp"

#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "kernels/base/error.hpp"
#include "tests/runtime/report_page/made_up_reports.hpp"
#include "topology/catalogue.hpp"
#include "topology/device_peaks.hpp"

namespace shardscope::runtime {
namespace {

using Catch::Matchers::Contains;

std::string recorded(const std::string& name) {
  std::ifstream in(std::filesystem::path(SHARDSCOPE_TEST_DATA) / "topologies/nccl-tests" / name);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Rows of comm: 2 ranks, NCCL at 10 us and one-shot at 4 us up to 4 KiB, then 20 and 40 us.
Json comm_document() {
  Json rows = Json::array();
  for (const int64_t bytes : {1024, 4096, 65536}) {
    for (const char* way : {"nccl", "one-shot", "two-shot"}) {
      const bool small = bytes < 65536;
      const double us = std::string(way) == "nccl" ? (small ? 10 : 20) : (small ? 4 : 40);
      for (const bool graph : {false, true}) {
        rows.push_back({{"kind", "measured"},
                        {"tp", 2},
                        {"bytes", bytes},
                        {"algorithm", way},
                        {"graph", graph},
                        {"time_us", {{"p50", graph ? us : 5 * us}}},
                        {"wrong", 0}});
      }
    }
  }
  return {{"schema", "shardscope.comm/1"}, {"complete", true}, {"rows", rows}};
}

OwnMeasurements read(const std::vector<std::pair<std::string, std::string>>& files, const char* name = "aws-p4de") {
  const topology::Machine* found = topology::find_machine(name);
  REQUIRE(found != nullptr);
  const PlanMachine machine{
      .name = name, .gpu = topology::find_device_peaks(found->gpu), .topology = topology::topology_of(*found)};
  std::vector<CalibrationText> texts;
  for (const auto& [file, text] : files) texts.push_back({.text = text, .file = file});
  return read_calibration(texts, machine, plan_constants(), plan_calibration(), "gpt-fast");
}

std::string refusal(const std::vector<std::pair<std::string, std::string>>& files, const char* name = "aws-p4de") {
  try {
    read(files, name);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

const SumTable& table_of(const OwnMeasurements& own, const std::string& way) {
  for (const SumTable& table : own.sums) {
    if (table.way == way) return table;
  }
  throw BugError("no such table");
}

TEST_CASE("read_calibration: comm's rows by the fastest way, from graphs where there are any") {
  const OwnMeasurements own = read({{"comm.json", comm_document().dump()}});
  REQUIRE(own.sums.size() == 2);
  CHECK(table_of(own, "nccl").us == std::map<int64_t, double>{{1024, 10}, {4096, 10}, {65536, 20}});
  CHECK(table_of(own, "one-shot").us == std::map<int64_t, double>{{1024, 4}, {4096, 4}, {65536, 40}});
  CHECK(table_of(own, "nccl").ranks == 2);
  CHECK_THAT(own.notes.at(0), Contains("comm.json") && Contains("residuals") && Contains("fewer than three sizes"));
  CHECK_FALSE(own.overhead_us);
  Json wrong = comm_document();
  for (Json& row : wrong["rows"]) {
    if (row["algorithm"] == "one-shot" || row["algorithm"] == "two-shot") row["wrong"] = 3;
  }
  CHECK(read({{"comm.json", wrong.dump()}}).sums.size() == 1);  // sums that are wrong are no measurement of sums
}

TEST_CASE("read_calibration: comm's rows of CPUs, of stand-ins, and of a run cut short are refused") {
  Json document = comm_document();
  document["rows"][0]["algorithm"] = "shm";
  CHECK_THAT(refusal({{"c.json", document.dump()}}), Contains("c.json") && Contains("CPU ranks"));
  document = comm_document();
  document["rows"][0]["kind"] = "emulated";
  CHECK_THAT(refusal({{"c.json", document.dump()}}), Contains("only what was measured"));
  document = comm_document();
  document["complete"] = false;
  CHECK_THAT(refusal({{"c.json", document.dump()}}), Contains("not complete"));
}

TEST_CASE("read_calibration: nccl-tests of one process say so, and do not mix with one process for each GPU") {
  const std::string name = "azure-ndv4-8xa100-40gb-superbench.txt";
  const OwnMeasurements own = read({{name, recorded(name)}});
  REQUIRE(own.sums.size() == 1);
  CHECK(own.sums[0].ranks == 8);
  CHECK(own.sums[0].us.at(65536) == Approx(37.25).epsilon(0.02));
  CHECK_THAT(own.notes.back(), Contains("one process drives all GPUs"));
  CHECK(own.sums[0].one_process);
  CHECK_THAT(own.notes.front(), Contains("from 1 MiB") && Contains("bus bandwidth"));
  CHECK_THAT(refusal({{name, recorded(name)}, {"comm.json", comm_document().dump()}}),
             Contains(name) && Contains("comm.json") && Contains("launches are part"));
}

TEST_CASE("read_calibration: of two files with sums of as many ranks the faster figures") {
  Json other = comm_document();
  for (Json& row : other["rows"]) {
    if (row["algorithm"] == "nccl") row["time_us"]["p50"] = 7;
  }
  const OwnMeasurements own = read({{"a.json", comm_document().dump()}, {"b.json", other.dump()}});
  CHECK(own.sums.size() == 2);
  CHECK(table_of(own, "nccl").us == std::map<int64_t, double>{{1024, 7}, {4096, 7}, {65536, 7}});
}

TEST_CASE("read_calibration: comm without graphs says so, and without any right sum is refused") {
  Json document = comm_document();
  Json rows = Json::array();
  for (const Json& row : document["rows"]) {
    if (!row["graph"].get<bool>()) rows.push_back(row);
  }
  document["rows"] = rows;
  const OwnMeasurements own = read({{"c.json", document.dump()}});
  CHECK(table_of(own, "nccl").us.at(1024) == 50);
  CHECK_THAT(own.notes.back(), Contains("not replayed from graphs"));
  for (Json& row : document["rows"]) row["wrong"] = 1;
  CHECK_THAT(refusal({{"c.json", document.dump()}}), Contains("c.json") && Contains("no all-reduce"));
}

TEST_CASE("read_calibration: a table without small sums is refused") {
  const std::string name = "gcp-a4-highgpu-8xb200-short-format.txt";
  CHECK_THAT(refusal({{name, recorded(name)}}), Contains(name) && Contains("under 16 KiB") && Contains("-b 1K"));
}

TEST_CASE("read_calibration: a report gives the bandwidth and the overhead of a layer, with residuals") {
  const std::string report = test::big_report().dump();
  const OwnMeasurements own = read({{"scale.json", report}});
  REQUIRE(own.memory_share);
  CHECK(*own.memory_share > 0.3);
  CHECK(*own.memory_share < 1);
  REQUIRE(own.overhead_us);
  CHECK(own.spread.step > 0);
  std::string notes;
  for (const std::string& note : own.notes) notes += note + "\n";
  CHECK_THAT(notes, Contains("overhead of a layer fitted to 36 rows") && Contains("TP 8, batch 1: measured"));
  // Slower rows of the same machine leave more to the overhead.
  constexpr double kSlower = 1.5;
  Json slower = test::big_report();
  const auto scale = [](Json& parts) {
    for (auto& [part, ms] : parts.items()) ms = ms.get<double>() * kSlower;
  };
  for (Json& row : slower["results"]) {
    for (const char* figure : {"mean", "p50"}) row["tpot_ms"][figure] = row["tpot_ms"][figure].get<double>() * kSlower;
    scale(row["attribution"]);
    for (Json& rank : row["ranks"]) scale(rank["attribution"]);
  }
  CHECK(*read({{"slow.json", slower.dump()}}).overhead_us > *own.overhead_us);
}

TEST_CASE("read_calibration: reports of CPUs and of unknown models are refused, and so is any other text") {
  Json report = test::big_report();
  report["environment"]["devices"] = Json::array();
  CHECK_THAT(refusal({{"r.json", report.dump()}}), Contains("worked on CPUs"));
  CHECK_THAT(refusal({{"r.json", test::big_report().dump()}}, "aws-p5"),
             Contains("measured on a100-80gb-sxm") && Contains("the plan is about h100-sxm"));
  CHECK_THAT(refusal({{"r.json", test::nothing_ok_report().dump()}}), Contains("r.json"));
  report = test::big_report();
  report["model"]["name"] = "mine";
  CHECK_THAT(refusal({{"r.json", report.dump()}}), Contains("mine") && Contains("named configuration"));
  CHECK_THAT(refusal({{"x.txt", "nothing"}}), Contains("x.txt"));
}

}  // namespace
}  // namespace shardscope::runtime
