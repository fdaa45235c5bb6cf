#include <algorithm>

#include <fmt/format.h>

#include "runtime/report/comm_report.hpp"
#include "runtime/report/csv_line.hpp"
#include "runtime/report/table.hpp"
#include "runtime/report/table_text.hpp"

namespace shardscope::runtime {
namespace {

using Cells = std::vector<std::string>;

constexpr const char* kColumns =
    "time: median over samples of the slowest rank's; p99 where enough samples support it; wait and transfer: inside a "
    "call, before and after the last rank has come (medians; wait is the mean over the ranks; one-shot and two-shot "
    "note "
    "it themselves, of the others the shortest rank waits for nobody); all in us. busbw: algbw x 2 (ranks - 1) / "
    "ranks.";

bool same_block(const SumCase& a, const SumCase& b) {
  return a.tp == b.tp && a.dtype == b.dtype && a.graph == b.graph;
}

std::string dtype_text(kernels::DType dtype) {
  return std::string(kernels::facts(dtype).name);
}

/// "TP 2, fp32"; modes are told apart where there are any.
std::string block_text(int tp, kernels::DType dtype, bool graph) {
  return fmt::format("TP {}, {}{}", tp, dtype_text(dtype), graph ? ", in graphs" : "");
}

Cells cells_of(const SumRow& row) {
  const std::optional<SumBandwidth>& bandwidth = row.bandwidth;
  return {std::to_string(row.sum.bytes()),
          std::to_string(row.sum.count),
          dtype_text(row.sum.dtype),
          row.way,
          figure_text(row.time_us.p50),
          bandwidth ? figure_text(bandwidth->algbw_gb_per_s) : kUnknown,
          bandwidth ? figure_text(bandwidth->busbw_gb_per_s) : kUnknown,
          std::to_string(row.wrong),
          row.time_us.p99_supported ? figure_text(row.time_us.p99) : kUnknown,
          figure_text(row.wait_us),
          figure_text(row.transfer_us)};
}

std::string block(std::span<const SumRow> rows) {
  std::vector<Cells> lines = {{"size(B)", "count", "type", "algorithm", "time(us)", "algbw(GB/s)", "busbw(GB/s)",
                               "#wrong", "p99", "wait", "transfer"}};
  for (const SumRow& row : rows) lines.push_back(cells_of(row));
  const size_t size_width = std::max_element(lines.begin(), lines.end(),
                                             [](const Cells& a, const Cells& b) { return a[0].size() < b[0].size(); })
                                ->at(0)
                                .size();
  for (Cells& line : lines) line[0] = fmt::format("{:>{}}", line[0], size_width);  // a figure, too
  std::string text = aligned(lines, 2);
  if (widest_line(text) > kTableColumns) text = aligned(lines, 1);
  return text;
}

/// "TP 2, fp32: shm is the fastest from 1024 B on, mpi from 262144 B on".
std::string crossover_text(std::span<const SumRow> rows) {
  const SumCase& sum = rows.front().sum;
  const std::string where = block_text(sum.tp, sum.dtype, sum.graph);
  if (sum.tp == 1) return fmt::format("{}: one rank has nothing to sum\n", where);
  Cells parts;
  for (const Crossover& crossover : crossovers(rows)) {
    parts.push_back(
        fmt::format("{} {}from {} B on", crossover.way, parts.empty() ? "is the fastest " : "", crossover.from_bytes));
  }
  const std::string what = parts.empty() ? "no way summed right" : fmt::format("{}", fmt::join(parts, ", "));
  return wrapped(fmt::format("{}: {}", where, what));
}

/// Calls `visit` with the rows of each degree, type and mode, in their order.
template <typename Visit>
void for_each_block(std::span<const SumRow> rows, const Visit& visit) {
  for (size_t begin = 0; begin < rows.size();) {
    size_t end = begin + 1;
    while (end < rows.size() && same_block(rows[begin].sum, rows[end].sum)) ++end;
    visit(rows.subspan(begin, end - begin));
    begin = end;
  }
}

}  // namespace

std::string comm_table(std::span<const SumRow> rows) {
  if (rows.empty()) return "nothing was measured\n";
  std::string text;
  for_each_block(rows, [&](std::span<const SumRow> part) {
    const SumCase& sum = part.front().sum;
    text += fmt::format("{}\n{}\n", block_text(sum.tp, sum.dtype, sum.graph), block(part));
  });
  text += fmt::format("{}\n", wrapped(kColumns));
  for_each_block(rows, [&](std::span<const SumRow> part) { text += crossover_text(part); });
  const auto cut = std::count_if(rows.begin(), rows.end(), [](const SumRow& row) { return row.unmet.has_value(); });
  if (cut > 0) {
    text += wrapped(fmt::format(
        "! {} of {} rows ended by a limit before their rule was met, the first: {}", cut, rows.size(),
        *std::find_if(rows.begin(), rows.end(), [](const SumRow& row) { return row.unmet.has_value(); })->unmet));
  }
  if (rows.front().emulated) text += "! the devices were emulated: times say nothing\n";
  for (const SumRow& row : rows) {
    if (row.wrong == 0) continue;
    text += wrapped(fmt::format("! {}, {} B: the sums of {} are wrong",
                                block_text(row.sum.tp, row.sum.dtype, row.sum.graph), row.sum.bytes(), row.way));
  }
  return text;
}

std::string comm_csv(std::span<const SumRow> rows, const std::string& host) {
  const auto line_of = [&](const SumRow& row) {
    const std::optional<SumBandwidth>& bandwidth = row.bandwidth;
    CsvLine line;
    line.text("host", host);
    line.text("kind", row.emulated ? "emulated" : "measured");
    line.number("tp", std::optional(row.sum.tp));
    line.number("bytes", std::optional(row.sum.bytes()));
    line.number("count", std::optional(row.sum.count));
    line.text("dtype", dtype_text(row.sum.dtype));
    line.text("algorithm", row.way);
    line.number("graph", std::optional(row.sum.graph));
    line.number("samples", std::optional(row.time_us.n));
    line.number("calls_per_sample", std::optional(row.calls_a_sample));
    line.number("time_us_p50", row.time_us.p50);
    line.number("time_us_p50_low", row.time_us.p50_interval.low);
    line.number("time_us_p50_high", row.time_us.p50_interval.high);
    line.number("time_us_p95", row.time_us.p95_supported ? row.time_us.p95 : std::nullopt);
    line.number("time_us_p99", row.time_us.p99_supported ? row.time_us.p99 : std::nullopt);
    line.number("time_us_mean", row.time_us.mean);
    line.number("wait_us", row.wait_us);
    line.number("transfer_us", row.transfer_us);
    line.text("wait_from", row.wait_from ? wait_from_name(*row.wait_from) : "");
    line.number("algbw_gb_per_s", bandwidth ? std::optional(bandwidth->algbw_gb_per_s) : std::nullopt);
    line.number("busbw_gb_per_s", bandwidth ? std::optional(bandwidth->busbw_gb_per_s) : std::nullopt);
    line.number("wrong", std::optional(row.wrong));
    line.text("unmet", row.unmet.value_or(""));
    return line;
  };
  std::string text = line_of({}).header();
  for (const SumRow& row : rows) text += line_of(row).line();
  return text;
}

std::string sum_line(std::span<const SumRow> rows) {
  const SumCase& sum = rows.front().sum;
  Cells figures;
  for (const SumRow& row : rows) {
    figures.push_back(fmt::format("{} {} us{}", row.way, figure_text(row.time_us.p50),
                                  row.wrong > 0 ? fmt::format(" ({} wrong)", row.wrong) : ""));
  }
  return fmt::format("tp {}, {}{}, {} B: {}", sum.tp, dtype_text(sum.dtype), sum.graph ? ", graph" : "", sum.bytes(),
                     fmt::join(figures, ", "));
}

}  // namespace shardscope::runtime
