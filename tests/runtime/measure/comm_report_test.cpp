#include "runtime/report/comm_report.hpp"

#include <catch2/catch.hpp>

#include <sstream>

#include "runtime/report/table_text.hpp"
#include "tests/support/sum_rows.hpp"

using namespace shardscope;
using namespace shardscope::runtime;
using Catch::Matchers::Contains;
using test::sum_row_of;

namespace {

std::vector<std::vector<std::string>> words_of(const std::string& text) {
  std::vector<std::vector<std::string>> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    lines.emplace_back();
    for (std::string word; words >> word;) lines.back().push_back(word);
  }
  return lines;
}

std::vector<SumRow> some_rows() {
  return {sum_row_of(2, 1024, "shm", 1), sum_row_of(2, 1024, "mpi", 2), sum_row_of(2, 65536, "shm", 30),
          sum_row_of(2, 65536, "mpi", 20)};
}

}  // namespace

TEST_CASE("comm_table: the columns of nccl-tests, then p99, wait and transfer") {
  const std::string table = comm_table(some_rows());
  const auto lines = words_of(table);
  CHECK(lines[0] == std::vector<std::string>{"TP", "2,", "fp32"});
  CHECK(lines[1] == std::vector<std::string>{"size(B)", "count", "type", "algorithm", "time(us)", "algbw(GB/s)",
                                             "busbw(GB/s)", "#wrong", "p99", "wait", "transfer"});
  CHECK(lines[2] ==
        std::vector<std::string>{"1024", "256", "fp32", "shm", "1.00", "1.02", "1.02", "0", "1.01", "0.250", "0.750"});
  CHECK(lines[5] == std::vector<std::string>{"65536", "16384", "fp32", "mpi", "20.00", "3.28", "3.28", "0", "20.01",
                                             "5.00", "15.00"});
  CHECK_THAT(table, Contains("TP 2, fp32: shm is the fastest from 1024 B on, mpi from 65536 B on\n"));
  CHECK(widest_line(table) <= kTableColumns);
}

TEST_CASE("comm_table: what few samples do not support is not shown as a percentile") {
  const SumRow few = sum_row({.tp = 2, .count = 256}, "shm", {.sample_us = {1, 2, 3}});
  CHECK(words_of(comm_table(std::vector{few}))[2] ==
        std::vector<std::string>{"1024", "256", "fp32", "shm", "2.00", "0.512", "0.512", "0", "n/a", "n/a", "n/a"});
}

TEST_CASE("comm_table: long names and large sizes keep to the terminal") {
  std::vector<SumRow> rows = {sum_row_of(8, 16 << 20, "nccl-symmetric", 12345)};
  rows[0].sum.graph = true;
  const std::string table = comm_table(rows);
  CHECK(widest_line(table) <= kTableColumns);
  CHECK_THAT(table, Contains("TP 8, fp32, in graphs\n"));
}

TEST_CASE("comm_table: a block for each degree, and one rank has nothing to sum") {
  std::vector<SumRow> rows = {sum_row_of(1, 1024, "none", 0.03)};
  for (const SumRow& row : some_rows()) rows.push_back(row);
  const std::string table = comm_table(rows);
  CHECK_THAT(table, Contains("TP 1, fp32\nsize(B)") && Contains("\n\nTP 2, fp32\nsize(B)"));
  CHECK_THAT(table, Contains("TP 1, fp32: one rank has nothing to sum\n"));
  CHECK(comm_table({}) == "nothing was measured\n");
  rows[0].emulated = true;
  CHECK_THAT(comm_table(rows), Contains("! the devices were emulated: times say nothing\n"));
}

TEST_CASE("comm_table: wrong sums and limits are said") {
  std::vector<SumRow> rows = some_rows();
  CHECK_THAT(comm_table(rows), !Contains("!"));
  rows[1].wrong = 7;
  rows[2].unmet = "0.5 s ended it with 40 samples, not 400";
  const std::string table = comm_table(rows);
  CHECK(words_of(table)[3][7] == "7");
  CHECK_THAT(table, Contains("! TP 2, fp32, 1024 B: the sums of mpi are wrong\n"));
  CHECK_THAT(table, Contains("! 1 of 4 rows ended by a limit before their rule was met, the first: 0.5 s ended it"));
}

