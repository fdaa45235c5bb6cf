// Multiplies a vector by a number: the example of tests/emulation/README.md, not used by the program.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace shardscope::cuda {

/// out[i] = factor * in[i]
/// in   [count]  fp32, device memory aligned to 16 bytes
/// out  [count]  the same; may be `in`
/// Enqueued on `stream`; does not block. Returns the launch's error.
[[nodiscard]] cudaError_t scale(const float* in, int64_t count, float factor, float* out, cudaStream_t stream);

}  // namespace shardscope::cuda
