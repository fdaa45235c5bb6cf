// Attention of one query token per sequence, split over the positions. A block takes a range of the positions of one
// sequence and KV head, for up to 8 queries of the group at once, so that keys and values are read once. Within it each
// warp works alone, on 8 positions at a time, with a running softmax (arXiv:1805.02867): tiles of 8 keys and 8 values
// come by cp.async, two tiles ahead of the one in use. At the end the warps' results are merged; where several blocks
// share a sequence, each leaves its part in the workspace, and the last to finish puts them together (a counter that
// returns to 0, so that the next launch finds it as this one did).
//
//   scores:  lane = position % 8 + 8 * slice; a slice is every fourth piece of 8 dims; q is in shared memory
//   values:  lane = piece of 8 dims + pieces * subset; a subset is every n-th position; results are in registers
//
// Bytes: length * head_dim * 2 * the element's size for each sequence and KV head (and tile of 8 queries). 16 bytes a
// lane and copy; with head_dim 128 in 16 bits a block of 4 warps has 32 KiB in flight. A multiprocessor of H100 holds
// four such blocks, or three that take 8 queries: those need more registers.
//
// Launch: (splits, kv_heads * tiles of queries, sequences) blocks of 4 warps, fewer where tiles are large. The grid
// depends on the shape only: lengths are read here, and blocks without positions end at once.
#include "kernels/cuda/decode_attention.hpp"

#include "kernels/cuda/attention_tile.cuh"
#include "kernels/cuda/device_limits.hpp"

namespace shardscope::cuda {
namespace {

constexpr int kMaxWarps = 4;
constexpr int kMaxQueries = 8;
constexpr int kMaxSplits = 128;
constexpr int kMaxHeadDim = 256;
constexpr int kLeastPositions = 64;             // of a block, if the sequence has them: merging is not free
constexpr int64_t kWantedBlocks = 4;            // on each multiprocessor
constexpr size_t kMostSharedBytes = 96 * 1024;  // what a block may have on every GPU from sm_80 on, but 3 KiB

/// A kernel's view of the arguments.
struct AttentionCall {
  const void* q;
  const unsigned char* keys;
  const unsigned char* values;
  const int32_t* lengths;
  const int32_t* slots;
  void* out;
  uint32_t* finished;  // [unit] blocks; a unit is a sequence, KV head and tile of queries
  float* parts;        // [unit][split][query][head_dim], not yet divided by the sum
  float2* statistics;  // [unit][split][query] maximum and sum
  int64_t q_stride;
  int64_t out_stride;
  int64_t slot_bytes;
  int64_t head_bytes;
  int64_t position_bytes;
  float scale;  // times log2(e): exponentials are of base 2
  DType dtype;
  int head_dim;
  int kv_heads;
  int queries_per_kv;
  int first_query_head;
  int query_heads;
  int first_kv_head;
};

/// The part of the work that a block has, from the launch's coordinates and the sequence's length.
struct Work {
  int sequence;
  int kv_head;
  int unit;
  int first_query;  // of this rank
  int queries;      // 0 where a ragged group has none for this tile
  int begin;        // positions
  int end;
  int active;  // blocks that have positions of this unit

