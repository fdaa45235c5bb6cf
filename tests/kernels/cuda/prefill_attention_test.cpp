// Causal attention over prompts on CUDA, against doubles and the textbook's order.
#include "kernels/cuda/prefill_attention.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "tests/kernels/cuda/conditions.hpp"
#include "tests/kernels/cuda/kv_on_device.hpp"
#include "tests/support/approx.hpp"

using namespace shardscope;
using namespace shardscope::test;
using kernels::DType;

namespace {

struct Case {
  DType dtype = DType::kF16;
  DType kv_dtype = DType::kF16;
  int64_t head_dim = 64;
  int64_t queries_per_kv = 1;
  int64_t first_query_head = 0;
  int64_t query_heads = 1;
  std::vector<int32_t> counts = {1};  // tokens of each sequence
  std::vector<int32_t> first_positions = {0};
  std::vector<int32_t> slots;  // empty: in order
  float magnitude = 1.0F;      // of the queries
  Poison poison = {};          // at a position that all tokens of its sequence attend to

  int64_t first_kv_head() const { return first_query_head / queries_per_kv; }
  int64_t kv_heads() const { return (first_query_head + query_heads - 1) / queries_per_kv - first_kv_head() + 1; }
  int64_t slot(int64_t sequence) const { return slots.empty() ? sequence : slots[sequence]; }
};

/// One row of the output: a query of a token that attends to `positions`. Tolerance: scores have a rounding a term and
/// a few more, on a magnitude of sum |q k|, doubled since tensor cores may cut sums off instead of rounding them; a
/// weight is then off by that much, relatively, and by the roundings of its exponential; the sums add one rounding a
/// position. Both weights and their sum are off, hence twice. In 16 bits each weight is rounded to the cache's type
/// too, as a part of the largest, which is 1.
Expected attended_row(const Case& c, float scale, std::span<const float> q, const KvContents& cache, int64_t slot,
                      int64_t head, int64_t positions) {
  const bool rounds_weights = c.dtype != DType::kF32 && c.kv_dtype != DType::kF32;
  std::vector<double> scores;
  double magnitude = 0;
  for (int64_t position = 0; position < positions; ++position) {
    const std::vector<float> key = cache.key(slot, head, position);
    double score = 0;
    double of_position = 0;
    for (int64_t dim = 0; dim < c.head_dim; ++dim) {
      const double term = static_cast<double>(q[dim]) * static_cast<double>(key[dim]) * static_cast<double>(scale);
      score += term;
      of_position += std::abs(term);
    }
    scores.push_back(score);
    magnitude = std::max(magnitude, of_position);
  }
  const double largest = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (double& score : scores) sum += score = std::exp(score - largest);
  const double of_scores = 2 * kF32Epsilon * static_cast<double>(c.head_dim + 4) * magnitude * 2;
  const double relative = 2 * (of_scores + 2 * kF32Epsilon * static_cast<double>(positions + 16));
  Expected out{std::vector<double>(c.head_dim), std::vector<double>(c.head_dim)};
  for (int64_t position = 0; position < positions; ++position) {
    const std::vector<float> value = cache.value(slot, head, position);
    const double of_weight = rounds_weights ? rounding(c.kv_dtype, scores[position]) * (1 + relative) : 0.0;
    for (int64_t dim = 0; dim < c.head_dim; ++dim) {
      const auto factor = static_cast<double>(value[dim]);
      out.values[dim] += scores[position] / sum * factor;
      out.tolerances[dim] += (relative * scores[position] + of_weight) / sum * std::abs(factor);
    }
  }
  return out;
}

/// Of all tokens and query heads.
Expected attended(const Case& c, float scale, const Stored& q, const KvContents& cache) {
  // Where both are of 16 bits, but not the same, queries are rounded to the cache's type.
  const bool rounds = c.dtype != DType::kF32 && c.kv_dtype != DType::kF32;
  const std::vector<float> queries = rounds ? stored(c.kv_dtype, q.values).values : q.values;
  Expected expected;
  int64_t row = 0;
  for (size_t sequence = 0; sequence < c.counts.size(); ++sequence) {
    for (int32_t token = 0; token < c.counts[sequence]; ++token) {
      for (int64_t query = 0; query < c.query_heads; ++query, ++row) {
        const Expected out = attended_row(
            c, scale, std::span(queries).subspan(row * c.head_dim, static_cast<size_t>(c.head_dim)), cache,
            c.slot(static_cast<int64_t>(sequence)), (c.first_query_head + query) / c.queries_per_kv - c.first_kv_head(),
            c.first_positions[sequence] + token + 1);
        expected.values.insert(expected.values.end(), out.values.begin(), out.values.end());
        expected.tolerances.insert(expected.tolerances.end(), out.tolerances.begin(), out.tolerances.end());
      }
    }
  }
  add_rounding(c.dtype, expected);
  return expected;
}

/// The bytes of `count` rows, `from_stride` bytes apart, `to_stride` bytes apart.
std::vector<std::byte> restrided(const std::vector<std::byte>& rows, int64_t count, int64_t row_bytes,
                                 int64_t from_stride, int64_t to_stride) {
  std::vector<std::byte> result(static_cast<size_t>(count * to_stride));
  for (int64_t row = 0; row < count; ++row) {
    std::copy_n(rows.begin() + row * from_stride, row_bytes, result.begin() + row * to_stride);
  }
  return result;
}

void check_attention(const Case& c) {
  INFO(kernels::facts(c.dtype).name << " over " << kernels::facts(c.kv_dtype).name << ", head_dim " << c.head_dim
                                    << " queries " << c.first_query_head << " + " << c.query_heads << ", "
                                    << c.queries_per_kv << " per KV head, first count " << c.counts[0] << " from "
                                    << c.first_positions[0]);
  const auto sequences = std::ssize(c.counts);
  const float scale = 1.0F / std::sqrt(static_cast<float>(c.head_dim));
  int32_t most_positions = 1;
  std::vector<int32_t> first_tokens = {0};
  std::vector<int32_t> slots;
  for (int64_t sequence = 0; sequence < sequences; ++sequence) {
    first_tokens.push_back(first_tokens.back() + c.counts[sequence]);
    slots.push_back(static_cast<int32_t>(c.slot(sequence)));
    most_positions = std::max(most_positions, c.first_positions[sequence] + c.counts[sequence]);
  }
  const KvOnDevice cache({.dtype = c.kv_dtype,
                          .slots = 1 + *std::max_element(slots.begin(), slots.end()),
                          .heads = c.kv_heads(),
                          .positions = most_positions,
                          .head_dim = c.head_dim});
  for (int64_t sequence = 0; sequence < sequences; ++sequence) {
    cache.fill(slots[sequence], c.first_positions[sequence] + c.counts[sequence],
               100 + 50 * static_cast<uint32_t>(sequence));
  }
  if (c.poison.there()) {
    cache.put(c.poison.plane, slots[c.poison.sequence], c.poison.head, c.poison.position, c.poison.dim,
              std::numeric_limits<float>::quiet_NaN());
  }
  const int64_t tokens = first_tokens.back();
  const int64_t width = c.query_heads * c.head_dim;
  const int64_t q_stride = width + 16;
  const int64_t out_stride = width + 8;
  const int64_t element_bytes = kernels::facts(c.dtype).block_bytes;
  std::vector<float> values = random_values(tokens * width, 1);
  for (float& value : values) value *= c.magnitude;
  const Stored q = stored(c.dtype, values);
  const DeviceArray<std::byte> device_q(
      restrided(q.bytes, tokens, width * element_bytes, width * element_bytes, q_stride * element_bytes));
  const std::vector<std::byte> untouched(static_cast<size_t>(tokens * out_stride * element_bytes), std::byte{0xFF});
  const DeviceArray<std::byte> out(untouched);
  const DeviceArray<int32_t> device_first_tokens(first_tokens);
  const DeviceArray<int32_t> first_positions(c.first_positions);
  const DeviceArray<int32_t> device_slots(slots);
  check_cuda(cuda::prefill_attention({.dtype = c.dtype,
                                      .head_dim = c.head_dim,
                                      .queries_per_kv = c.queries_per_kv,
                                      .first_query_head = c.first_query_head,
                                      .query_heads = c.query_heads,
                                      .first_kv_head = c.first_kv_head(),
                                      .kv_heads = c.kv_heads(),
                                      .sequences = sequences,
                                      .max_count = *std::max_element(c.counts.begin(), c.counts.end()),
                                      .scale = scale,
                                      .q = device_q.data(),
                                      .q_stride = q_stride,
                                      .kv = cache.view(),
                                      .first_tokens = device_first_tokens.data(),
                                      .first_positions = first_positions.data(),
                                      .slots = device_slots.data(),
                                      .out = out.data(),
                                      .out_stride = out_stride},
                                     nullptr),
             "prefill_attention");
  std::vector<std::byte> after = out.download();
  const std::vector<std::byte> results =
      restrided(after, tokens, width * element_bytes, out_stride * element_bytes, width * element_bytes);
  const Expected expected = attended(c, scale, q, cache.download());
  // A key of the group makes all its queries so, a value one dim of them.
  const int64_t nans = !c.poison.there() ? 0
                                         : c.counts[c.poison.sequence] * c.queries_per_kv *
                                               (c.poison.plane == KvOnDevice::Plane::kKeys ? c.head_dim : 1);
  CHECK(difference_with_nans(meaning(c.dtype, results), expected, nans) == "");
  for (int64_t token = 0; token < tokens; ++token) {
    std::fill_n(after.begin() + token * out_stride * element_bytes, width * element_bytes, std::byte{0xFF});
  }
  CHECK(after == untouched);  // nothing is written beside the rows
}

}  // namespace

