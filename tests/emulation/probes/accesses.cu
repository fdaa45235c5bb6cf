// Probes of what the checker sees and counts: words, wide accesses, strides, structures, copies by the compiler's own
// memcpy, a function that the host compiles too, and an array of the thread's own.
#include "kernels/cuda/ptx.cuh"
#include "tests/emulation/probes/probes.hpp"
#include "tests/emulation/probes/shared_inline.hpp"

namespace shardscope::probes {
namespace {

using namespace cuda;

__global__ void copy_words_kernel(int rounds, int first, int stride, const uint32_t* in, int words, uint32_t* out) {
  const int lane = static_cast<int>(threadIdx.x);
  for (int r = 0; r < rounds; ++r) out[32 * r + lane] = in[r * words + first + lane * stride];
}

__global__ void copy_wide_kernel(const uint32_t* in, uint32_t* out) {
  store16(&out[4 * threadIdx.x], load16(&in[4 * threadIdx.x]));
}

__global__ void shared_strides_kernel(int write_stride, int read_stride, uint32_t* out) {
  SHARDSCOPE_SHARED(uint32_t, words, 32 * 32);
  const int lane = static_cast<int>(threadIdx.x);
  words[lane * write_stride] = 7;
  __syncwarp();
  out[lane] = words[lane * read_stride];
}

__global__ void shared_wide_kernel(uint32_t* out) {
  SHARDSCOPE_SHARED(uint32_t, words, 32 * 4);
  // After a warp operation the lanes come in another order: whose access belongs to which pass must not depend on it.
  const unsigned at = 4 * __shfl_xor_sync(kFullMask, threadIdx.x ^ 1u, 1);
  store16(&words[at], make_uint4(at, at + 1, at + 2, at + 3));
  __syncwarp();
  store16(&out[at], load16(&words[at]));
}

__global__ void copy_blocks_kernel(int count, const Block18* in, Block18* out) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) out[i] = in[i];
}

__global__ void copy_bytes_kernel(size_t bytes, const void* in, void* out) {
  __builtin_memcpy(out, in, bytes);
}

__global__ void sum_words_kernel(const uint32_t* in, int count, uint32_t* out) {
  *out = sum_of_words(in, count);
}

__global__ void overflow_local_array_kernel(int index, int* out) {
  volatile int own[4] = {1, 2, 3, 4};
  own[index] = 9;
  *out = own[index & 3];
}

}  // namespace

cudaError_t copy_words(int rounds, int first, int stride, const uint32_t* in, int in_words_per_round, uint32_t* out) {
  return launch({1, 32}, copy_words_kernel, rounds, first, stride, in, in_words_per_round, out);
}
cudaError_t copy_wide(const uint32_t* in, uint32_t* out) {
  return launch({1, 32}, copy_wide_kernel, in, out);
}
cudaError_t shared_strides(int write_stride, int read_stride, uint32_t* out) {
  return launch({1, 32}, shared_strides_kernel, write_stride, read_stride, out);
}
cudaError_t shared_wide(uint32_t* out) {
  return launch({1, 32}, shared_wide_kernel, out);
}
cudaError_t copy_blocks(int count, const Block18* in, Block18* out) {
  return launch({1, 32}, copy_blocks_kernel, count, in, out);
}
cudaError_t copy_bytes(size_t bytes, const void* in, void* out) {
  return launch({1, 1}, copy_bytes_kernel, bytes, in, out);
}
cudaError_t sum_words(const uint32_t* in, int count, uint32_t* out) {
  return launch({1, 1}, sum_words_kernel, in, count, out);
}
const void* address_of_sum_of_words() {
  return reinterpret_cast<const void*>(&sum_of_words);
}
cudaError_t overflow_local_array(int index, int* out) {
  return launch({1, 1}, overflow_local_array_kernel, index, out);
}

}  // namespace shardscope::probes
