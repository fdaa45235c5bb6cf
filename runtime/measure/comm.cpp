#include "runtime/measure/comm.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <tuple>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "runtime/measure/protocol.hpp"

namespace shardscope::runtime {
namespace {

using parallel::SumTimes;

constexpr int64_t kFirstTurn = 10;  // samples
constexpr int64_t kLongestTurn = 100;
constexpr double kTurns = 8;         // at least, of a row that its time limit ends
constexpr int64_t kWarmUpAgain = 2;  // samples at each later turn, after other ways have had the caches
// Of what ranks tell each other: samples, single calls, own waits, calls a sample; wrong, step of the clock.
constexpr size_t kHeaderDoubles = 6;
constexpr size_t kHeaderAlike = 4;  // of them

void append_to(std::vector<double>& values, const std::vector<double>& more) {
  values.insert(values.end(), more.begin(), more.end());
}

std::vector<double> gather(parallel::Communicator& control, std::span<const double> mine) {
  std::vector<double> all(mine.size() * static_cast<size_t>(control.size()));
  control.all_gather(std::as_bytes(mine), std::as_writable_bytes(std::span(all)));
  return all;
}

/// Every rank's times on all ranks. Throws BugError where they are not of the same calls.
std::vector<SumTimes> gather(parallel::Communicator& control, const SumTimes& mine) {
  const std::array<double, kHeaderDoubles> header = {static_cast<double>(mine.sample_us.size()),
                                                     static_cast<double>(mine.inside_us.size()),
                                                     static_cast<double>(mine.own_wait_us.size()),
                                                     static_cast<double>(mine.calls_a_sample),
                                                     static_cast<double>(mine.wrong),
                                                     mine.clock_step_us};
  const std::vector<double> headers = gather(control, header);
  for (size_t begin = 0; begin < headers.size(); begin += kHeaderDoubles) {  // before sizes that must agree
    require(std::equal(header.begin(), header.begin() + kHeaderAlike, headers.begin() + static_cast<ptrdiff_t>(begin)),
            "ranks timed different sums");
  }
  std::vector<double> values = mine.sample_us;
  append_to(values, mine.inside_us);
  append_to(values, mine.own_wait_us);
  const std::vector<double> all = gather(control, values);
  std::vector<SumTimes> ranks(static_cast<size_t>(control.size()));
  auto next = all.begin();
  const auto take = [&](std::vector<double>& its, size_t count) {
    its.assign(next, next + static_cast<ptrdiff_t>(count));
    next += static_cast<ptrdiff_t>(count);
  };
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    SumTimes& times = ranks[rank];
    take(times.sample_us, mine.sample_us.size());
    take(times.inside_us, mine.inside_us.size());
    take(times.own_wait_us, mine.own_wait_us.size());
    times.calls_a_sample = mine.calls_a_sample;
    times.wrong = static_cast<int64_t>(headers[rank * kHeaderDoubles + kHeaderAlike]);
    times.clock_step_us = headers[rank * kHeaderDoubles + kHeaderAlike + 1];
  }
  return ranks;
}

/// A way in the course of measuring.
struct Turn {
  std::string way;
  SumSamples samples;
  NextSamples next;
};

/// Rank 0 decides, by its clock and by times that all know.
void decide(Turn& turn, const SumProtocol& protocol, parallel::Communicator& control) {
  std::array<double, 1> seconds = {turn.samples.seconds};
  control.broadcast(std::as_writable_bytes(std::span(seconds)), 0);
  turn.samples.seconds = seconds[0];
  turn.next = next_samples(protocol, turn.samples.sample_us, turn.samples.seconds);
}

void measure_turn(const SumGroup& group, const SumCase& sum, const SumProtocol& protocol, Turn& turn) {
  const bool first = turn.samples.sample_us.empty();
  if (group.tell) group.tell(turn.way, static_cast<int64_t>(turn.samples.sample_us.size()));
  const double start = group.now_seconds();
  const SumTimes mine = group.bench.time({.way = turn.way,
                                          .count = sum.count,
                                          .dtype = sum.dtype,
                                          .graph = sum.graph,
                                          .samples = turn.next.samples,
                                          .warm_up = first ? protocol.warmup : std::min(protocol.warmup, kWarmUpAgain),
                                          .first = first});
  SumSamples measured = combine(gather(group.control, mine));
  measured.seconds = group.now_seconds() - start;
  turn.samples.append(measured);
  decide(turn, protocol, group.control);
}

/// Wait and transfer of each call: of what ranks noted themselves.
void split_by_own_waits(std::span<const SumTimes> ranks, SumSamples& group) {
  group.wait_from = WaitFrom::kOwn;
  group.wait_us.assign(ranks[0].inside_us.size(), 0.0);
  group.transfer_us = group.wait_us;
  const auto count = static_cast<double>(ranks.size());
  for (const SumTimes& times : ranks) {
    for (size_t i = 0; i < group.wait_us.size(); ++i) {
      group.wait_us[i] += times.own_wait_us[i] / count;
      group.transfer_us[i] += (times.inside_us[i] - times.own_wait_us[i]) / count;
    }
  }
}

/// The same by the rank that came last.
void split_by_shortest_rank(std::span<const SumTimes> ranks, SumSamples& group) {
  group.transfer_us = ranks[0].inside_us;
  for (const SumTimes& times : ranks) {
    for (size_t i = 0; i < group.transfer_us.size(); ++i) {
      group.transfer_us[i] = std::min(group.transfer_us[i], times.inside_us[i]);
    }
  }
  // Each rank's own wait first: a mean minus the least may come out below 0 where all are equal.
  group.wait_us.assign(group.transfer_us.size(), 0.0);
  for (const SumTimes& times : ranks) {
    for (size_t i = 0; i < group.wait_us.size(); ++i) group.wait_us[i] += times.inside_us[i] - group.transfer_us[i];
  }
  for (double& wait : group.wait_us) wait /= static_cast<double>(ranks.size());
}

/// Whether `a` takes less than `b` by more than the noise.
bool clearly_faster(const SumRow& a, const SumRow& b) {
  const std::optional<double>& high = a.time_us.p50_interval.high;
  const std::optional<double>& low = b.time_us.p50_interval.low;
  return high && low && *high < *low;
}

}  // namespace

