#include "runtime/measure/sweep.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <random>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "runtime/generate/generate.hpp"
#include "runtime/measure/bandwidth.hpp"
#include "runtime/model/slice.hpp"

namespace shardscope::runtime {
namespace {

constexpr double kBandwidthSeconds = 0.3;  // one measurement; made before and after each point's generations
constexpr double kDriftWarning = 0.05;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

int64_t longest(const Workload& workload) {
  return workload.prompt_tokens + std::max<int64_t>(workload.output_tokens - 1, 0);
}

/// One measured generation of a batch. TTFT is that of the batch's last first token (all prompts are in), TPOT counts
/// the decode steps alone.
struct Sample {
  std::optional<double> ttft_ms, tpot_ms, latency_ms;
  std::vector<double> itl_ms;
};

Sample sample_of(const std::vector<GenerationResult>& results) {
  const GenerationResult* last = &results.front();
  for (const GenerationResult& result : results) {
    if (!result.token_times_ms.empty() && result.token_times_ms.front() > last->token_times_ms.front()) last = &result;
  }
  const GenerationTimes times = generation_times(last->token_times_ms);
  return {times.ttft_ms, times.tpot_ms, times.latency_ms, times.itl_ms};
}

/// What one member of the group measured at one point; times are its own clock's.
struct PointSamples {
  std::vector<Sample> samples;
  std::optional<double> cold_ttft_ms;
  ReadBandwidth before, after;
  double window_seconds = 0;
  bool ended_by_time = false;
};

class Member {
 public:
  Member(Decoder& decoder, Sampler& sampler, RankContext context, const SweepOptions& options, bool oversubscribed)
      : decoder_(decoder), sampler_(sampler), context_(context), options_(options), oversubscribed_(oversubscribed) {}

  PointSamples measure(const Workload& workload) {
    std::vector<GenerationRequest> requests;
    for (int64_t sequence = 0; sequence < workload.batch; ++sequence) {
      requests.push_back({.prompt_ids = prompt_of_length(workload.prompt_tokens, options_.prompt_ids,
                                                         options_.valid_vocab, options_.seed, sequence),
                          .max_tokens = workload.output_tokens});
    }
    PointSamples point;
    for (int64_t i = 0; i < std::max<int64_t>(options_.warmup, 1); ++i) {
      const Sample sample = generate(requests);
      if (i == 0) point.cold_ttft_ms = sample.ttft_ms;
    }
    const auto read_positions = static_cast<int64_t>(
        std::llround(static_cast<double>(workload.prompt_tokens) + static_cast<double>(workload.output_tokens) / 2.0));
    const BandwidthOptions bandwidth{
        .kv = {.slots = workload.batch, .positions = std::clamp<int64_t>(read_positions, 1, longest(workload))},
        .seconds = kBandwidthSeconds,
        .oversubscribed = oversubscribed_};
    point.before = measure_read_bandwidth(decoder_, context_, bandwidth);
    const Clock::time_point start = Clock::now();
    for (double go_on = 1; go_on != 0;) {
      point.samples.push_back(generate(requests));
      point.window_seconds = seconds_since(start);
      point.ended_by_time = point.window_seconds >= options_.max_seconds;
      const bool enough = static_cast<int64_t>(point.samples.size()) >= options_.iterations;
      go_on = enough || point.ended_by_time ? 0 : 1;
      if (enough) point.ended_by_time = false;
      context_.communicator.broadcast(std::as_writable_bytes(std::span(&go_on, 1)), 0);
    }
    point.after = measure_read_bandwidth(decoder_, context_, bandwidth);
    return point;
  }

 private:
  Sample generate(const std::vector<GenerationRequest>& requests) {
    context_.communicator.barrier();
    return sample_of(generate_batch(decoder_, sampler_, context_, requests, {}));
  }

