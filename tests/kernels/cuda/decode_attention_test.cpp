// Attention of one token per sequence on CUDA, against doubles and the textbook's order.
#include "kernels/cuda/decode_attention.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/kernels/cuda/conditions.hpp"
#include "tests/kernels/cuda/device_array.hpp"
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
  int64_t queries_per_kv = 1;
  int64_t first_query_head = 0;
  int64_t query_heads = 1;
  std::vector<int32_t> lengths = {1};
  std::vector<int32_t> slots;   // empty: in order
  int64_t multiprocessors = 1;  // that the plan is for
  float magnitude = 1.0F;       // of the queries
};

cuda::DecodeAttentionShape shape_of(const Case& c) {
  const int64_t last_head = c.first_query_head + c.query_heads - 1;
  const int64_t first_kv_head = c.first_query_head / c.queries_per_kv;
  return {.kv_dtype = c.kv_dtype,
          .dtype = c.dtype,
          .head_dim = c.head_dim,
          .queries_per_kv = c.queries_per_kv,
          .first_query_head = c.first_query_head,
          .query_heads = c.query_heads,
          .first_kv_head = first_kv_head,
          .kv_heads = last_head / c.queries_per_kv - first_kv_head + 1,
          .sequences = static_cast<int64_t>(c.lengths.size()),
          .max_length = std::max(1, *std::max_element(c.lengths.begin(), c.lengths.end()))};
}

/// Keys and values of a cache: [slot][kv_head][position][head_dim] with room between heads and rows. Only the positions
/// of the sequences are ever written.
class Cache {
 public:
  Cache(const Case& c, uint32_t seed)
      : shape_(shape_of(c)),
        position_stride_(shape_.head_dim + 8),
        head_stride_((shape_.max_length + 3) * position_stride_),
        slot_stride_(shape_.kv_heads * head_stride_ + 16),
        element_(kernels::facts(c.kv_dtype).block_bytes),
        memory_((shape_.sequences + 1) * slot_stride_ * element_) {
    for (int64_t sequence = 0; sequence < shape_.sequences; ++sequence) {
      for (int64_t head = 0; head < shape_.kv_heads; ++head) {
        const int64_t length = std::max(0, c.lengths[sequence]);
        values_.push_back(random_stored(c.kv_dtype, length * shape_.head_dim, seed++));
        for (int64_t position = 0; position < length; ++position) {
          const int64_t slot = c.slots.empty() ? sequence : c.slots[sequence];
          const int64_t to = slot * slot_stride_ + head * head_stride_ + position * position_stride_;
          check_cuda(cudaMemcpy(memory_.data() + to * element_,
                                values_.back().bytes.data() + position * shape_.head_dim * element_,
                                static_cast<size_t>(shape_.head_dim * element_), cudaMemcpyHostToDevice),
                     "copy of a position");
        }
      }
    }
  }

  const void* memory() const { return memory_.data(); }
  int64_t position_stride() const { return position_stride_; }
  int64_t head_stride() const { return head_stride_; }
  int64_t slot_stride() const { return slot_stride_; }
  double at(int64_t sequence, int64_t head, int64_t position, int64_t dim) const {
    return static_cast<double>(values_[sequence * shape_.kv_heads + head].values[position * shape_.head_dim + dim]);
  }

 private:
  cuda::DecodeAttentionShape shape_;
  int64_t position_stride_;
  int64_t head_stride_;
  int64_t slot_stride_;
  int64_t element_;
  DeviceArray<std::byte> memory_;
  std::vector<Stored> values_;  // [sequence][head]
};

/// The output of all sequences and query heads. Tolerance: scores have a rounding a term, and one for the scale, on a
/// magnitude of sum |q k|; a weight is then off by that much, relatively, and by the roundings of its exponential; the
/// sums add one rounding a position. Both weights and their sum are off, hence twice.
Expected attended(const Case& c, const cuda::DecodeAttentionShape& shape, float scale, const Stored& q,
                  const Cache& keys, const Cache& values) {
  Expected expected;
  for (int64_t sequence = 0; sequence < shape.sequences; ++sequence) {
    for (int64_t query = 0; query < c.query_heads; ++query) {
      const int64_t head = (c.first_query_head + query) / c.queries_per_kv - shape.first_kv_head;
      const int64_t length = std::max(0, c.lengths[sequence]);
      std::vector<double> scores;
      double magnitude = 0;
      for (int64_t position = 0; position < length; ++position) {
        double score = 0;
        double of_position = 0;
        for (int64_t dim = 0; dim < c.head_dim; ++dim) {
          const double term = static_cast<double>(q.values[(sequence * c.query_heads + query) * c.head_dim + dim]) *
                              keys.at(sequence, head, position, dim) * static_cast<double>(scale);
          score += term;
          of_position += std::abs(term);
        }
        scores.push_back(score);
        magnitude = std::max(magnitude, of_position);
      }
      const double largest = scores.empty() ? 0.0 : *std::max_element(scores.begin(), scores.end());
      double sum = 0;
      for (double& score : scores) sum += score = std::exp(score - largest);
      const double of_scores = kF32Epsilon * static_cast<double>(c.head_dim + 4) * magnitude * 2;
      const double relative = 2 * (of_scores + kF32Epsilon * static_cast<double>(length + 16));
      for (int64_t dim = 0; dim < c.head_dim; ++dim) {
        double value = 0;
        double of_values = 0;
        for (int64_t position = 0; position < length; ++position) {
          const double term = scores[position] / sum * values.at(sequence, head, position, dim);
          value += term;
          of_values += std::abs(term);
        }
        expected.values.push_back(value);
        expected.tolerances.push_back(relative * of_values);
      }
    }
  }
  add_rounding(c.dtype, expected);
  return expected;
}

