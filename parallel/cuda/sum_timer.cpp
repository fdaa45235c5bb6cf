#include "parallel/cuda/sum_timer.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/base/error.hpp"
#include "kernels/cuda/check.hpp"

namespace shardscope::parallel {
namespace {

constexpr int64_t kAlignment = 16;  // bytes, of pieces

/// Whole and so small that sums over 8 ranks are exact in bf16, which holds all up to 256. A part that is missing,
/// doubled or another rank's changes the sum.
float whole_number(int64_t i, int rank) {
  return static_cast<float>((i % 7 + 1) * (rank + 1));
}

cuda::CallContext context_of(const DeviceStream& stream) {
  return {.detail = "sums to be timed", .device = stream.device};
}

}  // namespace

void enqueue_sum(DeviceSum& way, const SumTarget& target) {
  const int64_t element = kernels::facts(target.dtype).block_bytes;
  const int64_t most = way.most_bytes() / kAlignment * kAlignment / element;
  require(most > 0, "a way of summing without room for a message");
  for (int64_t begin = 0; begin < target.count; begin += most) {
    way.all_reduce(static_cast<std::byte*>(target.data) + begin * element, std::min(most, target.count - begin),
                   target.dtype);
  }
}

int64_t wrong_elements(DeviceSum& way, const SumTarget& target, int rank, int ranks, bool graph,
                       const DeviceStream& stream, const WaitForEvent& wait) {
  const auto count = static_cast<size_t>(target.count);
  std::vector<float> values(count);
  std::vector<float> sums(count);
  for (size_t i = 0; i < count; ++i) {
    const auto at = static_cast<int64_t>(i);
    values[i] = whole_number(at, rank);
    for (int other = 0; other < ranks; ++other) sums[i] += whole_number(at, other);
  }
  const cuda::CallContext context = context_of(stream);
  const cuda::PinnedBuffer pinned(2 * std::max<int64_t>(target.bytes(), 1), context.detail, context);
  const std::span<std::byte> sent(pinned.data(), static_cast<size_t>(target.bytes()));
  const std::span<std::byte> received(pinned.data() + target.bytes(), sent.size());
  const cuda::Event done = cuda::make_event(context);
  kernels::convert_row(values, target.dtype, sent);
  cuda::GraphExec captured;
  int64_t wrong = 0;
  constexpr int kTimes = 3;  // one by one, which makes connections; then both buffers of peers' inboxes
  for (int time = 0; time < kTimes; ++time) {
    if (graph && time == 1) {
      captured = cuda::capture(
          stream.lend(), [&] { enqueue_sum(way, target); }, context);
    }
    cuda::check_cuda(cudaMemcpyAsync(target.data, sent.data(), sent.size(), cudaMemcpyHostToDevice, stream.lend()),
                     "cudaMemcpyAsync", context);
    if (captured) {
      cuda::check_cuda(cudaGraphLaunch(captured.get(), stream.lend()), "cudaGraphLaunch", context);
    } else {
      enqueue_sum(way, target);
    }
    cuda::check_cuda(
        cudaMemcpyAsync(received.data(), target.data, received.size(), cudaMemcpyDeviceToHost, stream.lend()),
        "cudaMemcpyAsync", context);
    cuda::check_cuda(cudaEventRecord(done.get(), stream.lend()), "cudaEventRecord", context);
    wait(done.get(), "a sum that is checked");
    kernels::dequantise_row(target.dtype, received, values);
    for (size_t i = 0; i < count; ++i) wrong += values[i] == sums[i] ? 0 : 1;  // a NaN equals nothing
  }
  return wrong;
}

SumTimer::SumTimer(DeviceSum& way, const SumTarget& target, int calls, bool graph, const DeviceStream& stream,
                   WaitForEvent wait)
    : way_(way),
      target_(target),
      calls_(calls),
      stream_(stream),
      wait_(std::move(wait)),
      begin_(cuda::make_timing_event(context_of(stream))),
      end_(cuda::make_timing_event(context_of(stream))) {
  if (graph)
    graph_ = cuda::capture(
        stream.lend(), [this] { enqueue(); }, context_of(stream));
}

void SumTimer::enqueue() {
  for (int call = 0; call < calls_; ++call) enqueue_sum(way_, target_);
}

double SumTimer::run() {
  const cuda::CallContext context = context_of(stream_);
  const cudaStream_t stream = stream_.lend();
  cuda::check_cuda(cudaEventRecord(begin_.get(), stream), "cudaEventRecord", context);
  if (graph_) {
    cuda::check_cuda(cudaGraphLaunch(graph_.get(), stream), "cudaGraphLaunch", context);
  } else {
    enqueue();
  }
  cuda::check_cuda(cudaEventRecord(end_.get(), stream_.lend()), "cudaEventRecord", context);
  wait_(end_.get(), "sums that are timed");
  float milliseconds = 0;
  cuda::check_cuda(cudaEventElapsedTime(&milliseconds, begin_.get(), end_.get()), "cudaEventElapsedTime", context);
  constexpr double kMicro = 1e3;
  return static_cast<double>(milliseconds) * kMicro / calls_;
}

}  // namespace shardscope::parallel
