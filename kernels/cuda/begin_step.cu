// What opens a step. The lookup of embeddings is a conversion of weight rows (weight_rows.cu). Rotary angles: a thread
// computes one pair. The angle, which may be large (position 131,072 at the highest frequency), is taken modulo pi / 2
// in fp64: three operations, instead of the slow path of sinf, which keeps its digits of 2 / pi in local memory. What
// remains is at most pi / 4 and goes into polynomials in fp32.
//
// Bytes: 8 written a pair; positions and frequencies come from the caches.
// Launch: a thread a pair, in blocks of 128: two tokens of a head of 128.
#include "kernels/cuda/begin_step.hpp"

#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/weight_rows.hpp"

namespace shardscope::cuda {
namespace {

constexpr int kThreads = 128;

/// A kernel's view of the arguments.
struct Angles {
  const int32_t* positions;
  const float* inverse_frequencies;
  float2* out;
  unsigned count;  // tokens * pairs
  unsigned pairs;
  float scale;
};

/// Cosine (x) and sine (y) of an angle up to 2^22.
__device__ __forceinline__ float2 cosine_and_sine(float angle) {
  constexpr double kTwoOverPi = 0.63661977236758134308;
  constexpr double kHalfPi = 1.57079632679489655800;          // rounded to fp64
  constexpr double kHalfPiRest = 6.12323399573676603587e-17;  // what that lacks
  const double whole = angle;
  const double quarters = rint(whole * kTwoOverPi);
  // The first step is exact but for one rounding at the size of the remainder.
  const auto r = static_cast<float>(fma(-quarters, kHalfPiRest, fma(-quarters, kHalfPi, whole)));
  // Minimax polynomials on [-pi / 4, pi / 4], those of the Cephes library (S. Moshier), sinf.c. With the rounding of r
  // at most 1.6 units in the last place (30 million angles tried).
  const float square = r * r;
  const float sine_rest = ((-1.9515295891e-4f * square + 8.3321608736e-3f) * square - 1.6666654611e-1f) * square;
  const float sine = r + r * sine_rest;
  const float cosine_rest =
      ((2.443315711809948e-5f * square - 1.388731625493765e-3f) * square + 4.166664568298827e-2f) * square;
  const float cosine = 1.0f + (cosine_rest - 0.5f) * square;
  const int quarter = static_cast<int>(quarters) & 3;
  const float x = (quarter & 1) != 0 ? sine : cosine;
  const float y = (quarter & 1) != 0 ? cosine : sine;
  return make_float2(quarter == 1 || quarter == 2 ? -x : x, quarter >= 2 ? -y : y);
}

__global__ void __launch_bounds__(kThreads) rotary_angles_kernel(Angles angles) {
  grid_dependency_wait();
  grid_dependency_launch();
  const unsigned i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= angles.count) return;
  const unsigned token = i / angles.pairs;
  const int32_t position = angles.positions[token];
  const float angle =
      static_cast<float>(position > 0 ? position : 0) * angles.inverse_frequencies[i - token * angles.pairs];
  const float2 both = cosine_and_sine(angle);
  store8(&angles.out[i], make_uint2(__float_as_uint(angles.scale * both.x), __float_as_uint(angles.scale * both.y)));
}

}  // namespace

cudaError_t embed(const Embed& arguments, cudaStream_t stream) {
  if (arguments.tokens > 0 && arguments.ids == nullptr) return cudaErrorInvalidValue;
  return weight_rows({.matrix = arguments.table,
                      .ids = arguments.ids,
                      .first = arguments.first_id,
                      .rows = arguments.tokens,
                      .dtype = arguments.dtype,
                      .out = arguments.out,
                      .out_stride = arguments.out_stride,
                      .stamps = arguments.stamps,
                      .programmatic = arguments.programmatic},
                     stream);
}

cudaError_t rotary_angles(const RotaryAngles& arguments, cudaStream_t stream) {
  constexpr int64_t kMost = 0x7FFFFFFF - kThreads;  // so that a thread's number stays within 32 bits
  if (arguments.tokens < 0 || arguments.pairs < 0) return cudaErrorInvalidValue;
  if (arguments.tokens == 0 || arguments.pairs == 0) return cudaSuccess;
  if (arguments.tokens > kMost / arguments.pairs) return cudaErrorInvalidValue;
  const Angles angles{.positions = arguments.positions,
                      .inverse_frequencies = arguments.inverse_frequencies,
                      .out = arguments.out,
                      .count = static_cast<unsigned>(arguments.tokens * arguments.pairs),
                      .pairs = static_cast<unsigned>(arguments.pairs),
                      .scale = arguments.scale};
  const Launch where{.grid = dim3(static_cast<unsigned>((angles.count + kThreads - 1) / kThreads)),
                     .block = dim3(kThreads),
                     .shared_bytes = 0,
                     .stream = stream,
                     .programmatic = arguments.programmatic};
  return launch(where, rotary_angles_kernel, angles);
}

cudaError_t compiled_for(int& capability) {
  cudaFuncAttributes attributes{};
  const cudaError_t error = kernel_attributes(attributes, rotary_angles_kernel);
  capability = attributes.ptxVersion;
  return error;
}

}  // namespace shardscope::cuda
