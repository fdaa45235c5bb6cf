// Rotation, append and attention together, against attention over all positions of plainly kept keys and values.
#include <catch2/catch.hpp>
#include <cmath>

#include "kernels/base/error.hpp"
#include "tests/kernels/reference.hpp"
#include "tests/support/approx.hpp"

using namespace shardscope;
using namespace shardscope::kernels;
using namespace shardscope::test;

namespace {

/// Keys, values and rotations in double, as a list of positions for each slot and KV head.
class PlainAttention {
 public:
  PlainAttention(const HeadLayout& heads, int64_t slots, std::vector<float> frequencies, float rotary_scale)
      : heads_(heads), frequencies_(std::move(frequencies)), rotary_scale_(rotary_scale) {
    keys_.resize(static_cast<size_t>(slots * heads.kv_heads.size()));
    values_.resize(keys_.size());
    positions_.resize(static_cast<size_t>(slots));
  }

  /// One token after another; returns its outputs.
  std::vector<double> add_token(int64_t slot, std::span<const float> qkv) {
    const int64_t dims = heads_.head_dim;
    const int64_t kv_count = heads_.kv_heads.size();
    const int64_t position = positions_[slot]++;
    for (int64_t head = 0; head < kv_count; ++head) {
      const int64_t at = heads_.query_columns() + head * dims;
      keys_[slot * kv_count + head].push_back(rotated(qkv.subspan(at, dims), position));
      const auto value = qkv.subspan(at + heads_.kv_columns(), dims);
      values_[slot * kv_count + head].emplace_back(value.begin(), value.end());
    }
    std::vector<double> out;
    for (int64_t head = heads_.query_heads.begin; head < heads_.query_heads.end; ++head) {
      const int64_t kv = slot * kv_count + head / heads_.queries_per_kv - heads_.kv_heads.begin;
      const auto query = rotated(qkv.subspan((head - heads_.query_heads.begin) * dims, dims), position);
      const std::vector<double> one = attend(query, keys_[kv], values_[kv]);
      out.insert(out.end(), one.begin(), one.end());
    }
    return out;
  }

 private:
  using Rows = std::vector<std::vector<double>>;

  std::vector<double> rotated(std::span<const float> head, int64_t position) const {
    std::vector<double> out(head.begin(), head.end());
    const int64_t half = heads_.rotary_dims / 2;
    for (int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(static_cast<float>(position) * frequencies_[i]);
      const double c = std::cos(angle) * static_cast<double>(rotary_scale_);
      const double s = std::sin(angle) * static_cast<double>(rotary_scale_);
      const double first = static_cast<double>(head[i]);
      const double second = static_cast<double>(head[i + half]);
      out[i] = first * c - second * s;
      out[i + half] = second * c + first * s;
    }
    return out;
  }

  std::vector<double> attend(const std::vector<double>& query, const Rows& keys, const Rows& values) const {
    std::vector<double> weights;
    double total = 0;
    for (const auto& key : keys) {
      double score = 0;
      for (size_t i = 0; i < key.size(); ++i) score += key[i] * query[i];
      weights.push_back(std::exp(score * static_cast<double>(heads_.scale)));
      total += weights.back();
    }
    std::vector<double> out(query.size(), 0.0);
    for (size_t p = 0; p < values.size(); ++p) {
      for (size_t i = 0; i < out.size(); ++i) out[i] += weights[p] / total * values[p][i];
    }
    return out;
  }

  HeadLayout heads_;
  std::vector<float> frequencies_;
  float rotary_scale_;
  std::vector<int64_t> positions_;  // filled, of each slot
  std::vector<Rows> keys_;
  std::vector<Rows> values_;
};

struct Case {
  HeadLayout heads;
  KvShape cache;
  std::vector<std::vector<StepSequence>> steps;
  int threads = 1;
};

HeadLayout layout(int64_t head_dim, Range queries, Range kv, int64_t queries_per_kv, int64_t rotary_dims) {
  return {head_dim, queries, kv, queries_per_kv, static_cast<float>(1.0 / std::sqrt(head_dim)), rotary_dims};
}

std::vector<float> frequencies_for(int64_t rotary_dims) {
  std::vector<float> frequencies;
  for (int64_t i = 0; i < rotary_dims / 2; ++i) {
    frequencies.push_back(
        static_cast<float>(std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(rotary_dims))));
  }
  return frequencies;
}

