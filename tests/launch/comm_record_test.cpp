#include "launch/comm_record.hpp"

#include <catch2/catch.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "tests/support/sum_rows.hpp"

using namespace shardscope;
using namespace shardscope::launch;
using Catch::Matchers::Contains;
using test::sum_row_of;
namespace fs = std::filesystem;

namespace {

struct Folder {
  fs::path path;

  Folder() {
    std::string name = (fs::temp_directory_path() / "comm-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path = fs::canonical(name);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { fs::remove_all(path); }

  std::string file(const std::string& name) const { return (path / name).string(); }
};

runtime::Json document(const std::string& file) {
  std::ifstream in(file);
  return runtime::Json::parse(in);
}

/// A run of three sums that says nothing while it works.
struct Run {
  CommRecord record;
  explicit Run(const SweepFiles& names, bool emulated = false)
      : record({.header = {.command = "comm"}, .emulated = emulated}, CommFiles(names), ProgressMode::kNever, 3) {}

  void add(int64_t bytes, int64_t wrong = 0) {
    std::vector<runtime::SumRow> rows = {sum_row_of(2, bytes, "shm", 1), sum_row_of(2, bytes, "mpi", 2)};
    rows[1].wrong = wrong;
    record.add(rows);
  }
};

}  // namespace

TEST_CASE("CommRecord: rows stand in .partial until the files have their names") {
  const Folder folder;
  const std::string json = folder.file("r.json"), csv = folder.file("r.csv");
  Run run({.json = json, .csv = csv, .resume = {}});
  CHECK(fs::is_empty(folder.path));
  run.add(1024);
  CHECK(document(json + ".partial").at("complete") == false);
  CHECK(document(json + ".partial").at("rows").size() == 2);
  CHECK(fs::exists(csv + ".partial"));
  run.add(2048);
  CHECK(document(json + ".partial").at("rows").size() == 4);
  run.record.complete();
  run.record.finish();
  CHECK(document(json).at("complete") == true);
  CHECK(document(json).at("rows").size() == 4);
  CHECK_FALSE(fs::exists(json + ".partial"));
  CHECK_FALSE(fs::exists(csv + ".partial"));
}

TEST_CASE("CommRecord: an interruption keeps what is measured, marked, and says where") {
  const Folder folder;
  const std::string json = folder.file("r.json");
  Run run({.json = json, .csv = {}, .resume = {}});
  run.add(1024);
  run.record.tick("something");
  CHECK(run.record.interrupted("SIGINT") ==
        fmt::format("interrupted by SIGINT, 1 of 3 sums measured, they stand in {}.partial", json));
  const runtime::Json kept = document(json + ".partial");
  CHECK(kept.at("complete") == false);
  CHECK(kept.at("warnings").back() == "interrupted by SIGINT");
  run.add(2048);  // too late
  run.record.complete();
  run.record.finish();
  CHECK(document(json + ".partial") == kept);
  CHECK_FALSE(fs::exists(json));
}

TEST_CASE("CommRecord: an interruption before the first row, or without a file, says so") {
  Run run({});
  CHECK(run.record.interrupted("SIGTERM") == "interrupted by SIGTERM, nothing was measured yet");
  Run other({});
  other.add(1024);
  CHECK_THAT(other.record.interrupted("SIGTERM"), Contains("1 of 3 sums measured, nothing was kept: --json FILE"));
}

TEST_CASE("CommRecord: after a failure the rows so far are kept and named") {
  const Folder folder;
  const std::string csv = folder.file("r.csv");
  Run run({.json = {}, .csv = csv, .resume = {}});
  CHECK(run.record.failed().empty());
  run.add(1024);
  CHECK(run.record.failed() == fmt::format("1 of 3 sums are kept in {}.partial", csv));
  Run without({});
  without.add(1024);
  CHECK(without.record.failed().empty());
}

TEST_CASE("CommRecord: rows of an earlier run are not overwritten") {
  const Folder folder;
  const std::string json = folder.file("r.json");
  std::ofstream(json + ".partial") << "something";
  CHECK_THROWS_WITH(Run({.json = json, .csv = {}, .resume = {}}), Contains("earlier run") && Contains("remove it"));
}

TEST_CASE("CommRecord: wrong sums end the command with what, where and in which way") {
  Run run({});
  run.add(1024);
  CHECK_NOTHROW(run.record.refuse_wrong());
  run.add(2048, 17);
  CHECK_THROWS_AS(run.record.refuse_wrong(), SystemError);
  CHECK_THROWS_WITH(run.record.refuse_wrong(), Contains("17 elements of 2048 bytes of fp32 by mpi") &&
                                                   Contains("TP 2") && Contains("--allreduce"));
}

TEST_CASE("CommRecord: rows of stand-ins for devices say so") {
  Run run({}, true);
  run.add(1024);
  CHECK(runtime::Json::parse(run.record.json_text()).at("rows")[0].at("kind") == "emulated");
}

TEST_CASE("CommRecord: ways that are left out are in the report") {
  Run run({});
  run.record.leave_out({{2, "shm", "of several hosts"}});
  CHECK(runtime::Json::parse(run.record.json_text()).at("left_out")[0].at("why") == "of several hosts");
}
