// Rotary embedding and appending to the cache on CUDA, against doubles.
#include "kernels/cuda/rope_append.hpp"

#include <catch2/catch.hpp>

#include "tests/kernels/cuda/conditions.hpp"
#include "tests/kernels/cuda/kv_on_device.hpp"
#include "tests/support/approx.hpp"

using namespace shardscope;
using namespace shardscope::test;
using kernels::DType;

namespace {

struct Case {
  DType dtype = DType::kF32;
  DType kv_dtype = DType::kF16;
  int64_t query_heads = 2;
  int64_t kv_heads = 1;
  int64_t head_dim = 64;
  int64_t rotary_dims = 64;
  std::vector<int32_t> positions = {0};
  std::vector<int32_t> slots = {0};
  int64_t room = 8;  // elements between the rows of qkv
};

/// Compares one head of a token with what it should be, rounded once to `dtype`.
std::string wrong_head(DType dtype, std::span<const float> actual, std::span<const float> given,
                       std::span<const float2> angles) {
  const Rotated turned = rotated_head(given, angles);
  Expected expected{turned.values, turned.magnitudes};
  for (double& tolerance : expected.tolerances) tolerance *= kRotationRoundings * kF32Epsilon;
  add_rounding(dtype, expected);
  return first_difference(actual, expected.values, expected.tolerances);
}

void check_append(const Case& c) {
  INFO(kernels::facts(c.dtype).name << " to " << kernels::facts(c.kv_dtype).name << ", heads " << c.query_heads << " + "
                                    << c.kv_heads << " of " << c.head_dim << ", rotated " << c.rotary_dims << ", room "
                                    << c.room << ", tokens " << c.positions.size());
  const auto tokens = std::ssize(c.positions);
  const int64_t stride = (c.query_heads + 2 * c.kv_heads) * c.head_dim + c.room;
  const Stored qkv = random_stored(c.dtype, tokens * stride, 1);
  const std::vector<float2> angles = random_angles(tokens * c.rotary_dims / 2, 2);
  const KvOnDevice cache({.dtype = c.kv_dtype,
                          .slots = 1 + *std::max_element(c.slots.begin(), c.slots.end()),
                          .heads = std::max<int64_t>(1, c.kv_heads),
                          .positions = 1 + std::max(0, *std::max_element(c.positions.begin(), c.positions.end())),
                          .head_dim = c.head_dim});
  const DeviceArray<std::byte> device_qkv(qkv.bytes);
  const DeviceArray<float2> rotary(angles);
  const DeviceArray<int32_t> positions(c.positions);
  const DeviceArray<int32_t> slots(c.slots);
  KvContents expected = cache.download();
  check_cuda(cuda::rope_append({.dtype = c.dtype,
                                .tokens = tokens,
                                .query_heads = c.query_heads,
                                .kv_heads = c.kv_heads,
                                .head_dim = c.head_dim,
                                .rotary_dims = c.rotary_dims,
                                .qkv = device_qkv.data(),
                                .qkv_stride = stride,
                                .rotary = rotary.data(),
                                .positions = positions.data(),
                                .slots = slots.data(),
                                .kv = cache.view()},
                               nullptr),
             "rope_append");
  const KvContents contents = cache.download();
  std::vector<float> after = meaning(c.dtype, device_qkv.download());
  for (int64_t token = 0; token < tokens; ++token) {
    INFO("token " << token);
    const std::span<const float2> turns =
        std::span(angles).subspan(token * c.rotary_dims / 2, static_cast<size_t>(c.rotary_dims / 2));
    const auto given = [&](int64_t head) {
      return std::span(qkv.values).subspan(token * stride + head * c.head_dim, static_cast<size_t>(c.head_dim));
    };
    for (int64_t head = 0; head < c.query_heads; ++head) {
      const std::span<float> query =
          std::span(after).subspan(token * stride + head * c.head_dim, static_cast<size_t>(c.head_dim));
      CHECK(wrong_head(c.dtype, query, given(head), turns) == "");
      std::copy(given(head).begin(), given(head).end(), query.begin());
    }
    if (c.positions[token] < 0) continue;
    for (int64_t head = 0; head < c.kv_heads; ++head) {
      CHECK(wrong_head(c.kv_dtype, contents.key(c.slots[token], head, c.positions[token]), given(c.query_heads + head),
                       turns) == "");
      const std::span<const float> value = given(c.query_heads + c.kv_heads + head);
      CHECK(contents.value(c.slots[token], head, c.positions[token]) == stored(c.kv_dtype, value).values);
      expected.take(contents, c.slots[token], head, c.positions[token]);
    }
  }
  // Nothing else has changed: keys, values and room in qkv, and all other rows of the cache.
  CHECK(after == qkv.values);
  CHECK(contents.keys == expected.keys);
  CHECK(contents.values == expected.values);
}

}  // namespace

