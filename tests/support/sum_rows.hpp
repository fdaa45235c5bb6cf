// Rows of `comm` for tests of what is made of them.
#pragma once

#include <string>
#include <vector>

#include "runtime/measure/comm.hpp"

namespace shardscope::test {

/// A row of fp32 whose samples lie `spread_us` around `time_us`, as many of them as close all intervals.
inline runtime::SumRow sum_row_of(int tp, int64_t bytes, const std::string& way, double time_us,
                                  double spread_us = 0.01) {
  runtime::SumSamples samples;
  constexpr int kSamples = 401;
  for (int i = 0; i < kSamples; ++i) {
    samples.sample_us.push_back(time_us + spread_us * (i - kSamples / 2) / (kSamples / 2));
  }
  samples.transfer_us = {time_us * 0.75};
  samples.wait_us = {time_us * 0.25};
  return runtime::sum_row({.tp = tp, .count = bytes / 4, .dtype = kernels::DType::kF32, .graph = false}, way, samples);
}

}  // namespace shardscope::test
