// Attention of one token per sequence on CUDA, with what it appends to the cache, against doubles and the textbook's
// order.
#include "kernels/cuda/decode_attention.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "tests/kernels/cuda/conditions.hpp"
#include "tests/kernels/cuda/device_array.hpp"
#include "tests/kernels/cuda/kv_on_device.hpp"
#include "tests/kernels/cuda/stored.hpp"
#include "tests/support/approx.hpp"

using namespace shardscope;
using namespace shardscope::test;
using kernels::DType;

namespace {

struct Case {
  DType kv_dtype = DType::kF16;
  DType dtype = DType::kF32;
  int64_t head_dim = 64;
  int64_t rotary_dims = -1;  // below 0: all
  int64_t queries_per_kv = 1;
  int64_t first_query_head = 0;
  int64_t query_heads = 1;
  int64_t more_kv_heads = 0;  // than the queries need
  std::vector<int32_t> lengths = {1};
  std::vector<int32_t> slots;   // empty: in order
  int64_t multiprocessors = 1;  // that the plan is for
  float magnitude = 1.0F;       // of queries, and of the new keys and values
  int64_t room = 3;             // elements between the rows of qkv: by 3 they are not aligned
  Poison poison = {};
};

cuda::DecodeAttentionShape shape_of(const Case& c) {
  const int64_t last_head = c.first_query_head + c.query_heads - 1;
  const int64_t first_kv_head = c.first_query_head / c.queries_per_kv;
  return {.kv_dtype = c.kv_dtype,
          .dtype = c.dtype,
          .head_dim = c.head_dim,
          .rotary_dims = c.rotary_dims < 0 ? c.head_dim : c.rotary_dims,
          .queries_per_kv = c.queries_per_kv,
          .first_query_head = c.first_query_head,
          .query_heads = c.query_heads,
          .first_kv_head = first_kv_head,
          .kv_heads = last_head / c.queries_per_kv - first_kv_head + 1 + c.more_kv_heads,
          .sequences = static_cast<int64_t>(c.lengths.size()),
          .max_length = std::max(1, *std::max_element(c.lengths.begin(), c.lengths.end()))};
}

/// What one step is given, and what that means. qkv: [sequences][query_heads + 2 kv_heads][head_dim].
struct Step {
  Stored qkv;
  std::vector<float2> angles;  // [sequences][rotary_dims / 2]
  std::vector<int32_t> lengths;
};

struct Head {  // of a Step, as it is given
  std::span<const float> values;
  std::span<const float2> angles;
};
Head head_of(const cuda::DecodeAttentionShape& shape, const Step& step, int64_t sequence, int64_t head) {
  const int64_t heads = shape.query_heads + 2 * shape.kv_heads;
  return {std::span(step.qkv.values).subspan((sequence * heads + head) * shape.head_dim, shape.head_dim),
          std::span(step.angles).subspan(sequence * shape.rotary_dims / 2, shape.rotary_dims / 2)};
}

int64_t slot_of(const Case& c, int64_t sequence) {
  return c.slots.empty() ? sequence : c.slots[sequence];
}

/// What is wrong with the rows of keys and values that the step has stored, or ""; and with all that it has not.
std::string wrong_in_cache(const Case& c, const cuda::DecodeAttentionShape& shape, const Step& step,
                           const KvContents& before, const KvContents& after) {
  KvContents expected = before;
  for (int64_t sequence = 0; sequence < shape.sequences; ++sequence) {
    const int64_t position = step.lengths[sequence] - 1;
    if (position < 0) continue;
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      const int64_t slot = slot_of(c, sequence);
      const Head new_key = head_of(shape, step, sequence, shape.query_heads + head);
      const Rotated turned = rotated_head(new_key.values, new_key.angles);
      Expected key{turned.values, turned.magnitudes};
      for (double& tolerance : key.tolerances) tolerance *= kRotationRoundings * kF32Epsilon;
      add_rounding(c.kv_dtype, key);
      const std::string wrong = first_difference(after.key(slot, head, position), key.values, key.tolerances);
      if (!wrong.empty()) return "key: " + wrong;
      const Head value = head_of(shape, step, sequence, shape.query_heads + shape.kv_heads + head);
      if (after.value(slot, head, position) != stored(c.kv_dtype, value.values).values) return "value differs";
      expected.take(after, slot, head, position);
    }
  }
  return expected.keys == after.keys && expected.values == after.values ? "" : "bytes beside the new rows have changed";
}

