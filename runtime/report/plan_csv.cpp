// A plan as lines for a spreadsheet: those of any report, and what only predictions have.
#include <string_view>

#include <fmt/format.h>

#include "runtime/report/csv.hpp"
#include "runtime/report/csv_line.hpp"
#include "runtime/report/plan_report.hpp"

namespace shardscope::runtime {

std::string plan_csv(const PlanReport& report) {
  constexpr std::string_view kEnd = "\r\n";
  const std::string& model = report.model.config.name;
  std::string text;
  for (const PredictedRow& row : report.plan.rows) {
    const auto bound = [](const std::optional<Bounds>& bounds, double Bounds::*end) {
      return bounds ? std::optional((*bounds).*end) : std::nullopt;
    };
    CsvLine more;
    more.number("fits", std::optional(row.fits()));
    more.number("tpot_ms_low", bound(row.tpot_ms, &Bounds::low));
    more.number("tpot_ms_high", bound(row.tpot_ms, &Bounds::high));
    more.number("ttft_ms_low", bound(row.ttft_ms, &Bounds::low));
    more.number("ttft_ms_high", bound(row.ttft_ms, &Bounds::high));
    more.number("latency_ms_low", bound(row.latency_ms, &Bounds::low));
    more.number("latency_ms_high", bound(row.latency_ms, &Bounds::high));
    more.number("throughput_tokens_per_s_low", bound(row.tokens_per_s, &Bounds::low));
    more.number("throughput_tokens_per_s_high", bound(row.tokens_per_s, &Bounds::high));
    more.number("needed_bytes_per_gpu", std::optional(row.needed_bytes));
    more.number("usable_bytes_per_gpu", std::optional(row.gpu_bytes));
    const std::string header = points_csv({}, model, report.machine.name);
    const std::string both = points_csv({row.point}, model, report.machine.name);
    const auto without_end = [&](std::string_view line) {
      return std::string(line.substr(0, line.size() - kEnd.size()));
    };
    if (text.empty()) text = fmt::format("{},{}", without_end(header), more.header());
    text += fmt::format("{},{}", without_end(std::string_view(both).substr(header.size())), more.line());
  }
  return text;
}

}  // namespace shardscope::runtime
