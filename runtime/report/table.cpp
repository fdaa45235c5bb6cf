#include "runtime/report/table.hpp"

#include <array>

#include <fmt/format.h>

#include "runtime/model/slice.hpp"
#include "runtime/report/table_text.hpp"

namespace shardscope::runtime {
namespace {

std::string range_text(Range range) {
  return range.empty() ? "-" : fmt::format("{}..{}", range.begin, range.end - 1);
}

}  // namespace

std::string bytes_text(double bytes) {
  constexpr std::array<const char*, 7> kUnits = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  constexpr double kNext = 999.5;  // what three digits would round to 1000
  size_t unit = 0;
  while (bytes >= kNext && unit + 1 < kUnits.size()) {
    bytes /= 1000;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.3g} {}", bytes, kUnits[unit]);
}

std::string aligned_table(const std::vector<std::vector<std::string>>& rows) {
  return aligned(rows, 2);
}

std::string placements_text(const topology::PlacedGroup& group) {
  std::string text(name_of(group.placement));
  for (const topology::Placement placement : group.also) text += fmt::format("/{}", name_of(placement));
  return text;
}

std::string point_line(const PointResult& point) {
  const bool linear = point.group.placement == topology::Placement::kLinear && point.group.also.empty();
  const std::string where =
      fmt::format("tp {}{}{}{}, batch {}, {} + {} tokens: ", point.tp, point.rehearsal ? " rehearsed" : "",
                  point.group.replicas > 1 ? fmt::format(" x {} replicas", point.group.replicas) : "",
                  linear ? "" : fmt::format(" {}", placements_text(point.group)), point.workload.batch,
                  point.workload.prompt_tokens, point.workload.output_tokens);
  if (point.status == PointStatus::kOutOfMemory) return where + "out of memory";
  return where + fmt::format("TTFT {} ms, TPOT {} ms, {} tokens/s{}", figure_text(point.ttft_ms.p50),
                             figure_text(point.tpot_ms.p50), figure_text(point.throughput_tokens_per_s),
                             point.status == PointStatus::kIncomplete ? " (first of two visits)" : "");
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
      const StepBytes bytes = step_traffic(model.config, dtype_of, plan, rank, workload, options.precision);
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
