// The race check's memory: which pairs of accesses conflict, for accesses of all sizes.
#include "tests/emulation/shadow.hpp"

#include <catch2/catch.hpp>

#include <set>

namespace shardscope::emulation {
namespace {

/// Knows the accesses of the blocks that it was told.
struct Knows final : Observer {
  explicit Knows(std::set<BlockId> blocks = {}) : blocks_(std::move(blocks)) {}

 private:
  bool knows_later(const Access& earlier) const override { return blocks_.contains(earlier.block); }
  std::set<BlockId> blocks_;
};

Access by(BlockId block, uint16_t thread = 0) {
  Access access;
  access.block = block;
  access.epoch = 1;
  access.step = 1;
  access.thread = thread;
  return access;
}

Access atomic(BlockId block, uint8_t device, bool system) {
  Access access = by(block);
  access.atomic = true;
  access.system = system;
  access.device = device;
  return access;
}

TEST_CASE("Shadow: two accesses conflict if they overlap, one writes, and the second does not know the first") {
  const bool first_writes = GENERATE(false, true);
  const bool second_writes = GENERATE(false, true);
  const int64_t bytes = GENERATE(1, 2, 4, 8, 16, 48);
  const int64_t distance = GENERATE(-1, 0, 1, 3, 15);
  const bool known = GENERATE(false, true);
  Shadow shadow(256);
  Race race;
  REQUIRE_FALSE(shadow.note(64, bytes, first_writes, by(1), Knows(), &race));
  // The second access is one byte, `distance` into the first.
  const bool overlap = distance >= 0 && distance < bytes;
  const bool conflict = overlap && (first_writes || second_writes) && !known;
  const Knows observer(known ? std::set<BlockId>{1} : std::set<BlockId>{});
  CHECK(shadow.note(64 + distance, 1, second_writes, by(2), observer, &race) == conflict);
  if (conflict) {
    CHECK(race.earlier.block == 1);
    CHECK(race.earlier.wrote == first_writes);
  }
}

TEST_CASE("Shadow: a wide access meets each small one under it") {
  const int64_t offset = GENERATE(range(32, 48));
  Shadow shadow(64);
  Race race;
  for (int64_t byte = 32; byte < 48; ++byte) {
    REQUIRE_FALSE(shadow.note(byte, 1, true, by(static_cast<BlockId>(byte)), Knows(), &race));
  }
  std::set<BlockId> all_but_one;
  for (int64_t byte = 32; byte < 48; ++byte) {
    if (byte != offset) all_but_one.insert(static_cast<BlockId>(byte));
  }
  REQUIRE(shadow.note(32, 16, false, by(1), Knows(all_but_one), &race));
  CHECK(race.earlier.block == static_cast<BlockId>(offset));
}

TEST_CASE("Shadow: a write meets readers of two threads, whichever it knows") {
  const BlockId unknown = GENERATE(1u, 2u);
  Shadow shadow(16);
  Race race;
  REQUIRE_FALSE(shadow.note(0, 4, false, by(1), Knows(), &race));
  REQUIRE_FALSE(shadow.note(0, 4, false, by(2), Knows(), &race));
  REQUIRE(shadow.note(0, 4, true, by(3), Knows({3 - unknown}), &race));
  CHECK(race.earlier.block == unknown);
  CHECK_FALSE(race.earlier.wrote);
}

TEST_CASE("Shadow: atomics of a scope that holds both never conflict, others do") {
  Shadow shadow(16);
  Race race;
  REQUIRE_FALSE(shadow.note(0, 4, true, atomic(1, 0, false), Knows(), &race));
  CHECK_FALSE(shadow.note(0, 4, true, atomic(2, 0, false), Knows(), &race));
  CHECK(shadow.note(0, 4, true, atomic(3, 1, false), Knows(), &race));
  CHECK(shadow.note(0, 4, true, atomic(3, 1, true), Knows(), &race));
  REQUIRE_FALSE(shadow.note(8, 4, true, atomic(1, 0, true), Knows(), &race));
  CHECK_FALSE(shadow.note(8, 4, true, atomic(2, 1, true), Knows(), &race));
  CHECK(shadow.note(8, 4, false, by(3), Knows(), &race));
}

TEST_CASE("Shadow: an atomic write does not hide an earlier atomic from a plain access that does not know it") {
  const bool earlier_writes = GENERATE(false, true);
  const bool later_writes = GENERATE(false, true);
  Shadow shadow(16);
  Race race;
  REQUIRE_FALSE(shadow.note(0, 4, earlier_writes, atomic(1, 0, false), Knows(), &race));
  REQUIRE_FALSE(shadow.note(0, 4, true, atomic(2, 0, false), Knows(), &race));
  // Knows the last write, not the one before.
  CHECK(shadow.note(0, 4, later_writes, by(3), Knows({2}), &race) == (earlier_writes || later_writes));
  if (earlier_writes || later_writes) CHECK(race.earlier.block == 1);
}

TEST_CASE("packed_place: a return address near this library comes back") {
  const void* const here = __builtin_return_address(0);
  const int32_t place = packed_place(here);
  if (place != 0) CHECK(unpacked_place(place) == here);
  CHECK(packed_place(nullptr) == 0);
}

}  // namespace
}  // namespace shardscope::emulation
