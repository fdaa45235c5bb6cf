// Owned, aligned memory of the CPU backend: 64-byte lines, and 2 MiB pages for what is large.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

namespace shardscope::kernels::cpu {

/// Every allocation is followed by this many zero bytes that may be read: kernels load whole vectors at the end of a
/// tensor and ignore the lanes beyond it.
inline constexpr int64_t kReadPaddingBytes = 128;

/// Uninitialised bytes (the padding aside), 64-byte aligned. Move-only.
class AlignedBytes {
 public:
  AlignedBytes() = default;
  explicit AlignedBytes(int64_t bytes);

  std::byte* data() const { return data_.get(); }
  float* floats() const { return reinterpret_cast<float*>(data_.get()); }
  int64_t size() const { return size_; }

  /// Grows to at least `bytes`; the content is lost when it grows.
  void reserve(int64_t bytes) {
    if (bytes > size_) *this = AlignedBytes(bytes);
  }

 private:
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  std::unique_ptr<std::byte, Free> data_;
  int64_t size_ = 0;
};

}  // namespace shardscope::kernels::cpu
