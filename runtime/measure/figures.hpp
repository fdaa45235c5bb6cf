// From samples, bytes and bandwidths to the figures of a point. Pure functions; each definition stands here once.
#pragma once

#include <optional>
#include <vector>

#include "runtime/measure/point.hpp"
#include "runtime/measure/protocol.hpp"

namespace shardscope::runtime {

/// What the ranks of a group have of this host.
struct GroupPlace {
  int64_t cache_bytes = 0;      // of the last-level caches that their cores share; 0: unknown
  bool oversubscribed = false;  // more threads than cores
};

/// Data-sheet peaks of one rank's device or share; nullopt: unknown, and figures against them are null.
struct Peaks {
  std::optional<double> gb_per_s;
  std::optional<double> tflops;  // dense, of the compute type
};

/// Distributions, throughput, noise, outliers and disturbance from the visits' samples (all of them: none is dropped).
void set_times(PointResult& point, const std::vector<VisitRecord>& visits);

/// The MBUs of every rank and of the row, and what they rule out. Needs `ranks`, `tpot_ms`, the group's place.
/// Definitions: bytes moved / time / bandwidth; the published form (mbu_nominal) counts all parameters + KV over
/// TPOT x tp x data-sheet bandwidth. group_bytes: of a step of all ranks, where `ranks` are not all of them.
void set_utilisation(PointResult& point, double nominal_bytes, const GroupPlace& place, const Peaks& peaks,
                     std::optional<double> group_bytes = std::nullopt);

/// prefill_tflops_per_s and mfu_prefill of a prefill of `flops` (see prefill_flops) by TTFT p50. Needs `ttft_ms`.
void set_prefill(PointResult& point, double flops, const Peaks& peaks);

/// speedup = TPOT p50 at the smallest degree that ran / TPOT p50 here, at equal workload, placement and kind;
/// efficiency = speedup x smallest degree / tp. Sets tp_base on every point that has a TPOT, and both figures where the
/// collectives are in that TPOT and in the base's.
void set_speedups(std::vector<PointResult>& points);

/// Noise::low_ms and high_ms of a point with a TPOT; nullopt while the interval is open.
struct ClosedInterval {
  double low = 0, high = 0;
};
std::optional<ClosedInterval> tpot_interval(const PointResult& point);

}  // namespace shardscope::runtime
