#include "parallel/cuda/proof.hpp"

#include <fmt/format.h>

namespace shardscope::parallel {
namespace {

/// Differs between ranks and from element to element, so that a block that is missing, doubled or misplaced shows.
float proof_value(size_t i, int rank) {
  return static_cast<float>((i % 251 + 1) * static_cast<size_t>(rank + 1));
}

}  // namespace

void fill_proof(std::span<float> values, int rank) {
  for (size_t i = 0; i < values.size(); ++i) values[i] = proof_value(i, rank);
}

std::string wrong_sum(std::span<const float> sums, int size) {
  for (size_t i = 0; i < sums.size(); ++i) {
    float expected = 0;
    for (int rank = 0; rank < size; ++rank) expected += proof_value(i, rank);
    if (!(sums[i] == expected)) return fmt::format("{} instead of {} at element {}", sums[i], expected, i);
  }
  return "";
}

}  // namespace shardscope::parallel
