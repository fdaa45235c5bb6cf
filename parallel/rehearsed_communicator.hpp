// A rank of a group whose other ranks are not there: nothing is summed and nothing waits. What such a rank computes
// with is finite, and of the size and in the order of the real thing; its values mean nothing.
#pragma once

#include <cstdint>
#include <memory>

#include "parallel/communicator.hpp"

namespace shardscope::parallel {

/// What the ranks that are not there contribute to an all_gather.
enum class Absent : uint8_t {
  kSame,   // what this rank does: its times stand for theirs
  kZeros,  // zero bytes
};

/// Rank `rank` of `size`. Every call returns at once: sums stay this rank's own part, a broadcast brings what is there
/// already. Collective with nobody.
std::unique_ptr<Communicator> make_rehearsed_communicator(int rank, int size, Absent others);

}  // namespace shardscope::parallel
