// Writes pages of made-up comparisons, and their documents beside them, for a browser: write_comparisons FOLDER.
#include <filesystem>
#include <fstream>
#include <iostream>

#include "runtime/report/compare/comparing.hpp"
#include "tests/runtime/compare/report_pair.hpp"

namespace {

using namespace shardscope;
using test::a_known_point;

/// Three runs, hostile names, verdicts of each kind, a point that one lacks.
std::vector<runtime::ReadReport> three_runs() {
  const auto rows = [](double factor, bool last) {
    std::vector<runtime::PointResult> points;
    for (const int tp : {1, 2, 4}) {
      for (const int64_t batch : {1, 8}) {
        if (!last && tp == 4 && batch == 8) continue;
        const double scale = tp == 2 ? factor : tp == 4 ? 1 / factor : 1;
        points.push_back(a_known_point(tp, {.ideal = 12.0 / tp,
                                            .matrices = 1,
                                            .transfer = tp == 1 ? 0 : 0.8 * scale,
                                            .wait = tp == 1 ? 0 : 2 * scale - 1.5}));
        points.back().workload.batch = batch;
      }
    }
    return points;
  };
  return {test::a_report("before", rows(1, true)),
          test::a_report("</script><img src=x onerror=alert(1)>", rows(2, true), {.commit = "<i>x</i>"}),
          test::a_report("third", rows(1.5, false), {.threads = 2})};
}

/// A rehearsal of which no collectives are known.
std::vector<runtime::PointResult> rehearsed(double ms) {
  std::vector<runtime::PointResult> points = {a_known_point(2, {.ideal = ms})};
  points[0].kind = runtime::FigureKind::kRehearsed;
  points[0].rehearsal = runtime::Rehearsal{.collective_model = "none known: compute only"};
  points[0].ranks.resize(1);
  return points;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "write_comparisons FOLDER\n";
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  const auto write = [&](const std::string& name, const std::vector<runtime::ReadReport>& reports) {
    const runtime::Json document = runtime::comparison_json(runtime::compare_reports(reports), reports);
    std::ofstream(folder / (name + ".html")) << runtime::comparison_page(document);
    std::ofstream(folder / (name + ".json")) << runtime::document_text(document);
  };
  write("clouds", test::two_clouds());
  write("three", three_runs());
  write("rehearsed", {test::a_report("a", rehearsed(10)), test::a_report("b", rehearsed(15))});
  write("none", {test::a_report("a", {a_known_point(1, {.ideal = 10})}),
                 test::a_report("b", {a_known_point(2, {.ideal = 10})})});
  return 0;
}
