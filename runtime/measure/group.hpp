// One tensor-parallel group at one degree with its shards resident: the Machine that a protocol drives for real.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "parallel/communicator.hpp"
#include "runtime/decoder.hpp"
#include "runtime/generate/generate.hpp"
#include "runtime/generate/sampler.hpp"
#include "runtime/measure/bandwidth.hpp"
#include "runtime/measure/protocol.hpp"
#include "runtime/measure/sweep.hpp"

namespace shardscope::runtime {

/// What this rank alone knows of a point; over both visits. Times are its own clock's.
struct OwnFigures {
  std::vector<double> tpot_ms;
  double best_gb_per_s = 0;
  std::vector<double> median_gb_per_s;  // of each measurement of bandwidth
  double drift = 0;                     // best after / best before - 1, the larger one of the visits
  double waited_seconds = 0, seconds = 0;
  bool waited_known = false;
  double load_seconds = 0;  // of the first visit
};

struct GroupOptions {
  const SweepOptions& sweep;
  int tp = 1;
  bool oversubscribed = false;
  std::vector<Workload> workloads;  // the points, by number
  std::vector<OwnFigures*> own;     // where what this rank measures of each goes
  std::function<void(size_t point, const char* doing, int64_t generation, double fraction)> tell;
  std::function<void(double fraction)> tell_loading;
};

class GroupMachine : public Machine {
 public:
  /// Loads the shards. Collective over the group's ranks.
  GroupMachine(parallel::World& world, kernels::Backend& backend, const OpenedModel& model, GroupOptions options);

  GenerationSample generate(size_t point) override;
  void measure_bandwidth(size_t point, bool after) override;
  double now_seconds() override;
  bool agree(bool mine) override;
  void tell(size_t point, const char* doing, int64_t generation, double fraction) override;

  std::string communicator_name() const { return std::string(communicator_->name()); }
  MemoryBytes memory() const { return decoder_->memory(); }

 private:
  /// What one rank says of one generation, in doubles that travel to all: three of disturbance, then its token times.
  std::vector<double> gather(const std::vector<double>& mine);

  parallel::World& world_;
  kernels::Backend& backend_;
  GroupOptions options_;
  std::unique_ptr<parallel::Communicator> communicator_;
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<Sampler> sampler_;
  std::vector<std::vector<GenerationRequest>> requests_;  // of each point
  std::vector<double> before_gb_per_s_;                   // of each point, this visit
};

}  // namespace shardscope::runtime
