// Numbers whose sum over ranks shows whether all of every rank's arrived: small and whole, exact in any order.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace shardscope::parallel {

/// Enough for more than one of NCCL's protocols and channels.
inline constexpr int64_t kProofElements = 16 << 10;

/// What that rank contributes.
void fill_proof(std::span<float> values, int rank);

/// "" if these are the sums of what ranks 0 .. size - 1 contribute, or the first that is wrong.
std::string wrong_sum(std::span<const float> sums, int size);

}  // namespace shardscope::parallel
