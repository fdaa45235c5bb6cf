// Keys and values of the CPU backend. Keys are interleaved over 16 positions, so that scores of 16 positions come out
// in the lanes of a vector; values are plain rows, so that their weighted sum does.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/backend.hpp"
#include "kernels/base/error.hpp"
#include "kernels/cpu/memory.hpp"

namespace shardscope::kernels::cpu {

inline constexpr int64_t kKeyBlock = 16;  // positions

/// keys    [layer][slot][kv_head] of [block of 16 positions][head_dim][positions of the block]; the last block may
///         have fewer positions
/// values  [layer][slot][kv_head][position][head_dim]
class CpuKvCache final : public KvCache {
 public:
  explicit CpuKvCache(const KvShape& shape) : shape_(shape) {
    require(std::min({shape.layers, shape.slots, shape.kv_heads, shape.positions, shape.head_dim}) >= 0,
            "make_kv_cache: a negative dimension");
    head_floats_ = shape.positions * shape.head_dim;
    memory_ = AlignedBytes(bytes());
  }

  const KvShape& shape() const override { return shape_; }
  int64_t bytes() const override { return shape_.slots * shape_.positions * bytes_per_position(); }
  int64_t bytes_per_position() const override {
    return shape_.layers * shape_.kv_heads * shape_.head_dim * 2 * static_cast<int64_t>(sizeof(float));
  }

  float* keys(int64_t layer, int64_t slot, int64_t head) const {
    return memory_.floats() + ((layer * shape_.slots + slot) * shape_.kv_heads + head) * head_floats_;
  }
  float* values(int64_t layer, int64_t slot, int64_t head) const {
    return keys(shape_.layers, 0, 0) + (keys(layer, slot, head) - memory_.floats());
  }
  /// Positions that the key block holds: the stride of its dims.
  int64_t block_positions(int64_t block) const { return std::min(kKeyBlock, shape_.positions - block * kKeyBlock); }

 private:
  KvShape shape_;
  int64_t head_floats_ = 0;
  AlignedBytes memory_;
};

}  // namespace shardscope::kernels::cpu
