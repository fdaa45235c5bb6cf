// Causal attention of many tokens over the cache, by tiles of rows (tokens x queries of a KV head's group) and of
// positions, with a running softmax. Two kernels: in tensor cores where cache and activations have 16 bits
// (prefill_mma.cuh), in fp32 elsewhere (prefill_plain.cuh).
//
// Bytes: for each tile of rows the keys and values up to its last row's position, once; rows of q and out once. With
// 128 rows a tile (8 warps) that is 128 multiplications and additions a byte of 16-bit keys and values, so that 600
// TFLOP/s ask 4.7 TB/s of L2; 64 rows would ask twice as much. Copies of the next tile run while one is in use.
//
// Launch: (tiles of rows of the longest sequence, kv_heads, sequences) blocks. In tensor cores of 8 warps, 16 rows
// each: one block fills a multiprocessor's registers with heads of 128 dims (a warp holds 16 x 128 results, its queries
// and 16 x 64 weights: some 200 registers a thread), two with heads of 64. Fewer warps, down to 2, where blocks would
// not be one for each multiprocessor. In fp32 of 4 warps, 8 rows each; fewer where shared memory is short.
//
// Positions are not split over blocks, as decode_attention does. So where rows are few the device is not full: a piece
// of 512 tokens with one KV head of 4 queries, as on one of 8 ranks, is 64 blocks of 2 warps, and each of them walks
// through all positions alone.
#include "kernels/cuda/prefill_attention.hpp"

#include "kernels/cuda/device_limits.hpp"
#include "kernels/cuda/prefill_mma.cuh"
#include "kernels/cuda/prefill_plain.cuh"

