// Rotary embedding, appending and attention of one token per sequence, split over the positions. A block takes a range
// of the positions of one sequence and KV head, for up to 8 queries of the group at once, so that keys and values are
// read once. Within it each warp works alone, on 8 positions at a time, with a running softmax (arXiv:1805.02867):
// tiles of 8 keys and 8 values come by cp.async, two tiles ahead of the one in use. At the end the warps' results are
// merged; where several blocks share a sequence, each leaves its part in the workspace, and the last to finish puts
// them together (a counter that returns to 0, so that the next launch finds it as this one did).
//
//   scores:  lane = position % 8 + 8 * slice; a slice is every fourth piece of 8 dims; q is in shared memory
//   values:  lane = piece of 8 dims + pieces * subset; a subset is every n-th position; results are in registers
//
// Every block turns its own queries, while the first tiles are on their way. Every block that has the new position
// makes the new key and value too, and takes them from its shared memory, so that it need not wait for the one that
// writes them to the cache: a few hundred elements of qkv, from L2, instead of a launch of its own.
//
// Bytes: (length - 1) * head_dim * 2 * the element's size for each sequence and KV head (and tile of 8 queries). 16
// bytes a lane and copy; with head_dim 128 in 16 bits a block of 4 warps has 32 KiB in flight. A multiprocessor of H100
// holds four such blocks, or three that take 4 queries or more: those need more registers.
//
// Launch: (splits, kv_heads * tiles of queries, sequences) blocks of 4 warps, fewer where tiles are large. The grid
// depends on the shape only: lengths are read here, and blocks without positions end at once.
#include "kernels/cuda/decode_attention.hpp"

#include "kernels/cuda/decode_merge.cuh"
#include "kernels/cuda/device_limits.hpp"