const char* wait_from_name(WaitFrom from) {
  switch (from) {
    case WaitFrom::kOwn:
      return "own";
    case WaitFrom::kMinimumOverRanks:
      return "minimum_over_ranks";
  }
  throw BugError("wait_from_name: no such value");
}

SumBandwidth sum_bandwidth(int64_t bytes, double time_us, int ranks) {
  constexpr double kBytesPerUsInGbPerS = 1e-3;
  const double algbw = static_cast<double>(bytes) / time_us * kBytesPerUsInGbPerS;
  return {.algbw_gb_per_s = algbw, .busbw_gb_per_s = algbw * 2 * (ranks - 1) / ranks};
}

void SumSamples::append(const SumSamples& more) {
  append_to(sample_us, more.sample_us);
  append_to(transfer_us, more.transfer_us);
  append_to(wait_us, more.wait_us);
  if (!more.wait_us.empty()) wait_from = more.wait_from;
  calls_a_sample = more.calls_a_sample;
  clock_step_us = std::max(clock_step_us, more.clock_step_us);
  wrong += more.wrong;
  seconds += more.seconds;
}

SumSamples combine(std::span<const SumTimes> ranks) {
  require(!ranks.empty(), "times of no rank");
  SumSamples group{.calls_a_sample = ranks[0].calls_a_sample};
  group.sample_us = ranks[0].sample_us;
  const bool own_waits = !ranks[0].own_wait_us.empty();
  const size_t calls = ranks[0].inside_us.size();
  for (const SumTimes& times : ranks) {
    require(times.sample_us.size() == group.sample_us.size() && times.inside_us.size() == calls &&
                times.own_wait_us.size() == (own_waits ? calls : 0) && times.calls_a_sample == group.calls_a_sample,
            "ranks timed different sums");
    for (size_t i = 0; i < group.sample_us.size(); ++i) {
      group.sample_us[i] = std::max(group.sample_us[i], times.sample_us[i]);
    }
    group.clock_step_us = std::max(group.clock_step_us, times.clock_step_us);
    group.wrong += times.wrong;
  }
  own_waits ? split_by_own_waits(ranks, group) : split_by_shortest_rank(ranks, group);
  return group;
}

SumRow sum_row(const SumCase& sum, const std::string& way, const SumSamples& samples) {
  SumRow row{.sum = sum,
             .way = way,
             .emulated = false,
             .time_us = distribution_of(samples.sample_us),
             .calls_a_sample = samples.calls_a_sample,
             .transfer_us = {},
             .wait_us = {},
             .wait_from = {},
             .clock_step_us = {},
             .bandwidth = {},
             .wrong = samples.wrong,
             .unmet = {}};
  if (!samples.transfer_us.empty()) {
    row.transfer_us = median(samples.transfer_us);
    row.wait_us = median(samples.wait_us);
    row.wait_from = samples.wait_from;
    if (samples.clock_step_us > 0) row.clock_step_us = samples.clock_step_us;
  }
  if (row.time_us.p50 && *row.time_us.p50 > 0) row.bandwidth = sum_bandwidth(sum.bytes(), *row.time_us.p50, sum.tp);
  return row;
}

