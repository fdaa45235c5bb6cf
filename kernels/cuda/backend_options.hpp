// How the CUDA backend is made. Plain C++, for callers that see no CUDA.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "kernels/backend.hpp"

namespace shardscope::cuda {

/// Waits until `ready` returns true, looking after everything else that could end the wait: peers, time limits.
using Wait = std::function<void(const std::function<bool()>& ready, const char* what)>;

struct BackendOptions {
  int device = 0;  // ordinal, among those visible
  int rank = -1;   // for error texts; -1: none
  kernels::Precision precision;
  bool graphs = true;            // steps that decode are captured once for each batch bucket, then replayed
  bool weights_together = true;  // those announced, in one allocation; false: each plane in its own, for exact bounds
  Wait wait;                     // after a short time of polling; empty: polls on
  std::function<void()> look;    // now and then during that polling: throws what should end it; may be empty
  // Of intermediate results of passes over many rows, and of weights on their way: work is cut to fit.
  int64_t scratch_bytes = int64_t{64} << 20;
  int64_t upload_bytes = int64_t{8} << 20;  // of each of two pinned buffers
};

/// What a backend takes of its device beside weights, KV cache and activations, at most.
int64_t reserved_bytes(const BackendOptions& options);

/// The most tokens of a step, and so sequences at once: as many rows as the candidates' kernel takes.
inline constexpr int64_t kMostTokens = 4096;
/// Decode steps are rounded up to so many tokens; up to kLargestBucket they are recorded.
inline constexpr int64_t kLargestBucket = 256;
int64_t bucket_of(int64_t tokens);

}  // namespace shardscope::cuda
