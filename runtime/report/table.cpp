#include "runtime/report/table.hpp"

#include <algorithm>
#include <array>
#include <set>

#include <fmt/format.h>

#include "runtime/model/slice.hpp"

namespace shardscope::runtime {
namespace {

std::string cell(const std::optional<double>& value, const char* format, double factor = 1) {
  return value ? fmt::format(fmt::runtime(format), *value * factor) : "n/a";
}

std::string spread_percent(const std::optional<Spread>& spread) {
  if (!spread) return "n/a";
  if (fmt::format("{:.0f}", spread->min * 100) == fmt::format("{:.0f}", spread->max * 100)) {
    return fmt::format("{:.0f}", spread->mean * 100);
  }
  return fmt::format("{:.0f}..{:.0f}", spread->min * 100, spread->max * 100);
}

std::string range_text(Range range) {
  return range.empty() ? "-" : fmt::format("{}..{}", range.begin, range.end - 1);
}

}  // namespace

std::string bytes_text(double bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "kB", "MB", "GB", "TB"};
  size_t unit = 0;
  while (bytes >= 1000 && unit + 1 < kUnits.size()) {
    bytes /= 1000;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.3g} {}", bytes, kUnits[unit]);
}

std::string aligned_table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      if (i > 0) line += "  ";
      line += i == 0 ? fmt::format("{:<{}}", row[i], widths[i]) : fmt::format("{:>{}}", row[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string point_line(const PointResult& point) {
  const std::string where = fmt::format("tp {}, batch {}, {} + {} tokens: ", point.tp, point.workload.batch,
                                        point.workload.prompt_tokens, point.workload.output_tokens);
  if (point.status == PointStatus::kOutOfMemory) return where + "out of memory";
  return where + fmt::format("TTFT {} ms, TPOT {} ms, {} tokens/s", cell(point.ttft_ms.p50, "{:.1f}"),
                             cell(point.tpot_ms.p50, "{:.2f}"), cell(point.throughput_tokens_per_s, "{:.1f}"));
}

std::string scale_table(const std::vector<PointResult>& points) {
  const auto varies = [&](auto field) {
    std::set<int64_t> values;
    for (const PointResult& point : points) values.insert(field(point.workload));
    return values.size() > 1;
  };
  const bool lengths = varies([](const Workload& w) { return w.prompt_tokens; }) ||
                       varies([](const Workload& w) { return w.output_tokens; });
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string> header = {"TP", "batch"};
  std::vector<std::string> units = {"", ""};
  if (lengths) {
    header.insert(header.end(), {"in", "out"});
    units.insert(units.end(), {"tok", "tok"});
  }
  header.insert(header.end(),
                {"TTFT p50", "TPOT p50", "sd", "ITL p99", "tokens", "per rank", "MBU", "speedup", "effic."});
  units.insert(units.end(), {"ms", "ms", "ms", "ms", "1/s", "1/s", "% ach.", "x", "%"});
  rows.push_back(header);
  rows.push_back(units);
  std::string verdicts;
  for (const PointResult& point : points) {
    std::vector<std::string> row = {std::to_string(point.tp), std::to_string(point.workload.batch)};
    if (lengths) {
      row.push_back(std::to_string(point.workload.prompt_tokens));
      row.push_back(std::to_string(point.workload.output_tokens));
    }
    for (const std::string& verdict : point.verdicts) {
      verdicts += fmt::format("TP {}, batch {}: {}\n", point.tp, point.workload.batch, verdict);
    }
    if (point.status == PointStatus::kOutOfMemory) {
      row.push_back("OOM");
      rows.push_back(row);
      continue;
    }
    std::optional<double> per_rank;
    if (point.throughput_tokens_per_s) per_rank = *point.throughput_tokens_per_s / point.tp;
    row.insert(
        row.end(),
        {cell(point.ttft_ms.p50, "{:.1f}"), cell(point.tpot_ms.p50, "{:.2f}"), cell(point.tpot_ms.stddev, "{:.2f}"),
         cell(point.itl_ms.p99, "{:.2f}"), cell(point.throughput_tokens_per_s, "{:.1f}"), cell(per_rank, "{:.1f}"),
         spread_percent(point.mbu_achievable), cell(point.speedup, "{:.2f}"), cell(point.efficiency, "{:.0f}", 100)});
    rows.push_back(row);
  }
  return aligned_table(rows) + (verdicts.empty() ? "" : "\n" + verdicts);
}

std::string shards_table(const OpenedModel& model, const std::vector<int>& degrees, const Workload& workload,
                         const DecoderOptions& options) {
  const DTypeOf dtype_of = [&](WeightId id) { return model.weights->dtype(id); };
  std::string text;
  for (const int tp : degrees) {
    const parallel::ShardPlan plan = plan_shards(shard_dimensions(model.config), tp);
    std::vector<std::vector<std::string>> rows = {
        {"rank", "query heads", "KV heads", "FFN columns", "vocabulary", "weights", "KV", "workspace", "bytes/step"}};
    for (int rank = 0; rank < tp; ++rank) {
      const parallel::RankShard& shard = plan.ranks[static_cast<size_t>(rank)];
      const MemoryBytes memory = planned_memory(model.config, *model.weights, plan, options, rank);
      const StepBytes bytes = step_traffic(model.config, dtype_of, plan, rank, workload);
      rows.push_back({std::to_string(rank), range_text(shard.query_heads), range_text(shard.kv_heads),
                      range_text(shard.ffn), range_text(shard.vocab), bytes_text(static_cast<double>(memory.weights)),
                      bytes_text(static_cast<double>(memory.kv)), bytes_text(static_cast<double>(memory.workspace)),
                      bytes_text(bytes.headline())});
    }
    text += fmt::format("tp {}\n{}\n", tp, aligned_table(rows));
  }
  return text;
}

}  // namespace shardscope::runtime
