// The findings' table and text.
#include <algorithm>

#include <catch2/catch.hpp>

#include "kernels/base/error.hpp"
#include "runtime/report/doctor_report.hpp"
#include "runtime/report/table_text.hpp"

using namespace shardscope;
using namespace shardscope::runtime;

namespace {

std::vector<Finding> some_findings() {
  return {
      {.check = "cores", .verdict = Verdict::kOk, .evidence = "2 ranks on 2 cores", .remedy = ""},
      {.check = "locked memory", .verdict = Verdict::kWarning, .evidence = "64 KiB", .remedy = "ulimit -l unlimited"},
      {.check = "ACS", .verdict = Verdict::kUnknown, .evidence = "root's alone", .remedy = "run as root"},
      {.check = "driver", .verdict = Verdict::kProblem, .evidence = "none is loaded", .remedy = "modprobe nvidia"},
      {.check = "clocks", .verdict = Verdict::kProblem, .evidence = "held down", .remedy = "cool it"}};
}

TEST_CASE("doctor_table: the worst first, each remedy below its evidence, and a count") {
  CHECK(doctor_table(some_findings(), 80) ==
        "verdict  check          evidence\n"
        "problem  driver         none is loaded\n"
        "         -> modprobe nvidia\n"
        "problem  clocks         held down\n"
        "         -> cool it\n"
        "warning  locked memory  64 KiB\n"
        "         -> ulimit -l unlimited\n"
        "unknown  ACS            root's alone\n"
        "         -> run as root\n"
        "ok       cores          2 ranks on 2 cores\n"
        "\n"
        "2 problems, 1 warning, 1 unknown, 1 ok\n");
  CHECK(doctor_table({}, 80) == "verdict  check  evidence\n\nnothing was checked\n");
}

TEST_CASE("doctor_table: long evidence and remedies are broken at spaces, to the columns asked for") {
  std::string words;
  for (int i = 0; i < 60; ++i) words += "word" + std::to_string(i) + " ";
  const std::vector<Finding> findings = {
      {.check = "peer access", .verdict = Verdict::kProblem, .evidence = words + "\nnext line", .remedy = words}};
  for (const size_t columns : {80U, 100U}) {
    const std::string text = doctor_table(findings, columns);
    CHECK(widest_line(text) <= columns);
    CHECK(widest_line(text) > columns - 10);
    CHECK(text.find("word59 next line") != std::string::npos);
  }
  // A word that is wider than the page stands whole: it may be an address to copy.
  const std::string address(200, 'x');
  const std::string page = doctor_table(
      std::vector<Finding>{
          {.check = "a", .verdict = Verdict::kOk, .evidence = "see " + address + " there", .remedy = ""}},
      80);
  CHECK(page.find(address) != std::string::npos);
}

TEST_CASE("findings among ranks: through text and back, whatever bytes are in them") {
  const std::vector<Finding> findings = some_findings();
  CHECK(findings_of_text(findings_text(findings)) == findings);
  CHECK(findings_of_text(findings_text({})).empty());
  CHECK_THROWS_AS(findings_of_text("[{}]"), BugError);
  CHECK_THROWS_AS(findings_of_text("nonsense"), BugError);
  CHECK_THROWS_AS(findings_of_text(R"([{"check": "a", "verdict": "fine", "evidence": "b", "remedy": null}])"),
                  BugError);
  std::vector<Finding> odd = findings;
  odd[0].evidence = "cut \xe2\x82";
  CHECK(findings_of_text(findings_text(odd))[0].evidence == "cut ");
}

}  // namespace
