#include "kernels/cuda/weight_memory.hpp"

#include <algorithm>
#include <functional>

#include "kernels/cuda/weight_layout.hpp"

namespace shardscope::cuda {

void WeightMemory::expect(const kernels::ExpectedWeights& weights) {
  allocation_.reset();  // what is left of an earlier one goes first
  begin_ = 0;
  end_ = allocation_bytes(weights);
  if (end_ == 0) return;
  allocation_ = std::make_shared<const DeviceBuffer>(end_, "the weights", device_.where());
}

WeightPlane WeightMemory::take(int64_t bytes, std::string_view purpose, bool front) {
  if (bytes == 0) return {};
  const int64_t placed = placed_bytes(bytes);
  if (allocation_ == nullptr || placed > end_ - begin_) {
    return {std::make_shared<const DeviceBuffer>(bytes, purpose, device_.where()), 0, bytes};
  }
  const int64_t offset = front ? begin_ : end_ - placed;
  WeightPlane plane(allocation_, offset, bytes);
  (front ? begin_ : end_) += front ? placed : -placed;
  if (begin_ == end_) allocation_.reset();  // the planes own it from here on
  if (placed > bytes) {                     // reads of neighbours as one cover it
    device_.check(cudaMemsetAsync(plane.data() + bytes, 0, static_cast<size_t>(placed - bytes), device_.lend_stream()),
                  "cudaMemsetAsync");
  }
  return plane;
}

void PlaneRanges::add(const WeightPlane& plane) {
  if (plane.bytes() > 0) ranges_.push_back({plane.allocation(), plane.data(), plane.bytes()});
}

std::span<const PlaneRange> PlaneRanges::merged() {
  std::sort(ranges_.begin(), ranges_.end(),
            [](const PlaneRange& a, const PlaneRange& b) { return std::less<>()(a.begin, b.begin); });
  size_t count = 0;
  for (const PlaneRange& range : ranges_) {
    if (count > 0) {
      PlaneRange& last = ranges_[count - 1];
      if (range.allocation == last.allocation && last.begin + placed_bytes(last.bytes) == range.begin) {
        last.bytes = range.begin + range.bytes - last.begin;
        continue;
      }
    }
    ranges_[count++] = range;
  }
  ranges_.resize(count);
  return ranges_;
}

}  // namespace shardscope::cuda
