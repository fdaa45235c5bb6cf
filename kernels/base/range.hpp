// A half-open interval of indices, as shards are described everywhere.
#pragma once

#include <algorithm>
#include <cstdint>

namespace shardscope {

struct Range {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
  bool empty() const { return end <= begin; }
  bool contains(int64_t index) const { return index >= begin && index < end; }
  bool operator==(const Range&) const = default;
};

/// The common part of two ranges; empty (begin == end) where they do not meet.
inline Range intersection(Range a, Range b) {
  const int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

}  // namespace shardscope
