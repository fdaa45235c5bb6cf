#include <catch2/catch.hpp>

#include "runtime/report/compare/comparing.hpp"
#include "runtime/report/table_text.hpp"
#include "tests/runtime/compare/report_pair.hpp"

using namespace shardscope::runtime;
using shardscope::test::a_known_point;
using shardscope::test::a_report;
using shardscope::test::PartMs;
using shardscope::test::RunFacts;
using shardscope::test::two_clouds;
using shardscope::topology::Placement;

namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::vector<PointResult> two_degrees(double late_ms = 0) {
  const PartMs early{.ideal = 5, .transfer = 0.5, .wait = 0.1 + late_ms};
  const PartMs late{.ideal = 5, .matrices = late_ms, .transfer = 0.5, .wait = 0.1};
  return {a_known_point(1, {.ideal = 10}), a_known_point({early, late})};
}

std::vector<std::string> what_differs(const std::vector<ReadReport>& reports) {
  std::vector<std::string> what;
  for (const auto& difference : report_differences(reports)) what.push_back(difference.what);
  return what;
}

size_t place_of(const std::vector<std::string>& list, const std::string& what) {
  return static_cast<size_t>(std::find(list.begin(), list.end(), what) - list.begin());
}

}  // namespace

TEST_CASE("compare_reports: the same run is the same, and nothing differs") {
  const std::vector<ReadReport> reports = {a_report("a", two_degrees()), a_report("b", two_degrees())};
  const ReportComparison comparison = compare_reports(reports);
  CHECK(comparison.differences.empty());
  CHECK(comparison.lone.empty());
  REQUIRE(comparison.points.size() == 2);
  for (const ComparedPoint& pair : comparison.points) CHECK(pair.verdict != PointVerdict::kSlower);
  CHECK(contains(comparison.summary, "The runs do not differ in anything that the reports tell."));
}

TEST_CASE("compare_reports: a slower rank, with who waits for it") {
  const std::vector<ReadReport> reports = {a_report("before", two_degrees()),
                                           a_report("after", two_degrees(1.5), {.commit = "fedcba9"})};
  const ReportComparison comparison = compare_reports(reports);
  CHECK(comparison.summary ==
        "after against before: of 2 points slower at 1 (1.27x the TPOT), unclear at 1. Most at TP=2, batch "
        "1 with 8 + 4 tokens: +1.50 ms: 50 % products of weights, 50 % waiting for rank 1.");
  REQUIRE(comparison.differences.size() == 1);
  CHECK(comparison.differences[0].what == "commit");
  CHECK(comparison.differences[0].values == std::vector<std::string>{"0123456", "fedcba9"});
}

TEST_CASE("compare_reports: two clouds' eight A100s, and the first lines explain") {
  const std::vector<ReadReport> reports = two_clouds();
  const ReportComparison comparison = compare_reports(reports);
  const std::string& summary = comparison.summary;
  CAPTURE(summary);
  CHECK(summary.rfind("other-cloud against aws-p4: of 2 points slower at 1 (2.00x the TPOT), ", 0) == 0);
  CHECK(contains(summary, "Most at TP=8, batch 1 with 8 + 4 tokens: +8.00 ms: 100 % all-reduce transfer."));
  CHECK(contains(summary,
                 "For TP=8 aws-p4 is ahead: on aws-p4 every pair of the best eight has 12 NVLinks through "
                 "switches"));
  const std::string text = comparison_text(comparison, reports);
  CHECK(text.rfind("other-cloud against aws-p4: of 2 points slower", 0) == 0);
  const std::vector<std::string> what = what_differs(reports);
  CHECK(what[0] == "class");
  CHECK(place_of(what, "narrowest link of the best 8 GPUs") < place_of(what, "NCCL"));
  CHECK(place_of(what, "NCCL") < place_of(what, "host"));
  CHECK(place_of(what, "host") < what.size());
}

TEST_CASE("report_differences: a CPU against GPUs, and what is unknown to one") {
  const std::vector<ReadReport> reports = {
      a_report("cpu", two_degrees(), {.threads = 2}),
      a_report("gpu", two_degrees(), {.topology_file = "nvidia-smi/aws-p4-8xa100-sxm4-nv12.txt"})};
  const auto differences = report_differences(reports);
  REQUIRE(differences.size() > 4);
  CHECK(differences[0].what == "backend");
  CHECK(differences[1].what == "devices");
  CHECK(differences[1].values == std::vector<std::string>{"unknown", "8 x NVIDIA A100-SXM4-40GB"});
  CHECK(place_of(what_differs(reports), "class") == differences.size());  // the CPU's report has no topology
  CHECK(place_of(what_differs(reports), "threads of a rank") < place_of(what_differs(reports), "NCCL"));
}

