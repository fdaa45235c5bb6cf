// Device memory for tests: made, filled and read back through the CUDA runtime, real or stand-in. Every failed call
// throws, with the runtime's words.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace shardscope::test {

inline void check_cuda(cudaError_t error, const std::string& what) {
  if (error != cudaSuccess) throw std::runtime_error(what + ": " + cudaGetErrorString(error));
}

/// `count` elements in the memory of the device that is current at birth. Owns them; move-only.
template <class T>
class DeviceArray {
 public:
  /// Contents that nobody has written.
  explicit DeviceArray(int64_t count) : count_(count) {
    if (count == 0) return;
    check_cuda(cudaMalloc(&data_, static_cast<size_t>(count) * sizeof(T)), "cudaMalloc");
#ifdef SHARDSCOPE_ON_GPUS
    // The emulation knows what nobody has written; real memory often holds zeros, which would hide a missing one.
    check_cuda(cudaMemset(data_, 0xFF, static_cast<size_t>(count) * sizeof(T)), "cudaMemset");
    check_cuda(cudaStreamSynchronize(nullptr), "cudaMemset");
#endif
  }
  explicit DeviceArray(std::span<const T> values) : DeviceArray(static_cast<int64_t>(values.size())) {
    upload(values);
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(std::span<const T>(values)) {}
  DeviceArray(DeviceArray&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), count_(std::exchange(other.count_, 0)) {}
  DeviceArray& operator=(DeviceArray&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(count_, other.count_);
    return *this;
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() {
    static_cast<void>(cudaFree(data_));
  }

  static DeviceArray zeros(int64_t count) {
    DeviceArray array(count);
    if (count == 0) return array;
    check_cuda(cudaMemset(array.data_, 0, static_cast<size_t>(count) * sizeof(T)), "cudaMemset");
    check_cuda(cudaStreamSynchronize(nullptr), "cudaMemset");  // which does not wait for the device
    return array;
  }

  T* data() const {
    return static_cast<T*>(data_);
  }
  int64_t size() const {
    return count_;
  }

  /// Writes the first values.size() elements. When it returns they are there, for all streams.
  void upload(std::span<const T> values) {
    if (values.empty()) return;
    check_cuda(cudaMemcpy(data_, values.data(), values.size_bytes(), cudaMemcpyHostToDevice), "copy to the device");
    check_cuda(cudaStreamSynchronize(nullptr), "copy to the device");  // cudaMemcpy may return when it has read them
  }

  /// Everything, after all work of the device has ended.
  std::vector<T> download() const {
    check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    std::vector<T> values(static_cast<size_t>(count_));
    if (count_ == 0) return values;
    check_cuda(cudaMemcpy(values.data(), data_, values.size() * sizeof(T), cudaMemcpyDeviceToHost),
               "copy from the device");
    return values;
  }

 private:
  void* data_ = nullptr;
  int64_t count_ = 0;
};

}  // namespace shardscope::test
