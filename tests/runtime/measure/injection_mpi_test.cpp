// Under mpirun -n 2: time that is wasted on purpose shows up in its own part of a step, on the clock of this machine.
// Each claim has three tries, since others may take the cores in any one of them. Usage: mpirun -n 2 injection_mpi_test
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "runtime/generate/generate.hpp"
#include "runtime/measure/statistics.hpp"
#include "runtime/measure/step_ledger.hpp"
#include "runtime/model/open_model.hpp"
#include "runtime/model/slice.hpp"
#include "tests/support/disturbed_backend.hpp"

using namespace shardscope;
using namespace shardscope::runtime;
using kernels::Operation;
using std::chrono::microseconds;

namespace {

constexpr int64_t kTokens = 120;
constexpr int kTries = 3;

/// A group of all ranks over the tiny model, whose heads and columns two ranks share evenly.
class Group {
 public:
  explicit Group(parallel::World& world)
      : world_(world),
        inner_(kernels::make_cpu_backend({.threads = 1})),
        backend(*inner_),
        model_(open_model({.model = "tiny"})),
        plan_(plan_shards(shard_dimensions(model_.config), world.size())),
        communicator_(
            parallel::make_communicator(world, {.group_size = world.size(),
                                                .kind = parallel::CommunicatorKind::kShm,
                                                .max_floats = largest_all_reduce_floats(model_.config, shape())})),
        decoder_(model_.config, *model_.weights, plan_, shape(), context()),
        sampler_(backend, *communicator_, decoder_.vocab_range(), model_.config.vocab, 1) {}

  /// The ledgers of all ranks of one generation, and what they say.
  struct Run {
    std::vector<double> ledgers;
    std::vector<StepTimes> times;
    StepLedger own;
  };
  Run generate() {
    Run run;
    require(backend.note_times(true), "the cpu backend notes times");
    const GenerateOptions options{.stepped = [&](bool decodes) { run.own.add(backend.step_times(), decodes); }};
    const std::vector<GenerationRequest> requests = {{.prompt_ids = {1, 2, 3}, .max_tokens = kTokens}};
    communicator_->barrier();
    generate_batch(decoder_, sampler_, context(), requests, options);
    backend.note_times(false);
    run.ledgers = world_.all_gather(run.own.to_doubles(), "ledgers");
    std::optional<std::vector<StepTimes>> times =
        step_times_of(run.ledgers, static_cast<size_t>(world_.size()), /*one_clock=*/true);
    require(times.has_value(), "a generation gives times of all ranks");
    run.times = std::move(*times);
    return run;
  }

  parallel::World& world() { return world_; }
  int64_t layers() const { return model_.config.layers; }

 private:
  static DecoderOptions shape() { return {.slots = 1, .max_positions = kTokens + 8, .max_step_tokens = 16}; }
  RankContext context() { return {backend, *communicator_, world_}; }

  parallel::World& world_;
  std::unique_ptr<kernels::Backend> inner_;

 public:
  test::DisturbedBackend backend;

 private:
  OpenedModel model_;
  parallel::ShardPlan plan_;
  std::unique_ptr<parallel::Communicator> communicator_;
  Decoder decoder_;
  Sampler sampler_;
};

/// What was injected on this rank, in ns; one entry a time.
using Injected = std::vector<double>;

/// A disturbance at one place of certain operations, for as long as it lives.
class Injection {
 public:
  Injection(Group& group, bool before, std::function<bool(Operation)> where, microseconds time) : group_(group) {
    auto& hook = before ? group.backend.before : group.backend.within;
    injected.reserve(1 << 16);
    hook = [this, where = std::move(where), time](Operation operation) {
      if (where(operation)) injected.push_back(static_cast<double>(test::spin(time)));
    };
  }
  Injection(const Injection&) = delete;
  Injection& operator=(const Injection&) = delete;
  ~Injection() { group_.backend.before = group_.backend.within = nullptr; }

  Injected injected;

