// What decode_attention's kernel is told, which part of it a block has, and the new token: its queries, key and value.
#pragma once

#include "kernels/cuda/attention_tile.cuh"
#include "kernels/cuda/operation_stamps.cuh"
#include "kernels/cuda/rotary.cuh"

namespace shardscope::cuda {

constexpr int kMaxWarps = 4;
// Of a block, if the sequence has them. Merging is not free: of 64 positions of 128 dims in 16 bits a block reads 32
// KiB, and then its part, 2 KiB for 4 queries, is written and read again by one block that reads those of all others.
constexpr int kLeastPositions = 128;

/// A kernel's view of the arguments.
struct DecodeCall {
  const void* qkv;
  const float2* rotary;
  unsigned char* keys;
  unsigned char* values;
  const int32_t* lengths;
  const int32_t* slots;
  void* out;
  uint32_t* finished;       // [unit] blocks; a unit is a sequence, KV head and tile of queries
  float* parts;             // [unit][split][query][head_dim], not yet divided by the sum
  float2* statistics;       // [unit][split][query] maximum and sum
  OperationStamps* stamps;  // or null
  int64_t qkv_stride;
  int64_t out_stride;
  int64_t slot_bytes;
  int64_t head_bytes;
  int64_t position_bytes;
  float scale;  // times log2(e): exponentials are of base 2
  DType dtype;
  int head_dim;
  int rotary_pairs;
  int kv_heads;
  int queries_per_kv;
  int first_query_head;
  int query_heads;
  int first_kv_head;
  bool in_fours;  // heads can be loaded 4 dims at a time
};

/// The part of the work that a block has, from the launch's coordinates and the sequence's length.
struct DecodeWork {
  int sequence;
  int kv_head;
  int unit;
  int first_query;  // of this rank
  int queries;      // 0 where a ragged group has none for this tile
  int length;
  int begin;  // positions
  int end;
  int active;    // blocks that have positions of this unit
  bool appends;  // of the units of this sequence and KV head, the one that stores the new key and value

  __device__ DecodeWork(const DecodeCall& call, int tile_queries) {
    const int group_tiles = (call.queries_per_kv + tile_queries - 1) / tile_queries;
    const int group_tile = static_cast<int>(blockIdx.y) % group_tiles;
    sequence = static_cast<int>(blockIdx.z);
    kv_head = static_cast<int>(blockIdx.y) / group_tiles;
    unit = sequence * static_cast<int>(gridDim.y) + static_cast<int>(blockIdx.y);
    appends = group_tile == 0;  // tiles are dealt from the group's first query here, so this one has queries
    const int group = (call.first_kv_head + kv_head) * call.queries_per_kv;
    const int group_begin = max(group, call.first_query_head);
    const int group_end = min(group + call.queries_per_kv, call.first_query_head + call.query_heads);
    const int from = group_begin + group_tile * tile_queries;
    first_query = from - call.first_query_head;
    queries = max(0, min(tile_queries, group_end - from));

    length = max(0, call.lengths[sequence]);
    const int splits = static_cast<int>(gridDim.x);
    const int share = (length + splits - 1) / splits;
    const int round = kMaxWarps * kTile;
    const int positions = max(kLeastPositions, (share + round - 1) / round * round);
    active = (length + positions - 1) / positions;
    begin = min(length, static_cast<int>(blockIdx.x) * positions);
    end = min(length, begin + positions);
  }

  /// Whether the new token's position is one of this block's.
  __device__ __forceinline__ bool has_new() const { return end == length; }
  __device__ __forceinline__ const float2* angles(const DecodeCall& call) const {
    return call.rotary + static_cast<int64_t>(sequence) * call.rotary_pairs;
  }
};

/// kCount adjacent elements, aligned where they are several.
template <class Element, int kCount>
__device__ __forceinline__ void store_rounded(Element* to, const float (&values)[kCount]) {
  if constexpr (kCount == 1) {
    *to = from_float<Element>(values[0]);
  } else {
    Packed<Element, kCount>::pack(values).store(to);
  }
}

/// The block's queries, rotated and scaled, in shared memory [query][shared_dim], zeros where it has fewer; and, where
/// it has the new position, the new token's key, rotated, and value, rounded to the cache's type, in shared memory
/// [2][head_dim] at places.new_row, in the order of the cache. One unit's block stores those two in the cache too, from
/// `target` bytes on. Nobody reads them there in this launch: blocks do not wait for each other. In fours 4 queries,
/// the key and the value of 128 dims are 96 items: one each for the threads of a block.
template <class Element, int kQueries, int kCount>
__device__ __forceinline__ void stage_token(const DecodeCall& call, const DecodeWork& work,
                                            const AttentionPlaces& places, int64_t target, float* shared) {
  const int head_items = HeadItem<kCount>::count(call.head_dim, call.rotary_pairs);
  const int heads = work.has_new() ? kQueries + 2 : kQueries;
  for (int number = static_cast<int>(threadIdx.x); number < heads * head_items;
       number += static_cast<int>(blockDim.x)) {
    const int head = number / head_items;  // of the queries, the key and the value
    const HeadItem<kCount> item(number - head * head_items, call.rotary_pairs);
    const bool value = head == kQueries + 1;
    const int row_head =
        head < kQueries ? work.first_query + head : call.query_heads + work.kv_head + (value ? call.kv_heads : 0);
    float dims[kCount] = {};
    float partners[kCount] = {};
    if (head < work.queries || head >= kQueries) {
      load_item(call.qkv, call.dtype, work.sequence * call.qkv_stride + static_cast<int64_t>(row_head) * call.head_dim,
                item, value ? nullptr : work.angles(call), dims, partners);
    }
    if (head < kQueries) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        dims[i] *= call.scale;
        partners[i] *= call.scale;
      }
      float* query = shared + head * call.head_dim;
      store_rounded(query + shared_dim<Element>(item.dim, places.pieces), dims);
      if (item.paired) store_rounded(query + shared_dim<Element>(item.partner, places.pieces), partners);
      continue;
    }
    Element* row = reinterpret_cast<Element*>(shared + places.new_row) + (value ? call.head_dim : 0);
    store_rounded(row + item.dim, dims);
    if (item.paired) store_rounded(row + item.partner, partners);
    if (!work.appends) continue;
    Element* cached = reinterpret_cast<Element*>((value ? call.values : call.keys) + target);
    store_rounded(cached + item.dim, dims);
    if (item.paired) store_rounded(cached + item.partner, partners);
  }
}

/// Puts the new key and value into row `row` of a tile; one warp calls.
__device__ __forceinline__ void place_new(const AttentionPlaces& places, const uint4* new_row, int row, uint4* tile) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  for (int quad = lane; quad < places.row_quads; quad += kWarpSize) {
    store16(tile + row * places.key_quads + quad, load16(new_row + quad));
    store16(tile + kTile * places.key_quads + row * places.row_quads + quad, load16(new_row + places.row_quads + quad));
  }
}

}  // namespace shardscope::cuda
