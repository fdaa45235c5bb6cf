// Counts every operator new of a test program that is linked with allocations.cpp.
#pragma once

#include <cstdint>

namespace shardscope::test {

/// Allocations of the whole process so far.
int64_t allocation_count();

}  // namespace shardscope::test