  Decoder& decoder_;
  Sampler& sampler_;
  RankContext context_;
  const SweepOptions& options_;
  bool oversubscribed_;
};

/// The figures of a member that travel to rank 0, as doubles.
constexpr size_t kWireDoubles = 8;
std::array<double, kWireDoubles> to_wire(const PointSamples& point, const Decoder& decoder, double load_seconds) {
  std::vector<double> tpots;
  for (const Sample& sample : point.samples) {
    if (sample.tpot_ms) tpots.push_back(*sample.tpot_ms);
  }
  std::sort(tpots.begin(), tpots.end());
  const MemoryBytes memory = decoder.memory();
  return {std::max(point.before.best_gb_per_s, point.after.best_gb_per_s),
          (point.before.median_gb_per_s + point.after.median_gb_per_s) / 2,
          point.after.best_gb_per_s / point.before.best_gb_per_s - 1,
          tpots.empty() ? std::nan("") : quantile_sorted(tpots, 0.5),
          static_cast<double>(memory.weights),
          static_cast<double>(memory.kv),
          static_cast<double>(memory.workspace),
          load_seconds};
}

RankFigures from_wire(std::span<const double> wire, int rank) {
  RankFigures figures{
      .rank = rank,
      .memory = {static_cast<int64_t>(wire[4]), static_cast<int64_t>(wire[5]), static_cast<int64_t>(wire[6])},
      .achievable_gb_per_s = wire[0],
      .achievable_median_gb_per_s = wire[1],
      .bandwidth_drift = wire[2],
      .load_seconds = wire[7]};
  if (!std::isnan(wire[3])) figures.tpot_ms = wire[3];
  return figures;
}

Spread spread_of(const std::vector<RankFigures>& ranks, std::optional<double> RankFigures::*field) {
  Spread spread{.min = INFINITY, .max = -INFINITY};
  for (const RankFigures& figures : ranks) {
    const double value = (figures.*field).value_or(0);
    spread.min = std::min(spread.min, value);
    spread.max = std::max(spread.max, value);
    spread.mean += value / static_cast<double>(ranks.size());
  }
  return spread;
}

/// A verdict when the denominator of mbu_achievable moved while the point was measured.
void note_drift(PointResult& point) {
  double lowest = 0;
  double highest = 0;
  for (const RankFigures& figures : point.ranks) {
    lowest = std::min(lowest, figures.bandwidth_drift);
    highest = std::max(highest, figures.bandwidth_drift);
  }
  if (std::max(highest, -lowest) <= kDriftWarning) return;
  point.verdicts.push_back(
      fmt::format("bandwidth_drift: read bandwidth moved by {:+.0f} to {:+.0f} % over the ranks "
                  "while this was measured; MBU is that uncertain",
                  lowest * 100, highest * 100));
}

void set_times(PointResult& point, const PointSamples& samples) {
  std::vector<double> ttft, tpot, latency, itl;
  for (const Sample& sample : samples.samples) {
    if (sample.ttft_ms) ttft.push_back(*sample.ttft_ms);
    if (sample.tpot_ms) tpot.push_back(*sample.tpot_ms);
    if (sample.latency_ms) latency.push_back(*sample.latency_ms);
    itl.insert(itl.end(), sample.itl_ms.begin(), sample.itl_ms.end());
  }
  point.ttft_ms = distribution_of(ttft);
  point.tpot_ms = distribution_of(tpot);
  point.latency_ms = distribution_of(latency);
  point.itl_ms = dependent_distribution_of(itl);
  point.cold_ttft_ms = samples.cold_ttft_ms;
  point.generations = static_cast<int64_t>(samples.samples.size());
  point.ended_by_time = samples.ended_by_time;
  const auto requests = static_cast<double>(point.generations * point.workload.batch);
  if (samples.window_seconds > 0) {
    point.requests_per_s = requests / samples.window_seconds;
    point.throughput_tokens_per_s =
        requests * static_cast<double>(point.workload.output_tokens) / samples.window_seconds;
  }
}

}  // namespace

DecoderOptions decoder_options(const std::vector<Workload>& workloads, int64_t max_step_tokens) {
  DecoderOptions result{.slots = 1, .max_positions = 1, .max_step_tokens = max_step_tokens};
  for (const Workload& workload : workloads) {
    result.slots = std::max(result.slots, workload.batch);
    result.max_positions = std::max(result.max_positions, longest(workload));
  }
  result.max_step_tokens = std::max(result.max_step_tokens, result.slots);
  return result;
}

void set_utilisation(PointResult& point, double nominal_bytes, const GroupPlace& place,
                     std::optional<double> peak_gb_per_s) {
  double group_bytes = 0;
  for (const RankFigures& figures : point.ranks) group_bytes += figures.bytes.headline();
  if (place.cache_bytes > 0) point.cache_resident = group_bytes <= static_cast<double>(place.cache_bytes);
  if (point.cache_resident.value_or(false)) {
    point.verdicts.push_back(fmt::format(
        "cache_resident: what a step reads ({:.1f} MB) fits the group's last-level cache ({:.1f} MB): no MBU against "
        "memory",
        group_bytes * 1e-6, static_cast<double>(place.cache_bytes) * 1e-6));
  }
  if (!point.tpot_ms.p50) return;
  const double seconds = *point.tpot_ms.p50 * 1e-3;
  const double peak = point.cache_resident.value_or(false) ? 0 : peak_gb_per_s.value_or(0);  // 0: none to compare with
  for (RankFigures& figures : point.ranks) {
    const double gb_per_s = figures.bytes.headline() * 1e-9 / seconds;
    figures.mbu_achievable = gb_per_s / figures.achievable_gb_per_s;
    if (peak == 0) continue;
    const double useful = figures.bytes.headline() - figures.bytes.replicated - figures.bytes.padded;
    figures.mbu = gb_per_s / peak;
    figures.mbu_useful = useful * 1e-9 / seconds / peak;
  }
  point.mbu_achievable = spread_of(point.ranks, &RankFigures::mbu_achievable);
  double highest = point.mbu_achievable->max;
  if (peak > 0) {
    point.mbu = spread_of(point.ranks, &RankFigures::mbu);
    point.mbu_useful = spread_of(point.ranks, &RankFigures::mbu_useful);
    point.mbu_nominal = nominal_bytes * 1e-9 / seconds / (peak * point.tp);
    highest = std::max({highest, point.mbu->max, *point.mbu_nominal});
  }
  if (highest > 1) {
    point.status = PointStatus::kInvalid;
    point.verdicts.push_back(fmt::format(
        "invalid: an MBU of {:.0f} % cannot be; the peak or the measured bandwidth is too low, the bytes are counted "
        "wrongly, or a cache serves them",
        highest * 100));
  }
}

std::vector<int32_t> prompt_of_length(int64_t length, const std::vector<int32_t>& real, int64_t valid_vocab,
                                      uint64_t seed, int64_t sequence) {
  std::vector<int32_t> ids(static_cast<size_t>(length));
  if (!real.empty()) {
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = real[i % real.size()];
    return ids;
  }
  std::seed_seq key{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), static_cast<uint32_t>(sequence)};
  std::mt19937 random(key);
  // The modulus keeps the ids the same with every standard library; its bias is below valid_vocab / 2^32.
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % static_cast<uint32_t>(valid_vocab));
  return ids;
}

