// Prefill attention in fp32, for caches or activations in fp32: the same loop as in tensor cores (prefill_mma.cuh),
// with ordinary multiplications. Half a warp has 4 rows; for their scores lane i of it has positions i and i + 16 of a
// tile, for their results the dims 4 i + 64 j on. So a piece of a key or value that was loaded serves 4 rows, and
// weights go from lane to lane through shared memory without a barrier of the block.
#pragma once

#include "kernels/cuda/prefill_work.cuh"

namespace shardscope::cuda {

constexpr int kPlainRows = 4;               // of half a warp
constexpr int kPlainLanes = kWarpSize / 2;  // of them
constexpr int kPlainKeys = 2;               // that a lane weighs of a tile
constexpr int kPlainPositions = kPlainLanes * kPlainKeys;
constexpr int kMostPlainWarps = 4;
constexpr int kMaxQuads = 256 / 4 / kPlainLanes;  // of 4 dims of a row that a lane may have

__host__ __device__ inline KvTile plain_tile(int head_dim, int element_bytes) {
  const int quads = head_dim * element_bytes / 16;
  return {.positions = kPlainPositions,
          .row_quads = quads,
          .key_quads = quads | 1,  // so that the keys of adjacent lanes lie in different banks
          .value_quads = quads};
}

/// Floats from one query to the next in shared memory: the rows of the two halves of a warp lie in different banks.
__host__ __device__ inline int plain_query_stride(int head_dim) {
  return head_dim + 4;
}

/// Dynamic shared memory: queries [row][plain_query_stride], weights [half warp][position][kPlainRows], the tile.
__host__ __device__ inline int plain_shared_bytes(int head_dim, int element_bytes, int warps) {
  const int halves = 2 * warps;
  return halves * kPlainRows * plain_query_stride(head_dim) * 4 + halves * kPlainPositions * kPlainRows * 4 +
         plain_tile(head_dim, element_bytes).quads() * 16;
}

/// Four adjacent elements of out, aligned to their size.
__device__ __forceinline__ void store_out(const PrefillCall& call, int64_t element, const float (&values)[4]) {
  if (call.dtype == DType::kF32) {
    Packed<float, 4>::pack(values).store(static_cast<float*>(call.out) + element);
  } else if (call.dtype == DType::kF16) {
    Packed<__half, 4>::pack(values).store(static_cast<__half*>(call.out) + element);
  } else {
    Packed<__nv_bfloat16, 4>::pack(values).store(static_cast<__nv_bfloat16*>(call.out) + element);
  }
}

/// The rows of half a warp.
template <class Element>
struct PlainRows {
  static constexpr int kPiece = kElementsOf16Bytes<Element>;

  const PrefillCall& call;
  int lane;  // of the half
  int first_row;
  int last_position;
  int position[kPlainRows];
  float maximum[kPlainRows];
  float sum[kPlainRows];  // of this lane's positions
  float out[kPlainRows][kMaxQuads][4];

  __device__ __forceinline__ PlainRows(const PrefillCall& of_call, const PrefillWork& work) : call(of_call) {
    lane = static_cast<int>(threadIdx.x) % kPlainLanes;
    first_row = work.begin + static_cast<int>(threadIdx.x) / kPlainLanes * kPlainRows;
    const int of_warp = first_row - static_cast<int>(threadIdx.x) % kWarpSize / kPlainLanes * kPlainRows;
    last_position = of_warp < work.end ? work.position_of(min(work.end, of_warp + 2 * kPlainRows) - 1) : -1;
#pragma unroll
    for (int row = 0; row < kPlainRows; ++row) {
      position[row] = work.position_of(first_row + row);
      maximum[row] = -INFINITY;
      sum[row] = 0;
#pragma unroll
      for (int i = 0; i < 4 * kMaxQuads; ++i) out[row][i / 4][i % 4] = 0;
    }
  }

  /// Scores of this lane's positions, and what they change; the weights go to shared memory.
  __device__ __forceinline__ void weigh(const float* queries, const uint4* keys, const KvTile& layout, int first,
                                        uint4* weights) {
    float scores[kPlainRows][kPlainKeys] = {};
    const int stride = plain_query_stride(call.head_dim);
    for (int piece = 0; piece < layout.row_quads; ++piece) {
      float key[kPlainKeys][kPiece];
#pragma unroll
      for (int i = 0; i < kPlainKeys; ++i) {
        unpack16<Element>(load16(keys + (lane + i * kPlainLanes) * layout.key_quads + piece), key[i]);
      }
#pragma unroll
      for (int row = 0; row < kPlainRows; ++row) {
#pragma unroll
        for (int dim = 0; dim < kPiece; dim += 4) {
          const float4 q = as_float4(load16(queries + row * stride + piece * kPiece + dim));
#pragma unroll
          for (int i = 0; i < kPlainKeys; ++i) {
            scores[row][i] += q.x * key[i][dim] + q.y * key[i][dim + 1] + q.z * key[i][dim + 2] + q.w * key[i][dim + 3];
          }
        }
      }
    }
#pragma unroll
    for (int row = 0; row < kPlainRows; ++row) {
      float largest = maximum[row];
#pragma unroll
      for (int i = 0; i < kPlainKeys; ++i) {
        if (first + lane + i * kPlainLanes > position[row]) scores[row][i] = -INFINITY;
        largest = fmaxf(largest, scores[row][i]);
      }
#pragma unroll
      for (int bit = kPlainLanes / 2; bit > 0; bit /= 2) {
        largest = fmaxf(largest, __shfl_xor_sync(kFullMask, largest, bit));
      }
      const float factor = exp2f(maximum[row] - largest);  // finite: position 0 is in the first tile
      maximum[row] = largest;
      sum[row] *= factor;
#pragma unroll
      for (int i = 0; i < kPlainKeys; ++i) {
        scores[row][i] = exp2f(scores[row][i] - largest);
        sum[row] += scores[row][i];
      }
#pragma unroll
      for (int i = 0; i < 4 * kMaxQuads; ++i) out[row][i / 4][i % 4] *= factor;
    }
#pragma unroll
    for (int i = 0; i < kPlainKeys; ++i) {
      store16(weights + lane + i * kPlainLanes,
              as_uint4(make_float4(scores[0][i], scores[1][i], scores[2][i], scores[3][i])));
    }
  }

