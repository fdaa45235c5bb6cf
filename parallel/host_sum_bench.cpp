#include "parallel/host_sum_bench.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "kernels/base/error.hpp"

namespace shardscope::parallel {
namespace {

using Clock = std::chrono::steady_clock;

// Prime, so that no chunk, block or vector of a sum begins with the same element as the next one.
constexpr size_t kPeriod = 11;
using Pattern = std::array<float, kPeriod>;

Pattern part_of(int rank) {
  Pattern pattern{};
  for (size_t i = 0; i < kPeriod; ++i) pattern[i] = known_part(rank, static_cast<int64_t>(i));
  return pattern;
}

void repeat(const Pattern& pattern, std::span<float> data) {
  for (size_t begin = 0; begin < data.size(); begin += kPeriod) {
    std::copy_n(pattern.begin(), std::min(kPeriod, data.size() - begin), data.begin() + static_cast<ptrdiff_t>(begin));
  }
}

}  // namespace

float known_part(int rank, int64_t i) {
  return static_cast<float>((i + 3 * int64_t{rank}) % static_cast<int64_t>(kPeriod) - 4);
}

int64_t count_wrong(std::span<const float> sums, int ranks) {
  Pattern exact{};
  for (int rank = 0; rank < ranks; ++rank) {
    for (size_t i = 0; i < kPeriod; ++i) exact[i] += known_part(rank, static_cast<int64_t>(i));
  }
  int64_t wrong = 0;
  for (size_t begin = 0; begin < sums.size(); begin += kPeriod) {
    const size_t block = std::min(kPeriod, sums.size() - begin);
    for (size_t i = 0; i < block; ++i) wrong += sums[begin + i] == exact[i] ? 0 : 1;
  }
  return wrong;
}

HostSumBench::HostSumBench(World& world, const CommunicatorOptions& options) : world_(world) {
  const int64_t most_bytes = options.max_floats * static_cast<int64_t>(sizeof(float));
  CommunicatorOptions host = options;
  host.on_device = {};
  const auto add = [&](const char* name, CommunicatorKind kind) {
    host.kind = kind;
    Way way{.name = name, .most_bytes = most_bytes, .why_not = {}};
    std::unique_ptr<Communicator> communicator;
    try {
      communicator = make_communicator(world, host);
    } catch (const UserError&) {  // on all ranks alike, before anything collective
      way.why_not = "its ranks are on several hosts";
    }
    ways_.push_back(std::move(way));
    communicators_.push_back(std::move(communicator));
  };
  if (options.group_size == 1) {
    add("none", CommunicatorKind::kAuto);
  } else {
    add("shm", CommunicatorKind::kShm);
    add("mpi", CommunicatorKind::kMpi);
  }
  for (const auto& communicator : communicators_) {
    if (meeting_ == nullptr && communicator) meeting_ = communicator.get();
  }
  data_.resize(static_cast<size_t>(options.max_floats));
}

Communicator& HostSumBench::communicator_of(const SumTask& task) const {
  for (size_t i = 0; i < ways_.size(); ++i) {
    if (ways_[i].name != task.way) continue;
    require(communicators_[i] != nullptr, "HostSumBench: a way that this group cannot use");
    return *communicators_[i];
  }
  throw BugError("HostSumBench: no such way");
}

double HostSumBench::sample(Communicator& communicator, std::span<float> data, int64_t& wrong) {
  repeat(part_of(communicator.rank()), data);
  meeting_->barrier();
  const Clock::time_point begin = Clock::now();
  communicator.all_reduce(data);
  const std::chrono::duration<double, std::micro> time = Clock::now() - begin;
  wrong += count_wrong(data, communicator.size());
  return time.count();
}

SumTimes HostSumBench::time(const SumTask& task) {
  require(task.dtype == kernels::DType::kF32 && !task.graph, "HostSumBench: sums of fp32, without graphs, alone");
  require(task.count >= 0 && task.count <= static_cast<int64_t>(data_.size()), "HostSumBench: a sum of that many");
  Communicator& communicator = communicator_of(task);
  const std::span<float> data(data_.data(), static_cast<size_t>(task.count));
  SumTimes times;
  times.sample_us.reserve(static_cast<size_t>(task.samples));
  for (int64_t i = -task.warm_up; i < task.samples; ++i) {
    world_.progress("timing sums");
    const double time_us = sample(communicator, data, times.wrong);
    if (i >= 0) times.sample_us.push_back(time_us);
  }
  times.inside_us = times.sample_us;
  return times;
}

}  // namespace shardscope::parallel
