// The orders in which a test of kernels tries its body.
#pragma once

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

namespace shardscope::test {

/// The seeds 0 (first come, first served) to `last`, for emulation::Options. If SHARDSCOPE_SEED is set, only that one:
/// to look closer at the order in which a test failed.
inline std::vector<uint64_t> seeds_to_try(uint64_t last) {
  if (const char* const only = std::getenv("SHARDSCOPE_SEED")) {
    uint64_t seed = 0;
    const char* const end = only + std::strlen(only);
    const auto [rest, error] = std::from_chars(only, end, seed);
    if (error != std::errc() || rest != end) {
      throw std::invalid_argument(std::string("SHARDSCOPE_SEED is \"") + only +
                                  "\", not a number: unset it or give one");
    }
    return {seed};
  }
  std::vector<uint64_t> seeds;
  for (uint64_t seed = 0; seed <= last; ++seed) seeds.push_back(seed);
  return seeds;
}

}  // namespace shardscope::test
