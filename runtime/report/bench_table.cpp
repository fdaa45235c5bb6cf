// The tables of `bench`: one block a point, with everything that was found there.
#include <array>

#include <fmt/format.h>

#include "runtime/measure/verdicts.hpp"
#include "runtime/report/table.hpp"
#include "runtime/report/table_text.hpp"

namespace shardscope::runtime {
namespace {

using Cells = std::vector<std::string>;

struct Percentile {
  const char* name;
  std::optional<double> Distribution::*value;
  Interval Distribution::*interval;
};
constexpr std::array kPercentiles = {
    Percentile{"mean", &Distribution::mean, &Distribution::mean_interval},
    Percentile{"p50", &Distribution::p50, &Distribution::p50_interval},
    Percentile{"p95", &Distribution::p95, &Distribution::p95_interval},
    Percentile{"p99", &Distribution::p99, &Distribution::p99_interval},
};

struct Metric {
  const char* name;
  const Distribution& distribution;
  bool intervals = true;  // values within a generation depend on each other: those have none
};

std::vector<Metric> metrics_of(const PointResult& point) {
  return {
      {"TTFT", point.ttft_ms}, {"TPOT", point.tpot_ms}, {"ITL", point.itl_ms, false}, {"latency", point.latency_ms}};
}

/// "[5.02, 5.13]"; an open end is a round bracket: "[5.02, open)".
std::string interval_text(const Interval& interval) {
  if (!interval.low && !interval.high) return "(open)";
  return fmt::format("{}, {}", interval.low ? fmt::format("[{}", figure_text(*interval.low)) : "(open",
                     interval.high ? fmt::format("{}]", figure_text(*interval.high)) : "open)");
}

/// How the figures of a block are laid out: from the fullest to the narrowest.
enum class Detail : uint8_t { kExtremes, kIntervals, kIntervalsBelow };

std::string layout(const PointResult& point, Detail detail) {
  const bool extremes = detail == Detail::kExtremes;
  std::vector<Cells> rows = {{"ms"}};
  for (const Percentile& percentile : kPercentiles) rows[0].emplace_back(percentile.name);
  if (extremes) rows[0].insert(rows[0].end(), {"min", "max", "n"});
  for (const Metric& metric : metrics_of(point)) {
    const Distribution& distribution = metric.distribution;
    Cells row = {metric.name};
    Cells below = {""};
    for (const Percentile& percentile : kPercentiles) {
      const std::optional<double>& value = distribution.*percentile.value;
      const bool bounded = metric.intervals && value;
      const std::string interval = bounded ? interval_text(distribution.*percentile.interval) : "";
      const bool beside = bounded && detail != Detail::kIntervalsBelow;
      row.push_back(beside ? fmt::format("{} {}", figure_text(value), interval) : figure_text(value));
      below.push_back(interval);
    }
    if (extremes) {
      row.insert(row.end(),
                 {figure_text(distribution.min), figure_text(distribution.max), std::to_string(distribution.n)});
    }
    rows.push_back(std::move(row));
    if (detail == Detail::kIntervalsBelow && metric.intervals) rows.push_back(std::move(below));
  }
  return aligned(rows, 2);
}

std::string distributions(const PointResult& point) {
  std::string table;
  for (const Detail detail : {Detail::kExtremes, Detail::kIntervals, Detail::kIntervalsBelow}) {
    table = layout(point, detail);
    if (widest_line(table) <= kTableColumns) break;
  }
  return table;
}

/// "one-shot, nccl from 96 KiB"
std::string all_reduce_text(const PointResult& point) {
  const std::vector<parallel::SumChoices::Choice>& choices = point.sum_choices.choices;
  if (choices.size() < 2) return point.communicator;
  std::string text = choices.front().way;
  for (size_t i = 1; i < choices.size(); ++i) {
    text += fmt::format(", {} from {}", choices[i].way, bytes_text(static_cast<double>(choices[i].from_bytes)));
  }
  return text;
}

std::string head_line(const PointResult& point) {
  const topology::PlacedGroup& group = point.group;
  const bool placed = group.placement != topology::Placement::kLinear || !group.also.empty();
  const std::string where =
      placed ? fmt::format(" {} (devices {})", placements_text(group), topology::core_list_text(point.places())) : "";
  std::string text = fmt::format("TP {}{}, batch {}, {} + {} tokens: {} generation{}", point.tp, where,
                                 point.workload.batch, point.workload.prompt_tokens, point.workload.output_tokens,
                                 point.generations, point.generations == 1 ? "" : "s");
  if (!point.communicator.empty()) text += ", all-reduce " + all_reduce_text(point);
  if (point.status == PointStatus::kIncomplete) text += " (first of two visits)";
  return text;
}

std::string memory_text(const PointResult& point) {
  std::string text = fmt::format("MBU {} % of achievable", percent_text(point.mbu_achievable));
  if (point.mbu) text += fmt::format(", {} % of peak", percent_text(point.mbu));
  return text;
}

std::string prefill_text(const PointResult& point) {
  std::string text = fmt::format("{} TFLOP/s", figure_text(*point.prefill_tflops_per_s));
  if (point.mfu_prefill) text += fmt::format(", MFU {} %", percent_text(point.mfu_prefill));
  if (point.cold_ttft_ms) text += fmt::format("; the very first TTFT, cold: {} ms", figure_text(*point.cold_ttft_ms));
  return text;
}

std::string warm_up_text(const std::vector<WarmUp>& warm_ups) {
  Cells generations;
  bool steady = false;
  bool unsteady = false;
  for (const WarmUp& warm_up : warm_ups) {
    generations.push_back(std::to_string(warm_up.generations));
    steady = steady || warm_up.steady.value_or(false);
    unsteady = unsteady || !warm_up.steady.value_or(true);
  }
  const char* verdict = unsteady ? "not steady" : steady ? "steady" : "too few to tell whether steady";
  return fmt::format("{} generations, {}", fmt::join(generations, " + "), verdict);
}

std::string outliers_text(const Outliers& outliers) {
  const int64_t slow = outliers.high_mild + outliers.high_severe;
  const int64_t fast = outliers.low_mild + outliers.low_severe;
  if (slow + fast == 0) return "none";
  return fmt::format("{} slow ({} severe), {} fast ({} severe)", slow, outliers.high_severe, fast, outliers.low_severe);
}

/// What has no distribution: a label and its figures a line.
std::string remarks(const PointResult& point) {
  std::vector<std::pair<const char*, std::string>> lines = {
      {"throughput", fmt::format("{} tokens/s, {} requests/s", figure_text(point.throughput_tokens_per_s),
                                 figure_text(point.requests_per_s))},
      {"memory", memory_text(point)}};
  if (point.prefill_tflops_per_s) lines.emplace_back("prefill", prefill_text(point));
  if (point.text_cost) {
    lines.emplace_back(
        "text", fmt::format("tokenising {} ms and back {} ms a request; end to end {} ms",
                            figure_text(point.text_cost->tokenise_ms), figure_text(point.text_cost->detokenise_ms),
                            figure_text(point.end_to_end_ms)));
  }
  if (!point.warm_ups.empty()) lines.emplace_back("warm-up", warm_up_text(point.warm_ups));
  lines.emplace_back("outliers", point.generations < kLeastForIntervals ? "not looked for: too few generations"
                                                                        : outliers_text(point.outliers));
  std::string text;
  for (const auto& [label, figures] : lines) text += wrapped(fmt::format("{:<11}{}", label, figures));
  return text;
}

std::string block(const PointResult& point) {
  std::string text = wrapped(head_line(point));
  if (point.status == PointStatus::kOutOfMemory) {
    text += "out of memory\n";
  } else {
    text += distributions(point) + remarks(point);
  }
  if (point.verdicts.empty()) text += "verdicts   none\n";
  for (const std::string& verdict : point.verdicts) text += wrapped("! " + verdict);
  return text;
}

}  // namespace

std::string bench_table(const std::vector<PointResult>& points) {
  std::string text;
  for (const PointResult& point : points) text += fmt::format("{}{}", text.empty() ? "" : "\n", block(point));
  return text;
}

}  // namespace shardscope::runtime
