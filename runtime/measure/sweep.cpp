#include "runtime/measure/sweep.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "runtime/measure/attribution.hpp"
#include "runtime/measure/compute.hpp"
#include "runtime/measure/device_room.hpp"
#include "runtime/measure/rank_figures.hpp"
#include "runtime/measure/rehearsal.hpp"
#include "runtime/measure/text_cost.hpp"
#include "runtime/measure/verdicts.hpp"
#include "runtime/measure/visits.hpp"
#include "runtime/model/slice.hpp"

namespace shardscope::runtime {
namespace {

constexpr double kLoadShare = 0.1;  // of a visit, for the estimate of what is done
// For what planned_memory leaves out: communicator windows, thread stacks, buffers of the libraries.
constexpr double kMemoryMarginOfRank = 64e6;

class Sweep {
 public:
  Sweep(parallel::World& world, kernels::Backend& backend, const OpenedModel& model, const SweepOptions& options,
        const SweepProgress& progress)
      : world_(world),
        model_(model),
        options_(options),
        progress_(progress),
        groups_(options.all_groups()),
        work_{&backend, options.on_device, options.activity} {}

  std::vector<PointResult> run() {
    const std::vector<Visit> visits = plan();
    for (size_t i = 0; i < visits.size(); ++i) visit(visits[i], i, visits.size());
    return points();
  }

 private:
  /// What rank 0 knows of a place.
  struct Findings {
    std::vector<VisitRecord> visits;
    std::optional<Rehearsal> rehearsal;  // of the latest
    std::optional<PointResult> result;
  };

  bool reporting() const { return world_.rank() == 0; }

  /// Every rank makes the same plan: what only rank 0 knows is told first.
  std::vector<Visit> plan() {
    for (size_t group = 0; group < groups_.size(); ++group) {
      group_places_.push_back(place_of(groups_[group]));
      for (const Workload& workload : options_.workloads) {
        places_.push_back({.tp = tp_of(group), .group = group, .workload = workload});
      }
    }
    findings_.resize(places_.size());
    take_over();
    auto free_bytes = static_cast<double>(options_.free_memory_bytes);
    world_.broadcast(std::as_writable_bytes(std::span(&free_bytes, 1)), 0, "this host's memory");
    VisitPlan plan = plan_visits(places_, options_.protocol.passes(), [&](const Place& of, const auto& workloads) {
      if (!options_.device_free_bytes.empty()) return !tightest_device(of, workloads).lacks();
      return !world_.one_host() || free_bytes == 0 || needed_bytes(of, workloads) <= free_bytes;
    });
    for (const size_t place : plan.refused) refuse(place, free_bytes);
    if (!plan.refused.empty()) tell_points(plan.refused);
    if (reporting()) measure_text();
    return std::move(plan.visits);
  }

  /// What its ranks have of their hosts. The same on all ranks, since it decides what they wait for.
  GroupPlace place_of(const topology::PlacedGroup& placed) const {
    const GroupPlace mine = options_.place_of_group ? options_.place_of_group(placed) : GroupPlace{};
    const std::vector<double> words = {mine.oversubscribed ? 1.0 : 0.0, static_cast<double>(mine.cache_bytes)};
    const std::vector<double> all = world_.all_gather(words, "what the ranks have of their hosts");
    GroupPlace group;
    for (size_t rank = 0; rank < static_cast<size_t>(placed.ranks()); ++rank) {
      group.oversubscribed = group.oversubscribed || all[2 * (options_.rehearsal ? 0 : rank)] != 0;
    }
    if (world_.one_host()) group.cache_bytes = static_cast<int64_t>(all[1]);  // else: unknown
    return group;
  }

  /// With all that work at once.
  double needed_bytes(const Place& of, const std::vector<Workload>& workloads) const {
    return needed_bytes(of.tp, workloads) * groups_[of.group].replicas;
  }

  int tp_of(size_t group) const { return static_cast<int>(groups_[group].places.size()); }

