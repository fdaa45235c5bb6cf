// What a logit counts as where the best are looked for: one rule for all backends, so that whoever takes the best sees
// that something is broken, even when another rank's logits are sound.
#pragma once

#include <limits>

namespace shardscope {

/// NaN counts as +inf, and is given as that.
inline float logit_rank(float logit) {
  return logit == logit ? logit : std::numeric_limits<float>::infinity();
}

}  // namespace shardscope
