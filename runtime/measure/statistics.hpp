// Samples to figures: percentiles with order-statistic intervals. Percentile method: the sample quantile of type 7
// (linear interpolation between order statistics, R and numpy's default). Intervals: equal-tailed two-sided 95 % from
// the binomial distribution of the rank of a quantile; open at the top where the sample is too small.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace shardscope::runtime {

struct Interval {
  std::optional<double> low;  // nullopt: open
  std::optional<double> high;
};

/// n == 0: every figure is nullopt.
struct Distribution {
  int64_t n = 0;
  std::optional<double> mean, p50, p90, p95, p99, min, max, stddev;
  Interval mean_interval, p50_interval, p95_interval, p99_interval;
  bool p95_supported = false;
  bool p99_supported = false;
};

inline constexpr const char* kPercentileMethod = "linear interpolation between order statistics (type 7)";

/// What a sample of independent values says.
Distribution distribution_of(std::span<const double> samples);

/// As distribution_of, without intervals and supported flags: for values that depend on each other (ITLs).
Distribution dependent_distribution_of(std::span<const double> samples);

/// Quantile q in [0, 1] of ascending values; at least one.
double quantile_sorted(std::span<const double> ascending, double q);

/// p50 of values in any order; at least one.
double median(std::vector<double> values);

/// 1-based ranks (low, high) of the order statistics that bound quantile q of n values with 95 % confidence;
/// nullopt where no order statistic is far enough out.
struct RankInterval {
  std::optional<int64_t> low;
  std::optional<int64_t> high;
};
RankInterval quantile_ranks(int64_t n, double q);

/// Times of one generation's tokens, in milliseconds from its start, to TTFT, TPOT, ITLs and latency; `null` figures
/// stay nullopt (TPOT needs two tokens).
struct GenerationTimes {
  std::optional<double> ttft_ms;
  std::optional<double> tpot_ms;
  std::optional<double> latency_ms;
  std::vector<double> itl_ms;
};
GenerationTimes generation_times(std::span<const double> token_times_ms);

}  // namespace shardscope::runtime
