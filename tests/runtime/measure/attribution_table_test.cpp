#include <catch2/catch.hpp>

#include "runtime/report/attribution_table.hpp"
#include "runtime/report/table.hpp"
#include "runtime/report/table_text.hpp"
#include "tests/support/parted_points.hpp"

using namespace shardscope::runtime;
using shardscope::test::a_parted_point;
using shardscope::test::a_point;
using shardscope::test::an_even_point;
using shardscope::test::PartMs;
using shardscope::test::with_losses;

namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::vector<PointResult> two_rows() {
  const PartMs early{.ideal = 3, .matrices = 0.5, .wait = 0.6};
  const PartMs late{.ideal = 3, .matrices = 1, .wait = 0.1};
  return with_losses({an_even_point(1, {.ideal = 6, .matrices = 1, .residual = -0.05}), a_parted_point({early, late})});
}

}  // namespace

TEST_CASE("attribution_table: parts, losses with their shares, and who is waited for") {
  CHECK(attribution_table(two_rows()) ==
        "where TPOT goes: ms, means of the ranks, and % of TPOT below them\n"
        "TP  batch  TPOT  ideal  matrices   attn  small  transfer   wait   head   gaps   resid\n"
        "             ms     ms        ms     ms     ms        ms     ms     ms     ms      ms\n"
        "1       1  6.95   6.00      1.00  0.000  0.000     0.000  0.000  0.000  0.000  -0.050\n"
        "              %     86        14      0      0         0      0      0      0      -1\n"
        "2       1  4.10   3.00     0.750  0.000  0.000     0.000  0.350  0.000  0.000   0.000\n"
        "              %     73        18      0      0         0      9      0      0       0\n"
        "ideal: bytes at the read speed that is achievable here; then what is above it: matrices (products of\n"
        "  weights), attn (attention), small (look-up, norms); transfer, wait: in all-reduces, once the last\n"
        "  rank has come and until then; head: LM head and sampling; gaps: between operations; resid: what\n"
        "  the parts leave unexplained\n"
        "\n"
        "what is lost against ideal scaling, TPOT - TPOT of the base x base / TP: ms, and % of the loss below\n"
        "  them\n"
        "TP  batch  base   loss  ideal  matrices   attn  small  transfer   wait   head   gaps  resid\n"
        "                    ms     ms        ms     ms     ms        ms     ms     ms     ms     ms\n"
        "2       1  TP 1  0.625  0.000     0.250  0.000  0.000     0.000  0.350  0.000  0.000  0.025\n"
        "                     %      0        40      0      0         0     56      0      0      4\n"
        "\n"
        "TP 2, batch 1: rank 1 is waited for: it waits 0.100 ms of a step, the other 0.600 ms\n");
}

TEST_CASE("attribution_table: only rows that have an attribution, and no table without") {
  auto points = two_rows();
  points[0].attribution.reset();
  points = with_losses(points);
  const std::string table = attribution_table(points);
  CHECK(contains(table, "\n2       1  4.10"));
  CHECK_FALSE(contains(table, "\n1       1"));
  CHECK_FALSE(contains(table, "what is lost"));
  CHECK(attribution_table({a_point(1, 5)}).empty());
  CHECK(attribution_table({}).empty());
}

TEST_CASE("attribution_table: a loss within the noise has no shares") {
  auto points = two_rows();
  points[1].noise.low_ms = 3.4;
  const std::string table = attribution_table(points);
  CHECK(contains(table, "                     %    n/a       n/a    n/a"));
  CHECK(contains(table, "n/a: a loss that is not beyond the noise of the two rows\n"));
  CHECK_FALSE(contains(attribution_table(two_rows()), "n/a"));
}

TEST_CASE("attribution_table: many rows go without shares") {
  std::vector<PointResult> points;
  for (int64_t batch = 1; batch <= 9; ++batch) {
    for (const PointResult& point : two_rows()) {
      points.push_back(point);
      points.back().workload.batch = batch;
    }
  }
  const std::string table = attribution_table(with_losses(points));
  CHECK(table.substr(0, table.find('\n')) == "where TPOT goes: ms, means of the ranks");
  CHECK(contains(table, "\n2       9  4.10"));
  CHECK(contains(table, "% of the loss below"));  // nine rows
}

TEST_CASE("attribution_table: at most 100 columns whatever the figures, and no part is lost") {
  for (const double factor : {1e-9, 1e-3, 1.0, 1e3, 1e6, 1e300}) {
    const PartMs parts{12.3 * factor, -1.2 * factor, 5 * factor, 6 * factor, 7 * factor,
                       8 * factor,    9 * factor,    1 * factor, 2 * factor};
    std::vector<PointResult> points = {an_even_point(1, parts), an_even_point(8, parts), an_even_point(8, parts)};
    points[0].group.also = {shardscope::topology::Placement::kWorst};
    points[2].group.placement = shardscope::topology::Placement::kWorst;
    points[2].workload = {.batch = 4096, .prompt_tokens = 100000, .output_tokens = 100000};
    const std::string table = attribution_table(with_losses(points));
    CAPTURE(table);
    CHECK(widest_line(table) <= 100);
    for (const char* name :
         {"ideal", "matrices", "attn", "small", "transfer", "wait", "head", "gaps", "resid", "loss", "base"}) {
      CHECK(contains(table, name));
    }
  }
}

TEST_CASE("scale_table: where time goes stands below what must be known of the rows") {
  auto points = two_rows();
  points[1].verdicts = {"noise: wide"};
  const std::string table = scale_table(points);
  REQUIRE(contains(table, "\nTP 2, batch 1: noise: wide\n\nwhere TPOT goes"));
  CHECK(table.rfind("TP  batch  TTFT p50", 0) == 0);
}

TEST_CASE("rank_parts_line: one rank's parts") {
  const PointResult point = a_parted_point({{.ideal = 3, .matrices = 1}, {.ideal = 4}});
  CHECK(rank_parts_line(point, point.ranks[0]) ==
        "ideal 3.00, matrices 1.00, attn 0.000, small 0.000, transfer 0.000, wait 0.000, head 0.000, gaps 0.000, resid "
        "0.000 ms");
  CHECK(rank_parts_line(point, RankFigures{}).empty());
}