namespace shardscope::cuda {
namespace {

constexpr int kMaxQueries = 8;
constexpr int kMaxSplits = 128;
constexpr int kMaxHeadDim = 256;
constexpr int64_t kWantedBlocks = 4;            // on each multiprocessor
constexpr size_t kMostSharedBytes = 96 * 1024;  // what a block may have on every GPU from sm_80 on, but 3 KiB

template <class Element, int kQueries>
__device__ __forceinline__ void attend(const DecodeCall& call, const DecodeWork& work, float* shared) {
  const int warps = static_cast<int>(blockDim.x) / kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const AttentionPlaces places(call.head_dim, sizeof(Element), kQueries, warps, static_cast<int>(gridDim.x));
  const int64_t head = call.slots[work.sequence] * call.slot_bytes + work.kv_head * call.head_bytes;
  const int cached = min(work.end, work.length - 1);  // the new position is not in the cache yet
  const AttentionLane lane(places);
  uint4* tiles = reinterpret_cast<uint4*>(shared + places.tiles) + warp * kStages * places.stage_quads;
  const auto first_position = [&](int tile) { return work.begin + (tile * warps + warp) * kTile; };
  const auto copy = [&](int tile) {
    const int first = first_position(tile);
    const int64_t from = head + first * call.position_bytes;
    if (first < work.end) {
      copy_tile({call.keys + from, call.values + from, call.position_bytes}, places, lane, cached - first,
                tiles + tile % kStages * places.stage_quads);
    }
    cp_async_commit();
  };
  for (int tile = 0; tile < kStages - 1; ++tile) copy(tile);

  const int64_t target = head + (work.length - 1) * call.position_bytes;
  if (call.in_fours) {
    stage_token<Element, kQueries, 4>(call, work, places, target, shared);
  } else {
    stage_token<Element, kQueries, 1>(call, work, places, target, shared);
  }
  const uint4* new_row = reinterpret_cast<const uint4*>(shared + places.new_row);
  __syncthreads();

  AttentionRunning<kQueries> running{};
#pragma unroll
  for (float& maximum : running.maximum) maximum = -INFINITY;
  float* weights = shared + places.weights + warp * places.weight_floats;
  for (int tile = 0; first_position(tile) < work.end; ++tile) {
    cp_async_wait<kStages - 2>();
    __syncwarp();  // the tile is there for all lanes, and all have done with the one before
    copy(tile + kStages - 1);
    uint4* current = tiles + tile % kStages * places.stage_quads;
    const int row_of_new = work.length - 1 - first_position(tile);
    if (row_of_new < kTile) {  // the same in all lanes
      place_new(places, new_row, row_of_new, current);
      __syncwarp();
    }
    const bool changed =
        weigh_tile<Element>(places, shared, current, work.end - first_position(tile), weights, running);
    __syncwarp();
    add_values<Element>(places, lane, current, weights, changed, running);
  }
  cp_async_wait<0>();
  __syncthreads();  // the results take the place of the tiles
  leave_results(places, lane, warp, shared, running);
  __syncthreads();
  const DecodeWork again(call, kQueries);  // made anew: `work` would be kept in registers all through the loop
  merge<Element, kQueries>(call, again, places, shared);
  if (again.active > 1 && last_of_unit(call, again)) combine(call, again, kQueries, shared + places.tiles);
}

/// Blocks that a multiprocessor is to hold, which bounds registers. With fp32 tiles of 128 dims its shared memory has
/// no room for more than two either. sm_120 has half the shared memory, and there 8 queries would spill with three.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200
inline constexpr int kBlocksOfMostQueries = 2;
#else
inline constexpr int kBlocksOfMostQueries = 3;
#endif
template <class Element, int kQueries>
inline constexpr int kBlocksAtOnce = kQueries == kMaxQueries ? (sizeof(Element) == 4 ? 2 : kBlocksOfMostQueries)
                                     : sizeof(Element) == 4  ? 3
                                                             : (kQueries < 4 ? 4 : 3);

template <class Element, int kQueries>
__global__ void __launch_bounds__(kMaxWarps* kWarpSize, kBlocksAtOnce<Element, kQueries>)
    decode_attention_kernel(DecodeCall call) {
  SHARDSCOPE_DYNAMIC_SHARED(float, shared);
  mark_begin(call.stamps);
  grid_dependency_wait();
  grid_dependency_launch();
  const DecodeWork work(call, kQueries);
  if (work.begin < work.end && (work.queries > 0 || work.appends)) {  // the same in all threads of the block
    attend<Element, kQueries>(call, work, shared);
  } else if (work.active == 0 && blockIdx.x == 0) {
    for (int item = static_cast<int>(threadIdx.x); item < work.queries * call.head_dim;
         item += static_cast<int>(blockDim.x)) {
      store_element(call.out, call.dtype,
                    work.sequence * call.out_stride + static_cast<int64_t>(work.first_query) * call.head_dim + item,
                    0.0f);
    }
  }
  mark_end(call.stamps);
}

// ---- host -----------------------------------------------------------------------------------------------------------

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
  const bool shape = plain_float(s.dtype) && s.head_dim > 0 && s.head_dim <= kMaxHeadDim && s.head_dim % kPiece == 0 &&
                     s.rotary_dims >= 0 && s.rotary_dims <= s.head_dim && s.rotary_dims % 2 == 0 &&
                     s.queries_per_kv > 0 && s.queries_per_kv <= kMostHeads && s.first_query_head >= 0 &&
                     s.query_heads >= 0 && s.first_query_head + s.query_heads <= kMostHeads && s.first_kv_head >= 0 &&
                     s.kv_heads >= 0 && s.first_kv_head + s.kv_heads <= kMostHeads && s.sequences >= 0 &&
                     s.sequences <= kMostGrid && s.kv_heads * group_tiles(s) <= kMostGrid;
  const auto covered = [&] {  // each query head's KV head is here
    return s.query_heads == 0 ||
           (s.first_kv_head <= s.first_query_head / s.queries_per_kv &&
            (s.first_query_head + s.query_heads - 1) / s.queries_per_kv < s.first_kv_head + s.kv_heads);
  };
  return shape && covered() && a.plan.splits >= 1 && a.plan.splits <= kMaxSplits && a.kv.dtype == s.kv_dtype &&
         well_formed(a.kv, s.head_dim) && aligned16(a.workspace) &&
         a.qkv_stride >= (s.query_heads + 2 * s.kv_heads) * s.head_dim && a.out_stride >= s.query_heads * s.head_dim &&
         (a.plan.splits == 1 || a.workspace != nullptr);
}

template <class Element, int kQueries>
cudaError_t launch_attention(const DecodeAttention& a, const DecodeCall& call, cudaStream_t stream) {
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
cudaError_t launch_for_group(const DecodeAttention& a, const DecodeCall& call, cudaStream_t stream) {
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
  if (shape.sequences == 0 || shape.kv_heads == 0) return cudaSuccess;
  constexpr float kLog2OfE = 1.44269504f;
  unsigned char* const workspace = static_cast<unsigned char*>(arguments.workspace);
  const bool shared_units = arguments.plan.splits > 1;
  const int64_t part_bytes = units(shape) * arguments.plan.splits * tile_queries(shape) * shape.head_dim * 4;
  const DecodeCall call{
      .qkv = arguments.qkv,
      .rotary = arguments.rotary,
      .keys = static_cast<unsigned char*>(arguments.kv.keys),
      .values = static_cast<unsigned char*>(arguments.kv.values),
      .lengths = arguments.lengths,
      .slots = arguments.slots,
      .out = arguments.out,
      .finished = reinterpret_cast<uint32_t*>(workspace),
      .parts = shared_units ? reinterpret_cast<float*>(workspace + counter_bytes(shape)) : nullptr,
      .statistics = shared_units ? reinterpret_cast<float2*>(workspace + counter_bytes(shape) + part_bytes) : nullptr,
      .stamps = arguments.stamps,
      .qkv_stride = arguments.qkv_stride,
      .out_stride = arguments.out_stride,
      .slot_bytes = arguments.kv.slot_stride * bytes_of(shape.kv_dtype),
      .head_bytes = arguments.kv.head_stride * bytes_of(shape.kv_dtype),
      .position_bytes = arguments.kv.position_stride * bytes_of(shape.kv_dtype),
      .scale = arguments.scale * kLog2OfE,
      .dtype = shape.dtype,
      .head_dim = static_cast<int>(shape.head_dim),
      .rotary_pairs = static_cast<int>(shape.rotary_dims / 2),
      .kv_heads = static_cast<int>(shape.kv_heads),
      .queries_per_kv = static_cast<int>(shape.queries_per_kv),
      .first_query_head = static_cast<int>(shape.first_query_head),
      .query_heads = static_cast<int>(shape.query_heads),
      .first_kv_head = static_cast<int>(shape.first_kv_head),
      .in_fours = shape.rotary_dims / 2 % 4 == 0 && arguments.qkv_stride % 4 == 0 && aligned16(arguments.qkv) &&
                  aligned16(arguments.rotary),
  };
  if (shape.kv_dtype == DType::kF32) return launch_for_group<float>(arguments, call, stream);
  if (shape.kv_dtype == DType::kF16) return launch_for_group<__half>(arguments, call, stream);
  return launch_for_group<__nv_bfloat16>(arguments, call, stream);
}

}  // namespace shardscope::cuda
