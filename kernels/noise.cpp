#include <cmath>
#include <limits>

#include "kernels/backend.hpp"
#include "kernels/base/keyed_random.hpp"
#include "kernels/base/logit_rank.hpp"

namespace shardscope::kernels {

double gumbel(uint64_t key, int32_t token_id) {
  return -std::log(-std::log(keyed_uniform(key, token_id)));
}

Candidate noisiest(std::span<const float> row, int64_t first_id, const Noise& noise) {
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  constexpr double kMaxGumbel = 37.5;  // no noise is larger: u is at most 1 - 2^-53
  double best = kNone;
  int32_t best_id = -1;
  for (size_t column = 0; column < row.size(); ++column) {
    const auto logit = static_cast<double>(logit_rank(row[column]));
    const double score = (logit - static_cast<double>(noise.reference)) / noise.temperature;
    if (!(score >= noise.lowest_score) || score + kMaxGumbel < best) continue;
    const auto id = static_cast<int32_t>(first_id + static_cast<int64_t>(column));
    const double noisy = score + gumbel(noise.key, id);
    if (best_id >= 0 && !(noisy > best)) continue;
    best = noisy;
    best_id = id;
  }
  return {best_id < 0 ? -std::numeric_limits<float>::infinity() : static_cast<float>(best), best_id};
}

}  // namespace shardscope::kernels
