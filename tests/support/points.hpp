// Points as a sweep would find them, for tests of what is made of them: documents, tables, advice.
#pragma once

#include <vector>

#include "runtime/measure/figures.hpp"
#include "runtime/measure/point.hpp"

namespace shardscope::test {

/// A plain point of `tp` ranks: six generations with TPOTs from tpot_ms to tpot_ms + 0.2, median tpot_ms + 0.1.
inline runtime::PointResult a_point(int tp, double tpot_ms) {
  runtime::PointResult point{.tp = tp, .workload = {.batch = 1, .prompt_tokens = 8, .output_tokens = 4}};
  point.communicator = "shm";
  const std::vector<double> samples = {tpot_ms, tpot_ms + 0.1, tpot_ms + 0.2, tpot_ms, tpot_ms + 0.1, tpot_ms + 0.2};
  point.tpot_ms = runtime::distribution_of(samples);
  point.ttft_ms = runtime::distribution_of(samples);
  point.generations = 6;
  point.noise = {.low_ms = tpot_ms, .high_ms = tpot_ms + 0.2};  // the interval of the median of six
  point.mbu_achievable = runtime::Spread{.min = 0.5, .mean = 0.55, .max = 0.6};
  for (int rank = 0; rank < tp; ++rank) point.ranks.push_back({.rank = rank, .achievable_gb_per_s = 10});
  return point;
}

inline std::vector<runtime::PointResult> with_speedups(std::vector<runtime::PointResult> points) {
  runtime::set_speedups(points);
  return points;
}

/// Hands out numbers that never repeat.
class Distinct {
 public:
  double real() { return static_cast<double>(++last_) + 0.5; }
  int64_t count() { return ++last_; }
  Range range() {
    const int64_t begin = count();
    return {begin, count()};
  }
  runtime::Interval interval() {
    const double low = real();
    return {low, real()};
  }
  runtime::Spread spread() {
    const double min = real();
    const double mean = real();
    return {min, mean, real()};
  }
  runtime::Distribution distribution() {
    runtime::Distribution d;
    d.n = count();
    for (auto* field : {&d.mean, &d.p50, &d.p90, &d.p95, &d.p99, &d.min, &d.max, &d.stddev}) *field = real();
    for (auto* field : {&d.mean_interval, &d.p50_interval, &d.p95_interval, &d.p99_interval}) *field = interval();
    d.p95_supported = true;
    return d;
  }
  runtime::Disturbance disturbance() {
    const double stolen = real();
    const double waited = real();
    return {stolen, waited, real()};
  }

 private:
  int64_t last_ = 1000;
};

/// A point in which everything is known, and no two numbers are equal except where one follows from the other.
inline runtime::PointResult full_point() {
  Distinct next;
  runtime::PointResult point{.tp = 2};
  point.workload = {.batch = next.count(), .prompt_tokens = next.count(), .output_tokens = next.count()};
  point.communicator = "shm";
  for (auto* field : {&point.ttft_ms, &point.tpot_ms, &point.itl_ms, &point.latency_ms}) *field = next.distribution();
  const double tokenise_ms = next.real();
  point.text_cost = runtime::TextCost{tokenise_ms, next.real()};
  for (auto* field : {&point.cold_ttft_ms, &point.end_to_end_ms, &point.throughput_tokens_per_s, &point.requests_per_s,
                      &point.mbu_nominal, &point.prefill_tflops_per_s, &point.mfu_prefill, &point.speedup,
                      &point.efficiency, &point.noise.low_ms, &point.noise.high_ms, &point.noise.relative,
                      &point.noise.pass_shift, &point.highest_mhz}) {
    *field = next.real();
  }
  for (auto* field : {&point.mbu, &point.mbu_achievable, &point.mbu_useful}) *field = next.spread();
  point.cache_resident = false;
  point.oversubscribed = true;
  point.tp_base = 1;
  const auto parts_of = [&](double sum) {
    runtime::Parts parts;
    for (const runtime::Part part : runtime::kParts) {
      if (part != runtime::Part::kResidual) parts[part] = next.real();
    }
    parts[runtime::Part::kResidual] = sum - parts.sum();
    return parts;
  };
  point.attribution = parts_of(*point.tpot_ms.p50);
  point.loss = parts_of(next.real());
  for (auto* field : {&point.comm_share, &point.instrumented_tpot_ms}) *field = next.real();
  point.generations = next.count();
  point.warm_ups = {{next.count(), next.real(), true}, {next.count(), next.real(), false}};
  runtime::Outliers& outliers = point.outliers;
  for (auto* field : {&outliers.low_mild, &outliers.low_severe, &outliers.high_mild, &outliers.high_severe}) {
    *field = next.count();
  }
  for (int64_t& count : outliers.causes) count = next.count();
  point.disturbance = next.disturbance();
  point.unmet = "the noise bound";
  for (int rank = 0; rank < 2; ++rank) {
    runtime::RankFigures figures{.rank = rank};
    for (auto* field :
         {&figures.shard.query_heads, &figures.shard.kv_heads, &figures.shard.ffn, &figures.shard.vocab}) {
      *field = next.range();
    }
    for (auto* field :
         {&figures.bytes.weights, &figures.bytes.kv_read, &figures.bytes.kv_write, &figures.bytes.replicated,
          &figures.bytes.padded, &figures.bytes.activations, &figures.achievable_gb_per_s,
          &figures.achievable_median_gb_per_s, &figures.bandwidth_drift, &figures.load_seconds}) {
      *field = next.real();
    }
    figures.memory = {next.count(), next.count(), next.count()};
    figures.attribution = parts_of(*point.tpot_ms.p50);
    for (auto* field : {&figures.tpot_ms, &figures.mbu, &figures.mbu_achievable, &figures.mbu_useful,
                        &figures.waited_share, &figures.timer_step_ns}) {
      *field = next.real();
    }
    point.ranks.push_back(figures);
  }
  point.verdicts = {"noise: too much", "outliers: some"};
  for (int pass = 0; pass < 2; ++pass) {
    runtime::GenerationSample sample{.pass = pass};
    for (auto* field : {&sample.ttft_ms, &sample.tpot_ms, &sample.latency_ms}) *field = next.real();
    sample.itl_ms = {next.real(), next.real()};
    sample.disturbance = next.disturbance();
    point.samples.push_back(std::move(sample));
    runtime::InstrumentedSample instrumented{.pass = pass, .tpot_ms = next.real()};
    for (int rank = 0; rank < 2; ++rank) {
      runtime::StepTimes times;
      for (auto* field : {&times.products, &times.attention, &times.elementwise, &times.head, &times.transfer,
                          &times.wait, &times.gaps}) {
        *field = next.real();
      }
      instrumented.ranks.push_back(times);
    }
    point.instrumented.push_back(std::move(instrumented));
  }
  point.generations = static_cast<int64_t>(point.samples.size());
  point.workload.output_tokens = static_cast<int64_t>(point.samples[0].itl_ms.size()) + 1;
  return point;
}

}  // namespace shardscope::test
