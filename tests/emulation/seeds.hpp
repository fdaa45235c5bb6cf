// The orders in which a test of kernels tries its body.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

namespace shardscope::test {

/// The seeds 0 (first come, first served) to `last`, for emulation::Options. If SHARDSCOPE_SEED is set, only that one:
/// to look closer at the order in which a test failed.
inline std::vector<uint64_t> seeds_to_try(uint64_t last) {
  if (const char* const only = std::getenv("SHARDSCOPE_SEED")) return {std::stoull(only)};
  std::vector<uint64_t> seeds;
  for (uint64_t seed = 0; seed <= last; ++seed) seeds.push_back(seed);
  return seeds;
}

}  // namespace shardscope::test
