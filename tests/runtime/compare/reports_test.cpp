#include <catch2/catch.hpp>

#include "kernels/base/error.hpp"
#include "runtime/report/compare/reports.hpp"
#include "tests/runtime/compare/report_pair.hpp"

using namespace shardscope;
using namespace shardscope::runtime;
using shardscope::test::a_known_point;
using shardscope::test::a_report;
using shardscope::test::report_text;

namespace {

/// The message of the UserError that reading throws.
std::string refusal(const std::string& text) {
  try {
    read_report(text, "r.json", "r");
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// The report's text with one field changed.
std::string changed(const std::string& text, const std::string& pointer, const Json& value) {
  Json document = Json::parse(text);
  document[Json::json_pointer(pointer)] = value;
  return document.dump();
}

}  // namespace

TEST_CASE("is_report: by the schema, whole or cut") {
  const std::string text = report_text({a_known_point(1, {.ideal = 10})});
  CHECK(is_report(text));
  CHECK(is_report("\n " + text));
  CHECK(is_report(text.substr(0, text.size() / 2)));
  CHECK(is_report(R"({"schema": "shardscope.report/2"})"));
  CHECK_FALSE(is_report(R"({"schema": "shardscope.topology/1"})"));
  CHECK(is_report(R"({"a": {"schema": 5}, "b": [1.5, null, true, -1], "schema": "shardscope.report/1"})"));
  CHECK_FALSE(is_report(R"({"schema": 5})"));
  CHECK_FALSE(is_report(R"({"schema": {"schema": "shardscope.report/1"}})"));
  CHECK_FALSE(is_report(R"({"report": {"schema": "shardscope.report/1"}, "list": ["shardscope.report/1"]})"));
  CHECK_FALSE(is_report("[]"));
  CHECK_FALSE(is_report(""));
  CHECK_FALSE(is_report("        GPU0 GPU1\n GPU0 X NV12"));
}

TEST_CASE("read_report: what was written") {
  const std::vector<PointResult> points = {a_known_point(1, {.ideal = 10}), a_known_point(2, {.ideal = 5})};
  const ReadReport report =
      a_report("r", points, {.topology_file = "nvidia-smi/aws-p4-8xa100-sxm4-nv12.txt", .noise_bound = 0.01});
  CHECK(report.file == "r.json");
  CHECK(report.points.size() == 2);
  CHECK(report.points[1].attribution == points[1].attribution);
  CHECK(report.noise_bound == 0.01);
  REQUIRE(report.topology);
  CHECK(report.topology->gpu_count == 8);
  CHECK_FALSE(a_report("r", points).topology);
}

TEST_CASE("read_report: other files are refused with file and place") {
  const std::string text = report_text({a_known_point(1, {.ideal = 10})});
  REQUIRE(refusal(text).empty());
  CHECK(contains(refusal(text.substr(0, text.size() / 2)), "r.json"));
  CHECK(contains(refusal(report_text({a_known_point(1, {.ideal = 10})}, {.complete = false})), "did not end"));
  CHECK(contains(refusal(changed(text, "/schema", "shardscope.report/2")), "shardscope.report/2"));
  CHECK(contains(refusal(changed(text, "/results/0/tp", "two")), "results[0]"));
  CHECK(contains(refusal(changed(text, "/results/0/attribution/gaps", 7)), "results[0]"));
  CHECK(contains(refusal(changed(text, "/results", nullptr)), "results"));
  CHECK(contains(refusal(changed(text, "/protocol/noise_bound", -1)), "noise_bound"));
  CHECK(contains(refusal(changed(text, "/protocol", nullptr)), "protocol"));
  const std::string gpus = report_text({}, {.topology_file = "nvidia-smi/aws-p4-8xa100-sxm4-nv12.txt"});
  REQUIRE(refusal(gpus).empty());
  CHECK(contains(refusal(changed(gpus, "/topology/gpu_count", "eight")), "topology"));
}

TEST_CASE("incomparable_facts: what must agree, of any of the others") {
  const std::vector<PointResult> points = {a_known_point(1, {.ideal = 10})};
  std::vector<PointResult> more = points;
  more.push_back(points[0]);
  more[1].workload.batch = 4;
  CHECK(incomparable_facts({a_report("a", points), a_report("b", points, {.commit = "other", .threads = 2})}).empty());
  CHECK(incomparable_facts({a_report("a", points), a_report("b", points), a_report("c", more)}) ==
        std::vector<std::string>{"workload.points: 1 value, 2 values"});
}
