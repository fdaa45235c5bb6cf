// Rotary embedding and appending of many tokens. An item is kCount dims of one head of one token and, where they are
// rotated, the kCount dims that they are turned with, so that each element is loaded and stored by one thread; values
// are dealt in the same pairs, though nothing is turned.
//
// Bytes: queries are read and written in place, keys and values read and written once to the cache; the angles, 8 bytes
// a pair, are read from L2 once a block and from its L1 cache for the other heads. 16 bytes a lane and access (8 on the
// 16-bit side where the other one is fp32, so that both are of adjacent bytes within a warp); single elements where a
// half of the rotated dims is no multiple of those, or qkv is not aligned.
//
// Launch: (tokens, pieces of kThreads items of a token) blocks. A token of llama3-8b in bf16 has 384 items: 3 blocks.
#include "kernels/cuda/rope_append.hpp"

#include "kernels/cuda/rotary.cuh"

namespace shardscope::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int64_t kMaxHeadDim = 256;

/// A kernel's view of the arguments.
struct AppendCall {
  void* qkv;
  const float2* rotary;
  const int32_t* positions;
  const int32_t* slots;
  void* keys;
  void* values;
  int64_t qkv_stride;  // elements, as the next three
  int64_t slot_stride;
  int64_t head_stride;
  int64_t position_stride;
  DType dtype;
  DType kv_dtype;
  int query_heads;
  int kv_heads;
  int head_dim;
  int pairs;
};

/// Where a head of a token goes, in elements of its target.
struct Target {
  void* array;
  DType dtype;
  int64_t index;
};

__device__ __forceinline__ Target target_of(const AppendCall& call, int64_t token, int head) {
  if (head < call.query_heads) {
    return {call.qkv, call.dtype, token * call.qkv_stride + static_cast<int64_t>(head) * call.head_dim};
  }
  const int position = call.positions[token];
  if (position < 0) return {nullptr, call.kv_dtype, 0};
  const bool key = head < call.query_heads + call.kv_heads;
  const int kv_head = head - call.query_heads - (key ? 0 : call.kv_heads);
  return {key ? call.keys : call.values, call.kv_dtype,
          call.slots[token] * call.slot_stride + kv_head * call.head_stride + position * call.position_stride};
}

template <int kCount>
__global__ void __launch_bounds__(kThreads) rope_append_kernel(AppendCall call) {
  const int64_t token = blockIdx.x;
  const int head_items = HeadItem<kCount>::count(call.head_dim, call.pairs);
  const int number = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x);
  const int head = number / head_items;
  if (head >= call.query_heads + 2 * call.kv_heads) return;
  const HeadItem<kCount> item(number - head * head_items, call.pairs);
  if (!item.paired && head < call.query_heads) return;  // it is in its place

  const Target target = target_of(call, token, head);
  if (target.array == nullptr) return;
  const bool turns = head < call.query_heads + call.kv_heads;
  float dims[kCount];
  float partners[kCount];
  load_item(call.qkv, call.dtype, token * call.qkv_stride + static_cast<int64_t>(head) * call.head_dim, item,
            turns ? call.rotary + token * call.pairs : nullptr, dims, partners);
  store_elements(target.array, target.dtype, target.index + item.dim, dims);
  if (item.paired) store_elements(target.array, target.dtype, target.index + item.partner, partners);
}

bool valid(const RopeAppend& a) {
  // Of a grid: in x, and of heads so many that their pieces fit its y. CUDA C++ Programming Guide, "Technical
  // Specifications".
  constexpr int64_t kMostTokens = 0x7FFFFFFF;
  constexpr int64_t kMostHeads = 65535 * kThreads / kMaxHeadDim;
  return plain_float(a.dtype) && a.tokens >= 0 && a.tokens <= kMostTokens && a.query_heads >= 0 && a.kv_heads >= 0 &&
         a.query_heads + 2 * a.kv_heads <= kMostHeads && a.head_dim > 0 && a.head_dim <= kMaxHeadDim &&
         a.head_dim % 8 == 0 && a.rotary_dims >= 0 && a.rotary_dims <= a.head_dim && a.rotary_dims % 2 == 0 &&
         a.qkv_stride >= (a.query_heads + 2 * a.kv_heads) * a.head_dim && well_formed(a.kv, a.head_dim);
}

/// Whether every access of `count` elements, on both sides, is aligned.
bool in_pieces(const RopeAppend& a, int64_t count) {
  return a.rotary_dims / 2 % count == 0 && aligned16(a.qkv) && aligned16(a.rotary) &&
         a.qkv_stride * bytes_of(a.dtype) % 16 == 0;
}

}  // namespace

cudaError_t rope_append(const RopeAppend& arguments, cudaStream_t stream) {
  if (!valid(arguments)) return cudaErrorInvalidValue;
  const int64_t heads = arguments.query_heads + 2 * arguments.kv_heads;
  if (arguments.tokens == 0 || heads == 0) return cudaSuccess;
  const AppendCall call{.qkv = arguments.qkv,
                        .rotary = arguments.rotary,
                        .positions = arguments.positions,
                        .slots = arguments.slots,
                        .keys = arguments.kv.keys,
                        .values = arguments.kv.values,
                        .qkv_stride = arguments.qkv_stride,
                        .slot_stride = arguments.kv.slot_stride,
                        .head_stride = arguments.kv.head_stride,
                        .position_stride = arguments.kv.position_stride,
                        .dtype = arguments.dtype,
                        .kv_dtype = arguments.kv.dtype,
                        .query_heads = static_cast<int>(arguments.query_heads),
                        .kv_heads = static_cast<int>(arguments.kv_heads),
                        .head_dim = static_cast<int>(arguments.head_dim),
                        .pairs = static_cast<int>(arguments.rotary_dims / 2)};
  const int64_t widest = arguments.dtype == DType::kF32 || arguments.kv.dtype == DType::kF32 ? 4 : 8;
  const int64_t count = in_pieces(arguments, widest) ? widest : 1;
  const int64_t items = heads * (arguments.head_dim - arguments.rotary_dims / 2) / count;
  const int64_t warps = (items + kWarpSize - 1) / kWarpSize;
  const int64_t threads = warps * kWarpSize < kThreads ? warps * kWarpSize : kThreads;
  const Launch where{
      .grid = dim3(static_cast<unsigned>(arguments.tokens), static_cast<unsigned>((items + threads - 1) / threads)),
      .block = dim3(static_cast<unsigned>(threads)),
      .shared_bytes = 0,
      .stream = stream};
  if (count == 8) return launch(where, rope_append_kernel<8>, call);
  if (count == 4) return launch(where, rope_append_kernel<4>, call);
  return launch(where, rope_append_kernel<1>, call);
}

}  // namespace shardscope::cuda
