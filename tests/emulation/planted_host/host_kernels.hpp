// The kernels of the host programs: small, and exact on small whole numbers, so that results are compared for equality.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace shardscope::planted_host {

/// Results are remainders by it, 0 to kModulus - 1.
inline constexpr int kModulus = 32;
inline constexpr int64_t kReach = 5;

/// out[i] = (factor x[i] + y[i]) mod kModulus. [count] each; out may be x or y. Waits for the launches before it, so
/// that it may be programmatic.
cudaError_t combine(const float* x, float factor, const float* y, float* out, int64_t count, cudaStream_t stream,
                    bool programmatic = false);
/// The same as a programmatic launch whose kernel forgets to wait.
cudaError_t combine_without_wait(const float* x, float factor, const float* y, float* out, int64_t count,
                                 cudaStream_t stream);
/// out[i] = (x[i] + x[(i + kReach) mod count]) mod kModulus. out is not x.
cudaError_t neighbours(const float* x, float* out, int64_t count, cudaStream_t stream, bool programmatic = false);
/// target[i] = value; seen[i] is what the same thread then reads there.
cudaError_t write_and_read_back(float* target, float value, float* seen, int64_t count, cudaStream_t stream);
/// out[block] = 3, in so many blocks and threads and so much shared memory.
cudaError_t wide(dim3 grid, dim3 block, size_t shared_bytes, float* out, cudaStream_t stream);
cudaError_t allow_wide(size_t shared_bytes);
/// What the runtime knows of the same kernel.
cudaError_t wide_attributes();
/// Waits until *flag, in memory of any kind, is not 0; then out[0] = 2. A minute at most.
cudaError_t wait_for_flag(const uint32_t* flag, float* out, cudaStream_t stream);
/// The same without an end, and without giving way to others.
cudaError_t spin(const uint32_t* flag, float* out, cudaStream_t stream);
/// out[0] = how many have come to the counter before.
cudaError_t take_number(uint32_t* counter, float* out, cudaStream_t stream);

}  // namespace shardscope::planted_host
