#include "runtime/measure/protocol.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include <fmt/format.h>

namespace shardscope::runtime {
namespace {

constexpr int64_t kMostGenerations = 2000;  // of one visit, by the noise rule: p99 has a closed interval from 368 on
constexpr double kWarmUpShare = 0.3;        // of a visit, for the estimate of what is done

/// The part of `all` that falls to visit `pass` of `passes`; the first one takes what is left over.
int64_t share_of(int64_t all, int pass, int passes) {
  return (all + passes - 1 - pass) / passes;
}

bool warm_enough(const Protocol& protocol, std::span<const double> latencies_ms, double seconds) {
  const auto n = static_cast<int64_t>(latencies_ms.size());
  if (protocol.warmup) return n >= *protocol.warmup;
  if (n < kLeastWarmUp) return false;
  const std::optional<double> change = steadiness(latencies_ms);
  const bool steady = change && std::abs(*change) < kSteadyChange;
  const double limit = protocol.max_seconds / protocol.passes();
  return steady || n >= kLongestWarmUp || seconds >= (change ? limit / 2 : limit);  // longer until it can be judged
}

/// How far a point is, for progress alone.
double estimated_fraction(const Protocol& protocol, int pass, int64_t first_visit, const VisitRecord& record) {
  int64_t target = share_of(protocol.iterations.value_or(protocol.least_generations), pass, protocol.passes());
  if (first_visit > 0 && !protocol.iterations) target = first_visit;
  const double by_count =
      static_cast<double>(record.samples.size()) / static_cast<double>(std::max<int64_t>(target, 1));
  const double by_time = record.seconds / (protocol.max_seconds / protocol.passes());
  return std::min(1.0, std::max(by_count, by_time));
}

void warm_up(Machine& machine, const Protocol& protocol, size_t point, size_t points, VisitRecord& record) {
  std::vector<double> latencies_ms;
  const double start = machine.now_seconds();
  for (bool warm = false; !warm;) {
    const auto n = static_cast<int64_t>(latencies_ms.size());
    const double share = static_cast<double>(std::min(n, 2 * kSteadyWindow)) / (2.0 * kSteadyWindow);
    machine.tell(point, "warming up", n + 1,
                 kWarmUpShare * (static_cast<double>(point) + share) / static_cast<double>(points));
    const GenerationSample sample = machine.generate(point);
    if (n == 0 && point == 0) record.cold_ttft_ms = sample.ttft_ms;  // the others find memory and caches warm
    latencies_ms.push_back(sample.latency_ms.value_or(0));
    warm = machine.agree(warm_enough(protocol, latencies_ms, machine.now_seconds() - start));
  }
  record.warm_up.generations = static_cast<int64_t>(latencies_ms.size());
  record.warm_up.change = steadiness(latencies_ms);
  const std::optional<double>& change = record.warm_up.change;
  if (change) record.warm_up.steady = std::abs(*change) < kSteadyChange;
  if (!change && !protocol.warmup) record.warm_up.steady = false;  // a limit came before it could be told
}

}  // namespace

std::string Protocol::stop_rule() const {
  return iterations ? "iterations or max_seconds" : "noise_bound or max_seconds";
}

std::optional<double> steadiness(std::span<const double> latencies_ms) {
  constexpr auto window = static_cast<size_t>(kSteadyWindow);
  if (latencies_ms.size() < 2 * window) return std::nullopt;
  const auto end = latencies_ms.end();
  const double last = median({end - kSteadyWindow, end});
  const double before = median({end - 2 * kSteadyWindow, end - kSteadyWindow});
  if (!(before > 0)) return std::nullopt;
  return last / before - 1;
}

std::optional<double> relative_noise(std::span<const double> values) {
  const Distribution distribution = distribution_of(values);
  const Interval& interval = distribution.p50_interval;
  if (!interval.low || !interval.high || !(*distribution.p50 > 0)) return std::nullopt;
  return (*interval.high - *interval.low) / 2 / *distribution.p50;
}

StopVerdict stop_verdict(const Protocol& protocol, const VisitSoFar& visit) {
  const auto n = static_cast<int64_t>(visit.values.size());
  const bool by_noise = !protocol.iterations && visit.first_visit == 0;
  std::string wanting;  // what is not met yet; empty: all is
  if (by_noise) {
    const int64_t least = share_of(protocol.least_generations, visit.pass, protocol.passes());
    const std::optional<double> noise = relative_noise(visit.values);
    if (n < least) {
      wanting = fmt::format("{} generations, not {}", n, least);
    } else if (!noise) {
      wanting = fmt::format("{} generations, too few to know the noise", n);
    } else if (!(*noise <= protocol.noise_bound)) {
      wanting = fmt::format("the median known to ±{:.1f} %, not {:.1f} %", *noise * 100, protocol.noise_bound * 100);
    }
  } else {
    const int64_t target =
        protocol.iterations ? share_of(*protocol.iterations, visit.pass, protocol.passes()) : visit.first_visit;
    if (n < target) wanting = fmt::format("{} of {} generations", n, target);
  }
  if (wanting.empty()) return {.enough = true, .unmet = std::nullopt};
  const double limit = protocol.max_seconds / protocol.passes();
  if (visit.seconds >= limit) return {true, fmt::format("{:g} s a visit ended it with {}", limit, wanting)};
  if (by_noise && n >= kMostGenerations) {
    return {true, fmt::format("{} generations a visit ended it with {}", n, wanting)};
  }
  return {};
}

std::vector<size_t> round_order(size_t count, uint64_t seed, int64_t round) {
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  std::seed_seq key{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), static_cast<uint32_t>(round)};
  std::mt19937 random(key);
  // By hand, since std::shuffle differs between standard libraries; the bias of the modulus is below count / 2^32.
  for (size_t i = count; i > 1; --i) std::swap(order[i - 1], order[random() % i]);
  return order;
}

