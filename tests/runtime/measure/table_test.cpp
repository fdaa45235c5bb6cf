#include <catch2/catch.hpp>

#include "runtime/report/table.hpp"
#include "runtime/report/table_text.hpp"
#include "tests/support/points.hpp"

using namespace shardscope::runtime;
using shardscope::test::a_point;
using shardscope::test::with_speedups;

namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string line_of(const std::string& text, size_t line) {
  size_t begin = 0;
  while (line-- > 0) begin = text.find('\n', begin) + 1;
  return text.substr(begin, text.find('\n', begin) - begin);
}

/// The greatest that a terminal is likely to see.
PointResult an_extreme_point(double factor) {
  PointResult point{.tp = 1024};
  point.workload = {.batch = 4096, .prompt_tokens = 100000, .output_tokens = 100000};
  point.communicator = "nccl-symmetric";
  const Interval bounds = {12345.67 * factor, 12345.67 * factor};
  Distribution d{.n = 123456789};
  for (auto* field : {&d.mean, &d.p50, &d.p90, &d.p95, &d.p99, &d.min, &d.max, &d.stddev}) *field = 12345.67 * factor;
  for (auto* field : {&d.mean_interval, &d.p50_interval, &d.p95_interval, &d.p99_interval}) *field = bounds;
  point.tpot_ms = point.itl_ms = d;
  for (auto* field : {&d.mean, &d.p50, &d.p90, &d.p95, &d.p99, &d.min, &d.max, &d.stddev}) *field = 1234567.8 * factor;
  for (auto* field : {&d.mean_interval, &d.p50_interval, &d.p95_interval, &d.p99_interval}) {
    *field = {1234567.8 * factor, 1234567.8 * factor};
  }
  point.ttft_ms = point.latency_ms = d;
  for (auto* field : {&point.throughput_tokens_per_s, &point.requests_per_s, &point.cold_ttft_ms, &point.end_to_end_ms,
                      &point.prefill_tflops_per_s, &point.mfu_prefill}) {
    *field = 1234567.8 * factor;
  }
  for (auto* field : {&point.mbu, &point.mbu_achievable}) *field = Spread{1.0, 1.2, 12.34};
  point.text_cost = TextCost{123.4, 123.4};
  point.noise = {.relative = 12.345, .pass_shift = 12.345};
  point.speedup = 1234.5;
  point.efficiency = 12.345;
  point.warm_ups = {{30, 0.1, false}, {30, 0.1, false}};
  point.outliers = {1000, 1000, 1000, 1000, {1000, 1000, 1000, 1000}};
  return point;
}

}  // namespace

TEST_CASE("scale_table: header, units, and one row a point") {
  auto points = with_speedups({a_point(1, 9.9), a_point(2, 4.9)});
  points[0].itl_ms.p99 = 345.25;
  points[0].throughput_tokens_per_s = 100;
  points[1].throughput_tokens_per_s = 200;
  points[1].noise.relative = 0.0214;
  CHECK(scale_table(points) ==
        "TP  batch  TTFT p50  TPOT p50     ±  ITL p99  tokens  per rank     MBU  speedup  effic.\n"
        "                 ms        ms     %       ms     1/s       1/s  % ach.        x       %\n"
        "1       1     10.00     10.00  open    345.2   100.0     100.0  50..60     1.00     100\n"
        "2       1      5.00      5.00   2.1      n/a   200.0     100.0  50..60     2.00     100\n");
}

