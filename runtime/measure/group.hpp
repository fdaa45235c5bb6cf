// One tensor-parallel group at one degree with its shards resident: the Machine that a protocol drives for real.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "parallel/communicator.hpp"
#include "runtime/decoder.hpp"
#include "runtime/generate/generate.hpp"
#include "runtime/generate/sampler.hpp"
#include "runtime/measure/protocol.hpp"
#include "runtime/measure/rank_figures.hpp"
#include "runtime/measure/step_ledger.hpp"
#include "runtime/measure/sweep.hpp"

namespace shardscope::runtime {

struct GroupOptions {
  const SweepOptions& sweep;
  const Workplace& work;
  int tp = 1;
  int replicas = 1;    // groups at work at once
  int first_rank = 0;  // of this one
  bool oversubscribed = false;
  std::vector<Workload> workloads;    // the points, by number
  std::optional<int> rehearsed_rank;  // this rank stands for that one, and there is no group
  std::function<void(size_t point, const char* doing, int64_t generation, double fraction)> tell;
  std::function<void(double fraction)> tell_loading;
};

class GroupMachine : public Machine {
 public:
  /// Loads the shards. Collective over the group's ranks.
  GroupMachine(parallel::World& world, const OpenedModel& model, GroupOptions options);

  GenerationSample generate(size_t point) override;
  std::optional<InstrumentedSample> generate_instrumented(size_t point) override;
  void measure_bandwidth(size_t point, bool after) override;
  double now_seconds() override;
  bool agree(bool mine) override;
  void tell(size_t point, const char* doing, int64_t generation, double fraction) override;

  int rank() const { return communicator_->rank(); }  // within the group
  /// Nothing where the group is there.
  virtual std::optional<Rehearsal> rehearsal(size_t /*point*/) const { return std::nullopt; }
  std::string communicator_name() const { return std::string(communicator_->name()); }
  parallel::SumChoices sum_choices() const { return communicator_->sum_choices(); }
  MemoryBytes memory() const { return decoder_->memory(); }
  /// What this rank alone knows of a point after the visit.
  const OwnFigures& own(size_t point) const { return own_[point]; }

 protected:
  const GroupOptions& options() const { return options_; }
  const std::vector<std::vector<GenerationRequest>>& requests() const { return requests_; }  // of each point
  OwnFigures& own_figures(size_t point) { return own_[point]; }

 private:
  /// What one rank says of one generation, in doubles that travel to all: three of disturbance, then its token times.
  std::vector<double> gather(const std::vector<double>& mine);

  parallel::World& world_;
  kernels::Backend& backend_;
  GroupOptions options_;
  std::unique_ptr<parallel::Communicator> communicator_;
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<Sampler> sampler_;
  StepLedger ledger_;
  std::vector<std::vector<GenerationRequest>> requests_;  // of each point
  std::vector<OwnFigures> own_;                           // of each point
};

/// What of the KV cache a measurement of bandwidth reads: the positions of the mean step.
kernels::KvPart read_part(const Workload& workload);

}  // namespace shardscope::runtime