TEST_CASE("cuda prefill_attention: every head_dim and dtype") {
  under_conditions({.seeds = 2}, [] {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (const int64_t head_dim : {8, 16, 40, 64, 96, 128, 136, 256}) {
        check_attention({.dtype = dtype,
                         .kv_dtype = dtype,
                         .head_dim = head_dim,
                         .queries_per_kv = 2,
                         .query_heads = 2,
                         .counts = {5},
                         .first_positions = {66}});
      }
    }
  });
}

TEST_CASE("cuda prefill_attention: every pair of dtypes") {
  under_conditions([] {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (const DType kv_dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
        check_attention({.dtype = dtype, .kv_dtype = kv_dtype, .head_dim = 40, .counts = {9}, .first_positions = {3}});
      }
    }
  });
}

TEST_CASE("cuda prefill_attention: ragged sequences, at the edges of tiles, slots out of order") {
  under_conditions([] {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      check_attention({.dtype = dtype,
                       .kv_dtype = dtype,
                       .head_dim = 32,
                       .counts = {1, 0, 17, 33, 32, 1},
                       .first_positions = {0, 5, 63, 31, 0, 64},
                       .slots = {3, 1, 0, 5, 4, 2}});
    }
  });
}

TEST_CASE("cuda prefill_attention: groups of every size, ragged at both ends") {
  under_conditions([] {
    for (const DType dtype : {DType::kF32, DType::kF16}) {
      for (const int64_t queries_per_kv : {1, 3, 4, 7}) {
        check_attention({.dtype = dtype,
                         .kv_dtype = dtype,
                         .head_dim = 16,
                         .queries_per_kv = queries_per_kv,
                         .first_query_head = queries_per_kv / 2,
                         .query_heads = 2 * queries_per_kv,
                         .counts = {7, 3},
                         .first_positions = {0, 12}});
      }
      // More queries than a warp has rows, and a group of which only the last one is here.
      check_attention({.dtype = dtype,
                       .kv_dtype = dtype,
                       .head_dim = 16,
                       .queries_per_kv = 20,
                       .first_query_head = 19,
                       .query_heads = 22,
                       .counts = {3},
                       .first_positions = {2}});
    }
  });
}

