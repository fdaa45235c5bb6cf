// Sizes that fill a real device: launchers choose other grids and blocks for them than for the small ones of the other
// tests, and on a GPU the number of multiprocessors cannot be chosen.
#include <algorithm>

#include "kernels/cuda/prefill_attention.hpp"
#include "tests/kernels/cuda/conditions.hpp"
#include "tests/kernels/cuda/kv_on_device.hpp"
#include "tests/kernels/cuda/mat_vec_case.hpp"

using namespace shardscope;
using namespace shardscope::test;
using kernels::DType;

namespace {

/// A prompt of `count` tokens after `first` others in each of several sequences, with a query head for each KV head.
struct Prompts {
  DType dtype = DType::kBF16;
  int64_t head_dim = 16;
  int64_t heads = 17;
  int64_t sequences = 8;
  int32_t count = 128;
  int32_t first = 40;

  int64_t width() const { return heads * head_dim; }
};

/// Attention of sequences [begin, end) alone.
std::vector<std::byte> attended(const Prompts& p, const KvOnDevice& cache, const DeviceArray<std::byte>& q,
                                int64_t begin, int64_t end) {
  std::vector<int32_t> first_tokens = {0};
  std::vector<int32_t> slots;
  std::vector<int32_t> first_positions;
  for (int64_t sequence = begin; sequence < end; ++sequence) {
    first_tokens.push_back(first_tokens.back() + p.count);
    slots.push_back(static_cast<int32_t>(sequence));
    first_positions.push_back(p.first);
  }
  const int64_t token_bytes = p.width() * kernels::facts(p.dtype).block_bytes;
  const DeviceArray<int32_t> device_first_tokens(first_tokens);
  const DeviceArray<int32_t> device_first_positions(first_positions);
  const DeviceArray<int32_t> device_slots(slots);
  const DeviceArray<std::byte> out(first_tokens.back() * token_bytes);
  check_cuda(cuda::prefill_attention({.dtype = p.dtype,
                                      .head_dim = p.head_dim,
                                      .queries_per_kv = 1,
                                      .query_heads = p.heads,
                                      .kv_heads = p.heads,
                                      .sequences = end - begin,
                                      .max_count = p.count,
                                      .scale = 0.25F,
                                      .q = q.data() + begin * p.count * token_bytes,
                                      .q_stride = p.width(),
                                      .kv = cache.view(),
                                      .first_tokens = device_first_tokens.data(),
                                      .first_positions = device_first_positions.data(),
                                      .slots = device_slots.data(),
                                      .out = out.data(),
                                      .out_stride = p.width()},
                                     nullptr),
             "prefill_attention");
  return out.download();
}

}  // namespace

// From 33,792 rows on a device of 132 multiprocessors is full four times with whole rows for each warp; fewer rows are
// split among two, four and eight warps.
TEST_CASE("cuda mat_vec on a GPU: rows for every way to share them among the warps") {
  under_conditions([] {
    for (const int64_t rows : {2'000, 4'400, 8'800, 17'600, 35'200}) {
      for (const int64_t batch : {1, 4, 8}) {
        check_product({.rows = rows, .columns = 72, .batch = batch, .dtype = DType::kBF16});
        check_product({.weight_dtype = DType::kQ4_0, .rows = rows, .columns = 96, .batch = batch});
        check_product({.weight_dtype = DType::kQ8_0, .rows = rows, .columns = 96, .batch = batch, .gated = true});
      }
    }
  });
}

// All sequences together are enough for the largest blocks, one alone for the smallest only, which the other tests
// compare with doubles. A warp's rows and what it does with them are the same in both, to the last bit.
TEST_CASE("cuda prefill_attention on a GPU: large blocks give what small ones do") {
  const auto [dtype, head_dim] = GENERATE(std::pair{DType::kBF16, 16}, std::pair{DType::kF16, 64},
                                          std::pair{DType::kBF16, 128}, std::pair{DType::kF16, 256});
  under_conditions([&, dtype = dtype, head_dim = head_dim] {
    const Prompts p{.dtype = dtype, .head_dim = head_dim};
    const KvOnDevice cache(
        {.dtype = dtype, .slots = p.sequences, .heads = p.heads, .positions = p.first + p.count, .head_dim = head_dim});
    for (int64_t slot = 0; slot < p.sequences; ++slot) {
      cache.fill(slot, p.first + p.count, 100 + static_cast<uint32_t>(slot));
    }
    const DeviceArray<std::byte> q(random_stored(dtype, p.sequences * p.count * p.width(), 1).bytes);
    const std::vector<std::byte> together = attended(p, cache, q, 0, p.sequences);
    std::vector<std::byte> alone(together.size());
    auto place = alone.begin();
    for (int64_t sequence = 0; sequence < p.sequences; ++sequence) {
      const std::vector<std::byte> one = attended(p, cache, q, sequence, sequence + 1);
      place = std::copy(one.begin(), one.end(), place);
    }
    CHECK(place == alone.end());
    CHECK(std::mismatch(together.begin(), together.end(), alone.begin()).first == together.end());
  });
}
