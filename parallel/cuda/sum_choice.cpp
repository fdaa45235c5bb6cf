#include "parallel/cuda/sum_choice.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <set>

#include "kernels/base/error.hpp"
#include "kernels/cuda/check.hpp"

namespace shardscope::parallel {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kNccl = "nccl";
constexpr const char* kSymmetric = "nccl-symmetric";
constexpr int kCalls = 10;  // of a row: so many share the ranks' different starts
constexpr int kRounds = 7;
constexpr int kWarmUpRounds = 2;
// After it no further size begins: its messages then take the way of the nearest one that was measured.
constexpr std::chrono::milliseconds kBudget{400};

/// Memory for a message, of the kind that the way wants.
class Message {
 public:
  Message(DeviceSum& way, int64_t bytes, kernels::DType dtype, const DeviceStream& stream) {
    const int64_t count = bytes / kernels::facts(dtype).block_bytes;
    own_ = way.make_summed(1, count, dtype);
    if (!own_) {
      const cuda::CallContext where{.device = stream.device};
      plain_ = cuda::DeviceBuffer(bytes, "sums to be timed", where);
      cuda::check_cuda(cudaMemsetAsync(plain_.data(), 0, static_cast<size_t>(bytes), stream.lend()), "cudaMemsetAsync",
                       where);
    }
    target_ = {own_ ? own_->view().data : plain_.data(), count, dtype};
  }
  const SumTarget& target() const { return target_; }

 private:
  std::unique_ptr<kernels::ActivationBuffer> own_;
  cuda::DeviceBuffer plain_;
  SumTarget target_;
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// One size; the ways take turns, so that a disturbance meets all.
void measure_size(DeviceWays& ways, Communicator& host, const DeviceStream& stream, kernels::DType dtype, int64_t bytes,
                  std::vector<SumChoices::Measured>& measured) {
  struct Run {
    DeviceSum* way;
    std::unique_ptr<Message> message;
    std::unique_ptr<SumTimer> timer;
    std::vector<double> rounds_us;  // the slowest rank's
  };
  std::vector<Run> runs;
  const auto wait = [&](cudaEvent_t event, const char* what) { ways.wait(event, what); };
  for (const std::unique_ptr<DeviceSum>& way : ways.ways()) {
    if (bytes > way->most_bytes()) continue;
    Run run{.way = way.get(),
            .message = std::make_unique<Message>(*way, bytes, dtype, stream),
            .timer = {},
            .rounds_us = {}};
    SumTimer(*way, run.message->target(), 1, false, stream, wait).run();  // makes connections before the capture
    run.timer = std::make_unique<SumTimer>(*way, run.message->target(), kCalls, true, stream, wait);
    runs.push_back(std::move(run));
  }
  std::vector<double> all(static_cast<size_t>(host.size()));
  for (int round = -kWarmUpRounds; round < kRounds; ++round) {
    for (Run& run : runs) {
      host.barrier();
      const double mine = run.timer->run();
      host.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
      if (round >= 0) run.rounds_us.push_back(*std::max_element(all.begin(), all.end()));
    }
  }
  for (Run& run : runs) {
    measured.push_back({.bytes = bytes, .way = std::string(run.way->name()), .time_us = median(run.rounds_us)});
    run.timer.reset();  // the graph, before its message's window
  }
}

}  // namespace

std::vector<SumChoices::Measured> measure_ways(DeviceWays& ways, Communicator& host, const DeviceStream& stream,
                                               kernels::DType dtype, std::span<const int64_t> message_bytes) {
  std::vector<SumChoices::Measured> measured;
  const std::set<int64_t> sizes(message_bytes.begin(), message_bytes.end());
  const Clock::time_point start = Clock::now();
  for (const int64_t bytes : sizes) {
    if (bytes <= 0) continue;
    bool go_on = measured.empty() || Clock::now() - start < kBudget;
    host.broadcast(std::as_writable_bytes(std::span(&go_on, 1)), 0);
    if (!go_on) break;
    measure_size(ways, host, stream, dtype, bytes, measured);
  }
  return measured;
}

std::vector<SumChoices::Choice> decide(std::span<const SumChoices::Measured> measured) {
  require(!measured.empty(), "a choice among ways of summing, of which none was measured");
  const auto fastest = [&](const std::string& left_out) {
    std::map<int64_t, const SumChoices::Measured*> best;  // of each size
    for (const SumChoices::Measured& one : measured) {
      if (one.way == left_out) continue;
      const SumChoices::Measured*& known = best[one.bytes];
      if (known == nullptr || one.time_us < known->time_us) known = &one;
    }
    return best;
  };
  // NCCL's two ways, where there are both: the total time at the sizes where one of them is the fastest.
  double plain = 0;
  double symmetric = 0;
  for (const auto& [bytes, best] : fastest("")) {
    if (best->way != kNccl && best->way != kSymmetric) continue;
    for (const SumChoices::Measured& one : measured) {
      if (one.bytes != bytes) continue;
      if (one.way == kNccl) plain += one.time_us;
      if (one.way == kSymmetric) symmetric += one.time_us;
    }
  }
  const bool both = plain > 0 && symmetric > 0;
  const std::string slower = !both ? "" : symmetric < plain ? kNccl : kSymmetric;
  std::vector<SumChoices::Choice> choices;
  int64_t before = 0;
  for (const auto& [bytes, best] : fastest(slower)) {
    if (choices.empty()) {
      choices.push_back({0, best->way});
    } else if (choices.back().way != best->way) {
      const double middle = std::sqrt(static_cast<double>(before) * static_cast<double>(bytes));
      choices.push_back({std::llround(middle), best->way});
    }
    before = bytes;
  }
  return choices;
}

}  // namespace shardscope::parallel