TEST_CASE("scale_table: columns that only some runs have") {
  std::vector<PointResult> points = {a_point(1, 9.9), a_point(2, 4.9)};
  CHECK_FALSE(contains(scale_table(points), "p95"));
  CHECK_FALSE(contains(scale_table(points), "% peak"));
  CHECK_FALSE(contains(scale_table(points), "out"));
  SECTION("p95, where one row supports it") {
    points[1].tpot_ms.p95_supported = true;
    const std::string table = scale_table(points);
    CHECK(contains(line_of(table, 0), "TPOT p95"));
    CHECK(contains(line_of(table, 2), "n/a"));  // not in this row
    CHECK(contains(line_of(table, 3), "5.10"));
  }
  SECTION("MBU of the peak") {
    points[1].mbu = Spread{0.21, 0.22, 0.23};
    CHECK(contains(line_of(scale_table(points), 1), "% ach.  % peak"));
    CHECK(contains(line_of(scale_table(points), 3), "50..60  21..23"));
  }
  SECTION("share of communication, in percent of TPOT") {
    CHECK_FALSE(contains(scale_table(points), "comm."));
    points[1].comm_share = 0.214;
    std::string table = scale_table(points);
    CAPTURE(table);
    const auto last_of = [&](size_t line) { return line_of(table, line).substr(line_of(table, line).size() - 8); };
    CHECK(last_of(0) == "   comm.");
    CHECK(last_of(1) == "  % TPOT");
    CHECK(last_of(2) == "       -");  // not known of this row
    CHECK(last_of(3) == "      21");
    points[0].comm_share = 0;
    table = scale_table(points);
    CHECK(last_of(2) == "       0");
  }
  SECTION("lengths that vary") {
    points[1].workload.output_tokens = 99;
    CHECK(contains(line_of(scale_table(points), 0), "TP  batch   in  out  TTFT p50"));
    CHECK(contains(line_of(scale_table(points), 1), "tok  tok"));
    CHECK(contains(line_of(scale_table(points), 3), "2       1    8   99 "));
  }
}

TEST_CASE("scale_table: placements have a column, and a line that names their devices, where there are several") {
  using shardscope::topology::Placement;
  std::vector<PointResult> points = {a_point(1, 9.9), a_point(2, 4.9), a_point(2, 7.9)};
  points[0].group.also = {Placement::kBest, Placement::kWorst};
  points[1].group.also = {Placement::kBest};
  points[2].group = {.placement = Placement::kWorst, .places = {0, 2}};
  points[2].verdicts = {"noise: wide"};
  const std::string table = scale_table(with_speedups(points));
  CAPTURE(table);
  CHECK(contains(line_of(table, 0), "TP        place  batch  TTFT p50"));
  CHECK(contains(line_of(table, 2), "1           all      1 "));
  CHECK(contains(line_of(table, 3), "2   linear/best      1 "));
  CHECK(contains(line_of(table, 4), "2         worst      1 "));
  CHECK(contains(table, "\nTP 2: devices of linear/best 0-1; worst 0,2\n"));
  CHECK(contains(table, "\nTP 2 worst, batch 1: noise: wide\n"));
  CHECK_FALSE(contains(table, "TP 1: devices"));
  points.resize(2);
  points[1].group.also = points[0].group.also = {};
  CHECK_FALSE(contains(scale_table(points), "place"));
  CHECK_FALSE(contains(scale_table(points), "devices"));
}

TEST_CASE("scale_table: a verdict of several rows is one line, with the first row's reason") {
  std::vector<PointResult> points = {a_point(1, 9.9), a_point(2, 5), a_point(4, 3)};
  points[0].verdicts = {"noise: one", "outliers: only here"};
  points[1].verdicts = {"noise: two"};
  const auto verdicts = [&] {
    const std::string table = scale_table(points);
    return table.substr(table.find("\n\n") + 2);
  };
  CHECK(verdicts() ==
        "2 of 3 rows (TP 1, batch 1; TP 2, batch 1): noise; TP 1, batch 1: one\n"
        "TP 1, batch 1: outliers: only here\n"
        "(-v and the report have the verdicts of every row)\n");
  points[2].verdicts = {"noise: three"};
  points[0].verdicts = {"noise: one"};
  CHECK(verdicts() ==
        "all rows: noise; TP 1, batch 1: one\n"
        "(-v and the report have the verdicts of every row)\n");
}