  /// In words, where there are several groups of the degree.
  std::string group_name(size_t group) const {
    const topology::PlacedGroup& placed = groups_[group];
    if (placed.replicas > 1) return fmt::format("tp {} x {} replicas", tp_of(group), placed.replicas);
    if (options_.groups.empty()) return fmt::format("tp {}", tp_of(group));
    return fmt::format("tp {} ({}: {})", tp_of(group), name_of(placed.placement),
                       topology::core_list_text(placed.places));
  }

  /// Whether an earlier run measured just this, whatever its placement was called.
  bool is_at(const PointResult& point, const Place& place) const {
    const topology::PlacedGroup& group = groups_[place.group];
    return point.workload == place.workload && point.places() == group.places && point.group.replicas == group.replicas;
  }

  /// Takes the points of an earlier run over, and tells every rank how far each place is.
  void take_over() {
    for (const PointResult& point : options_.done) {
      for (size_t i = 0; i < places_.size(); ++i) {
        if (!is_at(point, places_[i])) continue;
        const bool half = point.status == PointStatus::kIncomplete;
        places_[i].state = half ? PlaceState::kHalf : PlaceState::kDone;
        findings_[i].result = point;
        findings_[i].result->group = groups_[places_[i].group];
        if (!half) {
          mark_resumed(*findings_[i].result);
          continue;
        }
        findings_[i].visits.push_back({.warm_up = point.warm_ups.empty() ? WarmUp{} : point.warm_ups.front(),
                                       .cold_ttft_ms = point.cold_ttft_ms,
                                       .samples = point.samples,
                                       .instrumented = point.instrumented,
                                       .unmet = point.unmet});
      }
    }
    std::vector<std::byte> states;
    for (const Place& place : places_) states.push_back(static_cast<std::byte>(place.state));
    world_.broadcast(states, 0, "points of an earlier run");
    for (size_t i = 0; i < places_.size(); ++i) places_[i].state = static_cast<PlaceState>(states[i]);
  }

  double needed_bytes(int tp, const std::vector<Workload>& workloads) const {
    const parallel::ShardPlan plan = plan_shards(shard_dimensions(model_.config), tp);
    const DecoderOptions shape = decoder_options(workloads, options_.max_step_tokens, options_.precision);
    return static_cast<double>(planned_group_bytes(model_.config, *model_.weights, plan, shape)) +
           kMemoryMarginOfRank * tp;
  }

  /// The rank whose device has the least room left, or lacks most.
  DeviceRoom tightest_device(const Place& of, const std::vector<Workload>& workloads) const {
    const parallel::ShardPlan plan = plan_shards(shard_dimensions(model_.config), of.tp);
    const DecoderOptions shape = decoder_options(workloads, options_.max_step_tokens, options_.precision);
    std::vector<int64_t> free_bytes;  // of each rank's device
    const topology::PlacedGroup& group = groups_[of.group];
    for (const int place : group.places) {
      int64_t least = INT64_MAX;  // of the devices of all replicas' ranks
      for (int replica = 0; replica < group.replicas; ++replica) {
        least = std::min(least, options_.device_free_bytes[static_cast<size_t>(place + replica * of.tp)]);
      }
      free_bytes.push_back(least);
    }
    return tightest_room(model_, plan, shape, free_bytes, options_.device_reserved_bytes);
  }

  void refuse(size_t index, double free_bytes) {
    const Place& place = places_[index];
    PointResult point{.kind = options_.kind(),
                      .tp = place.tp,
                      .group = groups_[place.group],
                      .workload = place.workload,
                      .status = PointStatus::kOutOfMemory};
    point.oversubscribed = group_places_[place.group].oversubscribed;
    point.verdicts.push_back("out_of_memory: " +
                             (options_.device_free_bytes.empty()
                                  ? fmt::format("needs {:.2f} GB, {:.2f} GB are free on this host",
                                                needed_bytes(place, {place.workload}) * 1e-9, free_bytes * 1e-9)
                                  : tightest_device(place, {place.workload}).text()));
    findings_[index].result = std::move(point);
  }

  /// Before anything else runs. Random ids have no text.
  void measure_text() {
    if (options_.tokenizer == nullptr || options_.prompt_ids.empty()) return;
    for (const Workload& workload : options_.workloads) {
      const std::vector<int32_t> prompt = prompt_of_length(workload.prompt_tokens, options_.prompt_ids,
                                                           options_.valid_vocab, options_.protocol.seed, 0);
      text_costs_.emplace_back(workload, measure_text_cost(*options_.tokenizer, prompt, workload.output_tokens));
    }
  }

