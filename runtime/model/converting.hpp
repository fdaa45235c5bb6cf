// A weight source that hands out plain matrices in another plain type: --dtype. Norms and biases stay as stored, and so
// do block-quantised tensors.
#pragma once

#include <memory>
#include <string>

#include "kernels/dtype.hpp"
#include "runtime/model/weights.hpp"

namespace shardscope::runtime {

/// `where` names the file for errors. Reading throws UserError naming the tensor when a finite value does not fit into
/// the target type.
std::unique_ptr<WeightSource> converting_weights(std::unique_ptr<WeightSource> source, kernels::DType target,
                                                 Naming naming, std::string where);

}  // namespace shardscope::runtime