  /// out += weights values, for the tile's first `count` positions.
  __device__ __forceinline__ void add(const Element* values, const uint4* weights, int count) {
    for (int at = 0; at < count; ++at) {
      const float4 four = as_float4(load16(weights + at));
      const float weight[kPlainRows] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (int i = 0; i < kMaxQuads; ++i) {
        const int dim = 4 * (lane + i * kPlainLanes);
        if (dim >= call.head_dim) continue;
        float value[4];
        Packed<Element, 4>::load(values + at * call.head_dim + dim).unpack(value);
#pragma unroll
        for (int row = 0; row < kPlainRows; ++row) {
#pragma unroll
          for (int k = 0; k < 4; ++k) out[row][i][k] += weight[row] * value[k];
        }
      }
    }
  }

  __device__ __forceinline__ void store(const PrefillWork& work) {
#pragma unroll
    for (int row = 0; row < kPlainRows; ++row) {
#pragma unroll
      for (int bit = kPlainLanes / 2; bit > 0; bit /= 2) sum[row] += __shfl_xor_sync(kFullMask, sum[row], bit);
      if (first_row + row >= work.end) continue;
      const int64_t element = work.element_of(first_row + row, call.out_stride, call.head_dim);
#pragma unroll
      for (int i = 0; i < kMaxQuads; ++i) {
        const int dim = 4 * (lane + i * kPlainLanes);
        if (dim >= call.head_dim) continue;
        float values[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) values[k] = out[row][i][k] / sum[row];
        store_out(call, element + dim, values);
      }
    }
  }
};

/// The block's queries, scaled, in shared memory; zeros past the rows.
__device__ __forceinline__ void stage_plain_queries(const PrefillCall& call, const PrefillWork& work, int rows,
                                                    float* queries) {
  const int quads = call.head_dim / 4;
  for (int item = static_cast<int>(threadIdx.x); item < rows * quads; item += static_cast<int>(blockDim.x)) {
    const int row = item / quads;
    const int dim = item % quads * 4;
    float4 four = make_float4(0, 0, 0, 0);
    if (work.begin + row < work.end) {
      four = load_four(call.q, call.dtype, work.element_of(work.begin + row, call.q_stride, call.head_dim) + dim);
    }
    store16(queries + row * plain_query_stride(call.head_dim) + dim,
            as_uint4(make_float4(four.x * call.scale, four.y * call.scale, four.z * call.scale, four.w * call.scale)));
  }
}

template <class Element>
__global__ void __launch_bounds__(kMostPlainWarps* kWarpSize, 3) prefill_plain_kernel(PrefillCall call) {
  SHARDSCOPE_DYNAMIC_SHARED(float, shared);
  const int halves = static_cast<int>(blockDim.x) / kPlainLanes;
  const int half = static_cast<int>(threadIdx.x) / kPlainLanes;
  const PrefillWork work(call, halves * kPlainRows);
  const KvTile layout = plain_tile(call.head_dim, sizeof(Element));
  const int query_floats = halves * kPlainRows * plain_query_stride(call.head_dim);
  uint4* const all_weights = reinterpret_cast<uint4*>(shared + query_floats);
  uint4* const keys = all_weights + halves * kPlainPositions;
  const Element* const values = reinterpret_cast<const Element*>(keys + layout.positions * layout.key_quads);
  const float* const queries = shared + half * kPlainRows * plain_query_stride(call.head_dim);
  uint4* const weights = all_weights + half * kPlainPositions;

  stage_plain_queries(call, work, halves * kPlainRows, shared);
  PlainRows<Element> rows(call, work);
  for (int first = 0; first < work.positions; first += kPlainPositions) {
    copy_kv_tile(call, work, layout, layout.row_quads, first, keys);
    cp_async_wait<0>();
    __syncthreads();                    // the tile, and the queries, are there for all threads
    if (first <= rows.last_position) {  // the same in all lanes of a warp
      rows.weigh(queries, keys, layout, first, weights);
      __syncwarp();
      rows.add(values, weights, min(kPlainPositions, work.positions - first));
    }
    __syncthreads();  // all have done with it
  }
  rows.store(work);
}

}  // namespace shardscope::cuda
