// How decode_attention puts results together: those of a block's warps, then those of the blocks that share a
// sequence.
#pragma once

#include "kernels/cuda/attention_tile.cuh"
#include "kernels/cuda/decode_work.cuh"

namespace shardscope::cuda {

/// Leaves each warp's maximum and sum, and each subset's values, in shared memory. The tiles are no longer needed.
template <int kQueries>
__device__ __forceinline__ void leave_results(const AttentionPlaces& places, const AttentionLane& own, int warp,
                                              float* shared, AttentionRunning<kQueries>& running) {
  using Place = typename AttentionRunning<kQueries>::Place;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
#pragma unroll
  for (int i = 0; i < Place::kLeft; ++i) {
    float sum = running.sum[i];
#pragma unroll
    for (int bit = kTile / 2; bit > 0; bit /= 2) sum += __shfl_xor_sync(kFullMask, sum, bit);
    if (Place::stores(lane) && lane % kTile == 0) {
      float* statistics = shared + places.statistics + 2 * (warp * kQueries + Place::first(lane) + i);
      statistics[0] = running.maximum[i];
      statistics[1] = sum;
    }
  }
  if (own.subset < places.subsets) {
    float* values = shared + places.tiles + (warp * places.subsets + own.subset) * kQueries * places.pieces * kPiece;
#pragma unroll
    for (int query = 0; query < kQueries; ++query) {
      const float(&of_query)[kPiece] = running.values[query];
      float* to = values + (2 * query * places.pieces + own.piece) * 4;
      store16(to, as_uint4(make_float4(of_query[0], of_query[1], of_query[2], of_query[3])));
      store16(to + 4 * places.pieces, as_uint4(make_float4(of_query[4], of_query[5], of_query[6], of_query[7])));
    }
  }
}

/// Parts that a thread asks for before it adds the first. Nothing else hides their latency: this is the last block.
constexpr int kPartsAtOnce = 8;

/// Puts the parts of all active blocks of a unit together, 4 dims a thread; the whole block calls, after it has seen
/// them all.
__device__ __forceinline__ void combine(const DecodeCall& call, const DecodeWork& work, int tile_queries,
                                        float* shares) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warps = static_cast<int>(blockDim.x) / kWarpSize;
  const int64_t first_part = static_cast<int64_t>(work.unit) * gridDim.x * tile_queries;
  for (int query = static_cast<int>(threadIdx.x) / kWarpSize; query < work.queries; query += warps) {
    const float* statistics = reinterpret_cast<const float*>(call.statistics + first_part + query);
    float largest = -INFINITY;
    for (int i = lane; i < work.active; i += kWarpSize) largest = fmaxf(largest, statistics[2 * i * tile_queries]);
    largest = warp_max(largest);
    float sum = 0;
    for (int i = lane; i < work.active; i += kWarpSize) {
      const float* of_part = statistics + 2 * i * tile_queries;
      const float factor = exp2f(of_part[0] - largest);
      shares[query * work.active + i] = factor;
      sum += of_part[1] * factor;
    }
    sum = warp_sum(sum);
    for (int i = lane; i < work.active; i += kWarpSize) shares[query * work.active + i] /= sum;
  }
  __syncthreads();
  const int64_t part_floats = static_cast<int64_t>(tile_queries) * call.head_dim;
  const int head_quads = call.head_dim / 4;
  for (int item = static_cast<int>(threadIdx.x); item < work.queries * head_quads;
       item += static_cast<int>(blockDim.x)) {
    const float* of_query = shares + item / head_quads * work.active;
    const float* part = call.parts + first_part * call.head_dim + 4 * item;
    float dims[4] = {};
    for (int i = 0; i < work.active; i += kPartsAtOnce) {
      uint4 quads[kPartsAtOnce];
#pragma unroll
      for (int j = 0; j < kPartsAtOnce; ++j) {
        quads[j] = i + j < work.active ? load16(part + (i + j) * part_floats) : make_uint4(0, 0, 0, 0);
      }
#pragma unroll
      for (int j = 0; j < kPartsAtOnce; ++j) {
        const float share = i + j < work.active ? of_query[i + j] : 0.0f;
        const float4 of_part = as_float4(quads[j]);
        dims[0] += share * of_part.x;
        dims[1] += share * of_part.y;
        dims[2] += share * of_part.z;
        dims[3] += share * of_part.w;
      }
    }
    const int64_t out = work.sequence * call.out_stride + static_cast<int64_t>(work.first_query) * call.head_dim;
#pragma unroll
    for (int dim = 0; dim < 4; ++dim) store_element(call.out, call.dtype, out + 4 * item + dim, dims[dim]);
  }
}

/// Merges the warps' results into the output or, where other blocks share the unit, into the workspace.
template <class Element, int kQueries>
__device__ __forceinline__ void merge(const DecodeCall& call, const DecodeWork& work, const AttentionPlaces& places,
                                      const float* shared) {
  const int warps = static_cast<int>(blockDim.x) / kWarpSize;
  const int64_t part = (static_cast<int64_t>(work.unit) * gridDim.x + blockIdx.x) * kQueries;
  for (int item = static_cast<int>(threadIdx.x); item < work.queries * call.head_dim;
       item += static_cast<int>(blockDim.x)) {
    const int query = item / call.head_dim;
    const int dim = item % call.head_dim;
    const float* statistics = shared + places.statistics + 2 * query;
    float largest = -INFINITY;
    for (int warp = 0; warp < warps; ++warp) largest = fmaxf(largest, statistics[2 * warp * kQueries]);
    const float* values = shared + places.tiles + query * call.head_dim + shared_dim<Element>(dim, places.pieces);
    float value = 0;
    float sum = 0;
    for (int warp = 0; warp < warps; ++warp) {
      const float factor = exp2f(statistics[2 * warp * kQueries] - largest);
      sum += factor * statistics[2 * warp * kQueries + 1];
      float of_warp = 0;
      for (int subset = 0; subset < places.subsets; ++subset) {
        of_warp += values[(warp * places.subsets + subset) * kQueries * call.head_dim];
      }
      value += factor * of_warp;
    }
    if (work.active == 1) {
      store_element(call.out, call.dtype,
                    work.sequence * call.out_stride + static_cast<int64_t>(work.first_query) * call.head_dim + item,
                    value / sum);
    } else {
      call.parts[part * call.head_dim + item] = value;
      if (dim == 0) {
        float* of_part = reinterpret_cast<float*>(call.statistics + part + query);
        of_part[0] = largest;
        of_part[1] = sum;
      }
    }
  }
}

/// Counts this block as finished with its part; true in the last of the unit's blocks, which then sees all parts.
__device__ __forceinline__ bool last_of_unit(const DecodeCall& call, const DecodeWork& work) {
  SHARDSCOPE_SHARED(int, last, 1);
  __syncthreads();  // all threads have written their share of the part
  if (threadIdx.x == 0) {
    __threadfence();
    *last = atomicAdd(call.finished + work.unit, 1u) + 1 == static_cast<unsigned>(work.active) ? 1 : 0;
    __threadfence();
    if (*last != 0) atomicExch(call.finished + work.unit, 0u);
  }
  __syncthreads();
  return *last != 0;
}

}  // namespace shardscope::cuda
