#include "runtime/measure/sweep.hpp"

#include <algorithm>
#include <cmath>
#include <random>

#include <fmt/format.h>

#include "runtime/measure/compute.hpp"
#include "runtime/measure/group.hpp"
#include "runtime/measure/text_cost.hpp"
#include "runtime/measure/verdicts.hpp"
#include "runtime/model/slice.hpp"

namespace shardscope::runtime {
namespace {

constexpr double kLoadShare = 0.1;  // of a visit, for the estimate of what is done

/// A degree and a workload through the sweep.
struct Place {
  int tp = 0;
  size_t workload = 0;                // index
  OwnFigures own;                     // of this rank
  std::vector<VisitRecord> visits;    // on rank 0
  std::optional<PointResult> result;  // on rank 0: what is known so far
};

/// One loading of shards and what is measured on them.
struct Visit {
  int tp = 0;
  int pass = 0;
  std::vector<size_t> places;
};

/// What a rank tells rank 0 of a point after a visit.
constexpr size_t kWireDoubles = 9;

std::array<double, kWireDoubles> to_wire(const OwnFigures& own, const MemoryBytes& memory) {
  std::vector<double> tpots = own.tpot_ms;
  std::sort(tpots.begin(), tpots.end());
  double medians = 0;
  for (const double median : own.median_gb_per_s) medians += median / static_cast<double>(own.median_gb_per_s.size());
  return {own.best_gb_per_s,
          medians,
          own.drift,
          tpots.empty() ? std::nan("") : quantile_sorted(tpots, 0.5),
          static_cast<double>(memory.weights),
          static_cast<double>(memory.kv),
          static_cast<double>(memory.workspace),
          own.waited_known && own.seconds > 0 ? own.waited_seconds / own.seconds : std::nan(""),
          own.load_seconds};
}

RankFigures from_wire(std::span<const double> wire, int rank) {
  RankFigures figures{
      .rank = rank,
      .memory = {static_cast<int64_t>(wire[4]), static_cast<int64_t>(wire[5]), static_cast<int64_t>(wire[6])},
      .achievable_gb_per_s = wire[0],
      .achievable_median_gb_per_s = wire[1],
      .bandwidth_drift = wire[2],
      .load_seconds = wire[8]};
  if (!std::isnan(wire[3])) figures.tpot_ms = wire[3];
  if (!std::isnan(wire[7])) figures.waited_share = wire[7];
  return figures;
}

class Sweep {
 public:
  Sweep(parallel::World& world, kernels::Backend& backend, const OpenedModel& model, const SweepOptions& options,
        const SweepProgress& progress)
      : world_(world), backend_(backend), model_(model), options_(options), progress_(progress) {}

  std::vector<PointResult> run() {
    const std::vector<Visit> visits = plan();
    for (size_t i = 0; i < visits.size(); ++i) visit(visits[i], i, visits.size());
    return points();
  }

 private:
  bool reporting() const { return world_.rank() == 0; }
  const Workload& workload_of(const Place& place) const { return options_.workloads[place.workload]; }
  GroupPlace group_of(int tp) const { return options_.place_of_group ? options_.place_of_group(tp) : GroupPlace{}; }

  /// Every rank makes the same plan: what only rank 0 knows is told first.
  std::vector<Visit> plan() {
    for (const int tp : options_.degrees) {
      for (size_t workload = 0; workload < options_.workloads.size(); ++workload) {
        places_.push_back({.tp = tp, .workload = workload});
      }
    }
    auto memory_bytes = static_cast<double>(options_.free_memory_bytes);
    world_.broadcast(std::as_writable_bytes(std::span(&memory_bytes, 1)), 0, "this host's memory");
    const std::vector<std::byte> done = take_over();
    std::vector<Visit> up;
    std::vector<size_t> refused;
    for (const int tp : options_.degrees) {
      std::vector<size_t> open;
      std::vector<Workload> workloads;
      for (size_t i = 0; i < places_.size(); ++i) {
        if (places_[i].tp != tp || done[i] != std::byte{0}) continue;
        open.push_back(i);
        workloads.push_back(workload_of(places_[i]));
      }
      const ResidentPlan residents = plan_residents(workloads, [&](const std::vector<Workload>& together) {
        return !world_.one_host() || memory_bytes == 0 || needed_bytes(tp, together) <= memory_bytes;
      });
      for (const std::vector<size_t>& resident : residents.residents) {
        Visit visit{.tp = tp, .pass = 0, .places = {}};
        for (const size_t index : resident) visit.places.push_back(open[index]);
        up.push_back(std::move(visit));
      }
      for (const size_t index : residents.refused) {
        refuse(places_[open[index]], memory_bytes);
        refused.push_back(open[index]);
      }
    }
    if (!refused.empty()) tell_points(refused);
    std::vector<Visit> visits = up;
    for (int pass = 1; pass < options_.protocol.passes(); ++pass) {
      for (auto visit = up.rbegin(); visit != up.rend(); ++visit) {
        visits.push_back(*visit);
        visits.back().pass = pass;
      }
    }
    return visits;
  }

