// Messages whose sums over the ranks are exact, in memory of the device.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/backend.hpp"
#include "kernels/cuda/check.hpp"
#include "kernels/dtype.hpp"

namespace shardscope::test {

using kernels::DType;

inline constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

struct Shape {
  int64_t rows = 0, columns = 0, stride = 0;
  int64_t first_column = 0;  // of the buffer's row, where the view begins

  int64_t elements() const { return rows * stride; }
  /// What one call sums: from the first element of the view to its last.
  bool summed(int64_t i) const {
    const int64_t begin = first_column;
    return i >= begin && i < begin + (rows - 1) * stride + columns && rows > 0;
  }
};
// One element; odd and padded; a range of columns; nothing; a decode step of 4 x 4096.
inline constexpr Shape kShapes[] = {{1, 1, 1}, {3, 7, 8}, {5, 129, 136}, {3, 5, 16, 8}, {0, 64, 64}, {4, 4096, 4096}};

/// Sums over 8 ranks stay below 256, to where bf16 holds all whole numbers.
inline float input(int64_t i, int rank) {
  return static_cast<float>((i % 7 - 3) * (rank + 1));
}

inline std::vector<std::byte> stored(const std::vector<float>& values, DType dtype) {
  const auto bytes = static_cast<size_t>(kernels::facts(dtype).block_bytes);
  std::vector<std::byte> out(values.size() * bytes);
  if (!values.empty()) kernels::convert_row(values, dtype, out);
  return out;
}

/// Activations on the device.
class Buffer {
 public:
  Buffer(const Shape& shape, DType dtype, const std::vector<float>& values) : shape_(shape), dtype_(dtype) {
    bytes_ = std::max<size_t>(stored(values, dtype).size(), 1);
    cuda::check_cuda(cudaMalloc(&memory_, bytes_), "cudaMalloc");
    fill(values);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { cudaFree(memory_); }

  void fill(const std::vector<float>& values) {
    if (values.empty()) return;
    const std::vector<std::byte> bytes = stored(values, dtype_);
    cuda::check_cuda(cudaMemcpy(memory_, bytes.data(), bytes.size(), cudaMemcpyHostToDevice), "cudaMemcpy");
    cuda::check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");  // nothing else orders it before other streams
  }
  kernels::Activations view() const {
    const kernels::Activations all{memory_, shape_.rows, shape_.stride, shape_.stride, dtype_};
    return all.column_range(shape_.first_column, shape_.columns);
  }
  /// "" if memory holds exactly these.
  std::string difference(const std::vector<float>& expected) const {
    if (expected.empty()) return "";
    const std::vector<std::byte> right = stored(expected, dtype_);
    std::vector<std::byte> bytes(right.size());
    cuda::check_cuda(cudaMemcpy(bytes.data(), memory_, bytes.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
    const size_t width = static_cast<size_t>(kernels::facts(dtype_).block_bytes);
    for (size_t i = 0; i < bytes.size(); ++i) {
      if (bytes[i] == right[i]) continue;
      return "element " + std::to_string(i / width) + " of " + std::string(kernels::facts(dtype_).name) + ", where " +
             std::to_string(expected[i / width]) + " is right";
    }
    return "";
  }

 private:
  Shape shape_;
  DType dtype_;
  size_t bytes_ = 0;
  std::byte* memory_ = nullptr;
};

inline std::vector<float> inputs(const Shape& shape, int rank) {
  std::vector<float> values;
  for (int64_t i = 0; i < shape.elements(); ++i) values.push_back(input(i, rank));
  return values;
}

/// After `times` sums over all ranks, each of the same values everywhere but in the first.
inline std::vector<float> sums(const Shape& shape, int rank, int ranks, int times = 1) {
  std::vector<float> values = inputs(shape, rank);
  for (int64_t i = 0; i < shape.elements(); ++i) {
    if (!shape.summed(i)) continue;
    const int weight = ranks * (ranks + 1) / 2;
    values[static_cast<size_t>(i)] = static_cast<float>((i % 7 - 3) * weight);
    for (int again = 1; again < times; ++again) values[static_cast<size_t>(i)] *= static_cast<float>(ranks);
  }
  return values;
}

}  // namespace shardscope::test