TEST_CASE("compare_reports: work that differs comes first, and is said") {
  std::vector<PointResult> more = two_degrees();
  more.push_back(more[0]);
  more.back().workload.batch = 4;
  const std::vector<ReadReport> reports = {a_report("a", two_degrees()), a_report("b", more, {.threads = 2})};
  const ReportComparison comparison = compare_reports(reports);
  CHECK(comparison.incomparable == std::vector<std::string>{"workload.points: 1 value, 2 values"});
  CHECK(comparison.summary.rfind("These reports did not measure the same work", 0) == 0);
  CHECK(comparison.differences.at(0).what == "workload.points");
  CHECK(comparison.differences.at(0).values == std::vector<std::string>{"1 value", "2 values"});
  REQUIRE(comparison.lone.size() == 1);
  CHECK(comparison.lone[0].report == 1);
  CHECK(comparison.lone[0].lacks == 0);
  CHECK(comparison.lone[0].point->workload.batch == 4);
  CHECK(contains(comparison_text(comparison, reports), "\nin [2], not in [1]: TP 1, batch 4\n"));
}

TEST_CASE("compare_reports: points are paired by placement, rows that stand for several with each") {
  std::vector<PointResult> first = two_degrees();
  first[1].group.also = {Placement::kBest};
  std::vector<PointResult> other = two_degrees();
  other[1].group = {.placement = Placement::kBest, .places = {2, 3}};
  other.push_back(other[1]);
  other.back().group = {.placement = Placement::kWorst, .places = {0, 3}};
  const std::vector<ReadReport> reports = {a_report("a", first), a_report("b", other)};
  const ReportComparison comparison = compare_reports(reports);
  REQUIRE(comparison.points.size() == 2);
  CHECK(comparison.points[1].other->group.placement == Placement::kBest);
  REQUIRE(comparison.lone.size() == 1);
  CHECK(comparison.lone[0].point->group.placement == Placement::kWorst);
}

TEST_CASE("compare_reports: replicas are paired with as many replicas, and never with one group") {
  const auto rows = [](double ms, const std::vector<int>& counts) {
    std::vector<PointResult> points;
    for (const int replicas : counts) {
      points.push_back(a_known_point(2, {.ideal = ms}));
      points.back().group.replicas = replicas;
    }
    return points;
  };
  const std::vector<ReadReport> reports = {a_report("a", rows(10, {1, 2, 4})), a_report("b", rows(15, {1, 2, 3}))};
  const ReportComparison comparison = compare_reports(reports);
  REQUIRE(comparison.points.size() == 2);
  CHECK(comparison.points[0].other->group.replicas == 1);
  CHECK(comparison.points[1].first->group.replicas == 2);
  CHECK(comparison.points[1].other->group.replicas == 2);
  CHECK(comparison.points[1].verdict == PointVerdict::kSlower);
  REQUIRE(comparison.lone.size() == 2);
  const Json document = comparison_json(comparison, reports);
  CHECK(document["points"][1]["replicas"] == 2);
  CHECK(document["points"][1]["placements"] == Json({"linear"}));
  CHECK(document["lone_points"][0]["replicas"] == 4);
  CHECK(document["lone_points"][0]["placements"] == Json({"linear"}));
  const std::vector<ReadReport> alone = {a_report("a", rows(10, {2})), a_report("b", rows(15, {2}))};
  CHECK(contains(compare_reports(alone).summary, "Most at TP=2 x 2 replicas, batch 1 with 8 + 4 tokens: +5.00 ms"));
}

TEST_CASE("compare_reports: a transfer and a wait that neither rehearsal knows are no figures") {
  const auto rehearsed = [](double ms) {
    std::vector<PointResult> points = {a_known_point(2, {.ideal = ms})};
    points[0].kind = FigureKind::kRehearsed;
    points[0].rehearsal = Rehearsal{.collective_model = "none known: compute only"};
    points[0].ranks.resize(1);
    return points;
  };
  const std::vector<ReadReport> reports = {a_report("a", rehearsed(10)), a_report("b", rehearsed(15))};
  const ReportComparison comparison = compare_reports(reports);
  REQUIRE(comparison.points.size() == 1);
  const Json document = comparison_json(comparison, reports);
  const Json& explained = document["points"][0]["explained_ms"];
  CHECK(explained["allreduce_transfer"].is_null());
  CHECK(explained["allreduce_wait"].is_null());
  CHECK(explained["ideal_memory"] == 5);
  CHECK(contains(comparison_text(comparison, reports),
                 "2       1   +5.00   5.00     0.000  0.000  0.000       n/a   n/a  0.000  0.000  0.000\n"));
}

TEST_CASE("report_differences: lists of one length value by value, and figures with the digits that tell them apart") {
  std::vector<PointResult> other = two_degrees();
  for (PointResult& point : other) point.workload.batch = 4;
  const auto differences =
      report_differences({a_report("a", two_degrees()), a_report("b", other, {.noise_bound = 0.02000001})});
  REQUIRE(differences.size() == 2);
  CHECK(differences[0].what == "workload.points[0].batch");
  CHECK(differences[0].values == std::vector<std::string>{"1", "4"});
  CHECK(differences[1].what == "protocol.noise_bound");
  CHECK(differences[1].values == std::vector<std::string>{"0.02", "0.02000001"});
}

