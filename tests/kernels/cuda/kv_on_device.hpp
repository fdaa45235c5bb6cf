// One layer of a KV cache in device memory, and rotary embedding in doubles: what the tests of attention and of
// appending share.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "kernels/cuda/kv_view.hpp"
#include "tests/kernels/cuda/device_array.hpp"
#include "tests/kernels/cuda/stored.hpp"
#include "tests/support/approx.hpp"

namespace shardscope::test {

struct KvShape {
  kernels::DType dtype = kernels::DType::kF16;
  int64_t slots = 1;
  int64_t heads = 1;
  int64_t positions = 1;
  int64_t head_dim = 8;
  int64_t room = 8;  // elements between rows, and between slots

  int64_t position_stride() const { return head_dim + room; }
  int64_t head_stride() const { return positions * position_stride(); }
  int64_t slot_stride() const { return heads * head_stride() + room; }
  int64_t first_element(int64_t slot, int64_t head, int64_t position) const {
    return slot * slot_stride() + head * head_stride() + position * position_stride();
  }
  int64_t element_bytes() const { return kernels::facts(dtype).block_bytes; }
};

/// What a cache holds at one moment.
struct KvContents {
  KvShape shape;
  std::vector<std::byte> keys;
  std::vector<std::byte> values;

  std::vector<float> key(int64_t slot, int64_t head, int64_t position) const { return row(keys, slot, head, position); }
  std::vector<float> value(int64_t slot, int64_t head, int64_t position) const {
    return row(values, slot, head, position);
  }
  /// Copies one row of keys and of values from another cache of the same shape.
  void take(const KvContents& from, int64_t slot, int64_t head, int64_t position) {
    const auto begin = shape.first_element(slot, head, position) * shape.element_bytes();
    const auto count = shape.head_dim * shape.element_bytes();
    std::copy_n(from.keys.begin() + begin, count, keys.begin() + begin);
    std::copy_n(from.values.begin() + begin, count, values.begin() + begin);
  }

 private:
  std::vector<float> row(const std::vector<std::byte>& plane, int64_t slot, int64_t head, int64_t position) const {
    const std::span<const std::byte> all(plane);
    return meaning(shape.dtype, all.subspan(shape.first_element(slot, head, position) * shape.element_bytes(),
                                            shape.head_dim * shape.element_bytes()));
  }
};

/// Keys and values in device memory, of which only what `fill` writes is ever written.
class KvOnDevice {
 public:
  explicit KvOnDevice(const KvShape& shape)
      : shape_(shape),
        keys_(shape.slots * shape.slot_stride() * shape.element_bytes()),
        values_(shape.slots * shape.slot_stride() * shape.element_bytes()) {}

  /// Random keys and values at the first `length` positions of a slot.
  void fill(int64_t slot, int64_t length, uint32_t seed) const {
    for (int64_t head = 0; head < shape_.heads; ++head) {
      for (const DeviceArray<std::byte>* plane : {&keys_, &values_}) {
        const Stored rows = random_stored(shape_.dtype, std::max<int64_t>(0, length) * shape_.head_dim, seed++);
        const int64_t row_bytes = shape_.head_dim * shape_.element_bytes();
        for (int64_t position = 0; position < length; ++position) {
          check_cuda(cudaMemcpy(plane->data() + shape_.first_element(slot, head, position) * shape_.element_bytes(),
                                rows.bytes.data() + position * row_bytes, static_cast<size_t>(row_bytes),
                                cudaMemcpyHostToDevice),
                     "copy of a position");
        }
      }
    }
  }

  enum class Plane { kKeys, kValues };
  /// Replaces one element.
  void put(Plane plane, int64_t slot, int64_t head, int64_t position, int64_t dim, float value) const {
    const std::vector<float> one = {value};
    const Stored element = stored(shape_.dtype, one);
    const int64_t index = shape_.first_element(slot, head, position) + dim;
    check_cuda(cudaMemcpy((plane == Plane::kKeys ? keys_ : values_).data() + index * shape_.element_bytes(),
                          element.bytes.data(), element.bytes.size(), cudaMemcpyHostToDevice),
               "copy of an element");
  }

  cuda::KvView view() const {
    return {.dtype = shape_.dtype,
            .keys = keys_.data(),
            .values = values_.data(),
            .slot_stride = shape_.slot_stride(),
            .head_stride = shape_.head_stride(),
            .position_stride = shape_.position_stride()};
  }
  KvContents download() const { return {shape_, keys_.download(), values_.download()}; }

 private:
  KvShape shape_;
  DeviceArray<std::byte> keys_;
  DeviceArray<std::byte> values_;
};

/// An element of the cache that is not a number.
struct Poison {
  KvOnDevice::Plane plane = KvOnDevice::Plane::kKeys;
  int64_t sequence = 0;
  int64_t head = 0;       // of this rank
  int64_t position = -1;  // below 0: there is none
  int64_t dim = 0;

  bool there() const { return position >= 0; }
};

/// As first_difference, but where the expected value is not a number, the actual one must not be one either. There must
/// be `count` of those.
inline std::string difference_with_nans(std::vector<float> actual, Expected expected, int64_t count) {
  if (actual.size() != expected.values.size()) return "sizes differ";
  for (size_t i = 0; i < actual.size(); ++i) {
    if (!std::isnan(expected.values[i])) continue;
    if (!std::isnan(actual[i])) return fmt::format("element {}: {} instead of NaN", i, actual[i]);
    actual[i] = 0;
    expected.values[i] = 0;
    expected.tolerances[i] = 0;
    --count;
  }
  if (count != 0) return "expected another number of NaNs";
  return first_difference(actual, expected.values, expected.tolerances);
}

/// Cosine and sine of `count` random angles, as fp32.
inline std::vector<float2> random_angles(int64_t count, uint32_t seed) {
  std::vector<float2> angles;
  for (const float turn : random_values(count, seed)) {
    const double angle = 3.14159265358979 * static_cast<double>(turn);
    angles.push_back({static_cast<float>(std::cos(angle)), static_cast<float>(std::sin(angle))});
  }
  return angles;
}

/// A head after its rotation, in doubles, and the sum of the magnitudes that each dim was made of, by which rounding
/// errors are bounded: two products and a sum, each rounded once.
struct Rotated {
  std::vector<double> values;
  std::vector<double> magnitudes;
};
inline Rotated rotated_head(std::span<const float> head, std::span<const float2> angles) {
  Rotated result;
  const size_t pairs = angles.size();
  for (size_t dim = 0; dim < head.size(); ++dim) {
    const auto value = static_cast<double>(head[dim]);
    if (dim >= 2 * pairs) {
      result.values.push_back(value);
      result.magnitudes.push_back(std::abs(value));
      continue;
    }
    const auto cosine = static_cast<double>(angles[dim % pairs].x);
    const auto sine = static_cast<double>(angles[dim % pairs].y);
    const double turned =
        dim < pairs ? -static_cast<double>(head[dim + pairs]) * sine : static_cast<double>(head[dim - pairs]) * sine;
    result.values.push_back(value * cosine + turned);
    result.magnitudes.push_back(std::abs(value * cosine) + std::abs(turned));
  }
  return result;
}
inline constexpr int kRotationRoundings = 3;

}  // namespace shardscope::test
