#include "runtime/measure/rehearsal.hpp"

#include <utility>

#include "kernels/base/error.hpp"
#include "runtime/measure/replicas.hpp"
#include "runtime/model/slice.hpp"

namespace shardscope::runtime {
namespace {

GroupOptions with_rank(GroupOptions options, const OpenedModel& model) {
  const SweepOptions& sweep = options.sweep;
  require(sweep.rehearsal.has_value(), "RehearsalMachine: nothing is to be rehearsed");
  const DTypeOf dtype_of = [&](WeightId id) { return model.weights->dtype(id); };
  const parallel::ShardPlan plan = plan_shards(shard_dimensions(model.config), options.tp);
  // Over all workloads of the sweep, so that every visit of a degree runs the same rank.
  options.rehearsed_rank = heaviest_rank(model.config, dtype_of, plan, sweep.workloads, sweep.precision);
  return options;
}

CoRunnerWork work_of(const OpenedModel& model, const parallel::ShardPlan& plan, const GroupOptions& options,
                     std::vector<std::vector<GenerationRequest>> requests) {
  CoRunnerWork work{.model = model,
                    .plan = plan,
                    .shape = decoder_options(options.workloads, options.sweep.max_step_tokens, options.sweep.precision),
                    .requests = std::move(requests),
                    .read = {}};
  work.shape.valid_vocab = options.sweep.valid_vocab;
  for (const Workload& workload : options.workloads) work.read.push_back(read_part(workload));
  return work;
}

}  // namespace

RehearsalMachine::RehearsalMachine(parallel::World& world, const OpenedModel& model, GroupOptions asked)
    : GroupMachine(world, model, with_rank(std::move(asked), model)),
      plan_(plan_shards(shard_dimensions(model.config), options().tp)),
      work_(work_of(model, plan_, options(), requests())) {
  const SweepOptions& sweep = options().sweep;
  for (const Workload& workload : options().workloads) {
    rehearsals_.push_back(rehearsal_of(*sweep.rehearsal, model.config, *options().work.backend, workload, options().tp,
                                       work_.shape.max_step_tokens));
    rehearsals_.back().rank = rank();
  }
  if (sweep.rehearsal->backend_at) others_.emplace(work_, rank(), *sweep.rehearsal);
}

GenerationSample RehearsalMachine::generate(size_t point) {
  if (others_) others_->generate(point);
  GenerationSample sample = GroupMachine::generate(point);
  if (others_) others_->rest();
  add_collectives(rehearsals_[point], sample);
  if (sample.tpot_ms) own_figures(point).tpot_ms.back() = *sample.tpot_ms;  // of the one rank that there is
  return sample;
}

std::optional<InstrumentedSample> RehearsalMachine::generate_instrumented(size_t point) {
  if (others_) others_->generate(point);
  std::optional<InstrumentedSample> sample = GroupMachine::generate_instrumented(point);
  if (others_) others_->rest();
  if (!sample) return std::nullopt;
  sample->ranks.resize(1);  // the others' are copies of it
  add_collectives(rehearsals_[point], *sample);
  return sample;
}

void RehearsalMachine::measure_bandwidth(size_t point, bool after) {
  if (others_) others_->read(point);
  GroupMachine::measure_bandwidth(point, after);
  if (others_) others_->rest();
}

std::unique_ptr<GroupMachine> make_group_machine(parallel::World& world, const OpenedModel& model,
                                                 GroupOptions options) {
  if (options.sweep.rehearsal) return std::make_unique<RehearsalMachine>(world, model, std::move(options));
  if (options.replicas > 1) return std::make_unique<ReplicaMachine>(world, model, std::move(options));
  return std::make_unique<GroupMachine>(world, model, std::move(options));
}

}  // namespace shardscope::runtime
