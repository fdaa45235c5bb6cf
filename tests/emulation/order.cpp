#include "tests/emulation/order.hpp"

#include <algorithm>
#include <utility>

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
  const auto entry = const_cast<Knowledge&>(*this).place_of(stamp.block);
  return entry != blocks_.end() && entry->block == stamp.block && entry->facts->covers(stamp);
}

std::vector<Knowledge::Entry>::iterator Knowledge::place_of(BlockId block) {
  return std::lower_bound(blocks_.begin(), blocks_.end(), block,
                          [](const Entry& entry, BlockId wanted) { return entry.block < wanted; });
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
  blocks_.erase(place_of(begin), place_of(end));
}

namespace {

std::shared_ptr<const BlockFacts> joined_facts(const std::shared_ptr<const BlockFacts>& a,
                                               const std::shared_ptr<const BlockFacts>& b) {
  if (a == b) return a;
  auto both = std::make_shared<BlockFacts>(*a);
  both->join(*b);
  return both;
}

}  // namespace

void Knowledge::add(BlockId block, const BlockFacts& facts) {
  if (complete(block)) return;
  const auto entry = place_of(block);
  const auto added = std::make_shared<const BlockFacts>(facts);
  if (entry != blocks_.end() && entry->block == block) {
    entry->facts = joined_facts(entry->facts, added);
  } else {
    blocks_.insert(entry, {block, added});
  }
}

void Knowledge::join(const Knowledge& other) {
  std::vector<Entry> both;
  both.reserve(blocks_.size() + other.blocks_.size());
  auto mine = blocks_.begin();
  auto theirs = other.blocks_.begin();
  while (mine != blocks_.end() || theirs != other.blocks_.end()) {
    if (theirs == other.blocks_.end() || (mine != blocks_.end() && mine->block < theirs->block)) {
      both.push_back(std::move(*mine++));
    } else if (mine == blocks_.end() || theirs->block < mine->block) {
      if (!complete(theirs->block)) both.push_back(*theirs);
      ++theirs;
    } else {
      both.push_back({mine->block, joined_facts(mine->facts, theirs->facts)});
      ++mine;
      ++theirs;
    }
  }
  blocks_ = std::move(both);
  for (const Interval& interval : other.complete_) add_complete(interval.begin, interval.end);
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