/// The output of all sequences and query heads, over the cache as it is after the step. Tolerance: scores have a
/// rounding a term, one for the scale and those of the rotation, on a magnitude of sum |q k|; a weight is then off by
/// that much, relatively, and by the roundings of its exponential; the sums add one rounding a position. Both weights
/// and their sum are off, hence twice.
Expected attended(const Case& c, const cuda::DecodeAttentionShape& shape, float scale, const Step& step,
                  const KvContents& cache) {
  Expected expected;
  for (int64_t sequence = 0; sequence < shape.sequences; ++sequence) {
    for (int64_t query = 0; query < c.query_heads; ++query) {
      const int64_t head = (c.first_query_head + query) / c.queries_per_kv - shape.first_kv_head;
      const int64_t length = std::max(0, step.lengths[sequence]);
      const Head given = head_of(shape, step, sequence, query);
      const Rotated q = rotated_head(given.values, given.angles);
      std::vector<double> scores;
      double magnitude = 0;
      for (int64_t position = 0; position < length; ++position) {
        const std::vector<float> key = cache.key(slot_of(c, sequence), head, position);
        double score = 0;
        double of_position = 0;
        for (int64_t dim = 0; dim < c.head_dim; ++dim) {
          const double factor = static_cast<double>(key[dim]) * static_cast<double>(scale);
          score += q.values[dim] * factor;
          of_position += q.magnitudes[dim] * std::abs(factor);
        }
        scores.push_back(score);
        magnitude = std::max(magnitude, of_position);
      }
      const double largest = scores.empty() ? 0.0 : *std::max_element(scores.begin(), scores.end());
      double sum = 0;
      for (double& score : scores) sum += score = std::exp(score - largest);
      const double of_scores = kF32Epsilon * static_cast<double>(c.head_dim + 4 + kRotationRoundings) * magnitude * 2;
      const double relative = 2 * (of_scores + kF32Epsilon * static_cast<double>(length + 16));
      Expected out{std::vector<double>(c.head_dim), std::vector<double>(c.head_dim)};
      for (int64_t position = 0; position < length; ++position) {
        const std::vector<float> value = cache.value(slot_of(c, sequence), head, position);
        for (int64_t dim = 0; dim < c.head_dim; ++dim) {
          const double term = scores[position] / sum * static_cast<double>(value[dim]);
          out.values[dim] += term;
          out.tolerances[dim] += relative * std::abs(term);
        }
      }
      expected.values.insert(expected.values.end(), out.values.begin(), out.values.end());
      expected.tolerances.insert(expected.tolerances.end(), out.tolerances.begin(), out.tolerances.end());
    }
  }
  add_rounding(c.dtype, expected);
  return expected;
}

