#include "parallel/cuda/device_sum_bench.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "kernels/base/error.hpp"
#include "kernels/cuda/check.hpp"
#include "parallel/cuda/sum_timer.hpp"

namespace shardscope::parallel {
namespace {

constexpr int kCallsASample = 20;
constexpr int kCallsInside = 200;  // as many as the logs surely hold
constexpr double kNanoToMicro = 1e-3;

WaysWanted timed(WaysWanted wanted) {
  wanted.times = true;
  return wanted;
}

/// The least that two of the times differ by; 0: nobody knows.
double step_us(std::span<const cuda::CallTimes> calls) {
  std::vector<uint64_t> times;
  for (const cuda::CallTimes& call : calls) times.insert(times.end(), {call.begin_ns, call.end_ns});
  std::sort(times.begin(), times.end());
  uint64_t least = 0;
  for (size_t i = 1; i < times.size(); ++i) {
    const uint64_t step = times[i] - times[i - 1];
    if (step > 0 && (least == 0 || step < least)) least = step;
  }
  return static_cast<double>(least) * kNanoToMicro;
}

}  // namespace

DeviceSumBench::DeviceSumBench(World& world, std::unique_ptr<Communicator> host, cuda::CudaBackend& backend,
                               std::span<const CommunicatorKind> kinds, bool shared_devices)
    : host_(std::move(host)),
      stream_(stream_of(backend)),
      ways_(std::make_unique<DeviceWays>(world, *host_, stream_, timed(ways_wanted(kinds, shared_devices)))),
      notes_(stream_) {
  for (const std::unique_ptr<DeviceSum>& way : ways_->ways()) {
    listed_.push_back({.name = std::string(way->name()), .most_bytes = way->most_bytes(), .why_not = ""});
  }
  for (const DeviceWays::Absent& absent : ways_->absent()) {
    listed_.push_back({.name = absent.name, .most_bytes = 0, .why_not = absent.why_not});
  }
}

SumTimes DeviceSumBench::time(const SumTask& task) {
  DeviceSum* const way = ways_->named(task.way);
  require(way != nullptr, "a way of summing that is not there was to be timed");
  const cuda::CallContext where{.device = stream_.device, .rank = host_->rank()};
  const std::unique_ptr<kernels::ActivationBuffer> own = way->make_summed(1, task.count, task.dtype);
  const cuda::DeviceBuffer plain(own ? 0 : task.count * kernels::facts(task.dtype).block_bytes, "sums to be timed",
                                 where);
  const SumTarget target{own ? own->view().data : plain.data(), task.count, task.dtype};
  const auto wait = [this](cudaEvent_t event, const char* what) { ways_->wait(event, what); };

  SumTimes times{.sample_us = {}, .calls_a_sample = kCallsASample, .inside_us = {}, .own_wait_us = {}, .wrong = 0};
  if (task.first) {
    times.wrong = wrong_elements(*way, target, host_->rank(), host_->size(), task.graph, stream_, wait);
  }
  {
    SumTimer timer(*way, target, kCallsASample, task.graph, stream_, wait);
    for (int64_t sample = -task.warm_up; sample < task.samples; ++sample) {
      host_->barrier();
      const double us = timer.run();
      if (sample >= 0) times.sample_us.push_back(us);
    }
  }
  if (task.first) take_single_calls(*way, target, task, times);
  return times;
}

/// One sum a call, where the way takes the message whole; else none are given: pieces would each be a call.
void DeviceSumBench::take_single_calls(DeviceSum& way, const SumTarget& target, const SumTask& task, SumTimes& times) {
  if (target.bytes() > way.most_bytes()) return;
  const cuda::CallContext where{.detail = "sums to be timed", .device = stream_.device, .rank = host_->rank()};
  const cuda::Event done = cuda::make_event(where);
  const bool keeps_times = !way.times().empty();  // it has been called by now
  const auto calls = static_cast<int>(std::min<int64_t>(kCallsInside, task.samples * kCallsASample));
  const auto enqueue = [&] {
    for (int call = 0; call < calls; ++call) {
      if (keeps_times) {
        enqueue_sum(way, target);
      } else {
        notes_.around([&] { enqueue_sum(way, target); });
      }
    }
  };
  host_->barrier();
  cuda::GraphExec graph;
  if (task.graph) {
    graph = cuda::capture(stream_.lend(), enqueue, where);
    cuda::check_cuda(cudaGraphLaunch(graph.get(), stream_.lend()), "cudaGraphLaunch", where);
  } else {
    enqueue();
  }
  cuda::check_cuda(cudaEventRecord(done.get(), stream_.lend()), "cudaEventRecord", where);
  ways_->wait(done.get(), "sums that are timed");
  std::vector<cuda::CallTimes> all = keeps_times ? way.times() : notes_.times();
  if (std::ssize(all) > calls) all.erase(all.begin(), all.end() - calls);
  for (const cuda::CallTimes& call : all) {
    times.inside_us.push_back(static_cast<double>(call.end_ns - call.begin_ns) * kNanoToMicro);
    if (keeps_times) times.own_wait_us.push_back(static_cast<double>(call.arrived_ns - call.begin_ns) * kNanoToMicro);
  }
  times.clock_step_us = step_us(all);
}

}  // namespace shardscope::parallel
