// Random numbers by key: their range, also at its ends, and that they are spread evenly.
#include "kernels/base/keyed_random.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <vector>

using namespace shardscope;

namespace {

/// x such that x ^ (x >> shift) is y.
uint64_t unshifted(uint64_t y, int shift) {
  uint64_t x = y;
  for (int known = shift; known < 64; known += shift) x = y ^ (x >> shift);
  return x;
}

/// The inverse of an odd number modulo 2^64, by Newton's iteration: each step doubles the bits that are right.
uint64_t inverse(uint64_t odd) {
  uint64_t result = odd;  // right in 3 bits
  for (int i = 0; i < 5; ++i) result *= 2 - odd * result;
  return result;
}

/// The number that mixed() turns into y.
uint64_t unmixed(uint64_t y) {
  uint64_t x = unshifted(y, 31) * inverse(0x94D049BB133111EBU);
  x = unshifted(x, 27) * inverse(0xBF58476D1CE4E5B9U);
  return unshifted(x, 30) - 0x9E3779B97F4A7C15U;
}

}  // namespace

TEST_CASE("keyed_random: mixed is the published function") {
  // splitmix64's first outputs for the seed 1234567 (Rosetta Code, "Pseudo-random numbers/Splitmix64").
  CHECK(mixed(1234567) == 6457827717110365317U);
  CHECK(mixed(1234567 + 0x9E3779B97F4A7C15U) == 3203168211198807973U);
  CHECK(mixed(unmixed(42)) == 42);
}

TEST_CASE("keyed_random: uniform numbers lie within (0, 1), also at the ends") {
  const double least = keyed_uniform(unmixed(0), 0);
  const double most = keyed_uniform(unmixed(~uint64_t{0}), 0);
  CHECK(least == 0x1.0p-54);
  CHECK(most == 1 - 0x1.0p-53);
  CHECK(std::isfinite(-std::log(-std::log(least))));
  CHECK(std::isfinite(-std::log(-std::log(most))));
}

TEST_CASE("keyed_random: keys and tokens give different, evenly spread numbers") {
  constexpr int kBins = 16;
  constexpr int kNumbers = 16000;
  std::vector<int> bins(kBins);
  for (int i = 0; i < kNumbers; ++i) {
    ++bins[static_cast<size_t>(keyed_uniform(position_key(1, static_cast<uint64_t>(i / 100), 2), i % 100) * kBins)];
  }
  // Five standard deviations of a binomial distribution.
  const double mean = static_cast<double>(kNumbers) / kBins;
  for (const int count : bins) CHECK(std::abs(count - mean) <= 5 * std::sqrt(mean));
  CHECK(position_key(1, 2, 3) != position_key(1, 3, 2));
  CHECK(position_key(1, 2, 3) != position_key(2, 1, 3));
}