/// Runs the steps on the backend and on the plain form, and compares after every step, in the cache's last layer.
void check(const Case& test) {
  const HeadLayout& heads = test.heads;
  const auto backend = make_cpu_backend({.threads = test.threads, .cores = {}, .activations = ActivationMode::kAuto});
  const auto cache = backend->make_kv_cache(test.cache);
  const std::vector<float> frequencies = frequencies_for(heads.rotary_dims);
  PlainAttention plain(heads, test.cache.slots, frequencies, 1.25F);
  const int64_t columns = heads.query_columns() + 2 * heads.kv_columns();
  uint32_t seed = 1;
  for (const auto& sequences : test.steps) {
    int64_t tokens = 0;
    for (const StepSequence& sequence : sequences) tokens += sequence.count;
    std::vector<float> values = random_values(tokens * columns, seed++);
    for (float& value : values) value *= 2.0F;
    const std::vector<int32_t> ids(static_cast<size_t>(tokens), 0);
    const auto qkv = filled(*backend, tokens, columns, values);
    const auto out = backend->make_activations(tokens, heads.query_columns());
    run(*backend, {ids, sequences, frequencies, 1.25F},
        [&] { backend->append_and_attend(qkv->view(), heads, *cache, test.cache.layers - 1, out->view()); });
    std::vector<double> expected;
    int64_t row = 0;
    for (const StepSequence& sequence : sequences) {
      for (int64_t i = 0; i < sequence.count; ++i, ++row) {
        const auto one = plain.add_token(sequence.slot, std::span(values).subspan(row * columns, columns));
        expected.insert(expected.end(), one.begin(), one.end());
      }
    }
    // Scores are sums of head_dim products of at most 2 * 1.25 * sqrt(2) each way; their error goes through exp into
    // the weights, and values are at most 2.
    const double score_error = kF32Epsilon * static_cast<double>(heads.head_dim + 8) * 12.5 *
                               static_cast<double>(heads.head_dim) * static_cast<double>(heads.scale);
    CHECK(first_difference(contents(out->view()), expected, 4 * score_error + 64 * kF32Epsilon) == "");
  }
}

void check_on_all_targets(const Case& test) {
  for_each_target([&](const std::string& target) {
    INFO(target << ", head_dim " << test.heads.head_dim << ", " << test.threads << " threads");
    check(test);
  });
}

}  // namespace

TEST_CASE("attention: head sizes, ragged groups, several sequences, prefill and decode") {
  for (const int64_t head_dim : {8, 16, 24, 64, 80, 128}) {
    // 5 of the model's query heads, in ragged groups of 1, 3 and 1.
    const HeadLayout heads = layout(head_dim, {2, 7}, {0, 3}, 3, head_dim);
    const std::vector<std::vector<StepSequence>> steps = {
        {{1, 0, 21}}, {{0, 0, 1}, {1, 21, 3}}, {{0, 1, 1}, {1, 24, 1}}, {{1, 25, 58}, {0, 2, 70}}};
    check_on_all_targets({heads, {2, 2, 3, 83, head_dim}, steps, 1});
    check_on_all_targets({heads, {2, 2, 3, 83, head_dim}, steps, 3});
  }
}

TEST_CASE("attention: partial rotation, odd head size and a single position") {
  check_on_all_targets({layout(10, {0, 2}, {0, 1}, 2, 4), {1, 1, 1, 1, 10}, {{{0, 0, 1}}}, 1});
  check_on_all_targets({layout(7, {0, 1}, {0, 1}, 1, 0), {1, 1, 1, 40, 7}, {{{0, 0, 33}}, {{0, 33, 7}}}, 1});
}

TEST_CASE("attention: many query heads on one KV head") {
  check_on_all_targets({layout(16, {0, 71}, {0, 1}, 71, 16), {1, 1, 1, 9, 16}, {{{0, 0, 8}}, {{0, 8, 1}}}, 2});
}

TEST_CASE("attention: long contexts are split over the threads") {
  const HeadLayout heads = layout(32, {0, 3}, {0, 1}, 3, 32);
  check_on_all_targets({heads, {1, 1, 1, 1100, 32}, {{{0, 0, 1090}}, {{0, 1090, 1}}, {{0, 1091, 1}}}, 4});
}

TEST_CASE("attention: a rank without heads") {
  check({layout(8, {4, 4}, {0, 0}, 2, 8), {1, 1, 0, 4, 8}, {{{0, 0, 2}}}, 2});
}

TEST_CASE("attention: places beyond the cache are bugs") {
  const auto backend = make_cpu_backend({});
  const HeadLayout heads = layout(8, {0, 1}, {0, 1}, 1, 8);
  const auto cache = backend->make_kv_cache({1, 1, 1, 4, 8});
  const auto qkv = backend->make_activations(1, 24);
  const auto out = backend->make_activations(1, 8);
  const std::vector<int32_t> ids = {0};
  const std::vector<float> frequencies = frequencies_for(8);
  for (const StepSequence& wrong : {StepSequence{0, 4, 1}, StepSequence{1, 0, 1}, StepSequence{-1, 0, 1}}) {
    run(*backend, {ids, {&wrong, 1}, frequencies, 1.0F},
        [&] { CHECK_THROWS_AS(backend->append_and_attend(qkv->view(), heads, *cache, 0, out->view()), BugError); });
  }
  const StepSequence right{0, 3, 1};
  run(*backend, {ids, {&right, 1}, frequencies, 1.0F}, [&] {
    CHECK_THROWS_AS(backend->append_and_attend(qkv->view(), heads, *cache, 1, out->view()), BugError);
    CHECK_NOTHROW(backend->append_and_attend(qkv->view(), heads, *cache, 0, out->view()));
  });
}

TEST_CASE("kv cache: bytes are those of keys and values in fp32") {
  const auto cache = make_cpu_backend({})->make_kv_cache({3, 2, 5, 37, 24});
  CHECK(cache->bytes_per_position() == 3 * 5 * 24 * 2 * 4);
  CHECK(cache->bytes() == 37 * 2 * cache->bytes_per_position());
}
