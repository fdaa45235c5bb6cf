// What a sweep finds at one point, a group of ranks at its places and a workload. Values only: measured by sweep.cpp
// and protocol.cpp, derived by figures.cpp and verdicts.cpp, written and read back by runtime/report.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "parallel/shard_plan.hpp"
#include "runtime/decoder.hpp"
#include "runtime/measure/parts.hpp"
#include "runtime/measure/statistics.hpp"
#include "runtime/measure/traffic.hpp"
#include "topology/placement.hpp"

namespace shardscope::runtime {

/// kIncomplete: degrees are visited twice, and the second visit is still to come.
enum class PointStatus : uint8_t { kOk, kOutOfMemory, kInvalid, kIncomplete };

/// kMeasured: these ranks did it. kRehearsed: one device stood for all ranks, one after another, and collectives are
/// modelled. kPredicted: nothing ran. kEmulated: on stand-ins for devices; its times say nothing.
enum class FigureKind : uint8_t { kMeasured, kRehearsed, kPredicted, kEmulated };

/// What went on around a piece of measured time. Shares are of that time, nullopt where they cannot be read.
struct Disturbance {
  std::optional<double> stolen_share;  // of the ranks' cores, taken by the hypervisor
  std::optional<double> waited_share;  // of the rank's threads, runnable without a core; the greatest of the ranks
  std::optional<double> mhz;           // mean clock of the ranks' cores at its end
};

/// Why a generation lies outside the others, by what was seen while it ran.
enum class OutlierCause : uint8_t { kStolen, kWaited, kSlowClock, kUnexplained };
inline constexpr std::array kOutlierCauses = {OutlierCause::kStolen, OutlierCause::kWaited, OutlierCause::kSlowClock,
                                              OutlierCause::kUnexplained};

/// One measured generation of a batch; times are those of the slowest rank.
struct GenerationSample {
  int pass = 0;  // 0: while degrees go up, 1: while they go down
  std::optional<double> ttft_ms, tpot_ms, latency_ms;
  std::vector<double> itl_ms;  // [output_tokens - 1]
  Disturbance disturbance;
};

/// Outliers by Tukey's fences (1.5 and 3 interquartile ranges beyond the quartiles) of TPOT, or of TTFT where there is
/// no TPOT. None is dropped from any figure.
struct Outliers {
  int64_t low_mild = 0, low_severe = 0, high_mild = 0, high_severe = 0;
  std::array<int64_t, kOutlierCauses.size()> causes{};  // of the high ones, in the order of kOutlierCauses
};

/// How one visit's warm-up ended.
struct WarmUp {
  int64_t generations = 0;
  std::optional<double> change;  // median latency of the last generations / of as many before, - 1
  std::optional<bool> steady;    // nullopt: --warmup was too short to tell
};

/// How well the headline figure (TPOT p50; TTFT p50 where there is no TPOT) is known.
struct Noise {
  // Its 95 % interval, widened to hold the medians of both visits; nullopt while it is open (n < 6).
  std::optional<double> low_ms, high_ms;
  std::optional<double> relative;    // half of that / the headline figure
  std::optional<double> pass_shift;  // median of the second visit / of the first - 1
};

/// Bytes and operations are exact; times are measured.
struct RankFigures {
  int rank = 0;
  parallel::RankShard shard;
  StepBytes bytes;
  MemoryBytes memory;
  double achievable_gb_per_s = 0;  // best of all passes before and after
  double achievable_median_gb_per_s = 0;
  double bandwidth_drift = 0;     // best after / best before - 1, the larger one of the visits
  std::optional<double> tpot_ms;  // p50 by this rank's own clock; mean of the visits'
  std::optional<double> mbu, mbu_achievable, mbu_useful;
  std::optional<double> waited_share;
  std::optional<Parts> attribution;
  std::optional<double> timer_step_ns;  // of the clock behind it
  double load_seconds = 0;              // of the first visit
};

struct Spread {
  double min = 0, mean = 0, max = 0;
};

/// Text to ids and back, outside of TTFT and TPOT. Of one request, on rank 0.
struct TextCost {
  double tokenise_ms = 0;
  double detokenise_ms = 0;
};

/// What stands behind a rehearsed row, beside what ran.
struct Rehearsal {
  int rank = 0;                                  // whose shard ran
  int co_runners = 0;                            // shards of other ranks that ran beside it
  std::optional<double> step_collectives_ms;     // modelled, in every TPOT and ITL; nullopt: unknown, none is in them
  std::optional<double> prefill_collectives_ms;  // the same, in every TTFT
  std::string collective_model;                  // in words
  // Fraction of TPOT, at most; of what is computed, where the collectives are unknown. nullopt: nothing backs one (on
  // devices, and where co-runners share cores).
  std::optional<double> stated_error;
};

struct PointResult {
  FigureKind kind = FigureKind::kMeasured;
  int tp = 0;
  int pp = 1;                   // pipeline stages; more only of what is predicted
  topology::PlacedGroup group;  // without places: each rank at its own
  Workload workload;
  PointStatus status = PointStatus::kOk;
  std::string communicator;
  parallel::SumChoices sum_choices;  // of the latest visit
  Distribution ttft_ms, tpot_ms, itl_ms, latency_ms;
  std::optional<double> cold_ttft_ms;   // of the very first generation after loading; of one point a visit
  std::optional<TextCost> text_cost;    // nullopt: no text (random ids), or no tokenizer
  std::optional<double> end_to_end_ms;  // latency p50 + text cost of the batch, one request after another
  std::optional<double> throughput_tokens_per_s, requests_per_s;
  std::optional<double> mbu_nominal;
  std::optional<Spread> mbu, mbu_achievable, mbu_useful;
  std::optional<double> prefill_tflops_per_s;  // of the group, by TTFT p50
  std::optional<double> mfu_prefill;           // that / (tp x dense peak of one rank)
  std::optional<bool> cache_resident;          // what a step reads fits the last-level caches of the group's cores
  bool oversubscribed = false;                 // the group has more threads than cores
  std::optional<int> tp_base;                  // smallest degree that ran this workload in this placement
  std::optional<double> speedup, efficiency;
  std::optional<double> comm_share;            // (transfer + wait) / TPOT
  std::optional<Parts> attribution;            // of TPOT p50: mean over the ranks
  std::optional<Parts> loss;                   // against tp_base
  std::optional<double> instrumented_tpot_ms;  // p50 of the generations with instruments
  int64_t generations = 0;
  std::vector<WarmUp> warm_ups;  // one a visit
  Noise noise;
  Outliers outliers;
  Disturbance disturbance;  // over all measured generations; mhz: the lowest
  std::optional<double> highest_mhz;
  std::optional<std::string> unmet;  // a limit ended it: which, and the condition that was not met
  std::vector<RankFigures> ranks;
  std::vector<std::string> verdicts;             // each "word: explanation"
  std::optional<Rehearsal> rehearsal;            // of a row that stands for ranks that were not there
  std::vector<GenerationSample> samples;         // empty where a report was read back without them
  std::vector<InstrumentedSample> instrumented;  // the same; these alternate with the others

  /// Whether that part is known where there is an attribution: in rehearsals not the transfer of collectives that are
  /// not modelled, nor how long one rank of several waits for others.
  bool knows(Part part) const {
    if (!rehearsal) return true;
    if (part == Part::kAllreduceTransfer) return rehearsal->step_collectives_ms.has_value();
    return part != Part::kAllreduceWait || tp == 1;
  }

  /// [tp] of each rank, where it worked.
  std::vector<int> places() const { return group.places.empty() ? topology::linear_group(tp).places : group.places; }
};

}  // namespace shardscope::runtime
