// Figures as text tables for a terminal of 100 columns.
#pragma once

#include <string>
#include <vector>

#include "runtime/measure/sweep.hpp"

namespace shardscope::runtime {

/// Columns aligned: the first left, the others right. `rows` include the header.
std::string aligned_table(const std::vector<std::vector<std::string>>& rows);

/// "best"; "linear/best" of a group that stands for several placements.
std::string placements_text(const topology::PlacedGroup& group);

/// One point in a line, as progress: "tp 2, batch 1, 512 + 128 tokens: TTFT 345.2 ms, TPOT 5.08 ms, 132.3 tokens/s".
std::string point_line(const PointResult& point);

/// The table of `scale`: one row per point, a line of units under the header, then verdicts.
std::string scale_table(const std::vector<PointResult>& points);

/// The tables of `bench`: per point TTFT, TPOT, ITL and latency with mean, p50, p95, p99 and their 95 % intervals where
/// supported, throughput and MBU, then verdicts.
std::string bench_table(const std::vector<PointResult>& points);

/// The shard plan of `--dry-run` for people.
std::string shards_table(const OpenedModel& model, const std::vector<int>& degrees, const Workload& workload,
                         const DecoderOptions& options);

/// "1.23 GB", "456 kB": decimal units.
std::string bytes_text(double bytes);

}  // namespace shardscope::runtime
