// The main measurement: one launch visits tensor-parallel degrees; at each the group loads its shards, warms up and
// measures every workload, while the other ranks sleep. Collective over the whole world; figures end up on rank 0.
// Leaves printing and files to the caller.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kernels/backend.hpp"
#include "parallel/communicator.hpp"
#include "parallel/world.hpp"
#include "runtime/decoder.hpp"
#include "runtime/measure/statistics.hpp"
#include "runtime/measure/traffic.hpp"
#include "runtime/model/open_model.hpp"

namespace shardscope::runtime {

/// What the ranks of a group have of this host.
struct GroupPlace {
  int64_t cache_bytes = 0;      // of the last-level caches that their cores share; 0: unknown
  bool oversubscribed = false;  // more threads than cores
};

struct SweepOptions {
  std::vector<int> degrees;         // ascending, each at most the number of ranks
  std::vector<Workload> workloads;  // visited in this order at every degree
  int64_t warmup = 3;               // generations before measuring
  int64_t iterations = 10;          // generations measured
  double max_seconds = 60;          // of the measured generations of one point
  uint64_t seed = 0;
  std::vector<int32_t> prompt_ids;  // a real prompt, cut or repeated to length; empty: random ids
  int64_t valid_vocab = 0;          // ids below it may be drawn
  int64_t max_step_tokens = 512;
  parallel::CommunicatorKind communicator = parallel::CommunicatorKind::kAuto;
  std::function<GroupPlace(int tp)> place_of_group;  // empty: nothing is known
  int64_t host_memory_bytes = 0;                     // 0: unknown
  std::optional<double> peak_gb_per_s;               // data-sheet bandwidth of one rank's device or share
};

enum class PointStatus : uint8_t { kOk, kOutOfMemory, kInvalid };

struct RankFigures {
  int rank = 0;
  parallel::RankShard shard;
  StepBytes bytes;
  MemoryBytes memory;
  double achievable_gb_per_s = 0;  // best of the passes before and after
  double achievable_median_gb_per_s = 0;
  double bandwidth_drift = 0;     // best after / best before - 1
  std::optional<double> tpot_ms;  // p50 by this rank's own clock
  std::optional<double> mbu, mbu_achievable, mbu_useful;
  double load_seconds = 0;
};

struct Spread {
  double min = 0, mean = 0, max = 0;
};

struct PointResult {
  int tp = 0;
  Workload workload;
  PointStatus status = PointStatus::kOk;
  std::string communicator;
  Distribution ttft_ms, tpot_ms, itl_ms, latency_ms;
  std::optional<double> cold_ttft_ms;  // of the first generation at this degree and workload
  std::optional<double> throughput_tokens_per_s, requests_per_s;
  std::optional<double> mbu_nominal;
  std::optional<Spread> mbu, mbu_achievable, mbu_useful;
  std::optional<bool> cache_resident;  // what a step reads fits the last-level caches of the group's cores
  bool oversubscribed = false;         // the group has more threads than cores
  std::optional<int> tp_base;          // smallest degree that ran this workload
  std::optional<double> speedup, efficiency;
  int64_t generations = 0;
  bool ended_by_time = false;  // --max-seconds ended it before --iterations
  std::vector<RankFigures> ranks;
  std::vector<std::string> verdicts;
};

struct SweepProgress {
  std::function<void(const std::string& line)> say;     // called on rank 0
  std::function<void(const PointResult& point)> point;  // called on rank 0 as each point is complete
};

std::vector<PointResult> run_sweep(parallel::World& world, kernels::Backend& backend, const OpenedModel& model,
                                   const SweepOptions& options, const SweepProgress& progress);

/// KV cache and step sizes that hold every workload of a sweep.
DecoderOptions decoder_options(const std::vector<Workload>& workloads, int64_t max_step_tokens);

/// The MBUs of every rank and of the row, and what they rule out. Needs `ranks`, `tpot_ms`, the group's place.
/// Definitions: bytes moved / time / bandwidth; the published form (mbu_nominal) counts all parameters + KV over
/// TPOT x tp x data-sheet bandwidth.
void set_utilisation(PointResult& point, double nominal_bytes, const GroupPlace& place,
                     std::optional<double> peak_gb_per_s);

/// speedup = TPOT p50 at the smallest degree that ran / TPOT p50 here, at equal workload; efficiency = speedup x
/// smallest degree / tp. Sets both on `point` from the points measured before it.
void set_speedup(PointResult& point, const std::vector<PointResult>& earlier);

/// Prompt ids of exactly `length`: `real` cut or repeated, or random ids below valid_vocab from (seed, sequence).
std::vector<int32_t> prompt_of_length(int64_t length, const std::vector<int32_t>& real, int64_t valid_vocab,
                                      uint64_t seed, int64_t sequence);

}  // namespace shardscope::runtime
