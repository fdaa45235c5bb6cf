// Groups of one degree at work at once: the Machine of each, which keeps step with the others. All begin a generation
// together, and a figure is that of the slowest of them.
#pragma once

#include <memory>
#include <optional>

#include "runtime/measure/group.hpp"

namespace shardscope::runtime {

class ReplicaMachine final : public GroupMachine {
 public:
  /// Loads the shards of this rank's group. Collective over the ranks of all groups: options.tp x replicas of them,
  /// from rank 0 of the world on. options.first_rank is set here.
  ReplicaMachine(parallel::World& world, const OpenedModel& model, GroupOptions options);

  GenerationSample generate(size_t point) override;
  /// None: where TPOT goes is told of the lone group.
  std::optional<InstrumentedSample> generate_instrumented(size_t) override { return std::nullopt; }
  void measure_bandwidth(size_t point, bool after) override;
  bool agree(bool mine) override;

 private:
  std::unique_ptr<parallel::Communicator> all_;  // of all groups
};

}  // namespace shardscope::runtime