void check_attention(const Case& c, int calls = 1) {
  INFO(kernels::facts(c.kv_dtype).name << " head_dim " << c.head_dim << " queries " << c.first_query_head << " + "
                                       << c.query_heads << ", " << c.queries_per_kv << " per KV head, first length "
                                       << c.lengths[0] << " plan for " << c.multiprocessors);
  const cuda::DecodeAttentionShape shape = shape_of(c);
  const float scale = 1.0F / std::sqrt(static_cast<float>(c.head_dim));
  const int64_t width = c.query_heads * c.head_dim;
  std::vector<float> queries = random_values(shape.sequences * width, 1);
  for (float& value : queries) value *= c.magnitude;
  const Stored q = stored(c.dtype, queries);
  const Cache keys(c, 100);
  const Cache values(c, 200);
  const Expected expected = attended(c, shape, scale, q, keys, values);

  const DeviceArray<std::byte> device_q(q.bytes);
  const DeviceArray<int32_t> lengths(c.lengths);
  const DeviceArray<int32_t> slots(c.slots);
  const DeviceArray<std::byte> out(static_cast<int64_t>(q.bytes.size()));
  const cuda::DecodeAttentionPlan plan = cuda::plan_decode_attention(shape, c.multiprocessors);
  const auto workspace = DeviceArray<std::byte>::zeros(plan.workspace_bytes);
  for (int call = 0; call < calls; ++call) {
    // Not a number in every dtype: what the call before has left does not count.
    check_cuda(cudaMemset(out.data(), 0xFF, q.bytes.size()), "cudaMemset");
    check_cuda(cuda::decode_attention({.shape = shape,
                                       .plan = plan,
                                       .scale = scale,
                                       .q = device_q.data(),
                                       .q_stride = width,
                                       .keys = keys.memory(),
                                       .values = values.memory(),
                                       .slot_stride = keys.slot_stride(),
                                       .head_stride = keys.head_stride(),
                                       .position_stride = keys.position_stride(),
                                       .lengths = lengths.data(),
                                       .slots = slots.data(),
                                       .out = out.data(),
                                       .out_stride = width,
                                       .workspace = workspace.data()},
                                      nullptr),
               "decode_attention");
    CHECK(first_difference(meaning(c.dtype, out.download()), expected.values, expected.tolerances) == "");
  }
}

}  // namespace

TEST_CASE("cuda decode_attention: every head_dim and dtype of the cache") {
  under_conditions([] {
    for (const DType kv_dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (const int64_t head_dim : {8, 40, 64, 96, 128, 256}) {
        check_attention(
            {.kv_dtype = kv_dtype, .head_dim = head_dim, .queries_per_kv = 2, .query_heads = 2, .lengths = {37}});
      }
    }
  });
}

TEST_CASE("cuda decode_attention: queries and output of every dtype") {
  under_conditions([] {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      check_attention({.kv_dtype = DType::kBF16, .dtype = dtype, .query_heads = 2, .lengths = {9, 20}});
    }
  });
}

TEST_CASE("cuda decode_attention: lengths at the edges of tiles and blocks, and none") {
  under_conditions([] {
    check_attention({.head_dim = 64, .lengths = {1, 0, 7, 8, 9, 31, 33, -1}});
    check_attention({.head_dim = 64, .lengths = {63, 64, 65, 0}, .multiprocessors = 132});
    check_attention({.head_dim = 64, .lengths = {130, 1, 129, 96}, .multiprocessors = 132});
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
  });
}

TEST_CASE("cuda decode_attention: sequences that several blocks share, call after call") {
  under_conditions([] {
    check_attention({.head_dim = 128,
                     .queries_per_kv = 4,
                     .query_heads = 8,
                     .lengths = {300, 5, 0, 129},
                     .slots = {2, 0, 4, 1},
                     .multiprocessors = 132},
                    2);
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
                     .lengths = {1025},
                     .multiprocessors = 132});
  });
}

TEST_CASE("plan_decode_attention: sequences are split until the device is full, or the parts are short") {
  cuda::DecodeAttentionShape shape{
      .head_dim = 128, .queries_per_kv = 4, .query_heads = 32, .kv_heads = 8, .sequences = 1, .max_length = 8192};
  CHECK(cuda::plan_decode_attention(shape, 132).splits == 66);  // 4 blocks on each of 132, 8 heads
  // 8 heads: a counter of 4 bytes each, together a line of 128; 66 parts of 4 queries, 128 sums, a maximum and a sum
  // each.
  CHECK(cuda::plan_decode_attention(shape, 132).workspace_bytes == 128 + 8 * 66 * 4 * (128 + 2) * 4);
  shape.max_length = 100;
  CHECK(cuda::plan_decode_attention(shape, 132).splits == 2);  // of at least 64 positions
  shape.max_length = 64;
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
                                     .q = memory.data(),
                                     .q_stride = 8,
                                     .keys = memory.data(),
                                     .values = memory.data(),
                                     .slot_stride = 64,
                                     .head_stride = 64,
                                     .position_stride = 8,
                                     .lengths = nullptr,
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
    CHECK(refused([&](auto& a) { a.keys = memory.data() + 8; }));
    CHECK(refused([](auto& a) { a.head_stride = 60; }));
    CHECK(refused([](auto& a) { a.position_stride = 0; }));
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
        a.q_stride = a.out_stride = query_heads * a.shape.head_dim;
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
      a.q_stride = a.out_stride = 32;
    }));
  });
}
