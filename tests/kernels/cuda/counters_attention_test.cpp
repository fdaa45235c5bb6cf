// What attention and appending load and store, counted by the checked emulation: keys and values are read once, in
// whole sectors, and shared memory has few bank conflicts. In the plain mode nothing is counted.
#include <catch2/catch.hpp>

#include "kernels/cuda/decode_attention.hpp"
#include "kernels/cuda/prefill_attention.hpp"
#include "kernels/cuda/rope_append.hpp"
#include "tests/kernels/cuda/counting.hpp"
#include "tests/kernels/cuda/kv_on_device.hpp"

using namespace shardscope;
using namespace shardscope::test;
using emulation::KernelCounters;
using kernels::DType;

namespace {

KernelCounters decode_counters(DType kv_dtype, int64_t head_dim, int64_t queries, int64_t multiprocessors,
                               int64_t length) {
  return counters_of("decode_attention_kernel", [&] {
    const cuda::DecodeAttentionShape shape{.kv_dtype = kv_dtype,
                                           .head_dim = head_dim,
                                           .rotary_dims = head_dim,
                                           .queries_per_kv = queries,
                                           .query_heads = queries,
                                           .kv_heads = 1,
                                           .sequences = 1,
                                           .max_length = length};
    const int64_t width = (queries + 2) * head_dim;
    const DeviceArray<float> qkv(random_values(width, 1));
    const DeviceArray<float2> rotary(random_angles(head_dim / 2, 2));
    const KvOnDevice cache({.dtype = kv_dtype, .heads = 1, .positions = length, .head_dim = head_dim, .room = 0});
    cache.fill(0, length - 1, 3);
    const DeviceArray<int32_t> lengths(std::vector<int32_t>{static_cast<int32_t>(length)});
    const DeviceArray<int32_t> slots(std::vector<int32_t>{0});
    const DeviceArray<float> out(queries * head_dim);
    const cuda::DecodeAttentionPlan plan = cuda::plan_decode_attention(shape, multiprocessors);
    const auto workspace = DeviceArray<std::byte>::zeros(plan.workspace_bytes);
    emulation::label(cache.view().keys, "kv");
    emulation::label(cache.view().values, "kv");
    check_cuda(cuda::decode_attention({.shape = shape,
                                       .plan = plan,
                                       .scale = 0.1F,
                                       .qkv = qkv.data(),
                                       .qkv_stride = width,
                                       .rotary = rotary.data(),
                                       .kv = cache.view(),
                                       .lengths = lengths.data(),
                                       .slots = slots.data(),
                                       .out = out.data(),
                                       .out_stride = queries * head_dim,
                                       .workspace = workspace.data()},
                                      nullptr),
               "decode_attention");
    check_cuda(cudaDeviceSynchronize(), "decode_attention");
  });
}

constexpr int64_t kPromptTokens = 96;
constexpr int64_t kPromptBefore = 64;  // positions that are in the cache already

KernelCounters prefill_counters(DType dtype, int64_t head_dim, int64_t queries) {
  return counters_of("prefill_", [&] {
    const int64_t width = queries * head_dim;
    const DeviceArray<std::byte> q(random_stored(dtype, kPromptTokens * width, 1).bytes);
    const DeviceArray<std::byte> out(q.size());
    const KvOnDevice cache(
        {.dtype = dtype, .positions = kPromptBefore + kPromptTokens, .head_dim = head_dim, .room = 0});
    cache.fill(0, kPromptBefore + kPromptTokens, 2);
    const DeviceArray<int32_t> first_tokens(std::vector<int32_t>{0, static_cast<int32_t>(kPromptTokens)});
    const DeviceArray<int32_t> first_positions(std::vector<int32_t>{static_cast<int32_t>(kPromptBefore)});
    const DeviceArray<int32_t> slots(std::vector<int32_t>{0});
    emulation::label(cache.view().keys, "kv");
    emulation::label(cache.view().values, "kv");
    emulation::label(q.data(), "q");
    emulation::label(out.data(), "out");
    check_cuda(cuda::prefill_attention({.dtype = dtype,
                                        .head_dim = head_dim,
                                        .queries_per_kv = queries,
                                        .query_heads = queries,
                                        .kv_heads = 1,
                                        .sequences = 1,
                                        .max_count = kPromptTokens,
                                        .scale = 0.1F,
                                        .q = q.data(),
                                        .q_stride = width,
                                        .kv = cache.view(),
                                        .first_tokens = first_tokens.data(),
                                        .first_positions = first_positions.data(),
                                        .slots = slots.data(),
                                        .out = out.data(),
                                        .out_stride = width},
                                       nullptr),
               "prefill_attention");
    check_cuda(cudaDeviceSynchronize(), "prefill_attention");
  });
}

/// Bytes of keys and values when each tile of `tile_rows` rows reads all that its last row attends to, once.
int64_t kv_bytes_of_tiles(DType dtype, int64_t head_dim, int64_t queries, int64_t tile_rows) {
  int64_t positions = 0;
  for (int64_t begin = 0; begin < kPromptTokens * queries; begin += tile_rows) {
    const int64_t last = std::min(kPromptTokens * queries, begin + tile_rows) - 1;
    positions += kPromptBefore + last / queries + 1;
  }
  return 2 * positions * kernels::row_bytes(dtype, head_dim);
}

}  // namespace

