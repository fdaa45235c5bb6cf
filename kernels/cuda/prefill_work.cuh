// What both kernels of prefill_attention are told, which part of it a block has, and where its keys and values are.
#pragma once

#include "kernels/cuda/numeric.cuh"

namespace shardscope::cuda {

/// A kernel's view of the arguments.
struct PrefillCall {
  const void* q;
  const unsigned char* keys;
  const unsigned char* values;
  const int32_t* first_tokens;
  const int32_t* first_positions;
  const int32_t* slots;
  void* out;
  int64_t q_stride;  // elements
  int64_t out_stride;
  int64_t slot_bytes;
  int64_t head_bytes;
  int64_t position_bytes;
  float scale;  // times log2(e): exponentials are of base 2
  DType dtype;
  int head_dim;
  int queries_per_kv;
  int first_query_head;
  int query_heads;
  int first_kv_head;
};

/// The part of the work that a block has: rows of one sequence and KV head. Row r is token r / queries and query
/// r % queries of the KV head's group, so that all queries of a group share the keys and values that are read for one
/// of them.
struct PrefillWork {
  int first_query;  // of this rank
  int queries;      // of the KV head's group that are here; at least 1, since rows are divided by it
  int64_t first_token;
  int first_position;
  int begin;        // rows
  int end;          // 0 where there are none
  int positions;    // that the last row attends to
  int64_t kv_byte;  // of position 0

  __device__ PrefillWork(const PrefillCall& call, int tile_rows) {
    const int sequence = static_cast<int>(blockIdx.z);
    const int kv_head = static_cast<int>(blockIdx.y);
    const int group = (call.first_kv_head + kv_head) * call.queries_per_kv;
    const int group_begin = max(group, call.first_query_head);
    const int group_end = min(group + call.queries_per_kv, call.first_query_head + call.query_heads);
    first_query = group_begin - call.first_query_head;
    const int here = max(0, group_end - group_begin);
    queries = max(1, here);
    first_token = call.first_tokens[sequence];
    const int rows = (call.first_tokens[sequence + 1] - static_cast<int>(first_token)) * here;
    first_position = call.first_positions[sequence];
    // The last rows attend to the most positions: they start first, so that the device is busy until the end.
    const int tile = static_cast<int>(gridDim.x - 1 - blockIdx.x);
    begin = tile * tile_rows;
    end = begin < rows ? min(rows, begin + tile_rows) : 0;
    positions = end == 0 ? 0 : position_of(end - 1) + 1;
    kv_byte = call.slots[sequence] * call.slot_bytes + kv_head * call.head_bytes;
  }

  __device__ __forceinline__ int position_of(int row) const { return first_position + row / queries; }
  /// The first element of a row in q or out, whose tokens are `stride` elements apart.
  __device__ __forceinline__ int64_t element_of(int row, int64_t stride, int head_dim) const {
    return (first_token + row / queries) * stride + static_cast<int64_t>(first_query + row % queries) * head_dim;
  }
};

/// Where a tile of `positions` keys and as many values lies in shared memory; in quads of 16 bytes.
struct KvTile {
  int positions;
  int row_quads;    // of a row that are used; those past the head's own are zeros
  int key_quads;    // from one key to the next
  int value_quads;  // from one value to the next
  __host__ __device__ int quads() const { return positions * (key_quads + value_quads); }
};

/// Starts the copies of the tile that begins at position `first`, one group; the whole block calls. Positions from
/// work.positions on become zeros.
__device__ __forceinline__ void copy_kv_tile(const PrefillCall& call, const PrefillWork& work, const KvTile& layout,
                                             int head_quads, int first, uint4* tile) {
  // A turn's next quad is row_step rows and quad_step quads further on: no division within the loop.
  const auto threads = static_cast<int>(blockDim.x);
  int row = static_cast<int>(threadIdx.x) / layout.row_quads;
  int quad = static_cast<int>(threadIdx.x) - row * layout.row_quads;
  const int row_step = threads / layout.row_quads;
  const int quad_step = threads - row_step * layout.row_quads;
  while (row < layout.positions) {
    const bool there = first + row < work.positions && quad < head_quads;
    const int64_t from = there ? work.kv_byte + (first + row) * call.position_bytes + quad * 16 : 0;
    cp_async16(tile + row * layout.key_quads + quad, call.keys + from, there);
    cp_async16(tile + layout.positions * layout.key_quads + row * layout.value_quads + quad, call.values + from, there);
    row += row_step;
    quad += quad_step;
    if (quad >= layout.row_quads) {
      quad -= layout.row_quads;
      ++row;
    }
  }
  cp_async_commit();
}

}  // namespace shardscope::cuda
