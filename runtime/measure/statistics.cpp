#include "runtime/measure/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/base/error.hpp"

namespace shardscope::runtime {
namespace {

/// P(X <= k) for X ~ Binomial(n, q), for every k from 0 to n, by the recurrence of the probabilities in log space.
std::vector<double> binomial_cumulative(int64_t n, double q) {
  std::vector<double> cumulative(static_cast<size_t>(n) + 1);
  const double log_odds = std::log(q) - std::log1p(-q);
  double log_term = static_cast<double>(n) * std::log1p(-q);
  double sum = 0;
  for (int64_t k = 0; k <= n; ++k) {
    sum += std::exp(log_term);
    cumulative[static_cast<size_t>(k)] = std::min(sum, 1.0);
    log_term += std::log(static_cast<double>(n - k)) - std::log(static_cast<double>(k + 1)) + log_odds;
  }
  return cumulative;
}

/// Two-sided 95 % quantile of Student's t: Cornish-Fisher expansion, error under 1 % from 3 degrees of freedom on.
double student_t_975(int64_t degrees) {
  const double z = 1.959964;
  const double d = static_cast<double>(degrees);
  const double z3 = z * z * z;
  const double z5 = z3 * z * z;
  const double z7 = z5 * z * z;
  return z + (z3 + z) / (4 * d) + (5 * z5 + 16 * z3 + 3 * z) / (96 * d * d) +
         (3 * z7 + 19 * z5 + 17 * z3 - 15 * z) / (384 * d * d * d);
}

Interval interval_of(std::span<const double> ascending, double q) {
  const RankInterval ranks = quantile_ranks(static_cast<int64_t>(ascending.size()), q);
  Interval interval;
  if (ranks.low) interval.low = ascending[static_cast<size_t>(*ranks.low - 1)];
  if (ranks.high) interval.high = ascending[static_cast<size_t>(*ranks.high - 1)];
  return interval;
}

}  // namespace

double quantile_sorted(std::span<const double> ascending, double q) {
  require(!ascending.empty(), "quantile of nothing");
  const double position = q * static_cast<double>(ascending.size() - 1);
  const auto below = static_cast<size_t>(position);
  const size_t above = std::min(below + 1, ascending.size() - 1);
  return ascending[below] + (position - static_cast<double>(below)) * (ascending[above] - ascending[below]);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return quantile_sorted(values, 0.5);
}

RankInterval quantile_ranks(int64_t n, double q) {
  constexpr double kTail = 0.025;
  RankInterval ranks;
  if (n < 1) return ranks;
  const std::vector<double> cumulative = binomial_cumulative(n, q);
  // X(r) lies above the quantile when fewer than r values lie below it: P(X(r) > quantile) = P(count <= r - 1).
  for (int64_t r = n; r >= 1 && !ranks.low; --r) {
    if (cumulative[static_cast<size_t>(r - 1)] <= kTail) ranks.low = r;
  }
  for (int64_t r = 1; r <= n && !ranks.high; ++r) {
    if (1.0 - cumulative[static_cast<size_t>(r - 1)] <= kTail) ranks.high = r;
  }
  return ranks;
}

Distribution dependent_distribution_of(std::span<const double> samples) {
  Distribution result;
  result.n = static_cast<int64_t>(samples.size());
  if (samples.empty()) return result;
  std::vector<double> ascending(samples.begin(), samples.end());
  std::sort(ascending.begin(), ascending.end());
  const double n = static_cast<double>(ascending.size());
  const double mean = std::accumulate(ascending.begin(), ascending.end(), 0.0) / n;
  result.mean = mean;
  result.p50 = quantile_sorted(ascending, 0.50);
  result.p90 = quantile_sorted(ascending, 0.90);
  result.p95 = quantile_sorted(ascending, 0.95);
  result.p99 = quantile_sorted(ascending, 0.99);
  result.min = ascending.front();
  result.max = ascending.back();
  if (result.n > 1) {
    double squares = 0;
    for (const double value : ascending) squares += (value - mean) * (value - mean);
    result.stddev = std::sqrt(squares / (n - 1));
  }
  return result;
}

Distribution distribution_of(std::span<const double> samples) {
  Distribution result = dependent_distribution_of(samples);
  if (result.n == 0) return result;
  std::vector<double> ascending(samples.begin(), samples.end());
  std::sort(ascending.begin(), ascending.end());
  result.p50_interval = interval_of(ascending, 0.50);
  result.p95_interval = interval_of(ascending, 0.95);
  result.p99_interval = interval_of(ascending, 0.99);
  result.p95_supported = result.p95_interval.high.has_value();
  result.p99_supported = result.p99_interval.high.has_value();
  if (result.stddev && result.p50_interval.high) {  // of fewer values it would say more than they can
    const double half = student_t_975(result.n - 1) * *result.stddev / std::sqrt(static_cast<double>(result.n));
    result.mean_interval = {*result.mean - half, *result.mean + half};
  }
  return result;
}

GenerationTimes generation_times(std::span<const double> token_times_ms) {
  GenerationTimes times;
  if (token_times_ms.empty()) return times;
  times.ttft_ms = token_times_ms.front();
  times.latency_ms = token_times_ms.back();
  for (size_t i = 1; i < token_times_ms.size(); ++i) times.itl_ms.push_back(token_times_ms[i] - token_times_ms[i - 1]);
  if (!times.itl_ms.empty()) {
    times.tpot_ms = (token_times_ms.back() - token_times_ms.front()) / static_cast<double>(times.itl_ms.size());
  }
  return times;
}

}  // namespace shardscope::runtime
