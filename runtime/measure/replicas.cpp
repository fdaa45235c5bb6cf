#include "runtime/measure/replicas.hpp"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace shardscope::runtime {
namespace {

GroupOptions of_own_group(const parallel::World& world, GroupOptions options) {
  options.first_rank = world.rank() / options.tp * options.tp;
  return options;
}

double or_nan(const std::optional<double>& value) {
  return value.value_or(std::nan(""));
}

std::optional<double> known(double value) {
  return std::isnan(value) ? std::nullopt : std::optional(value);
}

}  // namespace

ReplicaMachine::ReplicaMachine(parallel::World& world, const OpenedModel& model, GroupOptions asked)
    : GroupMachine(world, model, of_own_group(world, std::move(asked))) {
  const GroupOptions& own = options();
  int64_t most_tokens = 0;
  for (const Workload& workload : own.workloads) most_tokens = std::max(most_tokens, workload.output_tokens);
  constexpr int64_t kFloatsOfDouble = 2;
  all_ = parallel::make_communicator(world, {.group_size = own.tp * own.replicas,
                                             .kind = parallel::CommunicatorKind::kMpi,
                                             .max_floats = kFloatsOfDouble * (most_tokens + 2),
                                             .oversubscribed = own.oversubscribed});
}

GenerationSample ReplicaMachine::generate(size_t point) {
  all_->barrier();
  GenerationSample sample = GroupMachine::generate(point);
  std::vector<double> mine = {or_nan(sample.ttft_ms), or_nan(sample.tpot_ms), or_nan(sample.latency_ms)};
  mine.insert(mine.end(), sample.itl_ms.begin(), sample.itl_ms.end());
  std::vector<double> all(mine.size() * static_cast<size_t>(all_->size()));
  all_->all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
  for (size_t i = 0; i < all.size(); ++i) mine[i % mine.size()] = std::fmax(mine[i % mine.size()], all[i]);
  sample.ttft_ms = known(mine[0]);
  sample.tpot_ms = known(mine[1]);
  sample.latency_ms = known(mine[2]);
  sample.itl_ms.assign(mine.begin() + 3, mine.end());
  return sample;
}

void ReplicaMachine::measure_bandwidth(size_t point, bool after) {
  all_->barrier();
  GroupMachine::measure_bandwidth(point, after);
}

bool ReplicaMachine::agree(bool mine) {
  auto word = static_cast<std::byte>(mine ? 1 : 0);
  all_->broadcast(std::span(&word, 1), 0);
  return word != std::byte{0};
}

}  // namespace shardscope::runtime
