// Numbers on a device whose sums over ranks are exact in each type.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <string>
#include <vector>

#include "kernels/backend.hpp"
#include "kernels/cuda/check.hpp"
#include "kernels/cuda/owners.hpp"
#include "kernels/dtype.hpp"

namespace shardscope::test {

/// Element i of a rank; sums over 8 ranks stay below 256, to where bf16 holds all whole numbers.
inline float element(int64_t i, int rank) {
  return static_cast<float>((i % 5 - 2) * (rank + 1));
}
inline float element_sum(int64_t i, int ranks) {
  return static_cast<float>((i % 5 - 2) * ranks * (ranks + 1) / 2);
}

class Numbers {
 public:
  Numbers(int64_t count, kernels::DType dtype)
      : dtype_(dtype),
        bytes_(static_cast<size_t>(count * kernels::facts(dtype).block_bytes)),
        memory_(static_cast<int64_t>(bytes_.size()), "a test", {}) {}
  Numbers(const std::vector<float>& values, kernels::DType dtype) : Numbers(std::ssize(values), dtype) {
    upload(values);
  }
  /// What a rank contributes.
  static Numbers of_rank(int64_t count, kernels::DType dtype, int rank) {
    std::vector<float> values;
    for (int64_t i = 0; i < count; ++i) values.push_back(element(i, rank));
    return Numbers(values, dtype);
  }

  void upload(const std::vector<float>& values) {
    kernels::convert_row(values, dtype_, bytes_);
    cuda::check_cuda(cudaMemcpy(memory_.data(), bytes_.data(), bytes_.size(), cudaMemcpyHostToDevice), "cudaMemcpy");
    cuda::check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");  // nothing else orders it before other streams
  }
  /// After a wait for what wrote them.
  const std::vector<std::byte>& bytes() {
    cuda::check_cuda(cudaMemcpy(bytes_.data(), memory_.data(), bytes_.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
    return bytes_;
  }
  std::vector<float> values() {
    std::vector<float> values(bytes_.size() / static_cast<size_t>(kernels::facts(dtype_).block_bytes));
    kernels::dequantise_row(dtype_, bytes(), values);
    return values;
  }
  /// "" if these are the sums of what all ranks contribute.
  std::string wrong_sum(int ranks) {
    const std::vector<float> sums = values();
    for (size_t i = 0; i < sums.size(); ++i) {
      const float right = element_sum(static_cast<int64_t>(i), ranks);
      if (!(sums[i] == right)) {
        return std::to_string(sums[i]) + " for " + std::to_string(right) + " at element " + std::to_string(i);
      }
    }
    return "";
  }
  void* data() const { return memory_.data(); }
  kernels::Activations rows(int64_t rows, int64_t columns, int64_t stride) const {
    return {memory_.data(), rows, columns, stride, dtype_};
  }

 private:
  kernels::DType dtype_;
  std::vector<std::byte> bytes_;
  cuda::DeviceBuffer memory_;
};

}  // namespace shardscope::test