TEST_CASE("compare_reports: more than two are compared with the first") {
  const std::vector<ReadReport> reports = {a_report("a", two_degrees()), a_report("b", two_degrees(1.5)),
                                           a_report("c", {two_degrees()[0]})};
  const ReportComparison comparison = compare_reports(reports);
  REQUIRE(comparison.points.size() == 3);
  CHECK(comparison.points[0].report == 1);
  CHECK(comparison.points[2].report == 2);
  CHECK(contains(comparison.summary, "b against a: of 2 points slower at 1"));
  CHECK(contains(comparison.summary, "c against a: "));
  const std::string text = comparison_text(comparison, reports);
  CHECK(contains(text, "[3] c\n"));
  CHECK(contains(text, "\nin [1], not in [3]: TP 2, batch 1\n"));
  CHECK(contains(text, "[2] TP 2, batch 1: +1.50 ms: 50 % products of weights"));
}

TEST_CASE("compare_reports: no point in common") {
  const std::vector<ReadReport> reports = {a_report("a", {a_known_point(1, {.ideal = 10})}),
                                           a_report("b", {a_known_point(2, {.ideal = 10})})};
  const ReportComparison comparison = compare_reports(reports);
  CHECK(comparison.points.empty());
  CHECK(comparison.lone.size() == 2);
  CHECK(contains(comparison.summary, "b against a: no point is in both."));
  CHECK(contains(comparison_text(comparison, reports), "in [1], not in [2]: TP 1, batch 1"));
}

TEST_CASE("comparison_text: a row a point, why, and where the difference comes from") {
  const std::vector<ReadReport> reports = {a_report("before", two_degrees()), a_report("after", two_degrees(1.5))};
  const std::string text = comparison_text(compare_reports(reports), reports);
  CAPTURE(text);
  CHECK(contains(text,
                 "[1] before\n"
                 "[2] after\n"
                 "\n"
                 "TP  batch       TPOT [1]       TPOT [2]  change  ratio      within  verdict\n"
                 "                      ms             ms      ms      x           x\n"
                 "1       1  10.00 ± 1.0 %  10.00 ± 1.0 %  +0.000   1.00  0.98..1.02  unclear\n"
                 "2       1   5.60 ± 1.0 %   7.10 ± 1.0 %   +1.50   1.27  1.24..1.29   slower\n"
                 "\n"
                 "TP 2, batch 1: +1.50 ms: 50 % products of weights, 50 % waiting for rank 1\n"
                 "unclear: TP 1, batch 1: the noise leaves 0.98x to 1.02x\n"));
  CHECK(contains(text,
                 "1       1  +0.000  0.000     0.000  0.000  0.000     0.000  0.000  0.000  0.000  0.000\n"
                 "                %    n/a       n/a    n/a    n/a       n/a    n/a    n/a    n/a    n/a\n"
                 "2       1   +1.50  0.000     0.750  0.000  0.000     0.000  0.750  0.000  0.000  0.000\n"
                 "                %      0        50      0      0         0     50      0      0      0\n"));
}

TEST_CASE("comparison_text: at most 100 columns but for names, and hostile names obey") {
  std::vector<ReadReport> reports = two_clouds();
  reports[1].name = "\x1b[31mred";
  reports[1].document["environment"]["kernel"] = "\x1b[0m" + std::string(300, 'k');
  const std::string text = comparison_text(compare_reports(reports), reports);
  CHECK(text.find('\x1b') == std::string::npos);
  CHECK(widest_line(text) <= 120);
}

TEST_CASE("comparison_json: what the schema requires, with parts that sum to the difference") {
  const std::vector<ReadReport> reports = {a_report("before", two_degrees()), a_report("after", two_degrees(1.5))};
  const Json document = comparison_json(compare_reports(reports), reports);
  CHECK(document["schema"] == "shardscope.compare/1");
  CHECK(document["files"] == Json({"before.json", "after.json"}));
  CHECK(document["reports"][1]["commit"] == "0123456");
  REQUIRE(document["points"].size() == 2);
  const Json& point = document["points"][1];
  CHECK(point["verdict"] == "slower");
  CHECK(point["reason"].is_null());
  CHECK(document["points"][0]["reason"] == "the noise leaves 0.98x to 1.02x");
  double sum = 0;
  for (const auto& [name, ms] : point["explained_ms"].items()) sum += ms.get<double>();
  CHECK(sum == Approx(point["difference_ms"].get<double>()));
}

TEST_CASE("comparison_page: one file with the document, whatever names it holds") {
  std::vector<ReadReport> reports = {a_report("before", two_degrees()), a_report("after", two_degrees(1.5))};
  reports[1].name = "</script><b>\"'&";
  const std::string page = comparison_page(comparison_json(compare_reports(reports), reports));
  CHECK(page.rfind("<!DOCTYPE html>", 0) == 0);
  CHECK(contains(page, "id=\"data-comparison\""));
  CHECK_FALSE(contains(page, "</script><b>"));
  CHECK_FALSE(contains(page, "<b>\"'&"));
}