TEST_CASE("cuda prefill_attention: queries that are far above the others") {
  under_conditions([] {
    for (const DType dtype : {DType::kF32, DType::kF16}) {
      check_attention(
          {.dtype = dtype, .kv_dtype = dtype, .counts = {20}, .first_positions = {100}, .magnitude = 100.0F});
    }
  });
}

// On a device of one multiprocessor blocks are as large as they may be.
TEST_CASE("cuda prefill_attention: a real model's heads and a long prompt") {
  under_conditions({.multiprocessors = 1, .seeds = 1}, [] {
    check_attention({.dtype = DType::kBF16,
                     .kv_dtype = DType::kBF16,
                     .head_dim = 128,
                     .queries_per_kv = 4,
                     .query_heads = 4,
                     .counts = {75},
                     .first_positions = {60}});
  });
}

TEST_CASE("cuda prefill_attention: what is not a number in a key or a value shows in that head and no other") {
  under_conditions({.seeds = 1}, [] {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (const auto plane : {KvOnDevice::Plane::kKeys, KvOnDevice::Plane::kValues}) {
        check_attention({.dtype = dtype,
                         .kv_dtype = dtype,
                         .head_dim = 16,
                         .queries_per_kv = 2,
                         .query_heads = 4,
                         .counts = {3, 18},
                         .first_positions = {2, 66},
                         .poison = {.plane = plane, .sequence = 1, .head = 1, .position = 40, .dim = 3}});
      }
    }
  });
}