namespace shardscope::cuda {
namespace {

constexpr int64_t kMaxHeadDim = 256;
constexpr int kLeastMmaWarps = 2;
constexpr size_t kMostSharedBytes = 96 * 1024;  // what a block may have on every GPU from sm_80 on, but 3 KiB

/// Rows of the longest sequence and the largest group.
int64_t most_rows(const PrefillAttention& a) {
  return a.max_count * (a.queries_per_kv < a.query_heads ? a.queries_per_kv : a.query_heads);
}

bool valid(const PrefillAttention& a) {
  constexpr int64_t kMostGrid = 65535;  // in y and z, CUDA C++ Programming Guide, "Technical Specifications"
  constexpr int64_t kMostHeads = 1 << 20;
  constexpr int64_t kMostRows = 1 << 30;  // so that they, and the positions they attend to, are an int
  const bool shape = plain_float(a.dtype) && a.head_dim > 0 && a.head_dim <= kMaxHeadDim && a.head_dim % 8 == 0 &&
                     a.queries_per_kv > 0 && a.queries_per_kv <= kMostHeads && a.first_query_head >= 0 &&
                     a.query_heads >= 0 && a.first_query_head + a.query_heads <= kMostHeads && a.first_kv_head >= 0 &&
                     a.kv_heads >= 0 && a.kv_heads <= kMostGrid && a.first_kv_head + a.kv_heads <= kMostHeads &&
                     a.sequences >= 0 && a.sequences <= kMostGrid && a.max_count >= 0 && a.max_count <= kMostRows &&
                     most_rows(a) <= kMostRows;
  const auto covered = [&] {  // each query head's KV head is here
    return a.query_heads == 0 ||
           (a.first_kv_head <= a.first_query_head / a.queries_per_kv &&
            (a.first_query_head + a.query_heads - 1) / a.queries_per_kv < a.first_kv_head + a.kv_heads);
  };
  const auto rows = [&](const void* array, int64_t stride) {
    return aligned16(array) && stride >= a.query_heads * a.head_dim && stride * bytes_of(a.dtype) % 16 == 0;
  };
  return shape && covered() && well_formed(a.kv, a.head_dim) && rows(a.q, a.q_stride) && rows(a.out, a.out_stride);
}

template <class Kernel>
cudaError_t launch_prefill(const PrefillAttention& a, const PrefillCall& call, Kernel kernel, int warps,
                           int rows_of_warp, size_t shared_bytes, cudaStream_t stream) {
  if (shared_bytes > kSharedWithoutAsking) {
    if (const cudaError_t error = allow_shared_bytes(kernel, shared_bytes); error != cudaSuccess) return error;
  }
  const int64_t tile_rows = warps * rows_of_warp;
  return launch(Launch{.grid = dim3(static_cast<unsigned>((most_rows(a) + tile_rows - 1) / tile_rows),
                                    static_cast<unsigned>(a.kv_heads), static_cast<unsigned>(a.sequences)),
                       .block = dim3(static_cast<unsigned>(warps * kWarpSize)),
                       .shared_bytes = shared_bytes,
                       .stream = stream},
                kernel, call);
}

template <class Element, int kDims>
cudaError_t launch_mma(const PrefillAttention& a, const PrefillCall& call, cudaStream_t stream) {
  int multiprocessors = 0;
  if (const cudaError_t error = count_multiprocessors(multiprocessors); error != cudaSuccess) return error;
  int warps = kMostMmaWarps;
  const auto blocks = [&] {
    const int64_t tile_rows = warps * kMmaRows;
    return (most_rows(a) + tile_rows - 1) / tile_rows * a.kv_heads * a.sequences;
  };
  while (warps > kLeastMmaWarps && blocks() < multiprocessors) warps /= 2;
  const KvTile layout = mma_tile(call.head_dim, MmaSizes<kDims>::kPositions);
  return launch_prefill(a, call, prefill_mma_kernel<Element, kDims>, warps, kMmaRows,
                        static_cast<size_t>(kMmaStages * layout.quads() * 16), stream);
}

template <class Element>
cudaError_t launch_mma_of(const PrefillAttention& a, const PrefillCall& call, cudaStream_t stream) {
  if (a.head_dim <= 64) return launch_mma<Element, 64>(a, call, stream);
  if (a.head_dim <= 128) return launch_mma<Element, 128>(a, call, stream);
  return launch_mma<Element, kMaxHeadDim>(a, call, stream);
}

template <class Element>
cudaError_t launch_plain(const PrefillAttention& a, const PrefillCall& call, cudaStream_t stream) {
  int warps = kMostPlainWarps;
  const auto shared_bytes = [&] {
    return static_cast<size_t>(plain_shared_bytes(call.head_dim, sizeof(Element), warps));
  };
  while (warps > 1 && shared_bytes() > kMostSharedBytes) warps /= 2;
  return launch_prefill(a, call, prefill_plain_kernel<Element>, warps, 2 * kPlainRows, shared_bytes(), stream);
}

}  // namespace

cudaError_t prefill_attention(const PrefillAttention& arguments, cudaStream_t stream) {
  if (!valid(arguments)) return cudaErrorInvalidValue;
  const PrefillAttention& a = arguments;
  if (a.sequences == 0 || a.query_heads == 0 || a.kv_heads == 0 || a.max_count == 0) return cudaSuccess;
  constexpr float kLog2OfE = 1.44269504f;
  const int64_t element_bytes = bytes_of(a.kv.dtype);
  const PrefillCall call{
      .q = a.q,
      .keys = static_cast<const unsigned char*>(a.kv.keys),
      .values = static_cast<const unsigned char*>(a.kv.values),
      .first_tokens = a.first_tokens,
      .first_positions = a.first_positions,
      .slots = a.slots,
      .out = a.out,
      .q_stride = a.q_stride,
      .out_stride = a.out_stride,
      .slot_bytes = a.kv.slot_stride * element_bytes,
      .head_bytes = a.kv.head_stride * element_bytes,
      .position_bytes = a.kv.position_stride * element_bytes,
      .scale = a.scale * kLog2OfE,
      .dtype = a.dtype,
      .head_dim = static_cast<int>(a.head_dim),
      .queries_per_kv = static_cast<int>(a.queries_per_kv),
      .first_query_head = static_cast<int>(a.first_query_head),
      .query_heads = static_cast<int>(a.query_heads),
      .first_kv_head = static_cast<int>(a.first_kv_head),
  };
  if (a.kv.dtype == DType::kF32) return launch_plain<float>(a, call, stream);
  if (a.kv.dtype == DType::kF16) {
    return a.dtype == DType::kF32 ? launch_plain<__half>(a, call, stream) : launch_mma_of<__half>(a, call, stream);
  }
  return a.dtype == DType::kF32 ? launch_plain<__nv_bfloat16>(a, call, stream)
                                : launch_mma_of<__nv_bfloat16>(a, call, stream);
}

}  // namespace shardscope::cuda
