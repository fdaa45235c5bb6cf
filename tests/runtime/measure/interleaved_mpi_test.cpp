// Under mpirun -n 2: three points in one visit, taking turns. Two are the same code: never faster or slower than each
// other. In the third one rank is 30 % slower: slower, and the other rank's wait says why.
// Usage: mpirun -n 2 interleaved_mpi_test
#include <cstdio>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "runtime/measure/attribution.hpp"
#include "runtime/measure/group.hpp"
#include "runtime/model/open_model.hpp"
#include "runtime/model/slice.hpp"
#include "runtime/report/compare/point_verdict.hpp"
#include "tests/support/disturbed_backend.hpp"

using namespace shardscope;
using namespace shardscope::runtime;

namespace {

constexpr size_t kBase = 0, kSame = 1, kSlow = 2, kPoints = 3;
constexpr int kSlowRank = 1;
constexpr double kSlowdown = 0.3;
constexpr Workload kWorkload{.batch = 1, .prompt_tokens = 8, .output_tokens = 24};
constexpr Protocol kProtocol{.warmup = 3, .iterations = 96, .max_seconds = 120, .instrumented = true};
constexpr double kNoiseBound = 0.02;

/// A group's machine of which one point's products waste time on one rank.
class OneSlowPoint final : public Machine {
 public:
  OneSlowPoint(GroupMachine& inner, test::DisturbedBackend& backend) : inner_(inner), backend_(backend) {}

  /// How long each product of the slow point spins, on this rank.
  std::chrono::nanoseconds waste{0};

  GenerationSample generate(size_t point) override {
    set(point);
    return inner_.generate(point);
  }
  std::optional<InstrumentedSample> generate_instrumented(size_t point) override {
    set(point);
    return inner_.generate_instrumented(point);
  }
  void measure_bandwidth(size_t point, bool after) override { inner_.measure_bandwidth(point, after); }
  double now_seconds() override { return inner_.now_seconds(); }
  bool agree(bool mine) override { return inner_.agree(mine); }
  void tell(size_t, const char*, int64_t, double) override {}

 private:
  void set(size_t point) {
    backend_.within = nullptr;
    if (point != kSlow || waste.count() == 0) return;
    backend_.within = [this](kernels::Operation operation) {
      if (operation == kernels::Operation::kProduct) test::spin(waste);
    };
  }

  GroupMachine& inner_;
  test::DisturbedBackend& backend_;
};

class Launch {
 public:
  explicit Launch(parallel::World& world)
      : world_(world),
        inner_(kernels::make_cpu_backend({.threads = 1})),
        backend_(*inner_),
        model_(open_model({.model = "smollm2-135m", .layers = 3})),
        work_{.backend = &backend_} {
    sweep_.valid_vocab = model_.config.vocab;
    sweep_.protocol = kProtocol;
    machine_.emplace(world, model_,
                     GroupOptions{.sweep = sweep_,
                                  .work = work_,
                                  .tp = world.size(),
                                  .workloads = std::vector<Workload>(kPoints, kWorkload)});
  }

  /// One visit, as points; on all ranks.
  std::vector<PointResult> visit() {
    OneSlowPoint machine(*machine_, backend_);
    const double tpot_ms = machine.generate(kBase).tpot_ms.value();  // the slowest rank's: the same on all ranks
    const double products = 4.0 * static_cast<double>(model_.config.layers);
    if (world_.rank() == kSlowRank) {
      machine.waste = std::chrono::nanoseconds(static_cast<int64_t>(kSlowdown * tpot_ms / products * 1e6));
    }
    const std::vector<VisitRecord> records = run_visit(machine, kProtocol, 1, std::vector<int64_t>(kPoints, 0));
    std::vector<PointResult> points;
    for (size_t i = 0; i < kPoints; ++i) points.push_back(point_of(records[i], i));
    return points;
  }

 private:
  PointResult point_of(const VisitRecord& record, size_t index) {
    const parallel::ShardPlan plan = plan_shards(shard_dimensions(model_.config), world_.size());
    const DTypeOf dtype_of = [&](WeightId id) { return model_.weights->dtype(id); };
    PointResult point{.tp = world_.size(), .workload = kWorkload};
    const auto mine = to_doubles(machine_->own(index), machine_->memory());
    const std::vector<double> all = world_.all_gather(mine, "figures");
    std::vector<OperationBytes> operations;
    for (int rank = 0; rank < world_.size(); ++rank) {
      const size_t begin = static_cast<size_t>(rank) * kRankDoubles;
      point.ranks.push_back(rank_figures_of(std::span(all).subspan(begin, kRankDoubles), rank));
      point.ranks.back().bytes = step_traffic(model_.config, dtype_of, plan, rank, kWorkload, {});
      operations.push_back(operation_traffic(model_.config, dtype_of, plan, rank, kWorkload, {}));
    }
    set_times(point, {record});
    set_attribution(point, operations);
    return point;
  }

  parallel::World& world_;
  std::unique_ptr<kernels::Backend> inner_;
  test::DisturbedBackend backend_;
  OpenedModel model_;
  Workplace work_;
  SweepOptions sweep_;
  std::optional<GroupMachine> machine_;
};

/// Empty: slower, and the other rank waits for most of what the slow one needs longer.
std::string slow_is_seen(const PointResult& base, const PointResult& slow) {
  const ComparedPoint compared = compare_points(base, slow, 1, kNoiseBound);
  if (compared.verdict != PointVerdict::kSlower) {
    return fmt::format("{} ({}), {:.3f} ms against {:.3f} ms", name_of(compared.verdict), compared.reason,
                       *slow.tpot_ms.p50, *base.tpot_ms.p50);
  }
  constexpr int kOther = 1 - kSlowRank;
  const auto more = [&](int rank, Part part) {
    const auto at = static_cast<size_t>(rank);
    return (*slow.ranks[at].attribution)[part] - (*base.ranks[at].attribution)[part];
  };
  const double waits = more(kOther, Part::kAllreduceWait);
  const double works = more(kSlowRank, Part::kMatrixLoss);
  if (waits >= 0.7 * *compared.difference_ms && works >= 0.7 * *compared.difference_ms) return "";
  return fmt::format("{:.3f} ms slower, of which rank {} waits {:.3f} ms and rank {} works {:.3f} ms",
                     *compared.difference_ms, kOther, waits, kSlowRank, works);
}

}  // namespace

int main() {
  parallel::World world({.use_mpi = true});
  if (world.size() != 2) return 2;
  Launch launch(world);
  std::string unseen = "no try";
  bool right = true;
  constexpr int kTries = 3;
  for (int i = 0; i < kTries && !unseen.empty() && right; ++i) {
    const std::vector<PointResult> points = launch.visit();
    const PointVerdict same = compare_points(points[kBase], points[kSame], 1, kNoiseBound).verdict;
    right = same == PointVerdict::kSame || same == PointVerdict::kUnclear;
    unseen = slow_is_seen(points[kBase], points[kSlow]);
    if (world.rank() != 0) continue;
    std::printf("the same code: %s\none rank 30 %% slower: %s\n", std::string(name_of(same)).c_str(),
                unseen.empty() ? "slower, and the other rank waits for it" : unseen.c_str());
  }
  return right && unseen.empty() ? 0 : 1;
}