TEST_CASE("cuda decode_attention: reads cached keys and values once for all queries, in whole sectors") {
  if (!emulation::checked()) return;
  constexpr int64_t kLength = 512;
  for (const DType kv_dtype : {DType::kF32, DType::kBF16}) {
    for (const int64_t head_dim : {64, 96, 128}) {
      for (const int64_t queries : {1, 4, 8}) {
        for (const int64_t multiprocessors : {1, 132}) {  // with few parts of the sequence, and with many
          INFO(kernels::facts(kv_dtype).name << " head_dim " << head_dim << " queries " << queries << " on "
                                             << multiprocessors);
          const KernelCounters counters = decode_counters(kv_dtype, head_dim, queries, multiprocessors, kLength);
          const int64_t kv_bytes = 2 * (kLength - 1) * kernels::row_bytes(kv_dtype, head_dim);
          CHECK(loaded(counters, "kv") == kv_bytes);
          CHECK(counters.bytes.at("kv").stored_bytes == 2 * kernels::row_bytes(kv_dtype, head_dim));
          // What is more than the ideal: in the workspace, the statistics of parts lie between those of others.
          CHECK(counters.global_loads.units - counters.global_loads.ideal_units <= kv_bytes / 32 / 20);
          // Bank conflicts: twice a block, when q goes into two planes and when results come out of them; and, where a
          // head's pieces are no multiple of 8 quads, in the values of fp32.
          CHECK(per_ideal(counters.shared_accesses) < 1.15);
        }
      }
    }
  }
}

TEST_CASE("cuda decode_attention: a block that has only the new position reads no keys or values") {
  if (!emulation::checked()) return;
  // 128 positions are one block's, and the 129th is the new one.
  const KernelCounters counters = decode_counters(DType::kBF16, 64, 1, 132, 129);
  CHECK(counters.launches == 1);
  CHECK(loaded(counters, "kv") == 2 * 128 * kernels::row_bytes(DType::kBF16, 64));
}

// Nothing else runs while the last block of a sequence adds the parts, nor before the queries are there: few, wide
// loads are few latencies in a row.
TEST_CASE("cuda decode_attention: parts come in pieces of 16 bytes, the new token in pieces of 4 dims") {
  if (!emulation::checked()) return;
  constexpr int64_t kLength = 512;
  constexpr int64_t kParts = 4;
  constexpr int64_t kQueries = 4;
  constexpr int64_t kHeadDim = 128;
  const KernelCounters counters = decode_counters(DType::kBF16, kHeadDim, kQueries, 132, kLength);
  // Of whole warps. A query's 128 dims of a part are one; the maxima and sums of its parts are three more. Of the new
  // token each of a block's four warps asks for its length, twice, for its slot, and at most once for all else: two
  // quads of angles, dims and partners.
  const int64_t of_parts = kParts * kQueries + 3 * kQueries;
  const int64_t of_token = 4 * (3 + 4);
  const int64_t of_tiles = 2 * kLength * kHeadDim * 2 / (16 * 32);
  CHECK(counters.global_loads.requests <= of_tiles + of_parts + kParts * of_token);
}