TEST_CASE("scale_table: a sweep of many rows stays readable") {
  std::vector<PointResult> points;
  for (const int tp : {1, 2, 4, 8}) {
    for (int64_t batch = 1; batch <= 8; ++batch) {
      for (const int64_t output : {64, 128}) {
        points.push_back(a_point(tp, 5));
        points.back().workload = {.batch = batch, .prompt_tokens = 512, .output_tokens = output};
        if (points.size() > 1) points.back().verdicts = {"noise: the second row says why", "outliers: a few"};
      }
    }
  }
  REQUIRE(points.size() == 64);
  points[40].verdicts.emplace_back("interference: others were at work");
  const std::string table = scale_table(points);
  CHECK(table.substr(table.find("\n\n") + 2) ==
        "63 of 64 rows (TP 1, batch 1, 512 + 128; TP 1, batch 2, 512 + 64; TP 1, batch 2, 512 + 128; and\n"
        "  60 more): noise; TP 1, batch 1, 512 + 128: the second row says why\n"
        "63 of 64 rows (TP 1, batch 1, 512 + 128; TP 1, batch 2, 512 + 64; TP 1, batch 2, 512 + 128; and\n"
        "  60 more): outliers; TP 1, batch 1, 512 + 128: a few\n"
        "TP 4, batch 5, 512 + 64: interference: others were at work\n"
        "(-v and the report have the verdicts of every row)\n");
}

TEST_CASE("scale_table: no line ends within the name of a row") {
  std::vector<PointResult> points = {a_point(1, 5), a_point(2, 5)};
  for (size_t length = 40; length < 100; ++length) {
    points[1].workload.output_tokens = 99;
    for (PointResult& point : points) point.verdicts = {std::string(length, 'x') + ": why"};
    const std::string table = scale_table(points);
    CAPTURE(table);
    CHECK(contains(table, "TP 1, batch 1, 8 + 4:"));
    CHECK(widest_line(table) <= 100);
  }
}

TEST_CASE("scale_table: a row that cannot be right is marked") {
  PointResult wrong = a_point(2, 5);
  wrong.status = PointStatus::kInvalid;
  wrong.verdicts = {"invalid: MBU 120 %"};
  const std::string table = scale_table({a_point(1, 9.9), wrong});
  CHECK(line_of(table, 2).substr(0, 3) == "1  ");
  CHECK(line_of(table, 3).substr(0, 3) == "2! ");
  CHECK(line_of(table, 4) == "! a utilisation over 100 %: see the verdict");
  CHECK(contains(table, "\nTP 2, batch 1: invalid: MBU 120 %\n"));
  CHECK_FALSE(contains(scale_table({a_point(1, 9.9)}), "!"));
}

TEST_CASE("scale_table: out of memory, visited once, and verdicts") {
  PointResult lost{.tp = 4, .status = PointStatus::kOutOfMemory};
  lost.workload = {.batch = 1, .prompt_tokens = 8, .output_tokens = 4};
  lost.verdicts = {"out_of_memory: needs 1 GB"};
  PointResult half = a_point(2, 5);
  half.status = PointStatus::kIncomplete;
  half.verdicts = {"noise: " + std::string(60, 'x') + " " + std::string(60, 'y')};
  CHECK(scale_table({a_point(1, 9.9), half, lost}) ==
        "TP  batch  TTFT p50  TPOT p50     ±  ITL p99  tokens  per rank     MBU  speedup  effic.\n"
        "                 ms        ms     %       ms     1/s       1/s  % ach.        x       %\n"
        "1       1     10.00     10.00  open      n/a     n/a       n/a  50..60      n/a     n/a\n"
        "2*      1      5.10      5.10  open      n/a     n/a       n/a  50..60      n/a     n/a\n"
        "4       1       OOM\n"
        "* measured once; the second visit is missing\n"
        "\n"
        "TP 2, batch 1: noise: " +
            std::string(60, 'x') + "\n  " + std::string(60, 'y') +
            "\n"
            "TP 4, batch 1: out_of_memory: needs 1 GB\n");
  lost.workload.prompt_tokens = 16;
  CHECK(contains(scale_table({a_point(1, 9.9), lost}), "\nTP 4, batch 1, 16 + 4: out_of_memory: needs 1 GB\n"));
}

