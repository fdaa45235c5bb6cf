// The host's side of a host program under test: a Stand that also makes streams, events, pinned memory and graphs, and
// keeps why its first failing call was refused.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <string>
#include <vector>

#include "tests/emulation/emulation.hpp"
#include "tests/emulation/planted_host/host_kernels.hpp"
#include "tests/emulation/stand.hpp"

namespace shardscope::planted_host {

class HostStand : public test::Stand {
 public:
  using test::Stand::Stand;

  /// Keeps the first error and why it was given. True if there is none.
  bool note(cudaError_t error) {
    if (this->error() == cudaSuccess && error != cudaSuccess) refusal_ = emulation::take_refusal();
    test::Stand::note(error);
    return error == cudaSuccess;
  }
  const std::string& refusal() const { return refusal_; }

  cudaStream_t stream(unsigned flags = cudaStreamNonBlocking) {
    cudaStream_t made = nullptr;
    note(cudaStreamCreateWithFlags(&made, flags));
    return made;
  }
  cudaEvent_t event() {
    cudaEvent_t made = nullptr;
    note(cudaEventCreateWithFlags(&made, cudaEventDisableTiming));
    return made;
  }
  void wait_for(cudaStream_t waiting, cudaStream_t awaited) {
    const cudaEvent_t between = event();
    note(cudaEventRecord(between, awaited));
    note(cudaStreamWaitEvent(waiting, between, 0));
    note(cudaEventDestroy(between));
  }
  void select(int device) { note(cudaSetDevice(device)); }

  template <class T>
  T* pinned(size_t count, T value) {
    void* memory = nullptr;
    note(cudaHostAlloc(&memory, count * sizeof(T), cudaHostAllocDefault));
    T* const values = static_cast<T*>(memory);
    for (size_t i = 0; values != nullptr && i < count; ++i) values[i] = value;
    return values;
  }
  /// kCount numbers of that value on the current device, there when this returns.
  float* filled(float value) {
    float* const made = upload(std::vector<float>(kCount, value));
    finish();
    return made;
  }
  /// out = (factor x + y) mod kModulus
  void combine(const float* x, float factor, const float* y, float* out, cudaStream_t stream) {
    note(planted_host::combine(x, factor, y, out, kCount, stream));
  }
  /// Whether all kCount numbers are `value` after all work of the device; false after an error.
  bool holds(const float* numbers, float value) {
    return download(numbers, kCount) == std::vector<float>(kCount, value) && error() == cudaSuccess;
  }

  static constexpr int64_t kCount = 64;
  static constexpr size_t kBytes = kCount * sizeof(float);

 private:
  std::string refusal_;
};

}  // namespace shardscope::planted_host