TEST_CASE("comm_json: every field of a row, null where nothing is known") {
  CommReport report{.header = {.command = "comm"}, .rows = some_rows(), .left_out = {{2, "ring", "not here"}}};
  report.rows[3].unmet = "a limit";
  report.rows.push_back(sum_row({.tp = 4, .count = 3, .dtype = kernels::DType::kBF16, .graph = true}, "x", {}));
  const Json document = comm_json(report);
  CHECK(document.at("schema") == "shardscope.comm/1");
  CHECK(document.at("complete") == false);
  CHECK(document.at("left_out") == Json::parse(R"([{"tp": 2, "algorithm": "ring", "why": "not here"}])"));
  const Json& rows = document.at("rows");
  REQUIRE(rows.size() == 5);
  const Json& first = rows[0];
  CHECK(first.at("tp") == 2);
  CHECK(first.at("bytes") == 1024);
  CHECK(first.at("count") == 256);
  CHECK(first.at("algorithm") == "shm");
  CHECK(first.at("graph") == false);
  CHECK(first.at("time_us").at("p50") == 1.0);
  CHECK(first.at("wait_us") == 0.25);
  CHECK(first.at("transfer_us") == 0.75);
  CHECK(first.at("wait_from") == "minimum_over_ranks");
  CHECK(first.at("algbw_gb_per_s").get<double>() == Approx(1.024));
  CHECK(first.at("wrong") == 0);
  CHECK(first.at("unmet").is_null());
  CHECK(rows[3].at("unmet") == "a limit");
  const Json& unknown = rows[4];
  CHECK(unknown.at("bytes") == 6);
  CHECK(unknown.at("dtype") == "bf16");
  CHECK(unknown.at("graph") == true);
  for (const char* name : {"wait_us", "transfer_us", "wait_from", "algbw_gb_per_s", "busbw_gb_per_s"})
    CHECK(unknown.at(name).is_null());
  CHECK(unknown.at("time_us").at("p50").is_null());
  report.rows[0].wait_from = WaitFrom::kOwn;
  CHECK(comm_json(report).at("rows")[0].at("wait_from") == "own");
  CHECK(document.at("crossovers").size() == 2);
  CHECK(document.at("crossovers")[1] ==
        Json::parse(R"({"tp": 2, "dtype": "fp32", "graph": false, "from_bytes": 65536, "algorithm": "mpi"})"));
}

TEST_CASE("comm_json: emulated rows say so") {
  CommReport report{.emulated = true, .rows = some_rows()};
  for (SumRow& row : report.rows) row.emulated = true;
  const Json document = comm_json(report);
  CHECK(document.at("protocol").at("kind") == "emulated");
  CHECK(document.at("rows")[0].at("kind") == "emulated");
}

TEST_CASE("comm_csv: a header and a line a row, unsupported percentiles left empty") {
  std::vector<SumRow> rows = some_rows();
  rows.push_back(sum_row({.tp = 2, .count = 256}, "a,b", {.sample_us = {1, 2, 3}}));
  std::istringstream in(comm_csv(rows, "here"));
  std::string header, line;
  std::getline(in, header);
  CHECK_THAT(header, Contains("host,kind,tp,bytes,count,dtype,algorithm,graph,samples") && Contains("time_us_p50,"));
  std::getline(in, line);
  CHECK_THAT(line, Catch::Matchers::StartsWith("here,measured,2,1024,256,fp32,shm,false,401,1,1,"));
  CHECK_THAT(header, Contains(",wait_us,transfer_us,wait_from,"));
  CHECK_THAT(line, Contains(",0.25,0.75,minimum_over_ranks,"));
  CHECK(std::count(line.begin(), line.end(), ',') == std::count(header.begin(), header.end(), ','));
  for (size_t i = 1; i < rows.size(); ++i) std::getline(in, line);
  CHECK_THAT(line, Contains("\"a,b\",false,3,1,2,") && Contains(",,,"));
}

TEST_CASE("sum_line: the ways beside each other") {
  std::vector<SumRow> rows = {sum_row_of(2, 1024, "shm", 1), sum_row_of(2, 1024, "mpi", 2)};
  CHECK(sum_line(rows) == "tp 2, fp32, 1024 B: shm 1.00 us, mpi 2.00 us");
  rows[1].wrong = 4;
  CHECK_THAT(sum_line(rows), Contains("mpi 2.00 us (4 wrong)"));
}
