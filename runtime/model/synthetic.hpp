// Weights that no file holds: Gaussian values at a checkpoint's scale, each a pure function of (seed, role, layer, row,
// column), so that every rank makes its own shard and all shards together are one model.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/dtype.hpp"
#include "runtime/model/config.hpp"
#include "runtime/model/weights.hpp"

namespace shardscope::runtime {

/// Matrices: mean 0, deviation 1/sqrt(columns), those that end on the residual stream divided by sqrt(2 layers)
/// besides; norms: 1 +- 0.1; biases: 0 +- 0.02. dtype must be a plain type.
std::unique_ptr<WeightSource> synthetic_weights(const ModelConfig& config, kernels::DType dtype, uint64_t seed);

}  // namespace shardscope::runtime
