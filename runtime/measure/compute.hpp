// Floating-point operations of a prefill: the numerator of MFU.
#pragma once

#include "runtime/measure/traffic.hpp"
#include "runtime/model/config.hpp"

namespace shardscope::runtime {

/// FLOPs of the whole group for the prompts of a batch: 2 x matrix parameters x tokens, + 4 x layers x query heads x
/// head_dim x (sum of the contexts: 1 + 2 + … + prompt), with the head only for the last position of each prompt. The
/// embedding look-up is none.  Source: arXiv:2204.02311, appendix B (without its head term).
double prefill_flops(const ModelConfig& config, const Workload& workload);

}  // namespace shardscope::runtime
