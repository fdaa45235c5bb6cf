// Owners of what the CUDA runtime hands out: memory, streams, events, graphs. Move-only; whatever they own belongs to
// the device that was current when they were made, which is the one device of this process's backend. Destructors
// ignore errors: after a fault every call fails.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>

#include "kernels/cuda/check.hpp"

namespace shardscope::cuda {

/// A handle that the function `kRelease` takes back; Handle{} is "none".
template <class Handle, auto kRelease>
class Owned {
 public:
  Owned() = default;
  explicit Owned(Handle handle) : handle_(handle) {}
  Owned(Owned&& other) noexcept : handle_(std::exchange(other.handle_, Handle{})) {}
  Owned& operator=(Owned&& other) noexcept {
    if (this != &other) {
      reset();
      handle_ = std::exchange(other.handle_, Handle{});
    }
    return *this;
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() { reset(); }

  Handle get() const { return handle_; }
  explicit operator bool() const { return handle_ != Handle{}; }

 private:
  void reset() {
    if (handle_ != Handle{}) static_cast<void>(kRelease(handle_));
    handle_ = Handle{};
  }

  Handle handle_{};
};

using Stream = Owned<cudaStream_t, cudaStreamDestroy>;
using Event = Owned<cudaEvent_t, cudaEventDestroy>;
using Graph = Owned<cudaGraph_t, cudaGraphDestroy>;
using GraphExec = Owned<cudaGraphExec_t, cudaGraphExecDestroy>;

/// Memory of the device, aligned to 256 bytes.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  /// purpose: of the memory, for the error that says that there is too little. 0 bytes: nothing is allocated.
  DeviceBuffer(int64_t bytes, std::string_view purpose, CallContext where);

  void* data() const { return memory_.get(); }
  template <class T>
  T* as() const {
    return static_cast<T*>(memory_.get());
  }
  int64_t bytes() const { return bytes_; }

 private:
  Owned<void*, cudaFree> memory_;
  int64_t bytes_ = 0;
};

/// Page-locked memory of the host, from and to which copies run beside everything else.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  PinnedBuffer(int64_t bytes, std::string_view purpose, CallContext where);

  std::byte* data() const { return static_cast<std::byte*>(memory_.get()); }
  template <class T>
  T* as() const {
    return static_cast<T*>(memory_.get());
  }
  int64_t bytes() const { return bytes_; }

 private:
  Owned<void*, cudaFreeHost> memory_;
  int64_t bytes_ = 0;
};

Stream make_stream(CallContext where);
/// Without times.
Event make_event(CallContext where);

/// With times, for cudaEventElapsedTime.
Event make_timing_event(CallContext where);

/// What `enqueue` enqueues on the stream, captured and not run, ready to be launched.
GraphExec capture(cudaStream_t stream, const std::function<void()>& enqueue, CallContext where);

/// "1.50 GB"
std::string memory_text(int64_t bytes);

}  // namespace shardscope::cuda
