// What is known of what: the values behind the race check, without a machine.
#include "tests/emulation/order.hpp"

#include <catch2/catch.hpp>

namespace shardscope::emulation {
namespace {

Stamp stamp(BlockId block, uint32_t epoch = 1, uint32_t step = 1, uint16_t thread = 0) {
  return {block, epoch, step, thread};
}

TEST_CASE("Knowledge: complete blocks are half-open intervals that grow together") {
  Knowledge known;
  known.add_complete(10, 12);
  known.add_complete(20, 21);
  CHECK_FALSE(known.complete(9));
  CHECK(known.complete(10));
  CHECK(known.complete(11));
  CHECK_FALSE(known.complete(12));
  CHECK(known.complete_before() == 0);
  known.add_complete(12, 20);
  for (BlockId block = 10; block < 21; ++block) CHECK(known.complete(block));
  CHECK_FALSE(known.complete(21));
  known.add_complete(1, 10);
  CHECK(known.complete_before() == 21);
  known.add_complete(3, 5);
  CHECK(known.complete_before() == 21);
}

TEST_CASE("Knowledge: an interval across several others swallows them") {
  Knowledge known;
  for (const BlockId block : {2u, 5u, 8u, 30u}) known.add_complete(block, block + 1);
  known.add_complete(4, 9);
  CHECK(known.complete(2));
  CHECK_FALSE(known.complete(3));
  for (BlockId block = 4; block < 9; ++block) CHECK(known.complete(block));
  CHECK_FALSE(known.complete(9));
  CHECK(known.complete(30));
}

TEST_CASE("BlockFacts: smaller epochs are known for all threads, steps for the lanes of one warp") {
  BlockFacts facts;
  facts.epoch = 3;
  facts.warps[1][7] = 5;
  CHECK(facts.covers(stamp(1, 2, 100, 200)));
  CHECK_FALSE(facts.covers(stamp(1, 3, 1, 0)));
  CHECK(facts.covers(stamp(1, 3, 5, 32 + 7)));
  CHECK_FALSE(facts.covers(stamp(1, 3, 6, 32 + 7)));
  CHECK_FALSE(facts.covers(stamp(1, 3, 1, 32 + 8)));
  CHECK_FALSE(facts.covers(stamp(1, 3, 1, 64 + 7)));
}

TEST_CASE("joined: knows what either knew and nothing else, and keeps its operands") {
  BlockFacts of_five;
  of_five.epoch = 2;
  const KnowledgePtr a = with_block(nullptr, 5, of_five);
  BlockFacts more;
  more.epoch = 1;
  more.warps[0][3] = 9;
  const KnowledgePtr b = with_block(nullptr, 5, more);
  const KnowledgePtr both = joined(a, b);
  CHECK(both->covers(stamp(5, 1)));
  CHECK(both->covers(stamp(5, 4, 9, 3)));
  CHECK_FALSE(both->covers(stamp(5, 2, 1, 4)));
  CHECK_FALSE(both->covers(stamp(6, 1)));
  CHECK_FALSE(a->covers(stamp(5, 4, 9, 3)));
  CHECK_FALSE(b->covers(stamp(5, 1, 1, 4)));
  CHECK(joined(a, nullptr) == a);
  CHECK(joined(nullptr, b) == b);
  CHECK(joined(a, a) == a);
  CHECK(joined(nullptr, nullptr) == nullptr);
}

TEST_CASE("Knowledge: a complete block's facts are dropped, and stay known") {
  BlockFacts facts;
  facts.epoch = 1;
  auto known = *with_block(nullptr, 5, facts);
  known.add_complete(5, 6);
  CHECK(known.covers(stamp(5, 100)));
  known.add(5, facts);
  CHECK(known.covers(stamp(5, 100)));
}

}  // namespace
}  // namespace shardscope::emulation