  __device__ Work(const AttentionCall& call, int tile_queries) {
    const int group_tiles = (call.queries_per_kv + tile_queries - 1) / tile_queries;
    sequence = static_cast<int>(blockIdx.z);
    kv_head = static_cast<int>(blockIdx.y) / group_tiles;
    unit = sequence * static_cast<int>(gridDim.y) + static_cast<int>(blockIdx.y);
    const int group = (call.first_kv_head + kv_head) * call.queries_per_kv;
    const int group_begin = max(group, call.first_query_head);
    const int group_end = min(group + call.queries_per_kv, call.first_query_head + call.query_heads);
    const int from = group_begin + static_cast<int>(blockIdx.y) % group_tiles * tile_queries;
    first_query = from - call.first_query_head;
    queries = max(0, min(tile_queries, group_end - from));

    const int length = max(0, call.lengths[sequence]);
    const int splits = static_cast<int>(gridDim.x);
    const int share = (length + splits - 1) / splits;
    const int round = kMaxWarps * kTile;
    const int positions = max(kLeastPositions, (share + round - 1) / round * round);
    active = (length + positions - 1) / positions;
    begin = min(length, static_cast<int>(blockIdx.x) * positions);
    end = min(length, begin + positions);
  }
};

/// Leaves each warp's maximum and sum, and each subset's values, in shared memory. The tiles are no longer needed.
template <int kQueries>
__device__ __forceinline__ void leave_results(const AttentionPlaces& places, int warp, float* shared,
                                              AttentionRunning<kQueries>& running) {
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
  const int piece = lane % places.pieces;
  const int subset = lane / places.pieces;
  if (subset < places.subsets) {
    float* values = shared + places.tiles + (warp * places.subsets + subset) * kQueries * places.pieces * kPiece;
#pragma unroll
    for (int query = 0; query < kQueries; ++query) {
      const float(&of_query)[kPiece] = running.values[query];
      float* to = values + (2 * query * places.pieces + piece) * 4;
      store16(to, as_uint4(make_float4(of_query[0], of_query[1], of_query[2], of_query[3])));
      store16(to + 4 * places.pieces, as_uint4(make_float4(of_query[4], of_query[5], of_query[6], of_query[7])));
    }
  }
}

/// Puts the parts of all active blocks of a unit together; the whole block calls, after it has seen them all.
__device__ __forceinline__ void combine(const AttentionCall& call, const Work& work, int tile_queries, float* shares) {
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
  for (int item = static_cast<int>(threadIdx.x); item < work.queries * call.head_dim;
       item += static_cast<int>(blockDim.x)) {
    const int query = item / call.head_dim;
    const float* part = call.parts + first_part * call.head_dim + item;
    float value = 0;
    for (int i = 0; i < work.active; ++i) {
      value += shares[query * work.active + i] * part[static_cast<int64_t>(i) * tile_queries * call.head_dim];
    }
    store_element(call.out, call.dtype,
                  work.sequence * call.out_stride + static_cast<int64_t>(work.first_query) * call.head_dim + item,
                  value);
  }
}

/// Merges the warps' results into the output or, where other blocks share the unit, into the workspace.
template <class Element, int kQueries>
__device__ __forceinline__ void merge(const AttentionCall& call, const Work& work, const AttentionPlaces& places,
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
__device__ __forceinline__ bool last_of_unit(const AttentionCall& call, const Work& work) {
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

template <class Element, int kQueries>
__device__ __forceinline__ void attend(const AttentionCall& call, const Work& work, float* shared) {
  const int warps = static_cast<int>(blockDim.x) / kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const AttentionPlaces places(call.head_dim, sizeof(Element), kQueries, warps, static_cast<int>(gridDim.x));
  const int slot = call.slots == nullptr ? work.sequence : call.slots[work.sequence];
  const int64_t head = slot * call.slot_bytes + work.kv_head * call.head_bytes;
  uint4* tiles = reinterpret_cast<uint4*>(shared + places.tiles) + warp * kStages * places.stage_quads;
  const auto first_position = [&](int tile) { return work.begin + (tile * warps + warp) * kTile; };
  const auto copy = [&](int tile) {
    const int first = first_position(tile);
    const int64_t from = head + first * call.position_bytes;
    if (first < work.end) {
      copy_tile({call.keys + from, call.values + from, call.position_bytes}, places, work.end - first,
                tiles + tile % kStages * places.stage_quads);
    }
    cp_async_commit();
  };
  for (int tile = 0; tile < kStages - 1; ++tile) copy(tile);

  for (int item = static_cast<int>(threadIdx.x); item < kQueries * call.head_dim;
       item += static_cast<int>(blockDim.x)) {
    const int query = item / call.head_dim;
    const int64_t from = work.sequence * call.q_stride + static_cast<int64_t>(work.first_query) * call.head_dim + item;
    const float value = query < work.queries ? load_element(call.q, call.dtype, from) * call.scale : 0.0f;
    shared[query * call.head_dim + shared_dim<Element>(item % call.head_dim, places.pieces)] = value;
  }
  __syncthreads();

  AttentionRunning<kQueries> running{};
#pragma unroll
  for (float& maximum : running.maximum) maximum = -INFINITY;
  float* weights = shared + places.weights + warp * places.weight_floats;
  for (int tile = 0; first_position(tile) < work.end; ++tile) {
    cp_async_wait<kStages - 2>();
    __syncwarp();  // the tile is there for all lanes, and all have done with the one before
    copy(tile + kStages - 1);
    const uint4* current = tiles + tile % kStages * places.stage_quads;
    const bool changed =
        weigh_tile<Element>(places, shared, current, work.end - first_position(tile), weights, running);
    __syncwarp();
    add_values<Element>(places, current, weights, changed, running);
  }
  cp_async_wait<0>();
  __syncthreads();  // the results take the place of the tiles
  leave_results(places, warp, shared, running);
  __syncthreads();
  merge<Element, kQueries>(call, work, places, shared);
  if (work.active > 1 && last_of_unit(call, work)) combine(call, work, kQueries, shared + places.tiles);
}

template <class Element, int kQueries>
__global__ void __launch_bounds__(kMaxWarps* kWarpSize, kQueries * sizeof(Element) >= 8 ? 3 : 4)
    decode_attention_kernel(AttentionCall call) {
  SHARDSCOPE_DYNAMIC_SHARED(float, shared);
  grid_dependency_wait();
  grid_dependency_launch();
  const Work work(call, kQueries);
  if (work.begin < work.end && work.queries > 0) {  // the same in all threads of the block
    attend<Element, kQueries>(call, work, shared);
  } else if (work.active == 0 && blockIdx.x == 0) {
    for (int item = static_cast<int>(threadIdx.x); item < work.queries * call.head_dim;
         item += static_cast<int>(blockDim.x)) {
      store_element(call.out, call.dtype,
                    work.sequence * call.out_stride + static_cast<int64_t>(work.first_query) * call.head_dim + item,
                    0.0f);
    }
  }
}

// ---- host -----------------------------------------------------------------------------------------------------------

int64_t bytes_of(DType dtype) {
  return dtype == DType::kF32 ? 4 : 2;
}

bool plain(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

/// Queries that a block takes at once: enough for the group, at most 8.
int64_t tile_queries(const DecodeAttentionShape& shape) {
  int64_t queries = 1;
  while (queries < shape.queries_per_kv && queries < kMaxQueries) queries *= 2;
  return queries;
}

int64_t group_tiles(const DecodeAttentionShape& shape) {
  return (shape.queries_per_kv + tile_queries(shape) - 1) / tile_queries(shape);
}

int64_t units(const DecodeAttentionShape& shape) {
  return shape.sequences * shape.kv_heads * group_tiles(shape);
}

int64_t counter_bytes(const DecodeAttentionShape& shape) {
  return (units(shape) * static_cast<int64_t>(sizeof(uint32_t)) + 127) / 128 * 128;
}

bool valid(const DecodeAttention& a) {
  const DecodeAttentionShape& s = a.shape;
  constexpr int64_t kMostGrid = 65535;  // in y and z, CUDA C++ Programming Guide, "Technical Specifications"
  constexpr int64_t kMostHeads = 1 << 20;
  const auto aligned = [](const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; };
  const auto whole = [&](int64_t stride) { return stride >= 0 && stride * bytes_of(s.kv_dtype) % 16 == 0; };
  const bool shape = plain(s.kv_dtype) && plain(s.dtype) && s.head_dim > 0 && s.head_dim <= kMaxHeadDim &&
                     s.head_dim % kPiece == 0 && s.queries_per_kv > 0 && s.queries_per_kv <= kMostHeads &&
                     s.first_query_head >= 0 && s.query_heads >= 0 &&
                     s.first_query_head + s.query_heads <= kMostHeads && s.first_kv_head >= 0 && s.kv_heads >= 0 &&
                     s.first_kv_head + s.kv_heads <= kMostHeads && s.sequences >= 0 && s.sequences <= kMostGrid &&
                     s.kv_heads * group_tiles(s) <= kMostGrid;
  const auto covered = [&] {  // each query head's KV head is here
    return s.query_heads == 0 ||
           (s.first_kv_head <= s.first_query_head / s.queries_per_kv &&
            (s.first_query_head + s.query_heads - 1) / s.queries_per_kv < s.first_kv_head + s.kv_heads);
  };
  return shape && covered() && a.plan.splits >= 1 && a.plan.splits <= kMaxSplits && aligned(a.keys) &&
         aligned(a.values) && aligned(a.workspace) && whole(a.slot_stride) && whole(a.head_stride) &&
         whole(a.position_stride) && a.position_stride >= s.head_dim && a.q_stride >= s.query_heads * s.head_dim &&
         a.out_stride >= s.query_heads * s.head_dim && (a.plan.splits == 1 || a.workspace != nullptr);
}

template <class Element, int kQueries>
cudaError_t launch_attention(const DecodeAttention& a, const AttentionCall& call, cudaStream_t stream) {
  const DecodeAttentionShape& shape = a.shape;
  int warps = kMaxWarps;
  const auto shared_bytes = [&] {
    return sizeof(float) *
           AttentionPlaces(call.head_dim, sizeof(Element), kQueries, warps, static_cast<int>(a.plan.splits)).total;
  };
  while (warps > 1 && shared_bytes() > kMostSharedBytes) warps /= 2;
  const auto kernel = decode_attention_kernel<Element, kQueries>;
  if (shared_bytes() > kSharedWithoutAsking) {
    if (const cudaError_t error = allow_shared_bytes(kernel, shared_bytes()); error != cudaSuccess) return error;
  }
  return launch(Launch{.grid = dim3(static_cast<unsigned>(a.plan.splits),
                                    static_cast<unsigned>(shape.kv_heads * group_tiles(shape)),
                                    static_cast<unsigned>(shape.sequences)),
                       .block = dim3(static_cast<unsigned>(warps * kWarpSize)),
                       .shared_bytes = shared_bytes(),
                       .stream = stream,
                       .programmatic = a.programmatic},
                kernel, call);
}

template <class Element>
cudaError_t launch_for_group(const DecodeAttention& a, const AttentionCall& call, cudaStream_t stream) {
  const int64_t queries = tile_queries(a.shape);
  if (queries == 1) return launch_attention<Element, 1>(a, call, stream);
  if (queries == 2) return launch_attention<Element, 2>(a, call, stream);
  if (queries == 4) return launch_attention<Element, 4>(a, call, stream);
  return launch_attention<Element, kMaxQueries>(a, call, stream);
}

}  // namespace

DecodeAttentionPlan plan_decode_attention(const DecodeAttentionShape& shape, int64_t multiprocessors) {
  DecodeAttentionPlan plan;
  if (units(shape) == 0) return plan;
  const int64_t wanted = (kWantedBlocks * multiprocessors + units(shape) - 1) / units(shape);
  const int64_t possible = (shape.max_length + kLeastPositions - 1) / kLeastPositions;
  plan.splits = wanted < possible ? wanted : possible;
  plan.splits = plan.splits < 1 ? 1 : plan.splits > kMaxSplits ? kMaxSplits : plan.splits;
  if (plan.splits > 1) {
    const int64_t parts = units(shape) * plan.splits * tile_queries(shape);
    plan.workspace_bytes = counter_bytes(shape) + parts * (shape.head_dim + 2) * static_cast<int64_t>(sizeof(float));
  }
  return plan;
}

cudaError_t decode_attention(const DecodeAttention& arguments, cudaStream_t stream) {
  if (!valid(arguments)) return cudaErrorInvalidValue;
  const DecodeAttentionShape& shape = arguments.shape;
  if (shape.sequences == 0 || shape.kv_heads == 0 || shape.query_heads == 0) return cudaSuccess;
  constexpr float kLog2OfE = 1.44269504f;
  unsigned char* const workspace = static_cast<unsigned char*>(arguments.workspace);
  const bool shared_units = arguments.plan.splits > 1;
  const int64_t part_bytes = units(shape) * arguments.plan.splits * tile_queries(shape) * shape.head_dim * 4;
  const AttentionCall call{
      .q = arguments.q,
      .keys = static_cast<const unsigned char*>(arguments.keys),
      .values = static_cast<const unsigned char*>(arguments.values),
      .lengths = arguments.lengths,
      .slots = arguments.slots,
      .out = arguments.out,
      .finished = reinterpret_cast<uint32_t*>(workspace),
      .parts = shared_units ? reinterpret_cast<float*>(workspace + counter_bytes(shape)) : nullptr,
      .statistics = shared_units ? reinterpret_cast<float2*>(workspace + counter_bytes(shape) + part_bytes) : nullptr,
      .q_stride = arguments.q_stride,
      .out_stride = arguments.out_stride,
      .slot_bytes = arguments.slot_stride * bytes_of(shape.kv_dtype),
      .head_bytes = arguments.head_stride * bytes_of(shape.kv_dtype),
      .position_bytes = arguments.position_stride * bytes_of(shape.kv_dtype),
      .scale = arguments.scale * kLog2OfE,
      .dtype = shape.dtype,
      .head_dim = static_cast<int>(shape.head_dim),
      .kv_heads = static_cast<int>(shape.kv_heads),
      .queries_per_kv = static_cast<int>(shape.queries_per_kv),
      .first_query_head = static_cast<int>(shape.first_query_head),
      .query_heads = static_cast<int>(shape.query_heads),
      .first_kv_head = static_cast<int>(shape.first_kv_head),
  };
  if (shape.kv_dtype == DType::kF32) return launch_for_group<float>(arguments, call, stream);
  if (shape.kv_dtype == DType::kF16) return launch_for_group<__half>(arguments, call, stream);
  return launch_for_group<__nv_bfloat16>(arguments, call, stream);
}

}  // namespace shardscope::cuda