/// `steps` steps of generation, each with a position more than the one before, over the same buffers.
void check_attention(const Case& c, int steps = 1) {
  INFO(kernels::facts(c.kv_dtype).name << " head_dim " << c.head_dim << " queries " << c.first_query_head << " + "
                                       << c.query_heads << ", " << c.queries_per_kv << " per KV head, first length "
                                       << c.lengths[0] << " plan for " << c.multiprocessors);
  cuda::DecodeAttentionShape shape = shape_of(c);
  shape.max_length += steps - 1;
  const float scale = 1.0F / std::sqrt(static_cast<float>(c.head_dim));
  const int64_t width = (shape.query_heads + 2 * shape.kv_heads) * c.head_dim;
  const int64_t stride = width + c.room;
  const KvOnDevice cache({.dtype = c.kv_dtype,
                          .slots = shape.sequences + 1,
                          .heads = shape.kv_heads,
                          .positions = shape.max_length + 3,
                          .head_dim = c.head_dim});
  for (int64_t sequence = 0; sequence < shape.sequences; ++sequence) {
    cache.fill(slot_of(c, sequence), c.lengths[sequence] - 1, 100 + 50 * static_cast<uint32_t>(sequence));
  }
  if (c.poison.there()) {
    cache.put(c.poison.plane, slot_of(c, c.poison.sequence), c.poison.head, c.poison.position, c.poison.dim,
              std::numeric_limits<float>::quiet_NaN());
  }
  std::vector<int32_t> slots;
  for (int64_t sequence = 0; sequence < shape.sequences; ++sequence) {
    slots.push_back(static_cast<int32_t>(slot_of(c, sequence)));
  }
  const int64_t element_bytes = kernels::facts(c.dtype).block_bytes;
  DeviceArray<std::byte> qkv(shape.sequences * stride * element_bytes);
  DeviceArray<float2> rotary(shape.sequences * shape.rotary_dims / 2);
  DeviceArray<int32_t> lengths(shape.sequences);
  const DeviceArray<int32_t> device_slots(slots);
  const DeviceArray<std::byte> out(shape.sequences * shape.query_heads * c.head_dim * element_bytes);
  const cuda::DecodeAttentionPlan plan = cuda::plan_decode_attention(shape, c.multiprocessors);
  const auto workspace = DeviceArray<std::byte>::zeros(plan.workspace_bytes);
  Step step{.lengths = c.lengths};
  for (int number = 0; number < steps; ++number) {
    std::vector<float> values = random_values(shape.sequences * width, 1 + static_cast<uint32_t>(number));
    for (float& value : values) value *= c.magnitude;
    step.qkv = stored(c.dtype, values);
    step.angles = random_angles(rotary.size(), 20 + static_cast<uint32_t>(number));
    std::vector<std::byte> apart(static_cast<size_t>(qkv.size()));
    for (int64_t sequence = 0; sequence < shape.sequences; ++sequence) {
      std::copy_n(step.qkv.bytes.begin() + sequence * width * element_bytes, width * element_bytes,
                  apart.begin() + sequence * stride * element_bytes);
    }
    qkv.upload(apart);
    rotary.upload(step.angles);
    lengths.upload(step.lengths);
    // Not a number in every dtype: what the step before has left does not count.
    check_cuda(cudaMemset(out.data(), 0xFF, static_cast<size_t>(out.size())), "cudaMemset");
    const KvContents before = cache.download();
    check_cuda(cuda::decode_attention({.shape = shape,
                                       .plan = plan,
                                       .scale = scale,
                                       .qkv = qkv.data(),
                                       .qkv_stride = stride,
                                       .rotary = rotary.data(),
                                       .kv = cache.view(),
                                       .lengths = lengths.data(),
                                       .slots = device_slots.data(),
                                       .out = out.data(),
                                       .out_stride = shape.query_heads * c.head_dim,
                                       .workspace = workspace.data()},
                                      nullptr),
               "decode_attention");
    const KvContents after = cache.download();
    CHECK(wrong_in_cache(c, shape, step, before, after) == "");
    const Expected expected = attended(c, shape, scale, step, after);
    // A key of the group makes all its queries so, a value one dim of them.
    const int64_t dims = c.poison.there() && c.poison.plane == KvOnDevice::Plane::kKeys ? c.head_dim : 1;
    CHECK(difference_with_nans(meaning(c.dtype, out.download()), expected,
                               c.poison.there() ? c.queries_per_kv * dims : 0) == "");
    for (int32_t& length : step.lengths) length += length > 0 ? 1 : 0;
  }
}

}  // namespace

TEST_CASE("cuda decode_attention: every head_dim and dtype of the cache") {
  under_conditions([] {
    for (const DType kv_dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (const int64_t head_dim : {8, 40, 64, 96, 128, 256}) {
        check_attention({.kv_dtype = kv_dtype,
                         .head_dim = head_dim,
                         .queries_per_kv = 2,
                         .query_heads = 2,
                         .lengths = {37},
                         .room = 8});
      }
    }
  });
}

TEST_CASE("cuda decode_attention: queries and output of every dtype") {
  under_conditions([] {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (const DType kv_dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
        for (const int64_t room : {3, 4}) {  // single elements of qkv, and four at a time
          check_attention({.kv_dtype = kv_dtype,
                           .dtype = dtype,
                           .head_dim = 24,
                           .query_heads = 2,
                           .lengths = {9, 20},
                           .room = room});
        }
      }
    }
    // 10 pieces of 8 dims: two subsets of positions, and lanes without a part.
    for (const int64_t room : {3, 4}) {
      check_attention({.kv_dtype = DType::kBF16,
                       .dtype = DType::kF16,
                       .head_dim = 80,
                       .queries_per_kv = 3,
                       .query_heads = 6,
                       .lengths = {9, 20},
                       .room = room});
    }
  });
}

TEST_CASE("cuda decode_attention: heads of which some dims are rotated, or none") {
  under_conditions([] {
    for (const int64_t rotary_dims : {0, 2, 10, 40, 42}) {
      for (const int64_t room : {3, 4}) {
        check_attention({.head_dim = 48,
                         .rotary_dims = rotary_dims,
                         .queries_per_kv = 2,
                         .query_heads = 2,
                         .lengths = {9},
                         .room = room});
      }
    }
  });
}

