#include "runtime/measure/group.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "parallel/rehearsed_communicator.hpp"
#include "runtime/model/slice.hpp"

namespace shardscope::runtime {
namespace {

constexpr double kBandwidthSeconds = 0.3;  // of one measurement; two a point and visit
constexpr size_t kHeaderDoubles = 3;       // stolen share, waited share, MHz; NaN: unknown

double or_nan(const std::optional<double>& value) {
  return value.value_or(std::nan(""));
}

/// When each token of a batch's slowest request was known. All prompts are in when that request's first token comes,
/// so the gaps after it are decode steps alone.
const std::vector<double>& last_request_times(const std::vector<GenerationResult>& results) {
  const GenerationResult* last = &results.front();
  for (const GenerationResult& result : results) {
    if (!result.token_times_ms.empty() && result.token_times_ms.front() > last->token_times_ms.front()) last = &result;
  }
  return last->token_times_ms;
}

/// A token is there when the slowest rank has it. all: [ranks][kHeaderDoubles + tokens]
std::vector<double> slowest_times(std::span<const double> all, size_t stride) {
  std::vector<double> slowest(stride - kHeaderDoubles, 0.0);
  for (size_t begin = 0; begin < all.size(); begin += stride) {
    for (size_t token = 0; token < slowest.size(); ++token) {
      slowest[token] = std::max(slowest[token], all[begin + kHeaderDoubles + token]);
    }
  }
  return slowest;
}

/// Stolen share and clock: means over the ranks that know them; waiting: the greatest.
Disturbance disturbance_of(std::span<const double> all, size_t stride) {
  Disturbance result;
  double stolen = 0, mhz = 0;
  int stolen_ranks = 0, mhz_ranks = 0;
  for (size_t begin = 0; begin < all.size(); begin += stride) {
    const std::span<const double> header = all.subspan(begin, kHeaderDoubles);
    if (!std::isnan(header[0])) {
      stolen += header[0];
      ++stolen_ranks;
    }
    if (!std::isnan(header[1])) result.waited_share = std::max(header[1], result.waited_share.value_or(0));
    if (!std::isnan(header[2])) {
      mhz += header[2];
      ++mhz_ranks;
    }
  }
  if (stolen_ranks > 0) result.stolen_share = stolen / stolen_ranks;
  if (mhz_ranks > 0) result.mhz = mhz / mhz_ranks;
  return result;
}

}  // namespace

kernels::KvPart read_part(const Workload& workload) {
  const int64_t mean_positions = workload.prompt_tokens + (workload.output_tokens + 1) / 2;
  return {.slots = workload.batch, .positions = std::clamp<int64_t>(mean_positions, 1, workload.positions())};
}

GroupMachine::GroupMachine(parallel::World& world, const OpenedModel& model, GroupOptions options)
    : world_(world), backend_(*options.work.backend), options_(std::move(options)), own_(options_.workloads.size()) {
  const SweepOptions& sweep = options_.sweep;
  const parallel::ShardPlan plan = plan_shards(shard_dimensions(model.config), options_.tp);
  DecoderOptions shape = decoder_options(options_.workloads, sweep.max_step_tokens, sweep.precision);
  shape.valid_vocab = sweep.valid_vocab;
  // Activations on devices are summed there.
  const int64_t widest = options_.work.on_device ? 0 : largest_all_reduce_floats(model.config, shape);
  std::vector<int64_t> decoding, prefill;
  for (const Workload& workload : options_.workloads) {
    decoding.push_back(workload.batch);
    prefill.push_back(std::min(shape.max_step_tokens, workload.batch * workload.prompt_tokens));
  }
  if (options_.rehearsed_rank) {
    communicator_ =
        parallel::make_rehearsed_communicator(*options_.rehearsed_rank, options_.tp, parallel::Absent::kSame);
  } else {
    communicator_ = parallel::make_communicator(
        world, {.group_size = options_.tp,
                .kind = sweep.communicator,
                .max_floats = std::max(widest, Sampler::max_exchange_floats(shape.slots)),
                .oversubscribed = options_.oversubscribed,
                .on_device = options_.work.on_device,
                .message_bytes = all_reduce_bytes(model.config, backend_, decoding, prefill),
                .first_rank = options_.first_rank});
  }
  const auto whole =
      static_cast<double>(planned_memory(model.config, *model.weights, plan, shape, communicator_->rank()).weights);
  if (options_.tell_loading) {
    shape.loaded = [this, whole](int64_t bytes) {
      options_.tell_loading(static_cast<double>(bytes) / std::max(whole, 1.0));
    };
  }
  const double start = now_seconds();
  decoder_ = std::make_unique<Decoder>(model.config, *model.weights, plan, shape,
                                       RankContext{backend_, *communicator_, world});
  const double load_seconds = now_seconds() - start;
  sampler_ =
      std::make_unique<Sampler>(backend_, *communicator_, decoder_->vocab_range(), sweep.valid_vocab, shape.slots);
  for (size_t point = 0; point < options_.workloads.size(); ++point) {
    own_[point].load_seconds = load_seconds;
    const Workload& workload = options_.workloads[point];
    std::vector<GenerationRequest> requests;
    for (int64_t sequence = 0; sequence < workload.batch; ++sequence) {
      requests.push_back({.prompt_ids = prompt_of_length(workload.prompt_tokens, sweep.prompt_ids, sweep.valid_vocab,
                                                         sweep.protocol.seed, sequence),
                          .max_tokens = workload.output_tokens});
    }
    requests_.push_back(std::move(requests));
  }
}

GenerationSample GroupMachine::generate(size_t point) {
  const topology::ActivityProbe* probe = options_.work.activity;
  const topology::Activity before = probe ? probe->read() : topology::Activity{};
  const double start = now_seconds();
  communicator_->barrier();
  const std::vector<GenerationResult> results =
      generate_batch(*decoder_, *sampler_, RankContext{backend_, *communicator_, world_}, requests_[point], {});
  const double seconds = now_seconds() - start;
  const topology::Activity after = probe ? probe->read() : topology::Activity{};
  const topology::ActivityShares shares =
      probe ? shares_between(before, after, seconds, probe->cores(), options_.sweep.threads)
            : topology::ActivityShares{};

  const std::vector<double>& own_times = last_request_times(results);
  OwnFigures& own = own_[point];
  if (const std::optional<double> tpot = generation_times(own_times).tpot_ms) own.tpot_ms.push_back(*tpot);
  if (shares.waited_share) {
    own.waited_seconds += *shares.waited_share * seconds;
    own.seconds += seconds;
  }
  std::vector<double> mine = {or_nan(shares.stolen_share), or_nan(shares.waited_share), or_nan(shares.mhz)};
  mine.insert(mine.end(), own_times.begin(), own_times.end());
  const std::vector<double> all = gather(mine);
  const GenerationTimes times = generation_times(slowest_times(all, mine.size()));
  return {.pass = 0,
          .ttft_ms = times.ttft_ms,
          .tpot_ms = times.tpot_ms,
          .latency_ms = times.latency_ms,
          .itl_ms = times.itl_ms,
          .disturbance = disturbance_of(all, mine.size())};
}

std::optional<InstrumentedSample> GroupMachine::generate_instrumented(size_t point) {
  // A backend that cannot is one on all ranks.
  if (options_.workloads[point].output_tokens < 2 || !backend_.note_times(true)) return std::nullopt;
  ledger_.clear();
  const GenerateOptions options{.stepped = [this](bool decodes) { ledger_.add(backend_.step_times(), decodes); }};
  communicator_->barrier();
  const std::vector<GenerationResult> results =
      generate_batch(*decoder_, *sampler_, RankContext{backend_, *communicator_, world_}, requests_[point], options);
  backend_.note_times(false);
  const std::vector<double>& own_times = last_request_times(results);
  std::vector<double> header(kHeaderDoubles);
  header.insert(header.end(), own_times.begin(), own_times.end());
  const GenerationTimes times = generation_times(slowest_times(gather(header), header.size()));
  const std::vector<double> ledgers = gather(ledger_.to_doubles());
  const bool one_clock = !options_.work.on_device && world_.one_host();
  std::optional<std::vector<StepTimes>> steps =
      step_times_of(ledgers, static_cast<size_t>(communicator_->size()), one_clock);
  if (!steps || !times.tpot_ms) return std::nullopt;
  own_[point].timer_step_ns = static_cast<double>(backend_.time_step_ns());
  return InstrumentedSample{.tpot_ms = *times.tpot_ms, .ranks = std::move(*steps)};
}

std::vector<double> GroupMachine::gather(const std::vector<double>& mine) {
  std::vector<double> all(mine.size() * static_cast<size_t>(communicator_->size()));
  communicator_->all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
  return all;
}

void GroupMachine::measure_bandwidth(size_t point, bool after) {
  const ReadBandwidth measured = measure_read_bandwidth(*decoder_, RankContext{backend_, *communicator_, world_},
                                                        {.kv = read_part(options_.workloads[point]),
                                                         .seconds = kBandwidthSeconds,
                                                         .oversubscribed = options_.oversubscribed});
  OwnFigures& own = own_[point];
  if (after) {
    own.after = measured;
  } else {  // warming up is over
    own = {.before = measured, .load_seconds = own.load_seconds};
  }
}

double GroupMachine::now_seconds() {
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

bool GroupMachine::agree(bool mine) {
  auto word = static_cast<std::byte>(mine ? 1 : 0);
  communicator_->broadcast(std::span(&word, 1), 0);
  return word != std::byte{0};
}

void GroupMachine::tell(size_t point, const char* doing, int64_t generation, double fraction) {
  if (options_.tell) options_.tell(point, doing, generation, fraction);
}

}  // namespace shardscope::runtime
