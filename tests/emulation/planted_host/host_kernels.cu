// The kernels of the host programs: small, exact on small whole numbers, and one that spins.
#include "tests/emulation/planted_host/host_kernels.hpp"

#include "kernels/cuda/ptx.cuh"

namespace shardscope::planted_host {
namespace {

using namespace cuda;

constexpr unsigned kThreads = 32;

__device__ float remainder_of(float value) {
  return value - static_cast<float>(kModulus) * floorf(value / static_cast<float>(kModulus));
}

__global__ void combine_kernel(const float* x, float factor, const float* y, float* out, int64_t count) {
  grid_dependency_wait();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) out[i] = remainder_of(factor * remainder_of(x[i]) + remainder_of(y[i]));
}

__global__ void neighbours_kernel(const float* x, float* out, int64_t count) {
  grid_dependency_wait();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) out[i] = remainder_of(remainder_of(x[i]) + remainder_of(x[(i + kReach) % count]));
}

__global__ void combine_without_wait_kernel(const float* x, float factor, const float* y, float* out, int64_t count) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) out[i] = remainder_of(factor * remainder_of(x[i]) + remainder_of(y[i]));
}

__global__ void wide_kernel(float* out) {
  SHARDSCOPE_DYNAMIC_SHARED(float, numbers);
  if (threadIdx.x == 0) numbers[0] = 3;
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = numbers[0];
}

__global__ void write_and_read_back_kernel(float* target, float value, float* seen, int64_t count) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  target[i] = value;
  __threadfence_system();
  seen[i] = target[i];
}

__global__ void wait_for_flag_kernel(const uint32_t* flag, float* out) {
  constexpr uint64_t kMinute = 60'000'000'000;
  if (wait_at_least(flag, 1, {nullptr, kMinute})) out[0] = 2;
}

__global__ void spin_kernel(const volatile uint32_t* flag, float* out) {
  while (*flag == 0) continue;
  out[0] = 2;
}

__global__ void take_number_kernel(uint32_t* counter, float* out) {
  out[0] = static_cast<float>(atomicAdd(counter, 1u));
}

Launch where(int64_t count, cudaStream_t stream, bool programmatic) {
  return {static_cast<unsigned>((count + kThreads - 1) / kThreads), kThreads, 0, stream, programmatic};
}

}  // namespace

cudaError_t combine(const float* x, float factor, const float* y, float* out, int64_t count, cudaStream_t stream,
                    bool programmatic) {
  return launch(where(count, stream, programmatic), combine_kernel, x, factor, y, out, count);
}

cudaError_t combine_without_wait(const float* x, float factor, const float* y, float* out, int64_t count,
                                 cudaStream_t stream) {
  return launch(where(count, stream, true), combine_without_wait_kernel, x, factor, y, out, count);
}

cudaError_t neighbours(const float* x, float* out, int64_t count, cudaStream_t stream, bool programmatic) {
  return launch(where(count, stream, programmatic), neighbours_kernel, x, out, count);
}

cudaError_t write_and_read_back(float* target, float value, float* seen, int64_t count, cudaStream_t stream) {
  return launch(where(count, stream, false), write_and_read_back_kernel, target, value, seen, count);
}

cudaError_t wide(dim3 grid, dim3 block, size_t shared_bytes, float* out, cudaStream_t stream) {
  return launch({grid, block, shared_bytes, stream}, wide_kernel, out);
}

cudaError_t allow_wide(size_t shared_bytes) {
  return allow_shared_bytes(wide_kernel, shared_bytes);
}

cudaError_t wide_attributes() {
  cudaFuncAttributes attributes{};
  return kernel_attributes(attributes, wide_kernel);
}

cudaError_t spin(const uint32_t* flag, float* out, cudaStream_t stream) {
  return launch({1, 1, 0, stream}, spin_kernel, flag, out);
}

cudaError_t take_number(uint32_t* counter, float* out, cudaStream_t stream) {
  return launch({1, 1, 0, stream}, take_number_kernel, counter, out);
}

cudaError_t wait_for_flag(const uint32_t* flag, float* out, cudaStream_t stream) {
  return launch({1, 1, 0, stream}, wait_for_flag_kernel, flag, out);
}

}  // namespace shardscope::planted_host