TEST_CASE("scale_table: at most 100 columns whatever the figures, per rank goes first, then p95") {
  PointResult wide = an_extreme_point(1);
  wide.tpot_ms.p95_supported = true;
  const auto header_of = [](const PointResult& point) { return line_of(scale_table({point}), 0); };
  CHECK(header_of(wide) ==
        "TP    batch  TTFT p50  TPOT p50       ±  ITL p99   tokens        MBU        MBU  speedup  effic.");
  wide.mbu.reset();
  CHECK(header_of(wide) ==
        "TP    batch  TTFT p50  TPOT p50       ±  TPOT p95  ITL p99   tokens        MBU  speedup  effic.");
  wide.comm_share = 0.5;  // the tail goes before it, and the peak
  CHECK(header_of(wide) ==
        "TP    batch  TTFT p50  TPOT p50       ±  ITL p99   tokens        MBU  speedup  effic.   comm.");
  wide.mbu = Spread{0.5, 0.5, 0.5};
  CHECK(header_of(wide) ==
        "TP   batch TTFT p50 TPOT p50      ± ITL p99  tokens       MBU    MBU speedup effic.  comm.");
  for (const double factor : {1.0, 1e-9, 1e3, 1e300}) {
    for (const bool lengths : {false, true}) {
      for (const bool peak : {false, true}) {
        for (const bool tail : {false, true}) {
          std::vector<PointResult> points = {an_extreme_point(factor), an_extreme_point(factor), a_point(1, 5)};
          points[1].status = PointStatus::kIncomplete;
          if (!lengths) points[2].workload = points[0].workload;
          if (tail) {
            points[0].group.also = {shardscope::topology::Placement::kBest};
            points[1].group.placement = shardscope::topology::Placement::kWorst;
          }
          if (lengths) points[1].workload.output_tokens = int64_t{1} << 24;
          for (PointResult& point : points) {
            if (!peak) point.mbu.reset();
            if (peak != tail) point.comm_share = 0.123 * factor;
            point.tpot_ms.p95_supported = tail;
            point.verdicts = {"noise: " + std::string(250, '='),
                              "interference: ± one word after the other " + std::string(90, '.')};
          }
          const std::string table = scale_table(points);
          CAPTURE(table);
          CHECK(widest_line(table) <= 100);
          for (const char* never_dropped : {"TTFT p50", "TPOT p50", "±", "ITL p99", "tokens", "MBU", "speedup"}) {
            CHECK(contains(line_of(table, 0), never_dropped));
          }
        }
      }
    }
  }
}

TEST_CASE("bench_table: a block a point") {
  PointResult point = a_point(2, 5);
  point.workload = {.batch = 4, .prompt_tokens = 512, .output_tokens = 128};
  point.ttft_ms.p95_interval = {5.1, std::nullopt};
  const std::vector<double> gaps = {4, 5, 6};
  point.itl_ms = dependent_distribution_of(gaps);
  point.tpot_ms.mean_interval = {5.0123, 5.18};
  const std::vector<double> one = {700};
  point.latency_ms = distribution_of(one);
  point.throughput_tokens_per_s = 132.25;
  point.requests_per_s = 1.5;
  point.mbu = Spread{0.1, 0.1, 0.1};
  point.prefill_tflops_per_s = 0.25;
  point.mfu_prefill = 0.125;
  point.cold_ttft_ms = 12.5;
  point.text_cost = TextCost{0.125, 0.25};
  point.end_to_end_ms = 701.5;
  point.warm_ups = {{6, 0.001, true}, {4, std::nullopt, std::nullopt}};
  point.outliers = {0, 0, 1, 1, {}};
  const std::string table = bench_table({point});
  CAPTURE(table);
  CHECK(line_of(table, 0) == "TP 2, batch 4, 512 + 128 tokens: 6 generations, all-reduce shm");
  CHECK(line_of(table, 1).substr(0, 2) == "ms");
  for (const char* name : {"mean", "p50", "p95", "p99"}) CHECK(contains(line_of(table, 1), name));
  CHECK(line_of(table, 2).substr(0, 4) == "TTFT");
  CHECK(contains(line_of(table, 2), "5.10 [5.00, 5.20]"));  // p50 of six: the lowest and the highest
  CHECK(contains(line_of(table, 2), "5.20 [5.10, open)"));
  CHECK(contains(line_of(table, 3), "5.10 [5.01, 5.18]"));
  CHECK(line_of(table, 4).substr(0, 3) == "ITL");
  CHECK(contains(line_of(table, 4), "5.00"));
  CHECK_FALSE(contains(line_of(table, 4), "["));
  CHECK_FALSE(contains(line_of(table, 4), "open"));
  CHECK(contains(line_of(table, 5), "700.0 (open)"));
  CHECK(table.substr(table.find("throughput")) ==
        "throughput 132.2 tokens/s, 1.50 requests/s\n"
        "memory     MBU 50..60 % of achievable, 10 % of peak\n"
        "prefill    0.250 TFLOP/s, MFU 12 %; the very first TTFT, cold: 12.50 ms\n"
        "text       tokenising 0.125 ms and back 0.250 ms a request; end to end 701.5 ms\n"
        "warm-up    6 + 4 generations, steady\n"
        "outliers   2 slow (1 severe), 0 fast (0 severe)\n"
        "verdicts   none\n");
}

