// One device stands for a group: the Machine that runs one rank's shard for real, beside co-runners where ranks would
// share memory bandwidth, and adds the modelled collectives to what it measures.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "runtime/measure/co_runners.hpp"
#include "runtime/measure/group.hpp"
#include "runtime/measure/rehearsal_model.hpp"

namespace shardscope::runtime {

class RehearsalMachine final : public GroupMachine {
 public:
  /// Loads the shards, the rehearsed rank's first: that of the heaviest. options.sweep has a rehearsal.
  RehearsalMachine(parallel::World& world, const OpenedModel& model, GroupOptions options);

  GenerationSample generate(size_t point) override;
  std::optional<InstrumentedSample> generate_instrumented(size_t point) override;
  void measure_bandwidth(size_t point, bool after) override;
  std::optional<Rehearsal> rehearsal(size_t point) const override { return rehearsals_[point]; }

 private:
  parallel::ShardPlan plan_;
  CoRunnerWork work_;
  std::vector<Rehearsal> rehearsals_;  // of each point
  std::optional<CoRunners> others_;    // declared last: ends before what it works on
};

/// The machine that the sweep's options ask for.
std::unique_ptr<GroupMachine> make_group_machine(parallel::World& world, const OpenedModel& model,
                                                 GroupOptions options);

}  // namespace shardscope::runtime
