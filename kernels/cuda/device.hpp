// The device that a backend drives: its stream, how to wait for it, and how its errors read. All parts of the backend
// work with one of these. Calls come from one host thread.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cuda/backend_options.hpp"
#include "kernels/cuda/owners.hpp"

namespace shardscope::cuda {

class Device {
 public:
  /// Makes options.device current, and a context on it. Throws SystemError.
  explicit Device(const BackendOptions& options);

  /// For our own work.
  cudaStream_t stream() const { return stream_.get(); }
  /// For work of others (copies, NCCL, cuBLASLt): the kernel after it is not launched programmatically, since nobody
  /// knows what theirs do about it.
  cudaStream_t lend_stream() {
    after_others_ = true;
    return stream_.get();
  }
  /// Whether the kernel that is launched next may start before its predecessor has ended (Launch::programmatic).
  bool programmatic() {
    const bool answer = overlaps_ && !after_others_;
    after_others_ = false;
    return answer;
  }

  /// Where we are, for errors. `detail` must live until the check.
  CallContext where(std::string_view detail = {}) const;
  /// Throws SystemError naming operation and detail(), a function that is called in case of an error alone.
  template <class Detail>
  void check(cudaError_t error, std::string_view operation, const Detail& detail) const {
    if (error == cudaSuccess) return;
    const std::string text = detail();
    throw_cuda_error(error, operation, where(text));
  }
  void check(cudaError_t error, std::string_view operation) const { check_cuda(error, operation, where()); }

  /// Waits for an event by asking again and again: first at once, then through BackendOptions::wait. Asks the watches
  /// meanwhile. Throws SystemError when the device failed, and whatever watches and wait throw.
  void wait(cudaEvent_t event, const char* what);
  /// To be called now and then while work is enqueued that nobody waits for: waits until only so much is ahead of the
  /// device as its stream surely takes. A launch that finds the stream full blocks in the driver, where nobody looks
  /// after peers and time limits.
  void brake();

  /// check: called now and then during a wait; throws what should end it. abort: called before an exception of this
  /// rank's own unwinds, to end what waits on the device for others.
  void watch(std::function<void()> check, std::function<void()> abort) {
    watches_.push_back({std::move(check), std::move(abort)});
  }
  void forget_watches() { watches_.clear(); }
  void abort_watched() const {
    for (const Watch& watch : watches_) watch.abort();
  }

  int ordinal() const { return device_; }
  const std::string& name() const { return name_; }
  int multiprocessors() const { return multiprocessors_; }

 private:
  bool done(cudaEvent_t event, const char* what) const;
  void look_at_watches() const;

  int device_;
  int rank_;
  Wait wait_;
  std::function<void()> look_;
  std::string name_;
  int multiprocessors_ = 0;
  bool overlaps_ = false;
  bool after_others_ = true;
  Stream stream_;
  struct Watch {
    std::function<void()> check;
    std::function<void()> abort;
  };
  std::vector<Watch> watches_;
  std::array<Event, 16> marks_;  // of the latest calls of brake()
  uint64_t marked_ = 0;
};

}  // namespace shardscope::cuda