std::optional<double> headline_ms(const GenerationSample& sample) {
  return sample.tpot_ms ? sample.tpot_ms : sample.ttft_ms;
}

std::vector<VisitRecord> run_visit(Machine& machine, const Protocol& protocol, int pass,
                                   std::span<const int64_t> first_visit) {
  const size_t points = first_visit.size();
  std::vector<VisitRecord> records(points);
  std::vector<std::vector<double>> headlines(points);
  for (size_t point = 0; point < points; ++point) {
    warm_up(machine, protocol, point, points, records[point]);
    if (protocol.instrumented) machine.generate_instrumented(point);  // a path of its own, with its own graph
  }
  for (size_t point = 0; point < points; ++point) machine.measure_bandwidth(point, /*after=*/false);

  const auto fraction = [&] {
    double sum = 0;
    for (size_t i = 0; i < points; ++i) sum += estimated_fraction(protocol, pass, first_visit[i], records[i]);
    return kWarmUpShare + (1 - kWarmUpShare) * sum / static_cast<double>(points);
  };
  std::vector<size_t> active(points);
  std::iota(active.begin(), active.end(), size_t{0});
  for (int64_t round = 0; !active.empty(); ++round) {
    std::vector<size_t> going_on;
    for (const size_t turn : round_order(active.size(), protocol.seed + static_cast<uint64_t>(pass), round)) {
      const size_t point = active[turn];
      VisitRecord& record = records[point];
      machine.tell(point, "generation", static_cast<int64_t>(record.samples.size()) + 1, fraction());
      const double start = machine.now_seconds();
      const auto with_instruments = [&] {
        if (!protocol.instrumented) return;
        std::optional<InstrumentedSample> sample = machine.generate_instrumented(point);
        if (!sample) return;
        sample->pass = pass;
        record.instrumented.push_back(std::move(*sample));
      };
      if (round % 2 == 1) with_instruments();
      GenerationSample sample = machine.generate(point);
      if (round % 2 == 0) with_instruments();
      record.seconds += machine.now_seconds() - start;
      sample.pass = pass;
      if (const std::optional<double> value = headline_ms(sample)) headlines[point].push_back(*value);
      record.samples.push_back(std::move(sample));
      StopVerdict verdict = stop_verdict(
          protocol,
          {.pass = pass, .first_visit = first_visit[point], .values = headlines[point], .seconds = record.seconds});
      record.unmet = std::move(verdict.unmet);
      if (!machine.agree(verdict.enough)) going_on.push_back(point);
    }
    std::sort(going_on.begin(), going_on.end());
    active = std::move(going_on);
  }
  for (size_t point = 0; point < points; ++point) machine.measure_bandwidth(point, /*after=*/true);
  return records;
}

}  // namespace shardscope::runtime
