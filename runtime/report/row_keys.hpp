// How tables of a sweep say which row is which: the columns before the figures, and names in sentences.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "runtime/measure/point.hpp"

namespace shardscope::runtime {

struct KeyColumn {
  const char* name;
  const char* unit;
  std::function<std::string(const PointResult&)> cell;
};

/// Which of the rows' properties tell them apart.
class RowKeys {
 public:
  explicit RowKeys(const std::vector<PointResult>& points);

  /// TP with its mark, and as the rows need them placement, batch and lengths.
  std::vector<KeyColumn> columns() const;
  /// "best"; "linear/best" of a row that stands for several, "all" for all that were asked for.
  std::string placement(const topology::PlacedGroup& group) const;
  /// "TP 4 best, batch 1, 512 + 128": for `wrapped`, which does not break it.
  std::string name(const PointResult& point) const;
  /// How many placements were asked for.
  size_t placements() const { return placements_.size(); }

 private:
  std::set<topology::Placement> placements_;
  bool lengths_vary_ = false;
  bool replicas_ = false;  // some rows have several groups at once
};

}  // namespace shardscope::runtime
