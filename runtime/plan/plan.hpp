// Predictions of a model on GPUs that need not be here: rows as `scale` gives them, with ranges, what fits, and which
// division of the GPUs to take. Runs nothing.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/measure/point.hpp"
#include "runtime/model/open_model.hpp"
#include "runtime/plan/calibration.hpp"
#include "runtime/plan/rank_ledger.hpp"
#include "topology/device_peaks.hpp"
#include "topology/topology.hpp"

namespace shardscope::runtime {

/// Where a plan would run.
struct PlanMachine {
  std::string name;                            // "aws-p4d", a file, or "8 x h100-sxm"
  const topology::DevicePeaks* gpu = nullptr;  // never null in a plan
  topology::Topology topology;                 // of GPUs of that kind

  int gpus() const { return topology.gpu_count.value_or(static_cast<int>(topology.gpus.size())); }
};

struct PlanOptions {
  std::vector<int> degrees;  // ascending; degree x stages is at most the machine's GPUs
  int stages = 1;            // pipeline stages
  std::vector<Workload> workloads;
  topology::Placement placement = topology::Placement::kBest;
  PlanFormat format;
  kernels::Precision precision;
  std::string software = "shardscope";
  std::optional<double> slo_tpot_ms;
};

/// What a user measured, in the place of constants. Values of calibration_files.hpp.
struct OwnMeasurements {
  std::vector<SumTable> sums;
  std::optional<double> overhead_us;   // of a layer
  std::optional<double> memory_share;  // of the data-sheet bandwidth
  std::vector<std::string> notes;      // what was fitted to which file, with residuals
  Spread90 spread;                     // of the fitted rows; 0: none
};

struct Bounds {
  double low = 0, high = 0;
};

struct PredictedRow {
  PointResult point;        // kind predicted; kOutOfMemory where it does not fit
  double gpu_bytes = 0;     // that weights, KV and workspace of a GPU may take
  double needed_bytes = 0;  // of the GPU that needs the most
  std::optional<Bounds> tpot_ms, ttft_ms, latency_ms, tokens_per_s;
  std::string all_reduces;                        // where their times come from
  std::vector<std::string> uncalibrated;          // each thing of the step that no table or row backs
  std::vector<std::string> uncalibrated_prompts;  // the same of prompts, beside those

  bool fits() const { return needed_bytes <= gpu_bytes; }
};

enum class PlanGoal : uint8_t { kLatency, kThroughput, kBound };

struct Recommendation {
  PlanGoal goal = PlanGoal::kLatency;
  int tp = 1, replicas = 1, pp = 1;
  int64_t batch = 1;  // of each replica
  double tpot_ms = 0;
  std::optional<double> tokens_per_s;  // of all replicas; nullopt: prompts' times are unknown
  std::string why;                     // a sentence
};

struct Plan {
  std::vector<PredictedRow> rows;               // degrees, then workloads
  std::vector<Recommendation> recommendations;  // of the goals that something fits; the first is the plan's
  std::vector<std::string> advice;              // the recommendations' sentences
  Reach reach;
  std::string reach_text;  // whose tables
};

Plan make_plan(const OpenedModel& model, const PlanMachine& machine, const PlanOptions& options,
               const PlanConstants& constants, const Calibration& calibration, const OwnMeasurements& own = {});

/// One paragraph for a buyer: what one machine takes against the other for the same workload in both plans, which
/// parts of the step make the difference, and what else differs (memory, TTFT). Of the largest degree that both have,
/// and the first workload.
std::string against_text(const PlanMachine& one, const Plan& plan, const PlanMachine& other, const Plan& other_plan,
                         const std::string& model);

/// Bytes that weights, KV cache and workspace may take of a GPU: the GB of its sales name as 10^9 bytes (drivers give
/// some percent more) without what context and libraries take.
double usable_bytes(const topology::DevicePeaks& gpu);

}  // namespace shardscope::runtime