TEST_CASE("cuda decode_attention: lengths at the edges of tiles and blocks, and none") {
  under_conditions([] {
    check_attention({.head_dim = 64, .lengths = {1, 0, 7, 8, 9, 31, 33, -1}});
    check_attention({.head_dim = 64, .lengths = {127, 128, 129, 0}, .multiprocessors = 132});
    check_attention({.head_dim = 64, .lengths = {258, 1, 257, 192}, .multiprocessors = 132});
  });
}

TEST_CASE("cuda decode_attention: groups of every size, ragged at both ends") {
  under_conditions([] {
    for (const int64_t queries_per_kv : {1, 2, 3, 4, 7, 8}) {
      check_attention({.head_dim = 64,
                       .queries_per_kv = queries_per_kv,
                       .first_query_head = queries_per_kv / 2,
                       .query_heads = 2 * queries_per_kv,
                       .lengths = {19}});
    }
    // More queries than a block takes at once, and a group of which only the last one is here.
    check_attention({.head_dim = 64, .queries_per_kv = 12, .first_query_head = 11, .query_heads = 14, .lengths = {19}});
    check_attention({.head_dim = 40,
                     .queries_per_kv = 12,
                     .first_query_head = 11,
                     .query_heads = 3,
                     .lengths = {150},
                     .multiprocessors = 132});
    // A KV head without a query is appended to all the same.
    check_attention({.head_dim = 16, .queries_per_kv = 2, .query_heads = 2, .more_kv_heads = 1, .lengths = {3, 70}});
  });
}

TEST_CASE("cuda decode_attention: sequences that several blocks share, step after step") {
  under_conditions([] {
    check_attention({.head_dim = 128,
                     .queries_per_kv = 4,
                     .query_heads = 8,
                     .lengths = {300, 5, 0, 129},
                     .slots = {2, 0, 2, 1},  // padding has the slot of a sequence that lives
                     .multiprocessors = 132},
                    3);
  });
}

TEST_CASE("cuda decode_attention: one query far above the others") {
  under_conditions([] {
    check_attention({.head_dim = 64, .lengths = {200}, .multiprocessors = 132, .magnitude = 100.0F});
    check_attention({.head_dim = 64, .lengths = {200}, .multiprocessors = 1, .magnitude = 100.0F});
  });
}

TEST_CASE("cuda decode_attention: a real model's heads and a long sequence") {
  under_conditions([] {
    check_attention({.kv_dtype = DType::kBF16,
                     .dtype = DType::kBF16,
                     .head_dim = 128,
                     .queries_per_kv = 8,
                     .query_heads = 8,
                     .lengths = {1025},  // 9 parts: one more than are asked for at once
                     .multiprocessors = 132,
                     .room = 0});
  });
}

TEST_CASE("cuda decode_attention: what is not a number in a key or a value shows in that head and no other") {
  under_conditions({.seeds = 1}, [] {
    for (const DType kv_dtype : {DType::kF32, DType::kF16}) {
      for (const int64_t multiprocessors : {1, 132}) {  // one block, and two parts that are combined
        for (const auto plane : {KvOnDevice::Plane::kKeys, KvOnDevice::Plane::kValues}) {
          check_attention({.kv_dtype = kv_dtype,
                           .head_dim = 16,
                           .queries_per_kv = 2,
                           .query_heads = 4,
                           .lengths = {5, 150},
                           .multiprocessors = multiprocessors,
                           .poison = {.plane = plane, .sequence = 1, .head = 1, .position = 140, .dim = 3}});
        }
      }
    }
  });
}

TEST_CASE("plan_decode_attention: sequences are split until the device is full, or the parts are short") {
  cuda::DecodeAttentionShape shape{
      .head_dim = 128, .queries_per_kv = 4, .query_heads = 32, .kv_heads = 8, .sequences = 1, .max_length = 16384};
  CHECK(cuda::plan_decode_attention(shape, 132).splits == 66);  // 4 blocks on each of 132, 8 heads
  // 8 heads: a counter of 4 bytes each, together a line of 128; 66 parts of 4 queries, 128 sums, a maximum and a sum
  // each.
  CHECK(cuda::plan_decode_attention(shape, 132).workspace_bytes == 128 + 8 * 66 * 4 * (128 + 2) * 4);
  shape.max_length = 8192;
  CHECK(cuda::plan_decode_attention(shape, 132).splits == 64);  // of at least 128 positions
  shape.max_length = 100;
  CHECK(cuda::plan_decode_attention(shape, 132).splits == 1);
  shape.max_length = 129;
  CHECK(cuda::plan_decode_attention(shape, 132).splits == 2);
  shape.max_length = 128;
  CHECK(cuda::plan_decode_attention(shape, 132).splits == 1);
  CHECK(cuda::plan_decode_attention(shape, 132).workspace_bytes == 0);
  shape.max_length = 8192;
  shape.sequences = 64;
  CHECK(cuda::plan_decode_attention(shape, 132).splits == 2);
  shape.sequences = 128;
  CHECK(cuda::plan_decode_attention(shape, 128).splits == 1);
  shape.sequences = 0;
  CHECK(cuda::plan_decode_attention(shape, 132).splits == 1);
}

