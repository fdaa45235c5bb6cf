#include "launch/sweep_record.hpp"

#include <catch2/catch.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "kernels/base/error.hpp"
#include "tests/support/points.hpp"

using namespace shardscope;
using namespace shardscope::launch;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

struct Folder {
  fs::path path;

  Folder() {
    std::string name = (fs::temp_directory_path() / "record-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path = fs::canonical(name);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { fs::remove_all(path); }

  std::string file(const std::string& name) const { return (path / name).string(); }
};

std::string content(const std::string& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

runtime::Json document(const std::string& file) {
  return runtime::Json::parse(content(file));
}

const SweepKind kKind{.defaults = {.command = "scale", .powers_of_two = true, .protocol = {}},
                      .what_it_does = "",
                      .example = "",
                      .table = [](const std::vector<runtime::PointResult>&) { return std::string(); },
                      .advice = [](const std::vector<runtime::PointResult>&) { return std::vector<std::string>(); }};

/// A run of four points that says nothing while it works.
struct Run {
  SweepArguments arguments;
  runtime::OpenedModel model = runtime::open_model({.model = "tiny"});
  runtime::ReportHeader header{.command = "scale", .argv = {}, .environment = {}};
  std::optional<SweepRecord> record;

  explicit Run(const SweepFiles& files) {
    arguments.model.progress = ProgressMode::kNever;
    arguments.sweep.degrees = {1, 2};
    arguments.sweep.workloads = {{.batch = 1, .prompt_tokens = 8, .output_tokens = 4},
                                 {.batch = 2, .prompt_tokens = 8, .output_tokens = 4}};
    arguments.files = files;
    record.emplace(SweepRecord::Subject{kKind, arguments, model, header}, ReportFiles(arguments),
                   std::vector<std::string>{});
  }

  void tell(const std::vector<runtime::PointResult>& points) { record->progress().points(points, {}); }
};

std::string refusal(const SweepFiles& files) {
  try {
    Run run(files);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

const std::vector<runtime::PointResult>& one_point() {
  static const std::vector<runtime::PointResult> points = {test::a_point(1, 5)};
  return points;
}

}  // namespace

TEST_CASE("ReportFiles: points of an earlier run are not written over by accident") {
  const Folder folder;
  const std::string json = folder.file("r.json");
  const std::string csv = folder.file("r.csv");
  const std::string partial = json + ".partial";
  std::ofstream(partial) << "{}";
  std::ofstream(folder.file("other.partial")) << "{}";
  CHECK(refusal({.json = json}) ==
        partial + " holds points of an earlier run, " + json + ", go on with --resume " + partial + ", or remove it");
  CHECK_THAT(refusal({.json = json, .resume = folder.file("other.partial")}), Contains("--resume " + partial));
  CHECK(refusal({.json = json, .resume = partial}).empty());
  CHECK(refusal({.json = json, .resume = (folder.path / "." / "r.json.partial").string()}).empty());
  CHECK(refusal({.json = folder.file("new.json")}).empty());
  CHECK(content(partial) == "{}");

  std::ofstream(csv + ".partial") << "tp";
  CHECK_THAT(refusal({.csv = csv}), Contains(csv + ".partial holds points") && Contains("or remove it"));
  CHECK(refusal({.json = json, .csv = csv, .resume = partial}).empty());
  CHECK(refusal({.csv = csv, .resume = partial}).empty());
  CHECK(content(csv + ".partial") == "tp");
}

TEST_CASE("SweepRecord: the page is written at the end alone") {
  const Folder folder;
  const std::string html = folder.file("r.html");
  Run run({.html = html});
  run.tell(one_point());
  CHECK_FALSE(fs::exists(html));
  CHECK_FALSE(fs::exists(html + ".partial"));
  run.record->complete(one_point());
  run.record->finish();
  CHECK_THAT(content(html),
             Catch::StartsWith("<!DOCTYPE html>") && Contains("shardscope.report/1") && Contains(R"("complete":true)"));
  CHECK(content(html) == run.record->html_text());
}

TEST_CASE("ReportFiles: a page that cannot be written is told before anything is measured") {
  const Folder folder;
  CHECK_THAT(refusal({.html = folder.file("none/r.html")}), Contains("none"));
  CHECK_THAT(refusal({.html = folder.path.string()}), Contains(folder.path.string()));
}

TEST_CASE("SweepRecord: before the first point nothing is kept") {
  const Folder folder;
  Run run({.json = folder.file("r.json"), .csv = folder.file("r.csv")});
  CHECK(run.record->failed().empty());
  CHECK(run.record->interrupted("SIGINT") == "interrupted by SIGINT, nothing was measured yet");
  CHECK(fs::is_empty(folder.path));
}

TEST_CASE("SweepRecord: a failure names what is kept") {
  const Folder folder;
  Run run({.json = folder.file("r.json")});
  std::vector<runtime::PointResult> points = {test::a_point(1, 5), test::a_point(2, 5)};
  points[1].status = runtime::PointStatus::kIncomplete;
  run.tell(points);
  const std::string partial = folder.file("r.json.partial");
  fs::remove(partial);  // it is written once more
  CHECK(run.record->failed() ==
        "1 of 4 points and the first visit of 1 more are kept in " + partial + "; go on with --resume " + partial);
  CHECK(document(partial)["results"].size() == 2);

  Run without({});
  without.tell(points);
  CHECK(without.record->failed().empty());
}

TEST_CASE("SweepRecord: a disk that takes nothing for a while ends no run, and is told once") {
  const Folder folder;
  const std::string inner = folder.file("inner");
  fs::create_directory(inner);
  const std::string json = inner + "/r.json";
  Run run({.json = json, .csv = inner + "/r.csv"});
  fs::remove(inner);
  CHECK_NOTHROW(run.tell(one_point()));
  CHECK_NOTHROW(run.tell(one_point()));
  CHECK(run.record->failed().empty());  // nothing is kept
  fs::create_directory(inner);
  run.tell(one_point());
  CHECK(document(json + ".partial")["warnings"].size() == 2);  // one for each of the two files
  CHECK(document(json + ".partial")["complete"] == false);
  run.record->complete(one_point());
  run.record->finish();
  const runtime::Json report = document(json);
  CHECK(report["complete"] == true);
  REQUIRE(report["warnings"].size() == 2);
  CHECK_THAT(report["warnings"][0].get<std::string>(), Contains("not kept for now") && Contains(json));
  CHECK_FALSE(fs::exists(json + ".partial"));
  CHECK(run.record->failed().empty());
  CHECK_THAT(run.record->interrupted("SIGINT"), Contains("when all was measured and written"));
}

TEST_CASE("SweepRecord: every file is tried at the end, whatever becomes of the others") {
  const Folder folder;
  const std::string json = folder.file("r.json");
  const std::string csv = folder.file("r.csv");
  Run run({.json = json, .csv = csv});
  run.tell(one_point());
  run.record->complete(one_point());
  SECTION("the first fails") {
    fs::create_directory(json);  // a rename onto a folder fails, also for root
    CHECK_THROWS_WITH(run.record->finish(), Contains(json));
    CHECK_THAT(content(csv), Contains(",ok,"));
    CHECK_THAT(run.record->failed(), Contains("1 of 4 points are kept in " + json + ".partial"));
  }
  SECTION("the second fails") {
    fs::create_directory(csv);
    CHECK_THROWS_WITH(run.record->finish(), Contains(csv));
    CHECK(document(json)["complete"] == true);
    CHECK(run.record->failed().empty());
    CHECK_FALSE(fs::exists(json + ".partial"));
  }
}
