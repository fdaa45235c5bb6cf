// The host's side of a test of the emulation: memory, launches, results, and the first error that the runtime gave. A
// scenario with a planted bug is written once; whether it runs with the bug or as its sound twin is `planted()`. Memory
// is never freed one by one: the next `emulation::restart` forgets it.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/cuda/launch.hpp"

namespace shardscope::test {

class Stand {
 public:
  explicit Stand(bool planted = false) : planted_(planted) {}

  bool planted() const { return planted_; }
  cudaError_t error() const { return error_; }

  /// Keeps the first error.
  void note(cudaError_t error) {
    if (error_ == cudaSuccess) error_ = error;
  }

  /// Memory of the current device that nobody has written.
  template <class T>
  T* unwritten(size_t count) {
    void* memory = nullptr;
    note(cudaMalloc(&memory, count * sizeof(T)));
    return static_cast<T*>(memory);
  }
  template <class T>
  T* zeros(size_t count) {
    T* const memory = unwritten<T>(count);
    note(cudaMemset(memory, 0, count * sizeof(T)));
    return memory;
  }
  template <class T>
  T* upload(const std::vector<T>& values) {
    T* const memory = unwritten<T>(values.size());
    note(cudaMemcpy(memory, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
    return memory;
  }
  /// first, first + 1, …
  template <class T>
  T* counting(size_t count, T first = 0) {
    std::vector<T> values(count);
    for (size_t i = 0; i < count; ++i) values[i] = static_cast<T>(first + static_cast<T>(i));
    return upload(values);
  }

  template <class... Parameters, class... Arguments>
  void start(const cuda::Launch& where, void (*kernel)(Parameters...), Arguments&&... arguments) {
    note(cuda::launch(where, kernel, std::forward<Arguments>(arguments)...));
  }
  void finish() { note(cudaDeviceSynchronize()); }

  /// What `memory` holds, after all work of the device; zeros after an error.
  template <class T>
  std::vector<T> download(const T* memory, size_t count) {
    finish();
    std::vector<T> values(count);
    if (error_ == cudaSuccess) note(cudaMemcpy(values.data(), memory, count * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }
  template <class T>
  T first(const T* memory) {
    return download(memory, 1)[0];
  }

 private:
  bool planted_;
  cudaError_t error_ = cudaSuccess;
};

/// first + (first + 1) + … of `count` terms.
template <class T>
T sum_of_counting(size_t count, T first = 0) {
  T sum = 0;
  for (size_t i = 0; i < count; ++i) sum = static_cast<T>(sum + first + static_cast<T>(i));
  return sum;
}

}  // namespace shardscope::test
