// BPE merging of one piece: of all neighbouring pairs that have a merge, the one of the lowest rank (the leftmost of
// equals) is replaced first. A linked list of symbols and a heap of candidates: O(n log n).
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace shardscope::runtime {

struct Merge {
  int32_t rank = 0;
  int32_t token = 0;  // what the pair becomes
};

class MergeTable {
 public:
  /// A pair that is there already takes the new rank, as Hugging Face's tokenizers do.
  void set(int32_t left, int32_t right, Merge merge) { merges_[key(left, right)] = merge; }
  /// Null if the pair has no merge.
  const Merge* find(int32_t left, int32_t right) const;

 private:
  static uint64_t key(int32_t left, int32_t right) {
    return (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) | static_cast<uint32_t>(right);
  }
  std::unordered_map<uint64_t, Merge> merges_;
};

/// Merges piece after piece, reusing its memory. One per call of encode; the table outlives it.
class PieceMerger {
 public:
  explicit PieceMerger(const MergeTable& table) : table_(&table) {}
  /// Appends the tokens that the symbols of a piece become.
  void append(std::span<const int32_t> piece, std::vector<int32_t>& out);

 private:
  struct Symbol {
    int32_t token = 0;
    int64_t previous = -1;
    int64_t next = -1;
  };
  struct Candidate {
    Merge merge;
    int64_t position = 0;  // of the left symbol
    int32_t left = 0;      // the tokens it was found for; stale when the symbols have changed since
    int32_t right = 0;
  };
  static bool comes_later(const Candidate& a, const Candidate& b);
  void consider(int64_t position);

  const MergeTable* table_;
  std::vector<Symbol> symbols_;
  std::vector<Candidate> heap_;
};

}  // namespace shardscope::runtime