TEST_CASE("cuda prefill_attention: what it refuses") {
  under_conditions([] {
    const DeviceArray<std::byte> memory(4096);
    const cuda::PrefillAttention good{.head_dim = 8,
                                      .query_heads = 1,
                                      .kv_heads = 1,
                                      .sequences = 1,
                                      .max_count = 1,
                                      .q = memory.data(),
                                      .q_stride = 8,
                                      .kv = {.keys = memory.data(),
                                             .values = memory.data(),
                                             .slot_stride = 64,
                                             .head_stride = 64,
                                             .position_stride = 8},
                                      .out = memory.data(),
                                      .out_stride = 8};
    const auto refused = [&](auto&& change) {
      cuda::PrefillAttention arguments = good;
      change(arguments);
      return cuda::prefill_attention(arguments, nullptr) == cudaErrorInvalidValue;
    };
    CHECK_FALSE(refused([](auto& a) { a.sequences = 0; }));  // nothing to do
    CHECK_FALSE(refused([](auto& a) { a.max_count = 0; }));
    CHECK_FALSE(refused([](auto& a) { a.query_heads = 0; }));
    CHECK(refused([](auto& a) { a.dtype = DType::kQ8_0; }));
    CHECK(refused([](auto& a) { a.kv.dtype = DType::kQ8_0; }));
    CHECK(refused([](auto& a) { a.head_dim = 12; }));
    CHECK(refused([](auto& a) { a.head_dim = 264; }));
    CHECK(refused([](auto& a) { a.queries_per_kv = 0; }));
    CHECK(refused([](auto& a) { a.query_heads = 2; }));  // each with a KV head of its own
    CHECK(refused([](auto& a) { a.sequences = -1; }));
    CHECK(refused([](auto& a) { a.max_count = -1; }));
    CHECK(refused([](auto& a) { a.q_stride = 4; }));
    CHECK(refused([](auto& a) { a.out_stride = 9; }));
    CHECK(refused([&](auto& a) { a.q = memory.data() + 4; }));
    CHECK(refused([&](auto& a) { a.kv.keys = memory.data() + 8; }));
    CHECK(refused([](auto& a) { a.kv.head_stride = 60; }));
  });
}
