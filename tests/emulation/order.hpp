// What happened before what, as far as threads can know: the part of the race check that knows no memory.
//
// An access is stamped with its block, the block's barrier epoch, and its thread's step (a counter per lane that grows
// with each __syncwarp and each release). A thread knows an access if
//   * it made it itself, or a barrier of its block lies between (smaller epoch), or a chain of __syncwarp does
//     (LaneClocks);
//   * it acquired a release that covers it: such knowledge is a `Knowledge`, an immutable value that threads share;
//   * the kernel or copy that made it was complete, and known to be, before this thread began.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

namespace shardscope::emulation {

/// One number for each block that ever ran on the machine, in the order of the grids' starts: a grid's blocks are
/// consecutive. Copies and fills of the runtime are grids of one block and one thread.
using BlockId = uint32_t;

/// For each lane of a warp: its accesses up to this step are known.
using LaneClocks = std::array<uint32_t, 32>;

/// When and by whom an access was made.
struct Stamp {
  BlockId block = 0;
  uint32_t epoch = 0;
  uint32_t step = 0;
  uint16_t thread = 0;
};

/// What is known of one block's accesses: all of smaller epochs, and those of single warps up to a step of each lane.
struct BlockFacts {
  uint32_t epoch = 0;
  std::map<uint16_t, LaneClocks> warps;

  bool covers(const Stamp& stamp) const;
  void join(const BlockFacts& other);
};

class Knowledge {
 public:
  bool covers(const Stamp& stamp) const;
  bool complete(BlockId block) const;
  /// All blocks with smaller numbers are complete.
  BlockId complete_before() const {
    return complete_.empty() || complete_.front().begin > 1 ? 0 : complete_.front().end;
  }

  void add_complete(BlockId begin, BlockId end);
  void add(BlockId block, const BlockFacts& facts);
  void join(const Knowledge& other);

 private:
  struct Interval {
    BlockId begin;
    BlockId end;
  };
  struct Entry {
    BlockId block;
    std::shared_ptr<const BlockFacts> facts;  // shared between copies: thousands of blocks publish to one counter
  };
  std::vector<Entry>::iterator place_of(BlockId block);

  std::vector<Interval> complete_;  // sorted, apart from each other: blocks of complete grids
  std::vector<Entry> blocks_;       // sorted by block
};

/// nullptr knows nothing.
using KnowledgePtr = std::shared_ptr<const Knowledge>;

/// The union; one of the two when the other adds nothing to it.
KnowledgePtr joined(const KnowledgePtr& a, const KnowledgePtr& b);

/// `known` and what a thread says of its own block.
KnowledgePtr with_block(const KnowledgePtr& known, BlockId block, const BlockFacts& facts);

}  // namespace shardscope::emulation
