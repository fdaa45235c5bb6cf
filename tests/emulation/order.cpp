#include "tests/emulation/order.hpp"

#include <algorithm>

namespace shardscope::emulation {

bool BlockFacts::covers(const Stamp& stamp) const {
  if (stamp.epoch < epoch) return true;
  const auto warp = warps.find(stamp.thread / 32);
  return warp != warps.end() && stamp.step <= warp->second[stamp.thread % 32];
}

void BlockFacts::join(const BlockFacts& other) {
  epoch = std::max(epoch, other.epoch);
  for (const auto& [warp, clocks] : other.warps) {
    LaneClocks& mine = warps[warp];
    for (size_t lane = 0; lane < mine.size(); ++lane) mine[lane] = std::max(mine[lane], clocks[lane]);
  }
}

bool Knowledge::complete(BlockId block) const {
  const auto after = std::upper_bound(complete_.begin(), complete_.end(), block,
                                      [](BlockId value, const Interval& interval) { return value < interval.begin; });
  return after != complete_.begin() && block < std::prev(after)->end;
}

bool Knowledge::covers(const Stamp& stamp) const {
  if (complete(stamp.block)) return true;
  const auto facts = blocks_.find(stamp.block);
  return facts != blocks_.end() && facts->second.covers(stamp);
}

void Knowledge::add_complete(BlockId begin, BlockId end) {
  Interval added{begin, end};
  const auto first = std::find_if(complete_.begin(), complete_.end(),
                                  [&](const Interval& interval) { return interval.end >= added.begin; });
  auto last = first;
  while (last != complete_.end() && last->begin <= added.end) {
    added = {std::min(added.begin, last->begin), std::max(added.end, last->end)};
    ++last;
  }
  complete_.insert(complete_.erase(first, last), added);
  blocks_.erase(blocks_.lower_bound(begin), blocks_.lower_bound(end));
}

void Knowledge::add(BlockId block, const BlockFacts& facts) {
  if (!complete(block)) blocks_[block].join(facts);
}

void Knowledge::join(const Knowledge& other) {
  for (const Interval& interval : other.complete_) add_complete(interval.begin, interval.end);
  for (const auto& [block, facts] : other.blocks_) add(block, facts);
}

KnowledgePtr joined(const KnowledgePtr& a, const KnowledgePtr& b) {
  if (a == b || b == nullptr) return a;
  if (a == nullptr) return b;
  auto both = std::make_shared<Knowledge>(*a);
  both->join(*b);
  return both;
}

KnowledgePtr with_block(const KnowledgePtr& known, BlockId block, const BlockFacts& facts) {
  auto more = known == nullptr ? std::make_shared<Knowledge>() : std::make_shared<Knowledge>(*known);
  more->add(block, facts);
  return more;
}

}  // namespace shardscope::emulation
