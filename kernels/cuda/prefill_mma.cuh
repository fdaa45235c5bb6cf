// Prefill attention in tensor cores, for caches and activations of 16 bits: the loop of FlashAttention-2
// (arXiv:2307.08691). A warp has 16 rows and all dims; scores, maxima and results stay in registers; the weights of one
// product are the first operand of the next without a move.
//
// Both operands of a product may be dealt over the contracted index in any order, if in the same one, and columns of
// the result may stand for any dims. So the fragments of mma.m16n8k16 (lane 4 * group + quarter) are dealt that memory
// is read in wide pieces, and no operand is transposed:
//   q and keys:  of 32 dims a lane holds dims 8 * quarter + 0..7 of its row: one 16-byte load feeds two products
//   values:      of 32 dims a lane holds dims 4 * group + 0..3 of positions 2 * quarter + {0, 1, 8, 9}: four 8-byte
//                loads and eight byte permutations feed four products
//   out:         of 32 dims a lane has dims 8 * quarter + 0..7 of its two rows: one 16-byte store each
// Rows of keys are 4 quads off a multiple of 8 apart, those of values an odd number of quads: no load has a bank
// conflict.
#pragma once

#include <type_traits>

#include "kernels/cuda/prefill_work.cuh"

namespace shardscope::cuda {

constexpr int kMmaRows = 16;      // of a warp
constexpr int kMostMmaWarps = 8;  // of a block
constexpr int kChunkDims = 32;    // that the lanes of a quarter hold together
constexpr int kMmaStages = 2;     // tiles in shared memory: the one in use, and the next

/// Sizes for heads of up to kDims dims. Positions of a tile: as many as leave room in the registers, which with heads
/// of up to 64 dims is that for a second block on the multiprocessor.
template <int kDims>
struct MmaSizes {
  static constexpr int kPositions = kDims == 128 ? 64 : 32;
  static constexpr int kChunks = kDims / kChunkDims;
  static constexpr bool kKeepsQueries = kDims <= 128;  // else they come from L1 or L2 again for each tile
};

__host__ __device__ inline KvTile mma_tile(int head_dim, int positions) {
  const int quads = (head_dim + kChunkDims - 1) / kChunkDims * (kChunkDims / 8);
  return {.positions = positions,
          .row_quads = quads,
          .key_quads = quads % 8 == 4 ? quads : quads + 4,
          .value_quads = quads + 1};
}

/// 8 dims of a query in the cache's type.
template <class Element>
__device__ __forceinline__ uint4 load_query_piece(const PrefillCall& call, int64_t element) {
  constexpr bool kHalf = std::is_same_v<Element, __half>;
  using Other = std::conditional_t<kHalf, __nv_bfloat16, __half>;
  const uint4 bits = load16(static_cast<const uint16_t*>(call.q) + element);
  if (call.dtype == (kHalf ? DType::kF16 : DType::kBF16)) return bits;
  float values[8];
  unpack16<Other>(bits, values);
  return pack16<Element>(values);
}

/// One warp's 16 rows. A lane has two of them, `group` and `group + 8` of the warp's.
template <class Element, int kDims>
struct MmaRows {
  static constexpr int kPositions = MmaSizes<kDims>::kPositions;
  static constexpr int kChunks = MmaSizes<kDims>::kChunks;
  static constexpr bool kKeepsQueries = MmaSizes<kDims>::kKeepsQueries;
  static constexpr int kColumnTiles = kPositions / 8;

  const PrefillCall& call;
  const KvTile& layout;
  int group;
  int quarter;
  int64_t query_element[2];  // below 0: there is no such row
  int position[2];
  int first_position;  // of the warp's rows, and the last; below 0 where there are none
  int last_position;
  uint4 queries[kKeepsQueries ? kChunks : 1][2];
  float maximum[2];
  float sum[2];  // of this lane's columns
  float out[kChunks][4][4];

