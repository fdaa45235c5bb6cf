// Random numbers that depend on a key and a counter alone, so that every rank, batch and device draws the same. Used by
// the sampler on the host and by CUDA kernels, hence the two attributes that only nvcc knows.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define SHARDSCOPE_HOST_DEVICE __host__ __device__
#else
#define SHARDSCOPE_HOST_DEVICE
#endif

namespace shardscope {

/// splitmix64's finaliser (Steele, Lea, Flood 2014): every input bit moves every output bit.
SHARDSCOPE_HOST_DEVICE constexpr uint64_t mixed(uint64_t x) {
  x += 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

/// The key of everything that is drawn for the token at one position of one request.
SHARDSCOPE_HOST_DEVICE constexpr uint64_t position_key(uint64_t seed, uint64_t request, uint64_t position) {
  return mixed(mixed(mixed(seed) ^ request) ^ position);
}

/// Uniform in (0, 1), neither end included.
SHARDSCOPE_HOST_DEVICE constexpr double keyed_uniform(uint64_t key, int32_t token_id) {
  const uint64_t bits = mixed(key ^ static_cast<uint64_t>(token_id)) >> 11;
  const double uniform = (static_cast<double>(bits) + 0.5) * 0x1.0p-53;
  return uniform < 1 ? uniform : 1 - 0x1.0p-53;  // the largest number of 53 bits and a half rounds to 2^53
}

}  // namespace shardscope

#undef SHARDSCOPE_HOST_DEVICE
