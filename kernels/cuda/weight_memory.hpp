// Who owns the device memory of weights. cudaMalloc gives whole pages of 2 MiB, so that the many small planes of a
// shard in allocations of their own would take far more than their bytes: those that are announced share one
// allocation, matrices from its front in order of loading, vectors from its back, and are read as one where they lie
// side by side. An allocation lives as long as any plane in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/backend.hpp"
#include "kernels/cuda/device.hpp"
#include "kernels/cuda/owners.hpp"

namespace shardscope::cuda {

/// Bytes of device memory, aligned to 256, with a share in the allocation that they lie in. Move-only; empty: none.
class WeightPlane {
 public:
  WeightPlane() = default;
  /// allocation: shared with the planes beside it, in no order of destruction.
  WeightPlane(std::shared_ptr<const DeviceBuffer> allocation, int64_t offset, int64_t bytes)
      : allocation_(std::move(allocation)), data_(allocation_->as<std::byte>() + offset), bytes_(bytes) {}
  WeightPlane(WeightPlane&&) = default;
  WeightPlane& operator=(WeightPlane&&) = default;
  WeightPlane(const WeightPlane&) = delete;
  WeightPlane& operator=(const WeightPlane&) = delete;
  ~WeightPlane() = default;

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  const DeviceBuffer* allocation() const { return allocation_.get(); }

 private:
  std::shared_ptr<const DeviceBuffer> allocation_;
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

class WeightMemory {
 public:
  explicit WeightMemory(Device& device) : device_(device) {}

  /// Allocates for all of them at once; planes asked for from here on lie there while there is room. Throws SystemError
  /// if the device has too little memory.
  void expect(const kernels::ExpectedWeights& weights);

  /// A plane of so many bytes, unwritten; what lies between it and the next one is zero. purpose: as of DeviceBuffer.
  WeightPlane of_matrix(int64_t bytes, std::string_view purpose) { return take(bytes, purpose, /*front=*/true); }
  WeightPlane of_vector(int64_t bytes, std::string_view purpose) { return take(bytes, purpose, /*front=*/false); }

 private:
  WeightPlane take(int64_t bytes, std::string_view purpose, bool front);

  Device& device_;
  std::shared_ptr<const DeviceBuffer> allocation_;  // until all of it is given away
  int64_t begin_ = 0;                               // of what is left of it
  int64_t end_ = 0;
};

struct PlaneRange {
  const DeviceBuffer* allocation = nullptr;
  const std::byte* begin = nullptr;
  int64_t bytes = 0;
};

/// Planes, and what they are as ranges of memory: neighbours in one allocation, with nothing but alignment between
/// them, are one. Allocates no more once it has held as many planes.
class PlaneRanges {
 public:
  void clear() { ranges_.clear(); }
  void add(const WeightPlane& plane);
  /// By address. Until the next call.
  std::span<const PlaneRange> merged();

 private:
  std::vector<PlaneRange> ranges_;
};

}  // namespace shardscope::cuda
