// out = factor * in, 8 bytes moved an element. Four elements a thread and turn, by 16-byte loads and stores; the last
// one to three by single ones. Launch: at most kMostBlocks blocks of kThreads.
#include "tests/emulation/example/scale.hpp"

#include <algorithm>

#include "kernels/cuda/portable.cuh"

namespace shardscope::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = 1024;

__global__ void __launch_bounds__(kThreads) scale_kernel(const float* in, int64_t count, float factor, float* out) {
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t threads = static_cast<int64_t>(gridDim.x) * blockDim.x;
  const int64_t whole = count / 4 * 4;
  for (int64_t i = 4 * thread; i < whole; i += 4 * threads) {
    const uint4 words = load16(&in[i]);
    store16(&out[i], make_uint4(__float_as_uint(factor * __uint_as_float(words.x)),
                                __float_as_uint(factor * __uint_as_float(words.y)),
                                __float_as_uint(factor * __uint_as_float(words.z)),
                                __float_as_uint(factor * __uint_as_float(words.w))));
  }
  const int64_t tail = whole + thread;
  if (tail < count) out[tail] = factor * in[tail];
}

}  // namespace

cudaError_t scale(const float* in, int64_t count, float factor, float* out, cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  const int64_t blocks = std::min((count + 4 * kThreads - 1) / (4 * kThreads), kMostBlocks);
  return launch({static_cast<unsigned>(blocks), kThreads, 0, stream}, scale_kernel, in, count, factor, out);
}

}  // namespace shardscope::cuda