void set_speedup(PointResult& point, const std::vector<PointResult>& earlier) {
  const PointResult* base = &point;
  for (const PointResult& other : earlier) {
    if (other.workload == point.workload && other.tpot_ms.p50 && other.tp < base->tp) base = &other;
  }
  if (!base->tpot_ms.p50 || !point.tpot_ms.p50) return;
  point.tp_base = base->tp;
  point.speedup = *base->tpot_ms.p50 / *point.tpot_ms.p50;
  point.efficiency = *point.speedup * base->tp / point.tp;
}

std::vector<PointResult> run_sweep(parallel::World& world, kernels::Backend& backend, const OpenedModel& model,
                                   const SweepOptions& options, const SweepProgress& progress) {
  const bool reporting = world.rank() == 0;
  const DTypeOf dtype_of = [&](WeightId id) { return model.weights->dtype(id); };
  const DecoderOptions shape = decoder_options(options.workloads, options.max_step_tokens);
  std::vector<PointResult> points;

  for (const int tp : options.degrees) {
    const parallel::ShardPlan plan = plan_shards(shard_dimensions(model.config), tp);
    const bool member = world.rank() < tp;

    const GroupPlace place = options.place_of_group ? options.place_of_group(tp) : GroupPlace{};
    const int64_t needed = planned_group_bytes(model.config, *model.weights, plan, shape);
    if (world.one_host() && options.host_memory_bytes > 0 && needed > options.host_memory_bytes) {
      for (const Workload& workload : options.workloads) {
        PointResult point{.tp = tp, .workload = workload, .status = PointStatus::kOutOfMemory};
        point.verdicts.push_back(fmt::format("out_of_memory: needs {:.2f} GB, this host has {:.2f} GB",
                                             static_cast<double>(needed) * 1e-9,
                                             static_cast<double>(options.host_memory_bytes) * 1e-9));
        if (reporting) progress.point(point);
        points.push_back(point);
      }
      continue;
    }

    if (reporting) progress.say(fmt::format("tp {}: loading shards", tp));
    std::unique_ptr<parallel::Communicator> communicator;
    std::unique_ptr<Decoder> decoder;
    std::unique_ptr<Sampler> sampler;
    double load_seconds = 0;
    if (member) {
      const int64_t widest = largest_all_reduce_floats(model.config, shape);
      communicator =
          parallel::make_communicator(world, {.group_size = tp,
                                              .kind = options.communicator,
                                              .max_floats = std::max(widest, Sampler::max_exchange_floats(shape.slots)),
                                              .oversubscribed = place.oversubscribed});
      const RankContext context{backend, *communicator, world};
      const Clock::time_point start = Clock::now();
      decoder = std::make_unique<Decoder>(model.config, *model.weights, plan, shape, context);
      load_seconds = seconds_since(start);
      sampler =
          std::make_unique<Sampler>(backend, *communicator, decoder->vocab_range(), options.valid_vocab, shape.slots);
    }
    if (!member) world.progress("idle, not in the group");
    for (const Workload& workload : options.workloads) {
      PointResult point{.tp = tp, .workload = workload, .oversubscribed = place.oversubscribed};
      if (reporting) {
        progress.say(fmt::format("tp {}, batch {}, {} + {} tokens: measuring", tp, workload.batch,
                                 workload.prompt_tokens, workload.output_tokens));
      }
      PointSamples samples;
      std::array<double, kWireDoubles> wire{};
      if (member) {
        const RankContext context{backend, *communicator, world};
        samples = Member(*decoder, *sampler, context, options, place.oversubscribed).measure(workload);
        wire = to_wire(samples, *decoder, load_seconds);
        point.communicator = communicator->name();
      }
      const std::vector<double> all = world.all_gather(wire, "figures of a point");
      for (int rank = 0; rank < tp; ++rank) {
        RankFigures figures =
            from_wire(std::span(all).subspan(static_cast<size_t>(rank) * kWireDoubles, kWireDoubles), rank);
        figures.shard = plan.ranks[static_cast<size_t>(rank)];
        figures.bytes = step_traffic(model.config, dtype_of, plan, rank, workload);
        point.ranks.push_back(figures);
      }
      if (!reporting) continue;
      set_times(point, samples);
      set_utilisation(point, nominal_step_bytes(model.config, dtype_of, workload), place, options.peak_gb_per_s);
      set_speedup(point, points);
      note_drift(point);
      if (point.ended_by_time) {
        point.verdicts.push_back(fmt::format("time_limit: {} of {} generations within --max-seconds", point.generations,
                                             options.iterations));
      }
      progress.point(point);
      points.push_back(std::move(point));
    }
  }
  return points;
}

}  // namespace shardscope::runtime
