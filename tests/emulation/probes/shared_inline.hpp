// A function that is compiled both into a checked kernel and into the host's objects, and inlined into neither: the
// linker must not merge the two (tests/emulation/holes_test.cpp).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace shardscope::probes {

__host__ __device__ __attribute__((noinline)) inline uint32_t sum_of_words(const uint32_t* words, int count) {
  uint32_t sum = 0;
  for (int i = 0; i < count; ++i) sum += words[i];
  return sum;
}

}  // namespace shardscope::probes