  /// Takes the points of an earlier run over, and tells every rank which they are.
  std::vector<std::byte> take_over() {
    std::vector<std::byte> done(places_.size(), std::byte{0});
    for (const PointResult& point : options_.done) {
      for (size_t i = 0; i < places_.size(); ++i) {
        if (places_[i].tp != point.tp || !(workload_of(places_[i]) == point.workload)) continue;
        places_[i].result = point;
        done[i] = std::byte{1};
      }
    }
    world_.broadcast(done, 0, "points of an earlier run");
    return done;
  }

  double needed_bytes(int tp, const std::vector<Workload>& workloads) const {
    const parallel::ShardPlan plan = plan_shards(shard_dimensions(model_.config), tp);
    const DecoderOptions shape = decoder_options(workloads, options_.max_step_tokens);
    return static_cast<double>(planned_group_bytes(model_.config, *model_.weights, plan, shape));
  }

  void refuse(Place& place, double memory_bytes) const {
    PointResult point{.tp = place.tp, .workload = workload_of(place), .status = PointStatus::kOutOfMemory};
    point.verdicts.push_back(fmt::format("out_of_memory: needs {:.2f} GB, {:.2f} GB are free on this host",
                                         needed_bytes(place.tp, {workload_of(place)}) * 1e-9, memory_bytes * 1e-9));
    place.result = std::move(point);
  }

  void visit(const Visit& visit, size_t index, size_t visits) {
    const bool member = world_.rank() < visit.tp;
    const auto tick = [&](double fraction, const std::string& doing) {
      if (!reporting() || !progress_.tick) return;
      progress_.tick((static_cast<double>(index) + fraction) / static_cast<double>(visits), doing);
    };
    if (reporting() && progress_.say) {
      progress_.say(fmt::format("tp {}, {} visit: loading shards, then {} point{}", visit.tp,
                                visit.pass == 0 ? "first" : "second", visit.places.size(),
                                visit.places.size() == 1 ? "" : "s"));
    }
    std::vector<VisitRecord> records;
    std::vector<double> wire;
    std::string communicator;
    if (member) {
      GroupMachine machine(world_, backend_, model_, group_options(visit, tick));
      records = run_visit(machine, options_.protocol, visit.pass, visit.places.size());
      communicator = machine.communicator_name();
      for (const size_t place : visit.places) {
        const auto words = to_wire(places_[place].own, machine.memory());
        wire.insert(wire.end(), words.begin(), words.end());
      }
    } else {
      world_.progress("idle, not in the group");
      wire.resize(visit.places.size() * kWireDoubles);
    }
    const std::vector<double> all = world_.all_gather(wire, "figures of a visit");
    if (!reporting()) return;
    for (size_t i = 0; i < visit.places.size(); ++i) {
      Place& place = places_[visit.places[i]];
      place.visits.push_back(std::move(records[i]));
      std::vector<RankFigures> ranks;
      for (int rank = 0; rank < visit.tp; ++rank) {
        const size_t begin = static_cast<size_t>(rank) * wire.size() + i * kWireDoubles;
        ranks.push_back(from_wire(std::span(all).subspan(begin, kWireDoubles), rank));
      }
      set_result(place, std::move(ranks), communicator);
    }
    tell_points(visit.places);
  }

  GroupOptions group_options(const Visit& visit, const std::function<void(double, const std::string&)>& tick) {
    GroupOptions group{.sweep = options_,
                       .tp = visit.tp,
                       .oversubscribed = group_of(visit.tp).oversubscribed,
                       .workloads = {},
                       .own = {},
                       .tell = {},
                       .tell_loading = {}};
    for (const size_t place : visit.places) {
      group.workloads.push_back(workload_of(places_[place]));
      group.own.push_back(&places_[place].own);
    }
    if (!reporting()) return group;
    group.tell_loading = [tick, tp = visit.tp](double share) {
      tick(kLoadShare * std::min(share, 1.0), fmt::format("tp {}: loading shards", tp));
    };
    group.tell = [this, tick, visit](size_t point, const char* doing, int64_t generation, double fraction) {
      const Workload& workload = workload_of(places_[visit.places[point]]);
      tick(kLoadShare + (1 - kLoadShare) * fraction,
           fmt::format("tp {}, batch {}, {} + {}: {} {}", visit.tp, workload.batch, workload.prompt_tokens,
                       workload.output_tokens, doing, generation));
    };
    return group;
  }