std::string SumProtocol::stop_rule() const {
  return iterations ? "iterations or max_seconds" : "noise_bound, most_samples or max_seconds";
}

NextSamples next_samples(const SumProtocol& protocol, std::span<const double> sample_us, double seconds) {
  const auto n = static_cast<int64_t>(sample_us.size());
  std::string wanting;
  int64_t most = protocol.iterations.value_or(protocol.most_samples);
  if (n == 0) return {.samples = std::min(kFirstTurn, most), .unmet = {}};
  if (protocol.iterations) {
    if (n < most) wanting = fmt::format("{} of {} samples", n, most);
  } else if (n < protocol.least_samples) {
    wanting = fmt::format("{} samples, not {}", n, protocol.least_samples);
  } else if (const std::optional<double> noise = relative_noise(sample_us); !noise) {
    wanting = fmt::format("{} samples, too few to know the noise", n);
  } else if (!(*noise <= protocol.noise_bound)) {
    wanting = fmt::format("the median known to ±{:.1f} %, not {:.1f} %", *noise * 100, protocol.noise_bound * 100);
  }
  if (wanting.empty()) return {};
  if (seconds >= protocol.max_seconds) {
    return {.samples = 0, .unmet = fmt::format("{:g} s ended it with {}", protocol.max_seconds, wanting)};
  }
  if (n >= most) return {.samples = 0, .unmet = fmt::format("{} samples ended it with {}", n, wanting)};
  const double a_sample = std::max(seconds / static_cast<double>(n), 1e-9);
  const double turn = protocol.max_seconds / kTurns / a_sample;
  const auto samples =
      static_cast<int64_t>(std::clamp(turn, static_cast<double>(kFirstTurn), static_cast<double>(kLongestTurn)));
  return {.samples = std::min(samples, most - n), .unmet = {}};
}

std::vector<SumRow> measure_sum(const SumGroup& group, const SumCase& sum, const std::vector<std::string>& ways,
                                const SumProtocol& protocol) {
  std::vector<Turn> turns;
  turns.reserve(ways.size());
  for (const std::string& way : ways) {
    turns.push_back({.way = way, .samples = {}, .next = next_samples(protocol, {}, 0)});
  }
  std::vector<size_t> active(turns.size());
  std::iota(active.begin(), active.end(), size_t{0});
  const uint64_t seed = protocol.seed + static_cast<uint64_t>(sum.count);  // each size has an order of its own
  for (int64_t round = 0; !active.empty(); ++round) {
    std::vector<size_t> going_on;
    for (const size_t place : round_order(active.size(), seed, round)) {
      Turn& turn = turns[active[place]];
      measure_turn(group, sum, protocol, turn);
      if (turn.next.samples > 0) going_on.push_back(active[place]);
    }
    std::sort(going_on.begin(), going_on.end());  // the order is drawn from the ways' own
    active = std::move(going_on);
  }
  std::vector<SumRow> rows;
  for (const Turn& turn : turns) {
    rows.push_back(sum_row(sum, turn.way, turn.samples));
    rows.back().unmet = turn.next.unmet;
  }
  return rows;
}

std::vector<Crossover> crossovers(std::span<const SumRow> rows) {
  using Kind = std::tuple<int, kernels::DType, bool>;  // tp, dtype, graph
  std::map<Kind, std::map<int64_t, std::vector<const SumRow*>>> sizes;
  for (const SumRow& row : rows) {
    if (row.wrong == 0 && row.time_us.p50) {
      sizes[{row.sum.tp, row.sum.dtype, row.sum.graph}][row.sum.bytes()].push_back(&row);
    }
  }
  std::vector<Crossover> result;
  for (const auto& [kind, by_size] : sizes) {
    std::string current;
    for (const auto& [bytes, candidates] : by_size) {
      const SumRow* fastest =
          *std::min_element(candidates.begin(), candidates.end(),
                            [](const SumRow* a, const SumRow* b) { return *a->time_us.p50 < *b->time_us.p50; });
      const auto held =
          std::find_if(candidates.begin(), candidates.end(), [&](const SumRow* row) { return row->way == current; });
      // A way that has no figure at this size (it is too large for it, or its sums were wrong) gives way to another.
      if (held != candidates.end() && !clearly_faster(*fastest, **held)) continue;
      current = fastest->way;
      const auto& [tp, dtype, graph] = kind;
      result.push_back({.tp = tp, .dtype = dtype, .graph = graph, .from_bytes = bytes, .way = current});
    }
  }
  return result;
}

}  // namespace shardscope::runtime