  void visit(const Visit& visit, size_t index, size_t visits) {
    const auto tick = [&](double fraction, const std::string& doing) {
      if (!reporting() || !progress_.tick) return;
      progress_.tick((static_cast<double>(index) + fraction) / static_cast<double>(visits), doing);
    };
    if (reporting() && progress_.say) {
      progress_.say(fmt::format("{}, {} visit: loading shards, then {} point{}", group_name(visit.group),
                                visit.pass == 0 ? "first" : "second", visit.places.size(),
                                visit.places.size() == 1 ? "" : "s"));
    }
    if (options_.take) work_ = options_.take(groups_[visit.group]);
    std::vector<VisitRecord> records;
    std::vector<double> mine;
    std::string communicator;
    parallel::SumChoices choices;
    int own_rank = 0;  // within the group
    if (world_.rank() < groups_[visit.group].ranks()) {
      const std::unique_ptr<GroupMachine> machine = make_group_machine(world_, model_, group_options(visit, tick));
      records = run_visit(*machine, options_.protocol, visit.pass, first_visit_counts(visit));
      communicator = machine->communicator_name();
      choices = machine->sum_choices();
      own_rank = machine->rank();
      for (size_t i = 0; i < visit.places.size(); ++i) {
        const auto doubles = to_doubles(machine->own(i), machine->memory());
        mine.insert(mine.end(), doubles.begin(), doubles.end());
        findings_[visit.places[i]].rehearsal = machine->rehearsal(i);
      }
    } else {
      world_.progress("idle, not in the group");
      mine.resize(visit.places.size() * kRankDoubles);
    }
    const std::vector<double> all = world_.all_gather(mine, "figures of a visit");
    if (!reporting()) return;
    for (size_t i = 0; i < visit.places.size(); ++i) {
      std::vector<RankFigures> ranks;
      for (int rank = 0; rank < (options_.rehearsal ? 1 : visit.tp); ++rank) {
        const size_t begin = static_cast<size_t>(rank) * mine.size() + i * kRankDoubles;
        ranks.push_back(rank_figures_of(std::span(all).subspan(begin, kRankDoubles), own_rank + rank));
      }
      findings_[visit.places[i]].visits.push_back(std::move(records[i]));
      set_result(visit.places[i], std::move(ranks), communicator, choices);
    }
    tell_points(visit.places);
  }

  /// Generations that the first visit made; known, and asked, on rank 0 alone.
  std::vector<int64_t> first_visit_counts(const Visit& visit) const {
    std::vector<int64_t> counts;
    for (const size_t place : visit.places) {
      const std::vector<VisitRecord>& earlier = findings_[place].visits;
      counts.push_back(earlier.empty() ? 0 : static_cast<int64_t>(earlier.front().samples.size()));
    }
    return counts;
  }

  GroupOptions group_options(const Visit& visit, const std::function<void(double, const std::string&)>& tick) const {
    GroupOptions group{.sweep = options_,
                       .work = work_,
                       .tp = visit.tp,
                       .replicas = groups_[visit.group].replicas,
                       .oversubscribed = group_places_[visit.group].oversubscribed,
                       .workloads = {},
                       .tell = {},
                       .tell_loading = {}};
    for (const size_t place : visit.places) group.workloads.push_back(places_[place].workload);
    if (!reporting()) return group;
    group.tell_loading = [tick, name = group_name(visit.group)](double share) {
      tick(kLoadShare * std::min(share, 1.0), fmt::format("{}: loading shards", name));
    };
    group.tell = [tick, name = group_name(visit.group), workloads = group.workloads](
                     size_t point, const char* doing, int64_t generation, double fraction) {
      const Workload& workload = workloads[point];
      tick(kLoadShare + (1 - kLoadShare) * fraction,
           fmt::format("{}, batch {}, {} + {}: {} {}", name, workload.batch, workload.prompt_tokens,
                       workload.output_tokens, doing, generation));
    };
    return group;
  }