  __device__ __forceinline__ MmaRows(const PrefillCall& of_call, const PrefillWork& work, const KvTile& of_layout)
      : call(of_call), layout(of_layout) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    const int first_row = work.begin + static_cast<int>(threadIdx.x) / kWarpSize * kMmaRows;
    group = lane / 4;
    quarter = lane % 4;
    first_position = work.position_of(first_row);
    last_position = first_row < work.end ? work.position_of(min(work.end, first_row + kMmaRows) - 1) : -1;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = first_row + group + 8 * i;
      query_element[i] = row < work.end ? work.element_of(row, call.q_stride, call.head_dim) : -1;
      position[i] = work.position_of(row);
      maximum[i] = -INFINITY;
      sum[i] = 0;
    }
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
#pragma unroll
      for (int i = 0; i < 16; ++i) out[chunk][i / 4][i % 4] = 0;
      if constexpr (kKeepsQueries) load_query(chunk, queries[chunk]);
    }
  }

  /// This lane's 8 dims of both rows in a chunk; zeros past the head or the rows.
  __device__ __forceinline__ void load_query(int chunk, uint4 (&pieces)[2]) const {
    const int dim = chunk * kChunkDims + 8 * quarter;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      pieces[i] = query_element[i] >= 0 && dim < call.head_dim ? load_query_piece<Element>(call, query_element[i] + dim)
                                                               : make_uint4(0, 0, 0, 0);
    }
  }

  /// scores [column tile][fragment] = q keys^T.
  __device__ __forceinline__ void score(const uint4* keys, float (&scores)[kColumnTiles][4]) const {
    const uint4* of_lane = keys + group * layout.key_quads + quarter;
#pragma unroll
    for (int i = 0; i < 4 * kColumnTiles; ++i) scores[i / 4][i % 4] = 0;
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      if (4 * chunk >= layout.row_quads) continue;  // the same in all lanes
      uint4 pieces[2];
      if constexpr (kKeepsQueries) {
        pieces[0] = queries[chunk][0], pieces[1] = queries[chunk][1];
      } else {
        load_query(chunk, pieces);
      }
      const uint32_t low[4] = {pieces[0].x, pieces[1].x, pieces[0].y, pieces[1].y};
      const uint32_t high[4] = {pieces[0].z, pieces[1].z, pieces[0].w, pieces[1].w};
#pragma unroll
      for (int tile = 0; tile < kColumnTiles; tile += 4) {  // four sums at a time: none waits for the one before
        uint4 key[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) key[i] = load16(of_lane + 8 * (tile + i) * layout.key_quads + 4 * chunk);
#pragma unroll
        for (int i = 0; i < 4; ++i) mma_m16n8k16<Element>(scores[tile + i], low, {key[i].x, key[i].y});
#pragma unroll
        for (int i = 0; i < 4; ++i) mma_m16n8k16<Element>(scores[tile + i], high, {key[i].z, key[i].w});
      }
    }
  }

  /// Scores of the tile that begins at position `first` become weights; what was summed before is scaled to match.
  __device__ __forceinline__ void weigh(int first, float (&scores)[kColumnTiles][4]) {
    const bool masked = first + kPositions - 1 > first_position;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float largest = -INFINITY;
#pragma unroll
      for (int column = 0; column < 2 * kColumnTiles; ++column) {
        float& score = scores[column / 2][2 * i + column % 2];
        score *= call.scale;
        if (masked && first + column / 2 * 8 + 2 * quarter + column % 2 > position[i]) score = -INFINITY;
        largest = fmaxf(largest, score);
      }
      largest = fmaxf(largest, __shfl_xor_sync(kFullMask, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(kFullMask, largest, 2));
      largest = fmaxf(largest, maximum[i]);  // finite: every row attends to position 0, in the first tile
      const float factor = exp2f(maximum[i] - largest);
      maximum[i] = largest;
      sum[i] *= factor;
#pragma unroll
      for (int column = 0; column < 2 * kColumnTiles; ++column) {
        float& score = scores[column / 2][2 * i + column % 2];
        score = exp2f(score - largest);
        sum[i] += score;
      }
#pragma unroll
      for (int tile = 0; tile < 4 * kChunks; ++tile) {
        out[tile / 4][tile % 4][2 * i] *= factor;
        out[tile / 4][tile % 4][2 * i + 1] *= factor;
      }
    }
  }

  /// out += weights values. Chunk by chunk, so that the loads and products of all positions stand together.
  __device__ __forceinline__ void add(const uint4* values, const float (&weights)[kColumnTiles][4]) {
    constexpr int kSteps = kPositions / 16;
    uint32_t a[kSteps][4];
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const float(&left)[4] = weights[2 * step];
      const float(&right)[4] = weights[2 * step + 1];
      a[step][0] = pack2<Element>(left[0], left[1]), a[step][1] = pack2<Element>(left[2], left[3]);
      a[step][2] = pack2<Element>(right[0], right[1]), a[step][3] = pack2<Element>(right[2], right[3]);
    }
    const int row_bytes = layout.value_quads * 16;
    const unsigned char* of_lane = reinterpret_cast<const unsigned char*>(values) + 2 * quarter * row_bytes + 8 * group;
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      if (4 * chunk >= layout.row_quads) continue;  // the same in all lanes
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        const unsigned char* from = of_lane + 16 * step * row_bytes + chunk * kChunkDims * 2;
        const uint2 row_0 = load8(from);
        const uint2 row_1 = load8(from + row_bytes);
        const uint2 row_8 = load8(from + 8 * row_bytes);
        const uint2 row_9 = load8(from + 9 * row_bytes);
        constexpr unsigned kLow = 0x5410;  // the lower halves of two words, and the upper
        constexpr unsigned kHigh = 0x7632;
        mma_m16n8k16<Element>(out[chunk][0], a[step],
                              {__byte_perm(row_0.x, row_1.x, kLow), __byte_perm(row_8.x, row_9.x, kLow)});
        mma_m16n8k16<Element>(out[chunk][1], a[step],
                              {__byte_perm(row_0.x, row_1.x, kHigh), __byte_perm(row_8.x, row_9.x, kHigh)});
        mma_m16n8k16<Element>(out[chunk][2], a[step],
                              {__byte_perm(row_0.y, row_1.y, kLow), __byte_perm(row_8.y, row_9.y, kLow)});
        mma_m16n8k16<Element>(out[chunk][3], a[step],
                              {__byte_perm(row_0.y, row_1.y, kHigh), __byte_perm(row_8.y, row_9.y, kHigh)});
      }
    }
  }

  __device__ __forceinline__ void store(const PrefillWork& work) {
    const int first_row = work.begin + static_cast<int>(threadIdx.x) / kWarpSize * kMmaRows + group;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = first_row + 8 * i;
      const int64_t element = work.element_of(row, call.out_stride, call.head_dim);
      sum[i] += __shfl_xor_sync(kFullMask, sum[i], 1);
      sum[i] += __shfl_xor_sync(kFullMask, sum[i], 2);
#pragma unroll
      for (int chunk = 0; chunk < kChunks; ++chunk) {
        const int dim = chunk * kChunkDims + 8 * quarter;
        if (row >= work.end || dim >= call.head_dim) continue;
        float values[8];
#pragma unroll
        for (int tile = 0; tile < 4; ++tile) {
          values[tile] = out[chunk][tile][2 * i] / sum[i];
          values[4 + tile] = out[chunk][tile][2 * i + 1] / sum[i];
        }
        store16(static_cast<uint16_t*>(call.out) + element + dim,
                call.dtype == DType::kF16 ? pack16<__half>(values) : pack16<__nv_bfloat16>(values));
      }
    }
  }
};

