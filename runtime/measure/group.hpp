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
#include "runtime/measure/protocol.hpp"
#include "runtime/measure/rank_figures.hpp"
#include "runtime/measure/sweep.hpp"

namespace shardscope::runtime {

struct GroupOptions {
  const SweepOptions& sweep;
  const Workplace& work;
  int tp = 1;
  bool oversubscribed = false;
  std::vector<Workload> workloads;  // the points, by number
  std::function<void(size_t point, const char* doing, int64_t generation, double fraction)> tell;
  std::function<void(double fraction)> tell_loading;
};

class GroupMachine : public Machine {
 public:
  /// Loads the shards. Collective over the group's ranks.
  GroupMachine(parallel::World& world, const OpenedModel& model, GroupOptions options);

  GenerationSample generate(size_t point) override;
  void measure_bandwidth(size_t point, bool after) override;
  double now_seconds() override;
  bool agree(bool mine) override;
  void tell(size_t point, const char* doing, int64_t generation, double fraction) override;

  std::string communicator_name() const { return std::string(communicator_->name()); }
  parallel::SumChoices sum_choices() const { return communicator_->sum_choices(); }
  MemoryBytes memory() const { return decoder_->memory(); }
  /// What this rank alone knows of a point after the visit.
  const OwnFigures& own(size_t point) const { return own_[point]; }

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
  std::vector<OwnFigures> own_;                           // of each point
};

}  // namespace shardscope::runtime