TEST_CASE("cuda rope_append: every pair of dtypes") {
  under_conditions([] {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (const DType kv_dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
        check_append({.dtype = dtype, .kv_dtype = kv_dtype, .positions = {2, 0}, .slots = {1, 0}});
      }
    }
  });
}

TEST_CASE("cuda rope_append: heads of every size, of which all, some or no dims are rotated") {
  under_conditions([] {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const int64_t head_dim : {8, 24, 96, 256}) {
        for (const int64_t rotary_dims : {head_dim, head_dim / 2, int64_t{2}, int64_t{0}}) {
          check_append({.dtype = dtype,
                        .kv_dtype = DType::kBF16,
                        .query_heads = 3,
                        .head_dim = head_dim,
                        .rotary_dims = rotary_dims});
        }
      }
    }
  });
}

TEST_CASE("cuda rope_append: heads without queries, without keys, and rows that are not aligned") {
  under_conditions([] {
    check_append({.query_heads = 0, .kv_heads = 3});
    check_append({.query_heads = 5, .kv_heads = 0});
    check_append({.dtype = DType::kBF16, .positions = {1, 2, 3}, .slots = {0, 0, 0}, .room = 1});
    check_append({.dtype = DType::kF32, .positions = {1, 2, 3}, .slots = {0, 0, 0}, .room = 3});
  });
}

TEST_CASE("cuda rope_append: a batch of prompts, with padding between them") {
  under_conditions([] {
    check_append({.dtype = DType::kF16,
                  .query_heads = 4,
                  .kv_heads = 2,
                  .head_dim = 32,
                  .rotary_dims = 32,
                  .positions = {0, 1, 2, -1, 7, 8, -1, 0},
                  .slots = {2, 2, 2, 0, 0, 0, 0, 1}});
  });
}

TEST_CASE("cuda rope_append: a real model's heads") {
  under_conditions([] {
    check_append({.dtype = DType::kBF16,
                  .kv_dtype = DType::kBF16,
                  .query_heads = 32,
                  .kv_heads = 8,
                  .head_dim = 128,
                  .rotary_dims = 128,
                  .positions = {5, 6, 7},
                  .slots = {0, 0, 0}});
  });
}

TEST_CASE("cuda rope_append: what it refuses") {
  under_conditions([] {
    const DeviceArray<std::byte> memory(4096);
    const cuda::RopeAppend good{.tokens = 1,
                                .query_heads = 1,
                                .kv_heads = 1,
                                .head_dim = 8,
                                .rotary_dims = 8,
                                .qkv = memory.data(),
                                .qkv_stride = 24,
                                .kv = {.keys = memory.data(),
                                       .values = memory.data(),
                                       .slot_stride = 64,
                                       .head_stride = 64,
                                       .position_stride = 8}};
    const auto refused = [&](auto&& change) {
      cuda::RopeAppend arguments = good;
      change(arguments);
      return cuda::rope_append(arguments, nullptr) == cudaErrorInvalidValue;
    };
    CHECK_FALSE(refused([](auto& a) { a.tokens = 0; }));  // nothing to do
    CHECK_FALSE(refused([](auto& a) { a.query_heads = a.kv_heads = 0; }));
    CHECK(refused([](auto& a) { a.tokens = -1; }));
    CHECK(refused([](auto& a) { a.dtype = DType::kQ8_0; }));
    CHECK(refused([](auto& a) { a.kv.dtype = DType::kQ8_0; }));
    CHECK(refused([](auto& a) { a.head_dim = 12; }));
    CHECK(refused([](auto& a) { a.head_dim = 264; }));
    CHECK(refused([](auto& a) { a.rotary_dims = 7; }));
    CHECK(refused([](auto& a) { a.rotary_dims = 10; }));
    CHECK(refused([](auto& a) { a.qkv_stride = 23; }));
    CHECK(refused([&](auto& a) { a.kv.values = memory.data() + 8; }));
    CHECK(refused([](auto& a) { a.kv.slot_stride = 60; }));
    CHECK(refused([](auto& a) { a.kv.position_stride = 4; }));
  });
}
