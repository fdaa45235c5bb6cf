// What one warp does with one tile of keys and values, for decode_attention: copy it to shared memory, weigh its
// positions, add its values; and where all that lies in shared memory. The block's side of it is in decode_work.cuh,
// decode_attention.cu and decode_merge.cuh.
#pragma once

#include "kernels/cuda/numeric.cuh"

namespace shardscope::cuda {

constexpr int kTile = 8;    // positions
constexpr int kSlices = 4;  // lanes that share a position's score
constexpr int kPiece = 8;   // dims
constexpr int kStages = 3;  // tiles of a warp in shared memory
static_assert(kTile * kSlices == kWarpSize);

/// Where things lie in dynamic shared memory; offsets in floats, all multiples of 4.
struct AttentionPlaces {
  int pieces;     // of 8 dims in a head
  int row_quads;  // of 16 bytes in a key or value
  int key_quads;  // from one key of a tile to the next: odd, so that 8 keys lie in different banks
  int subsets;    // of the positions of a tile, when values are added
  int weights;    // [warp][query][kTile] and [warp][query] factors
  int weight_floats;
  int statistics;  // [warp][query][2]
  int new_row;     // the new token's key and value [2][row_quads], quads of 4 floats
  int tiles;       // [warp][kStages]{keys [kTile][key_quads], values [kTile][row_quads]}, quads of 4 floats;
                   // later the results [warp][subset][query][head_dim]
  int stage_quads;
  int total;

  __host__ __device__ AttentionPlaces(int head_dim, int element_bytes, int queries, int warps, int splits)
      : pieces(head_dim / kPiece), row_quads(head_dim * element_bytes / 16), key_quads(row_quads | 1), subsets(kTile) {
    while (subsets * pieces > kWarpSize) subsets /= 2;
    weights = queries * head_dim;
    weight_floats = (queries * (kTile + 1) + 3) / 4 * 4;
    statistics = weights + warps * weight_floats;
    new_row = statistics + (2 * warps * queries + 3) / 4 * 4;
    tiles = new_row + 2 * row_quads * 4;
    stage_quads = kTile * (key_quads + row_quads);
    const int in_loop = warps * kStages * stage_quads * 4;
    const int merged = warps * subsets * queries * head_dim;
    const int combined = queries * splits;
    total = tiles + (in_loop > merged ? in_loop : merged);
    if (total < tiles + combined) total = tiles + combined;
  }
};

/// A lane's part in copying a tile and in adding its values. Made once, before the loop over tiles: it takes divisions.
struct AttentionLane {
  int row;  // its first quad of 16 bytes of a tile; its next ones are row_step rows and quad_step quads further on
  int quad;
  int row_step;
  int quad_step;
  int piece;  // its dims and, from places.subsets on none, its positions
  int subset;

  __device__ __forceinline__ explicit AttentionLane(const AttentionPlaces& places) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    row = lane / places.row_quads;
    quad = lane - row * places.row_quads;
    row_step = kWarpSize / places.row_quads;
    quad_step = kWarpSize - row_step * places.row_quads;
    subset = lane / places.pieces;
    piece = lane - subset * places.pieces;
  }
};

/// Where dim `dim` stands in a row of shared memory [2][pieces][4]: the two halves of a lane's piece lie apart, so that
/// lanes with adjacent pieces read adjacent quads. A piece is 8 adjacent dims of 16-bit elements, but two times 4 dims,
/// half a head apart, of fp32, for the same reason.
template <class Element>
__device__ __forceinline__ int shared_dim(int dim, int pieces) {
  if constexpr (sizeof(Element) == 4) return dim;
  return dim / 4 % 2 * 4 * pieces + dim / kPiece * 4 + dim % 4;
}

/// The dims of a piece, from a row of a tile.
template <class Element>
__device__ __forceinline__ void load_piece(const uint4* row, int piece, int pieces, float (&values)[kPiece]) {
  if constexpr (sizeof(Element) == 4) {
    const float4 low = as_float4(load16(row + piece));
    const float4 high = as_float4(load16(row + piece + pieces));
    values[0] = low.x, values[1] = low.y, values[2] = low.z, values[3] = low.w;
    values[4] = high.x, values[5] = high.y, values[6] = high.z, values[7] = high.w;
  } else {
    unpack16<Element>(load16(row + piece), values);
  }
}

/// What a warp has of its positions so far.
template <int kQueries>
struct AttentionRunning {
  using Place = SumPlace<kQueries, 16, kTile>;
  static constexpr int kOwn = Place::kLeft;
  float maximum[kOwn];             // of the queries Place::first(lane) on
  float sum[kOwn];                 // of this lane's positions
  float values[kQueries][kPiece];  // of this lane's dims and subset of positions
};