TEST_CASE("bench_table: a placement other than linear is named with its devices") {
  PointResult point = a_point(2, 5);
  point.group = {.placement = shardscope::topology::Placement::kBest, .places = {1, 3}};
  CHECK(line_of(bench_table({point}), 0) ==
        "TP 2 best (devices 1,3), batch 1, 8 + 4 tokens: 6 generations, all-reduce shm");
}

TEST_CASE("bench_table: min, max and n where they fit") {
  PointResult point = a_point(1, 5);
  for (auto* d : {&point.ttft_ms, &point.tpot_ms, &point.latency_ms}) *d = {.n = 3, .mean = 1, .p50 = 1, .p95 = 1};
  CHECK(contains(line_of(bench_table({point}), 1), "min"));
  CHECK(contains(bench_table({an_extreme_point(1)}), "1234568 "));
  CHECK_FALSE(contains(line_of(bench_table({an_extreme_point(1)}), 1), "min"));
}

TEST_CASE("bench_table: at most 100 columns whatever the figures, and no interval is lost") {
  for (const double factor : {1.0, 1e-9, 1e-3, 1e3, 1e300}) {
    PointResult point = an_extreme_point(factor);
    point.verdicts = {"noise: " + std::string(250, '='), "invalid: one word after the other, " + std::string(90, '.')};
    const std::string table = bench_table({point, a_point(1, 5)});
    CAPTURE(table);
    CHECK(widest_line(table) <= 100);
    const std::string bound = figure_text(1234567.8 * factor);
    CHECK(contains(table, std::string("[").append(bound).append(", ").append(bound).append("]")));
  }
}

TEST_CASE("bench_table: out of memory, visited once, verdicts") {
  PointResult lost{.tp = 4, .status = PointStatus::kOutOfMemory};
  lost.verdicts = {"out_of_memory: needs 1 GB"};
  CHECK(bench_table({lost}) ==
        "TP 4, batch 1, 0 + 0 tokens: 0 generations\nout of memory\n! out_of_memory: needs 1 GB\n");
  PointResult half = a_point(2, 5);
  half.status = PointStatus::kIncomplete;
  CHECK(contains(bench_table({half}), "(first of two visits)"));
  half.warm_ups = {{1, std::nullopt, std::nullopt}};
  CHECK(contains(bench_table({half}), "warm-up    1 generations, too few to"));
  half.warm_ups = {{6, 0.1, false}, {6, 0, true}};
  CHECK(contains(bench_table({half}), "warm-up    6 + 6 generations, not steady"));
}

