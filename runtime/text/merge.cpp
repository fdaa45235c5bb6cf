#include "runtime/text/merge.hpp"

#include <algorithm>

namespace shardscope::runtime {

const Merge* MergeTable::find(int32_t left, int32_t right) const {
  const auto found = merges_.find(key(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

bool PieceMerger::comes_later(const Candidate& a, const Candidate& b) {
  return a.merge.rank != b.merge.rank ? a.merge.rank > b.merge.rank : a.position > b.position;
}

// Notes the pair that begins at `position`, if it has a merge. The caller restores the heap.
void PieceMerger::consider(int64_t position) {
  if (position < 0 || symbols_[position].next < 0) return;
  const int32_t left = symbols_[position].token;
  const int32_t right = symbols_[symbols_[position].next].token;
  const Merge* merge = table_->find(left, right);
  if (merge == nullptr) return;
  heap_.push_back({.merge = *merge, .position = position, .left = left, .right = right});
}

void PieceMerger::append(std::span<const int32_t> piece, std::vector<int32_t>& out) {
  const auto count = static_cast<int64_t>(piece.size());
  symbols_.resize(piece.size());
  for (int64_t i = 0; i < count; ++i) {
    symbols_[i] = {.token = piece[i], .previous = i - 1, .next = i + 1 < count ? i + 1 : -1};
  }
  heap_.clear();
  for (int64_t i = 0; i + 1 < count; ++i) consider(i);
  std::make_heap(heap_.begin(), heap_.end(), comes_later);

  constexpr int32_t kGone = -1;
  const auto push = [&](int64_t position) {
    const size_t before = heap_.size();
    consider(position);
    if (heap_.size() != before) std::push_heap(heap_.begin(), heap_.end(), comes_later);
  };
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), comes_later);
    const Candidate best = heap_.back();
    heap_.pop_back();
    Symbol& left = symbols_[best.position];
    if (left.token != best.left || left.next < 0 || symbols_[left.next].token != best.right) continue;
    Symbol& right = symbols_[left.next];
    left.token = best.merge.token;
    left.next = right.next;
    right.token = kGone;
    if (left.next >= 0) symbols_[left.next].previous = best.position;
    push(left.previous);
    push(best.position);
  }
  for (int64_t i = count > 0 ? 0 : -1; i >= 0; i = symbols_[i].next) out.push_back(symbols_[i].token);
}

}  // namespace shardscope::runtime
