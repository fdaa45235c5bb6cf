// Points whose TPOT is made of parts, for tests of what is told about them.
#pragma once

#include <vector>

#include "runtime/measure/attribution.hpp"
#include "runtime/measure/figures.hpp"
#include "tests/support/points.hpp"

namespace shardscope::test {

/// A rank's parts in ms, by name: {.ideal = 6, .transfer = 0.5}.
struct PartMs {
  double ideal = 0, matrices = 0, attention = 0, elementwise = 0, transfer = 0, wait = 0, head = 0, gaps = 0,
         residual = 0;

  runtime::Parts parts() const {
    return {.ms = {ideal, matrices, attention, elementwise, transfer, wait, head, gaps, residual}};
  }
};

/// A point of as many ranks as there are parts (each of which sums to the same TPOT), known to ± noise_ms.
inline runtime::PointResult a_parted_point(const std::vector<PartMs>& ranks, double noise_ms = 0.01) {
  const int tp = static_cast<int>(ranks.size());
  const double tpot_ms = ranks.front().parts().sum();
  runtime::PointResult point = a_point(tp, tpot_ms - 0.1);  // whose median is 0.1 above that
  point.tpot_ms.p50 = tpot_ms;
  point.noise.low_ms = tpot_ms - noise_ms;
  point.noise.high_ms = tpot_ms + noise_ms;
  point.noise.relative = noise_ms / tpot_ms;
  point.attribution = runtime::Parts{};
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    runtime::RankFigures& figures = point.ranks[rank];
    const int64_t at = static_cast<int64_t>(rank);
    figures.shard = {{8 * at, 8 * at + 8}, {2 * at, 2 * at + 2}, {100 * at, 100 * at + 100}, {50 * at, 50 * at + 50}};
    figures.bytes.weights = 1e9 / tp;
    figures.attribution = ranks[rank].parts();
    for (const runtime::Part part : runtime::kParts) {
      (*point.attribution)[part] += (*figures.attribution)[part] / tp;
    }
  }
  point.instrumented_tpot_ms = tpot_ms;
  const double latency_ms = tpot_ms * static_cast<double>(point.workload.output_tokens);
  point.latency_ms.p50 = latency_ms;
  point.latency_ms.p50_interval = {latency_ms * 0.999, latency_ms * 1.001};
  point.throughput_tokens_per_s = 1e3 / tpot_ms;
  return point;
}

/// `tp` ranks with the same parts.
inline runtime::PointResult an_even_point(int tp, const PartMs& parts, double noise_ms = 0.01) {
  return a_parted_point(std::vector<PartMs>(static_cast<size_t>(tp), parts), noise_ms);
}

/// With speed-ups and losses.
inline std::vector<runtime::PointResult> with_losses(std::vector<runtime::PointResult> points) {
  runtime::set_speedups(points);
  runtime::set_losses(points);
  return points;
}

}  // namespace shardscope::test