TEST_CASE("cuda prefill_attention: each tile of queries reads keys and values once") {
  if (!emulation::checked()) return;
  constexpr int64_t kTileRows = 32;  // of 2 warps in tensor cores, since the device is not full, and of 4 in fp32
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    for (const int64_t head_dim : {64, 96, 128}) {
      for (const int64_t queries : {1, 4}) {
        INFO(kernels::facts(dtype).name << " head_dim " << head_dim << " queries " << queries);
        const KernelCounters counters = prefill_counters(dtype, head_dim, queries);
        const int64_t row_bytes = kPromptTokens * queries * kernels::row_bytes(dtype, head_dim);
        CHECK(loaded(counters, "kv") == kv_bytes_of_tiles(dtype, head_dim, queries, kTileRows));
        CHECK(loaded(counters, "q") == row_bytes);
        CHECK(counters.bytes.at("out").stored_bytes == row_bytes);
        CHECK(per_ideal(counters.global_loads) < 1.02);
        CHECK(per_ideal(counters.global_stores) == 1.0);
        // Where a head's quads are no multiple of 8, copies of eight lanes cross from one row of values to the next.
        CHECK(per_ideal(counters.shared_accesses) < (head_dim % 64 == 0 ? 1.01 : 1.06));
      }
    }
  }
}

TEST_CASE("cuda rope_append: reads and writes each element once, in whole sectors") {
  if (!emulation::checked()) return;
  constexpr int64_t kTokens = 5;
  constexpr int64_t kQueryHeads = 4;
  constexpr int64_t kKvHeads = 2;
  constexpr int64_t kHeadDim = 128;
  for (const auto& [dtype, kv_dtype] : {std::pair{DType::kBF16, DType::kBF16}, std::pair{DType::kF32, DType::kF16},
                                        std::pair{DType::kF16, DType::kF32}}) {
    INFO(kernels::facts(dtype).name << " to " << kernels::facts(kv_dtype).name);
    const int64_t stride = (kQueryHeads + 2 * kKvHeads) * kHeadDim;
    const KernelCounters counters = counters_of("rope_append_kernel", [&, dtype = dtype, kv_dtype = kv_dtype] {
      const DeviceArray<std::byte> qkv(random_stored(dtype, kTokens * stride, 1).bytes);
      const DeviceArray<float2> rotary(random_angles(kTokens * kHeadDim / 2, 2));
      const KvOnDevice cache(
          {.dtype = kv_dtype, .heads = kKvHeads, .positions = kTokens, .head_dim = kHeadDim, .room = 0});
      const DeviceArray<int32_t> positions(std::vector<int32_t>{0, 1, 2, 3, 4});
      const DeviceArray<int32_t> slots(std::vector<int32_t>{0, 0, 0, 0, 0});
      emulation::label(qkv.data(), "qkv");
      emulation::label(cache.view().keys, "kv");
      emulation::label(cache.view().values, "kv");
      check_cuda(cuda::rope_append({.dtype = dtype,
                                    .tokens = kTokens,
                                    .query_heads = kQueryHeads,
                                    .kv_heads = kKvHeads,
                                    .head_dim = kHeadDim,
                                    .rotary_dims = kHeadDim,
                                    .qkv = qkv.data(),
                                    .qkv_stride = stride,
                                    .rotary = rotary.data(),
                                    .positions = positions.data(),
                                    .slots = slots.data(),
                                    .kv = cache.view()},
                                   nullptr),
                 "rope_append");
      check_cuda(cudaDeviceSynchronize(), "rope_append");
    });
    CHECK(loaded(counters, "qkv") == kTokens * kernels::row_bytes(dtype, stride));
    CHECK(counters.bytes.at("qkv").stored_bytes == kTokens * kernels::row_bytes(dtype, kQueryHeads * kHeadDim));
    CHECK(counters.bytes.at("kv").stored_bytes == 2 * kTokens * kernels::row_bytes(kv_dtype, kKvHeads * kHeadDim));
    CHECK(per_ideal(counters.global_stores) == 1.0);
  }
}