/// A tile of keys and of values in global memory.
struct TileSource {
  const unsigned char* keys;
  const unsigned char* values;
  int64_t position_bytes;
};

/// Starts the copies of one tile of keys and one of values; rows from `count` on become zeros.
__device__ __forceinline__ void copy_tile(const TileSource& source, const AttentionPlaces& places,
                                          const AttentionLane& lane, int count, uint4* tile) {
  int row = lane.row;
  int quad = lane.quad;
  while (row < kTile) {
    const int64_t from = row * source.position_bytes + quad * 16;
    cp_async16(tile + row * places.key_quads + quad, source.keys + from, row < count);
    cp_async16(tile + kTile * places.key_quads + row * places.row_quads + quad, source.values + from, row < count);
    row += lane.row_step;
    quad += lane.quad_step;
    if (quad >= places.row_quads) {
      quad -= places.row_quads;
      ++row;
    }
  }
}

/// Scores of the tile's positions, and what they change: running maximum and sum; the weights [query][kTile] and the
/// factors [query] for what was there before, in shared memory. True if any factor is not 1.
template <class Element, int kQueries>
__device__ __forceinline__ bool weigh_tile(const AttentionPlaces& places, const float* q, const uint4* tile, int count,
                                           float* weights, AttentionRunning<kQueries>& running) {
  using Place = typename AttentionRunning<kQueries>::Place;
  constexpr int kOwn = Place::kLeft;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int position = lane % kTile;
  float scores[kQueries] = {};
  for (int piece = lane / kTile; piece < places.pieces; piece += kSlices) {
    float key[kPiece];
    load_piece<Element>(tile + position * places.key_quads, piece, places.pieces, key);
#pragma unroll
    for (int query = 0; query < kQueries; ++query) {
      const float* of_query = q + (2 * query * places.pieces + piece) * 4;
      const float4 low = as_float4(load16(of_query));
      const float4 high = as_float4(load16(of_query + 4 * places.pieces));
      scores[query] += key[0] * low.x + key[1] * low.y + key[2] * low.z + key[3] * low.w;
      scores[query] += key[4] * high.x + key[5] * high.y + key[6] * high.z + key[7] * high.w;
    }
  }
  sum_lanes<kQueries, 16, kTile>(scores);

  bool changed = false;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const float score = position < count ? scores[i] : -INFINITY;
    float largest = score;
#pragma unroll
    for (int bit = kTile / 2; bit > 0; bit /= 2) largest = fmaxf(largest, __shfl_xor_sync(kFullMask, largest, bit));
    largest = fmaxf(largest, running.maximum[i]);  // finite: a tile has at least one position
    const float factor = exp2f(running.maximum[i] - largest);
    const float weight = exp2f(score - largest);
    running.maximum[i] = largest;
    running.sum[i] = running.sum[i] * factor + weight;
    changed = changed || factor != 1.0f;
    if (Place::stores(lane)) {
      // Query `first + i` at place i * (kQueries / kOwn) + first / kOwn: the lanes of a warp write adjacent words.
      const int place = i * (kQueries / kOwn) + Place::first(lane) / kOwn;
      weights[place * kTile + position] = weight;
      if (position == 0) weights[kQueries * kTile + place] = factor;
    }
  }
  return __any_sync(kFullMask, changed) != 0;
}

template <class Element, int kQueries>
__device__ __forceinline__ void add_values(const AttentionPlaces& places, const AttentionLane& lane, const uint4* tile,
                                           const float* weights, bool changed, AttentionRunning<kQueries>& running) {
  constexpr int kOwn = AttentionRunning<kQueries>::kOwn;
  if (lane.subset >= places.subsets) return;
  const uint4* values = tile + kTile * places.key_quads;
  if (changed) {
#pragma unroll
    for (int query = 0; query < kQueries; ++query) {
      const float factor = weights[kQueries * kTile + query % kOwn * (kQueries / kOwn) + query / kOwn];
#pragma unroll
      for (int i = 0; i < kPiece; ++i) running.values[query][i] *= factor;
    }
  }
  for (int position = lane.subset; position < kTile; position += places.subsets) {
    float value[kPiece];
    load_piece<Element>(values + position * places.row_quads, lane.piece, places.pieces, value);
#pragma unroll
    for (int query = 0; query < kQueries; ++query) {
      const float weight = weights[(query % kOwn * (kQueries / kOwn) + query / kOwn) * kTile + position];
#pragma unroll
      for (int i = 0; i < kPiece; ++i) running.values[query][i] += weight * value[i];
    }
  }
}

}  // namespace shardscope::cuda