  /// Puts the point together from everything that its visits measured so far. ranks: of the last visit.
  void set_result(size_t index, std::vector<RankFigures> ranks, const std::string& communicator,
                  const parallel::SumChoices& choices) {
    const Place& place = places_[index];
    Findings& findings = findings_[index];
    const parallel::ShardPlan plan = plan_shards(shard_dimensions(model_.config), place.tp);
    const DTypeOf dtype_of = [&](WeightId id) { return model_.weights->dtype(id); };
    const GroupPlace& group = group_places_[place.group];
    PointResult point{.kind = options_.kind(),
                      .tp = place.tp,
                      .group = groups_[place.group],
                      .workload = place.workload,
                      .oversubscribed = group.oversubscribed};
    point.communicator = communicator;
    point.sum_choices = choices;
    if (findings.result && findings.result->communicator != communicator) {  // chosen by measuring, in each visit
      point.communicator = findings.result->communicator + ", then " + communicator;
    }
    std::vector<OperationBytes> operations;
    for (RankFigures& figures : ranks) {
      operations.push_back(
          operation_traffic(model_.config, dtype_of, plan, figures.rank, place.workload, options_.precision));
      if (findings.result) {
        figures = both_visits(findings.result->ranks.at(operations.size() - 1), figures);  // the same rank's
      }
      figures.shard = plan.ranks[static_cast<size_t>(figures.rank)];
      figures.bytes = step_traffic(model_.config, dtype_of, plan, figures.rank, place.workload, options_.precision);
    }
    point.ranks = std::move(ranks);
    point.rehearsal = findings.rehearsal;
    for (const auto& [workload, cost] : text_costs_) {
      if (workload == place.workload) point.text_cost = cost;
    }
    set_times(point, findings.visits);
    set_utilisation(point, nominal_step_bytes(model_.config, dtype_of, place.workload, options_.precision), group,
                    options_.peaks,
                    groups_[place.group].replicas *
                        group_step_bytes(model_.config, dtype_of, plan, place.workload, options_.precision));
    set_prefill(point, prefill_flops(model_.config, place.workload), options_.peaks);
    set_attribution(point, operations);
    add_verdicts(point, options_.protocol);
    finish_rehearsed(point);
    if (point.group.replicas > 1) {
      point.verdicts.push_back(
          "replicas: times are of the slowest group; ranks, read bandwidth, MBU and interference are the first "
          "group's");
    }
    if (static_cast<int>(findings.visits.size()) < options_.protocol.passes()) {
      point.status = PointStatus::kIncomplete;
    }
    findings.result = std::move(point);
  }

  /// All that is known, in the order of groups and workloads.
  std::vector<PointResult> points() const {
    std::vector<PointResult> known;
    for (const Findings& findings : findings_) {
      if (findings.result) known.push_back(*findings.result);
    }
    set_speedups(known);
    set_losses(known);
    return known;
  }

  void tell_points(const std::vector<size_t>& changed) const {
    if (!reporting() || !progress_.points) return;
    std::vector<size_t> indices;  // of the changed ones among the known
    size_t known = 0;
    for (size_t i = 0; i < findings_.size(); ++i) {
      if (!findings_[i].result) continue;
      if (std::find(changed.begin(), changed.end(), i) != changed.end()) indices.push_back(known);
      ++known;
    }
    progress_.points(points(), indices);
  }

  parallel::World& world_;
  const OpenedModel& model_;
  const SweepOptions& options_;
  const SweepProgress& progress_;
  std::vector<topology::PlacedGroup> groups_;
  std::vector<GroupPlace> group_places_;  // of each group
  Workplace work_;                        // of this rank, now
  std::vector<Place> places_;
  std::vector<Findings> findings_;  // of each place
  std::vector<std::pair<Workload, TextCost>> text_costs_;
};

}  // namespace

std::vector<PointResult> run_sweep(parallel::World& world, kernels::Backend& backend, const OpenedModel& model,
                                   const SweepOptions& options, const SweepProgress& progress) {
  return Sweep(world, backend, model, options, progress).run();
}

}  // namespace shardscope::runtime