 private:
  Group& group_;
};

/// wait of the other rank - wait of this one, of each all-reduce of the decode steps, in ns.
std::vector<double> wait_differences(const StepLedger& own, std::vector<double> begins_of_all, int other) {
  const size_t calls = own.calls().size();
  std::vector<double> differences;
  for (size_t call = 0; call < calls; ++call) {
    if (own.calls()[call].exchange) continue;
    const double other_begin = begins_of_all[static_cast<size_t>(other) * calls + call];
    const double own_begin = static_cast<double>(own.calls()[call].begin_ns);
    // With one clock, who begins first waits for the other: the difference of the waits is that of the begins.
    differences.push_back(own_begin - other_begin);
  }
  return differences;
}

std::vector<double> begins(Group& group, const StepLedger& own) {
  std::vector<double> mine;
  for (const CollectiveCall& call : own.calls()) mine.push_back(static_cast<double>(call.begin_ns));
  return group.world().all_gather(mine, "begins");
}

/// One rank is late at each all-reduce: the other's waits, over its own, grow by what was measured to be injected.
std::string late_rank(Group& group) {
  constexpr int kLate = 1;
  constexpr int kGenerations = 3;  // of 5 sums a step
  const bool late = group.world().rank() == kLate;
  const auto median_difference = [&] {
    std::vector<double> all;
    for (int i = 0; i < kGenerations; ++i) {
      const Group::Run run = group.generate();
      for (const double d : wait_differences(run.own, begins(group, run.own), 1 - kLate)) all.push_back(d);
    }
    require(all.size() >= 1000, "at least 1000 calls");
    return median(all);
  };
  const double before = median_difference();
  double delay = 0, after = 0;
  {
    Injection injection(
        group, true, [&](Operation operation) { return late && operation == Operation::kSum; }, microseconds(200));
    after = median_difference();
    if (late) delay = median(injection.injected);
  }
  const std::vector<double> told = group.world().all_gather(std::vector<double>{before, after, delay}, "a late rank");
  const double rise = told[3 * kLate + 1] - told[3 * kLate];
  const double injected = told[3 * kLate + 2];
  if (std::abs(rise / injected - 1) <= 0.05) return "";
  return fmt::format("the waits differ by {:.1f} us more, injected were {:.1f} us", rise * 1e-3, injected * 1e-3);
}

/// One field of a rank's mean step in the least disturbed of some generations, in us.
double field_us(Group& group, int rank, double StepTimes::*field) {
  std::vector<double> values;
  for (int i = 0; i < 8; ++i) values.push_back(group.generate().times[static_cast<size_t>(rank)].*field * 1e3);
  return *std::min_element(values.begin(), values.end());
}

struct Claim {
  const char* name;
  bool before;  // the injected time lies before the operation, else within it
  Operation operation;
  double per_step;  // operations of that kind in a step; of the tiny model's two layers
  bool on_rank_1_alone;
  int seen_on;  // a rank
  double StepTimes::*seen_in;
};

/// Of injected time, all is seen in the part where it belongs. It is spun in, so what a step has more of is known.
std::string in_its_part(Group& group, const Claim& claim) {
  constexpr microseconds kTime{60};
  const double before = field_us(group, claim.seen_on, claim.seen_in);
  double after = 0, spun_us = 0;
  {
    const bool here = !claim.on_rank_1_alone || group.world().rank() == 1;
    Injection injection(
        group, claim.before, [&](Operation operation) { return here && operation == claim.operation; }, kTime);
    after = field_us(group, claim.seen_on, claim.seen_in);
    if (here) spun_us = median(injection.injected) * 1e-3;
  }
  const int injected_on = claim.on_rank_1_alone ? 1 : claim.seen_on;
  const double expected =
      group.world().all_gather(std::vector<double>{spun_us}, "injected")[static_cast<size_t>(injected_on)] *
      claim.per_step;
  const std::vector<double> told = group.world().all_gather(std::vector<double>{after - before}, claim.name);
  const double rise = told[static_cast<size_t>(claim.seen_on)];
  if (std::abs(rise / expected - 1) <= 0.1) return "";
  return fmt::format("{} us a step more, expected {} us", rise, expected);
}

bool holds(Group& group, const std::string& name, const std::function<std::string()>& attempt) {
  std::string why;
  for (int i = 0; i < kTries; ++i) {
    why = attempt();
    if (why.empty()) break;
  }
  if (group.world().rank() == 0) {
    std::printf("%s: %s\n", name.c_str(), why.empty() ? "as injected" : why.c_str());
  }
  return why.empty();
}

}  // namespace

int main() {
  parallel::World world({.use_mpi = true});
  if (world.size() != 2) return 2;
  Group group(world);
  group.generate();
  const auto layers = static_cast<double>(group.layers());
  const std::vector<Claim> claims = {
      {"slow products, on both ranks", false, Operation::kProduct, 4 * layers, false, 0, &StepTimes::products},
      {"slow attention", false, Operation::kAttention, layers, false, 1, &StepTimes::attention},
      {"a slow head", false, Operation::kHead, 1, false, 0, &StepTimes::head},
      {"gaps before products", true, Operation::kProduct, 4 * layers, false, 0, &StepTimes::gaps},
      {"uneven shards: the larger one's products", false, Operation::kProduct, 4 * layers, true, 1,
       &StepTimes::products},
      {"uneven shards: the other rank waits", false, Operation::kProduct, 4 * layers, true, 0, &StepTimes::wait},
  };
  bool right = holds(group, "a late rank, at least 1000 all-reduces", [&] { return late_rank(group); });
  for (const Claim& claim : claims) {
    right = holds(group, claim.name, [&] { return in_its_part(group, claim); }) && right;
  }
  return right ? 0 : 1;
}