template <class Element, int kDims>
__global__ void __launch_bounds__(kMostMmaWarps* kWarpSize, kDims > 64 ? 1 : 2) prefill_mma_kernel(PrefillCall call) {
  SHARDSCOPE_DYNAMIC_SHARED(uint4, shared);
  using Rows = MmaRows<Element, kDims>;
  const int tile_rows = static_cast<int>(blockDim.x) / kWarpSize * kMmaRows;
  const PrefillWork work(call, tile_rows);
  const KvTile layout = mma_tile(call.head_dim, Rows::kPositions);
  const auto tile_at = [&](int first) { return shared + first / Rows::kPositions % kMmaStages * layout.quads(); };
  const auto copy = [&](int first) { copy_kv_tile(call, work, layout, call.head_dim / 8, first, tile_at(first)); };
  if (work.positions > 0) copy(0);
  Rows rows(call, work, layout);
  for (int first = 0; first < work.positions; first += Rows::kPositions) {
    cp_async_wait<0>();
    __syncthreads();  // the tile is there for all threads, and all have done with the one before
    if (first + Rows::kPositions < work.positions) copy(first + Rows::kPositions);
    if (first > rows.last_position) continue;  // the same in all lanes of a warp
    const uint4* keys = tile_at(first);
    float weights[Rows::kColumnTiles][4];
    rows.score(keys, weights);
    rows.weigh(first, weights);
    rows.add(keys + layout.positions * layout.key_quads, weights);
  }
  rows.store(PrefillWork(call, tile_rows));  // made anew: it would be kept in registers all through the loop
}

}  // namespace shardscope::cuda