TEST_CASE("cuda decode_attention: what it refuses") {
  under_conditions([] {
    const DeviceArray<std::byte> memory(4096);
    const cuda::DecodeAttention good{.shape = {.head_dim = 8, .query_heads = 1, .kv_heads = 1, .sequences = 1},
                                     .qkv = memory.data(),
                                     .qkv_stride = 24,
                                     .kv = {.keys = memory.data(),
                                            .values = memory.data(),
                                            .slot_stride = 64,
                                            .head_stride = 64,
                                            .position_stride = 8},
                                     .out = memory.data(),
                                     .out_stride = 8};
    const auto refused = [&](auto&& change) {
      cuda::DecodeAttention arguments = good;
      change(arguments);
      return cuda::decode_attention(arguments, nullptr) == cudaErrorInvalidValue;
    };
    CHECK_FALSE(refused([](auto& a) { a.shape.sequences = 0; }));  // nothing to do
    CHECK(refused([](auto& a) { a.shape.kv_dtype = DType::kQ8_0; }));
    CHECK(refused([](auto& a) { a.shape.dtype = DType::kQ8_0; }));
    CHECK(refused([](auto& a) { a.shape.head_dim = 12; }));
    CHECK(refused([](auto& a) { a.shape.head_dim = 264; }));
    CHECK(refused([](auto& a) { a.shape.queries_per_kv = 0; }));
    CHECK(refused([](auto& a) { a.plan.splits = 0; }));
    CHECK(refused([](auto& a) { a.plan.splits = 2; }));  // without a workspace
    CHECK(refused([](auto& a) { a.shape.rotary_dims = 7; }));
    CHECK(refused([](auto& a) { a.shape.rotary_dims = 10; }));
    CHECK(refused([](auto& a) { a.qkv_stride = 23; }));
    CHECK(refused([](auto& a) { a.kv.dtype = DType::kF32; }));  // not the shape's
    CHECK(refused([&](auto& a) { a.kv.keys = memory.data() + 8; }));
    CHECK(refused([](auto& a) { a.kv.head_stride = 60; }));
    CHECK(refused([](auto& a) { a.kv.position_stride = 0; }));
    CHECK(refused([](auto& a) { a.out_stride = 7; }));

    // KV heads have to cover the query heads. A shape without sequences is refused like others, or does nothing.
    const auto refused_heads = [&](int64_t first_query_head, int64_t query_heads, int64_t first_kv_head,
                                   int64_t kv_heads) {
      return refused([&](auto& a) {
        a.shape.queries_per_kv = 4;
        a.shape.first_query_head = first_query_head;
        a.shape.query_heads = query_heads;
        a.shape.first_kv_head = first_kv_head;
        a.shape.kv_heads = kv_heads;
        a.shape.sequences = 0;
        a.qkv_stride = (query_heads + 2 * kv_heads) * a.shape.head_dim;
        a.out_stride = query_heads * a.shape.head_dim;
      });
    };
    CHECK_FALSE(refused_heads(0, 8, 0, 2));
    CHECK_FALSE(refused_heads(3, 6, 0, 3));  // heads 3 to 8: groups 0, 1 and 2
    CHECK_FALSE(refused_heads(5, 1, 0, 3));  // more than they need
    CHECK_FALSE(refused_heads(0, 0, 0, 0));
    CHECK(refused_heads(0, 8, 0, 1));
    CHECK(refused_heads(3, 6, 0, 2));
    CHECK(refused_heads(3, 6, 1, 2));
    CHECK(refused_heads(3, 6, 1, 0));
    CHECK(refused([](auto& a) {  // four heads, each with a KV head of its own
      a.shape.query_heads = 4;
      a.qkv_stride = 48;
      a.out_stride = 32;
    }));
  });
}
