#include "runtime/measure/rehearsal_model.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "runtime/decoder.hpp"

namespace shardscope::runtime {
namespace {

constexpr double kStatedError = 0.2;  // of rehearsals beside co-runners, which were compared with real ranks
constexpr double kMsOfUs = 1e-3;

std::string size_text(int64_t bytes) {
  constexpr int64_t kKilo = 1024;
  return bytes < 10 * kKilo ? fmt::format("{} B", bytes) : fmt::format("{} KiB", bytes / kKilo);
}

/// The all-reduces of some forward passes.
struct PassTimes {
  std::optional<double> ms;  // nullopt: at least one is unknown
  int64_t most_bytes = 0;
  double most_us = 0;  // of one of most_bytes
  bool below = false;
};

PassTimes times_of(const topology::CollectiveTimes& times, int tp, const std::vector<int64_t>& pass_bytes,
                   int64_t all_reduces) {
  PassTimes result{.ms = 0};
  for (const int64_t bytes : pass_bytes) {
    const std::optional<topology::CollectiveTime> time = times.time(tp, bytes);
    if (!time) return {.ms = std::nullopt, .most_bytes = bytes};
    *result.ms += static_cast<double>(all_reduces) * time->us * kMsOfUs;
    result.below = result.below || time->below;
    if (bytes >= result.most_bytes) {
      result.most_bytes = bytes;
      result.most_us = time->us;
    }
  }
  return result;
}

/// Tokens of each forward pass of a batch's prompts.
std::vector<int64_t> prefill_passes(const Workload& workload, int64_t max_step_tokens) {
  std::vector<int64_t> passes;
  for (int64_t left = workload.batch * workload.prompt_tokens; left > 0; left -= max_step_tokens) {
    passes.push_back(std::min(left, max_step_tokens));
  }
  return passes;
}

std::string below_text(const PassTimes& times) {
  return times.below ? ", as for its smallest message" : "";
}

}  // namespace

int heaviest_rank(const ModelConfig& config, const DTypeOf& dtype_of, const parallel::ShardPlan& plan,
                  const std::vector<Workload>& workloads, const kernels::Precision& precision) {
  int heaviest = 0;
  double most = -1;
  for (int rank = 0; rank < static_cast<int>(plan.ranks.size()); ++rank) {
    double bytes = 0;
    for (const Workload& workload : workloads) {
      bytes += step_traffic(config, dtype_of, plan, rank, workload, precision).headline();
    }
    if (bytes > most) {
      heaviest = rank;
      most = bytes;
    }
  }
  return heaviest;
}

double group_step_bytes(const ModelConfig& config, const DTypeOf& dtype_of, const parallel::ShardPlan& plan,
                        const Workload& workload, const kernels::Precision& precision) {
  double bytes = 0;
  for (int rank = 0; rank < static_cast<int>(plan.ranks.size()); ++rank) {
    bytes += step_traffic(config, dtype_of, plan, rank, workload, precision).headline();
  }
  return bytes;
}

int64_t all_reduces_of_pass(const ModelConfig& config) {
  return 1 + 2 * config.layers;
}

Rehearsal rehearsal_of(const RehearsalOptions& options, const ModelConfig& config, const kernels::Backend& backend,
                       const Workload& workload, int tp, int64_t max_step_tokens) {
  Rehearsal rehearsal{.co_runners = options.backend_at ? tp - 1 : 0};
  if (options.backend_at) rehearsal.stated_error = kStatedError;
  if (tp == 1) {
    rehearsal.step_collectives_ms = 0;
    rehearsal.prefill_collectives_ms = 0;
    rehearsal.collective_model = "one rank: no collectives";
    return rehearsal;
  }
  const int64_t sums = all_reduces_of_pass(config);
  const std::vector<int64_t> decoding = {workload.batch};
  const std::vector<int64_t> prefill = prefill_passes(workload, max_step_tokens);
  const PassTimes step = times_of(options.times, tp, all_reduce_bytes(config, backend, decoding, {}), sums);
  const PassTimes prompt = times_of(options.times, tp, all_reduce_bytes(config, backend, {}, prefill), sums);
  rehearsal.step_collectives_ms = step.ms;
  rehearsal.prefill_collectives_ms = prompt.ms;
  const std::string source = options.times.source(tp);
  if (source.empty()) {
    rehearsal.collective_model =
        options.topology.empty()
            ? "none: compute only (--topology FILE names a machine whose all-reduces are known)"
            : fmt::format("none: compute only ({} tells no all-reduce times of {} ranks)", options.topology, tp);
    return rehearsal;
  }
  const std::string from = fmt::format("{}, {}", options.topology, source);
  rehearsal.collective_model =
      step.ms ? fmt::format("{} all-reduces of {} a step, {:.3g} us each ({}{})", sums, size_text(step.most_bytes),
                            step.most_us, from, below_text(step))
              : fmt::format("none: compute only ({}: none of {})", from, size_text(step.most_bytes));
  rehearsal.collective_model += prompt.ms ? fmt::format("; {:.3g} ms in TTFT", *prompt.ms)
                                          : fmt::format("; none in TTFT (none of {})", size_text(prompt.most_bytes));
  return rehearsal;
}

void add_collectives(const Rehearsal& rehearsal, GenerationSample& sample) {
  const double step = rehearsal.step_collectives_ms.value_or(0);
  const double prefill = rehearsal.prefill_collectives_ms.value_or(0);
  if (sample.ttft_ms) *sample.ttft_ms += prefill;
  if (sample.tpot_ms) *sample.tpot_ms += step;
  for (double& gap : sample.itl_ms) gap += step;
  if (sample.latency_ms) *sample.latency_ms += prefill + step * static_cast<double>(sample.itl_ms.size());
}

void add_collectives(const Rehearsal& rehearsal, InstrumentedSample& sample) {
  const double step = rehearsal.step_collectives_ms.value_or(0);
  sample.tpot_ms += step;
  for (StepTimes& times : sample.ranks) {
    times.gaps += times.transfer + times.wait;  // of calls that did nothing
    times.transfer = step;
    times.wait = 0;
  }
}

std::string stated_error_text(const Rehearsal& rehearsal) {
  const char* what = rehearsal.step_collectives_ms ? "TPOT" : "computing";
  return rehearsal.stated_error
             ? fmt::format("stated error of {} at most {:.0f} %", what, *rehearsal.stated_error * 100)
             : fmt::format("its error of {} is not known", what);
}

void finish_rehearsed(PointResult& point) {
  if (!point.rehearsal) return;
  Rehearsal& rehearsal = *point.rehearsal;
  if (point.oversubscribed) rehearsal.stated_error.reset();
  if (!point.knows(Part::kAllreduceTransfer) || !point.knows(Part::kAllreduceWait)) point.comm_share.reset();
  const std::string beside =
      rehearsal.co_runners == 0
          ? ""
          : fmt::format(", beside {} of the {} other rank{}", rehearsal.co_runners == 1 ? "that" : "those",
                        rehearsal.co_runners, rehearsal.co_runners == 1 ? "" : "s");
  point.verdicts.push_back(fmt::format(
      "rehearsed: the shard of rank {} of {} ran for real{}, and not as one of a group; {}; collectives: {}; "
      "waiting for other ranks and the exchange of candidates are not modelled",
      rehearsal.rank, point.tp, beside, stated_error_text(rehearsal), rehearsal.collective_model));
  if (rehearsal.step_collectives_ms) return;
  point.verdicts.push_back(
      "compute_only: nothing is known of the collectives' times, and none are in these figures: a real group is "
      "slower, and the stated error is that of computing");
}

}  // namespace shardscope::runtime
