#include "kernels/cuda/device.hpp"

#include <sched.h>

#include <chrono>

#include "kernels/cuda/begin_step.hpp"

namespace shardscope::cuda {
namespace {

using Clock = std::chrono::steady_clock;

// A decode step takes milliseconds; who sleeps between two looks learns of its end that much later.
constexpr std::chrono::milliseconds kPolling{200};
constexpr std::chrono::microseconds kBetweenWatches{500};
constexpr std::chrono::microseconds kAlone{50};  // without giving the core away
constexpr int kProgrammaticMajor = 9;            // Hopper is the first with programmatic dependent launch
constexpr int kProgrammaticDriver = 12'030;      // and this the first driver that captures it

}  // namespace

Device::Device(const BackendOptions& options)
    : device_(options.device), rank_(options.rank), wait_(options.wait), look_(options.look) {
  check(cudaSetDevice(device_), "cudaSetDevice");
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device_), "cudaGetDeviceProperties");
  name_ = properties.name;
  multiprocessors_ = properties.multiProcessorCount;
  int driver = 0;
  check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  int code = 0;  // of the kernels: made for an older device, they do not wait for their predecessors
  check(compiled_for(code), "cudaFuncGetAttributes");
  overlaps_ =
      properties.major >= kProgrammaticMajor && driver >= kProgrammaticDriver && code >= 10 * kProgrammaticMajor;
  stream_ = make_stream(where());
  for (Event& mark : marks_) mark = make_event(where());
}

void Device::brake() {
  const Event& oldest = marks_[marked_ % marks_.size()];
  if (marked_ >= marks_.size()) wait(oldest.get(), "work that was enqueued");
  check(cudaEventRecord(oldest.get(), stream_.get()), "cudaEventRecord");
  ++marked_;
}

CallContext Device::where(std::string_view detail) const {
  return {.detail = detail, .device = device_, .rank = rank_};
}

bool Device::done(cudaEvent_t event, const char* what) const {
  const cudaError_t state = cudaEventQuery(event);
  if (state == cudaErrorNotReady) return false;
  check(state, what);
  return true;
}

void Device::look_at_watches() const {
  for (const Watch& watch : watches_) watch.check();
}

void Device::wait(cudaEvent_t event, const char* what) {
  const Clock::time_point start = Clock::now();
  Clock::time_point watched = start;
  while (!done(event, what)) {
    const Clock::time_point now = Clock::now();
    if (now - watched > kBetweenWatches) {
      look_at_watches();
      if (look_) look_();
      watched = now;
    }
    if (now - start > kAlone) sched_yield();  // ranks, and NCCL's threads, may share this core
    if (wait_ && now - start > kPolling) {
      wait_(
          [&] {
            look_at_watches();
            return done(event, what);
          },
          what);
      break;
    }
  }
  // A sum that gave up ends like any other: its event tells of no failure.
  look_at_watches();
}

}  // namespace shardscope::cuda