TEST_CASE("point_line: one point, complete or not") {
  PointResult point = a_point(2, 5);
  point.throughput_tokens_per_s = 132.34;
  CHECK(point_line(point) == "tp 2, batch 1, 8 + 4 tokens: TTFT 5.10 ms, TPOT 5.10 ms, 132.3 tokens/s");
  point.status = PointStatus::kIncomplete;
  CHECK(point_line(point) ==
        "tp 2, batch 1, 8 + 4 tokens: TTFT 5.10 ms, TPOT 5.10 ms, 132.3 tokens/s (first of two visits)");
  point.status = PointStatus::kOutOfMemory;
  CHECK(point_line(point) == "tp 2, batch 1, 8 + 4 tokens: out of memory");
  point.group = {.placement = shardscope::topology::Placement::kWorst, .places = {0, 2}};
  CHECK(point_line(point) == "tp 2 worst, batch 1, 8 + 4 tokens: out of memory");
}

TEST_CASE("figure_text: short at every size, and the figure next to a limit does not grow") {
  CHECK(figure_text(0.0) == "0.000");
  CHECK(figure_text(0.05278) == "0.053");
  CHECK(figure_text(0.9996) == "1.00");
  CHECK(figure_text(5.078) == "5.08");
  CHECK(figure_text(99.996) == "100.0");
  CHECK(figure_text(345.24) == "345.2");
  CHECK(figure_text(9999.96) == "10000");
  CHECK(figure_text(1234567.8) == "1234568");
  CHECK(figure_text(1.2e9) == "1.2e+09");
  CHECK(figure_text(-5.078) == "-5.08");
  CHECK(figure_text(std::optional<double>()) == "n/a");
}

TEST_CASE("bytes_text: three digits and a decimal unit") {
  CHECK(bytes_text(0) == "0 B");
  CHECK(bytes_text(999) == "999 B");
  CHECK(bytes_text(1000) == "1 kB");
  CHECK(bytes_text(1.234e9) == "1.23 GB");
  CHECK(bytes_text(999.9e9) == "1 TB");
  CHECK(bytes_text(2.5e16) == "25 PB");
}

TEST_CASE("wrapped: at spaces, indented, and a long word is cut between characters") {
  CHECK(wrapped("short") == "short\n");
  CHECK(wrapped(std::string(100, 'a')) == std::string(100, 'a') + "\n");
  CHECK(wrapped(std::string(50, 'a') + " " + std::string(50, 'b')) ==
        std::string(50, 'a') + "\n  " + std::string(50, 'b') + "\n");
  CHECK(wrapped(std::string(88, 'a') + " took 12.4 milliseconds") ==
        std::string(88, 'a') + " took\n  12.4 milliseconds\n");
  CHECK(wrapped(std::string(95, '1') + " " + std::string(50, 'b')) ==
        std::string(95, '1') + "\n  " + std::string(50, 'b') + "\n");
  CHECK(wrapped(std::string(98, 'a') + " b" + kNoBreak + "c") == std::string(98, 'a') + "\n  b c\n");
  CHECK(wrapped(std::string("b") + kNoBreak + "c") == "b c\n");
  CHECK(wrapped(std::string(101, 'a')) == std::string(100, 'a') + "\n  a\n");
  std::string long_word;
  for (int i = 0; i < 150; ++i) long_word += "é";
  const std::string cut = wrapped(long_word);
  CHECK(widest_line(cut) == 100);
  CHECK(cut.substr(0, 201) == long_word.substr(0, 200) + "\n");
  CHECK(cut.substr(201) == "  " + long_word.substr(200) + "\n");
}

TEST_CASE("shards_table: at most 100 columns for the largest models and lengths") {
  const OpenedModel model = open_model({.model = "llama3.1-405b", .headers_only = true});
  const Workload workload{.batch = 4096, .prompt_tokens = 100000, .output_tokens = 10000};
  const std::string table = shards_table(model, {1, 8, 1024}, workload, decoder_options({workload}, 512, {}));
  CHECK(widest_line(table) <= 100);
  CHECK(contains(table, "tp 1024\n"));
}
