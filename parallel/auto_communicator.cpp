// The ladder: at each size the three ways take turns, so that a disturbance meets all; the median of rank 0 counts.
#include "parallel/auto_communicator.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <limits>

namespace shardscope::parallel {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
constexpr int64_t kFirstRung = 256;     // floats: 1 KiB
constexpr int64_t kLastRung = 1 << 18;  // a larger size follows the last rung
constexpr int kRounds = 11;
constexpr int kWarmUpRounds = 2;
constexpr std::chrono::milliseconds kBudget{250};
constexpr double kWorthIt = 0.9;  // another way must take less than this of the simpler one's time

enum Way { kOneShot, kTwoShot, kMpi, kWays };

struct Rung {
  int64_t floats = 0;
  std::array<double, kWays> median_us{};
};

/// The size from which `better` holds at every rung up to the last: between that rung and the one below it.
template <typename Better>
int64_t crossover(const std::vector<Rung>& rungs, const Better& better) {
  size_t first = rungs.size();
  while (first > 0 && better(rungs[first - 1])) --first;
  if (first == rungs.size()) return kNever;
  if (first == 0) return 0;
  return std::llround(
      std::sqrt(static_cast<double>(rungs[first - 1].floats) * static_cast<double>(rungs[first].floats)));
}

/// For the report, on rank 0: it measured, and it decided.
SumChoices choices_of(std::span<const Rung> rungs, int64_t two_shot_from, int64_t mpi_from, int64_t max_floats) {
  constexpr std::array kNames = {"shm one-shot", "shm two-shot", "mpi"};
  constexpr int64_t kFloat = sizeof(float);
  SumChoices choices;
  for (const Rung& rung : rungs) {
    for (int way = 0; way < kWays; ++way) {
      choices.measured.push_back({rung.floats * kFloat, kNames[way], rung.median_us[way]});
    }
  }
  const auto choose = [&](int64_t from, int64_t until, Way way) {
    if (from < until) choices.choices.push_back({from * kFloat, kNames[way]});
  };
  const int64_t end = max_floats + 1;
  mpi_from = std::min(mpi_from, end);
  two_shot_from = std::min(two_shot_from, mpi_from);
  choose(0, two_shot_from, kOneShot);
  choose(two_shot_from, mpi_from, kTwoShot);
  choose(mpi_from, end, kMpi);
  return choices;
}

}  // namespace

AutoCommunicator::AutoCommunicator(World& world, MPI_Comm group, const CommunicatorOptions& options)
    : shm_(world, group, options), mpi_(world, group, options), max_floats_(options.max_floats) {
  measure();
}

void AutoCommunicator::measure() {
  struct Decision {
    int64_t two_shot_from = kNever;
    int64_t mpi_from = kNever;
    bool go_on = true;
  };
  Decision decision;
  const auto tell = [&] { shm_.broadcast(std::as_writable_bytes(std::span(&decision, 1)), 0); };
  const std::array<int64_t, kWays> two_shot_from{kNever, 0, kNever};
  std::vector<float> data(std::clamp(max_floats_, kFirstRung, kLastRung));
  std::vector<Rung> rungs;
  const Clock::time_point start = Clock::now();
  for (int64_t floats = kFirstRung; floats <= static_cast<int64_t>(data.size()) && decision.go_on; floats *= 4) {
    std::array<std::array<double, kRounds>, kWays> times_us{};
    for (int round = -kWarmUpRounds; round < kRounds; ++round) {
      for (int way = 0; way < kWays; ++way) {
        shm_.set_two_shot_from(two_shot_from[way]);
        const Clock::time_point begin = Clock::now();
        const std::span<float> part(data.data(), static_cast<size_t>(floats));
        if (way == kMpi) {
          mpi_.all_reduce(part);
        } else {
          shm_.all_reduce(part);
        }
        const std::chrono::duration<double, std::micro> time = Clock::now() - begin;
        if (round >= 0) times_us[way][round] = time.count();
      }
    }
    Rung& rung = rungs.emplace_back(Rung{floats, {}});
    for (int way = 0; way < kWays; ++way) {
      std::nth_element(times_us[way].begin(), times_us[way].begin() + kRounds / 2, times_us[way].end());
      rung.median_us[way] = times_us[way][kRounds / 2];
    }
    decision.go_on = Clock::now() - start < kBudget;
    tell();
  }
  decision.two_shot_from =
      crossover(rungs, [](const Rung& rung) { return rung.median_us[kTwoShot] < kWorthIt * rung.median_us[kOneShot]; });
  decision.mpi_from = crossover(rungs, [](const Rung& rung) {
    return rung.median_us[kMpi] < kWorthIt * std::min(rung.median_us[kOneShot], rung.median_us[kTwoShot]);
  });
  tell();
  shm_.set_two_shot_from(decision.two_shot_from);
  mpi_from_ = decision.mpi_from;
  choices_ = choices_of(rungs, decision.two_shot_from, decision.mpi_from, max_floats_);
}

void AutoCommunicator::all_reduce(std::span<float> data) {
  if (static_cast<int64_t>(data.size()) >= mpi_from_) {
    mpi_.all_reduce(data);
  } else {
    shm_.all_reduce(data);
  }
}

}  // namespace shardscope::parallel