  /// Puts the point together from everything that its visits measured so far.
  void set_result(Place& place, std::vector<RankFigures> ranks, const std::string& communicator) {
    const parallel::ShardPlan plan = plan_shards(shard_dimensions(model_.config), place.tp);
    const DTypeOf dtype_of = [&](WeightId id) { return model_.weights->dtype(id); };
    const Workload& workload = workload_of(place);
    const GroupPlace group = group_of(place.tp);
    PointResult point{.tp = place.tp, .workload = workload, .oversubscribed = group.oversubscribed};
    point.communicator = communicator;
    if (place.result && place.result->communicator != communicator) {  // chosen by measuring, in each visit
      point.communicator = place.result->communicator + ", then " + communicator;
    }
    for (RankFigures& figures : ranks) {
      figures.shard = plan.ranks[static_cast<size_t>(figures.rank)];
      figures.bytes = step_traffic(model_.config, dtype_of, plan, figures.rank, workload);
    }
    point.ranks = std::move(ranks);
    if (options_.tokenizer != nullptr) point.text_cost = text_cost_of(workload);
    set_times(point, place.visits);
    set_utilisation(point, nominal_step_bytes(model_.config, dtype_of, workload), group, options_.peaks);
    set_prefill(point, prefill_flops(model_.config, workload), options_.peaks);
    add_verdicts(point, options_.protocol);
    if (static_cast<int>(place.visits.size()) < options_.protocol.passes()) point.status = PointStatus::kIncomplete;
    place.result = std::move(point);
  }

  TextCost text_cost_of(const Workload& workload) {
    for (const auto& [known, cost] : text_costs_) {
      if (known.prompt_tokens == workload.prompt_tokens && known.output_tokens == workload.output_tokens) return cost;
    }
    const std::vector<int32_t> prompt =
        prompt_of_length(workload.prompt_tokens, options_.prompt_ids, options_.valid_vocab, options_.protocol.seed, 0);
    text_costs_.emplace_back(workload, measure_text_cost(*options_.tokenizer, prompt, workload.output_tokens));
    return text_costs_.back().second;
  }

  /// All that is known, in the order of degrees and workloads.
  std::vector<PointResult> points() const {
    std::vector<PointResult> known;
    for (const Place& place : places_) {
      if (place.result) known.push_back(*place.result);
    }
    set_speedups(known);
    return known;
  }

  void tell_points(const std::vector<size_t>& changed) const {
    if (!reporting() || !progress_.points) return;
    std::vector<size_t> indices;  // of the changed ones among the known
    size_t known = 0;
    for (size_t i = 0; i < places_.size(); ++i) {
      if (!places_[i].result) continue;
      if (std::find(changed.begin(), changed.end(), i) != changed.end()) indices.push_back(known);
      ++known;
    }
    progress_.points(points(), indices);
  }

  parallel::World& world_;
  kernels::Backend& backend_;
  const OpenedModel& model_;
  const SweepOptions& options_;
  const SweepProgress& progress_;
  std::vector<Place> places_;
  std::vector<std::pair<Workload, TextCost>> text_costs_;
};

}  // namespace

std::vector<PointResult> run_sweep(parallel::World& world, kernels::Backend& backend, const OpenedModel& model,
                                   const SweepOptions& options, const SweepProgress& progress) {
  return Sweep(world, backend, model, options, progress).run();
}

std::vector<int32_t> prompt_of_length(int64_t length, const std::vector<int32_t>& real, int64_t valid_vocab,
                                      uint64_t seed, int64_t sequence) {
  std::vector<int32_t> ids(static_cast<size_t>(length));
  if (!real.empty()) {
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = real[i % real.size()];
    return ids;
  }
  std::seed_seq key{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), static_cast<uint32_t>(sequence)};
  std::mt19937 random(key);
  // The modulus keeps the ids the same with every standard library; its bias is below valid_vocab / 2^32.
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % static_cast<uint32_t>(valid_vocab));
  return ids;
}

}  // namespace shardscope::runtime
