// Kernels behind each other in one stream, each allowed to start before its predecessor has ended: as in a decode step.
#include <catch2/catch.hpp>
#include <cmath>

#include "kernels/cuda/all_reduce.hpp"
#include "kernels/cuda/decode_attention.hpp"
#include "kernels/cuda/mat_vec.hpp"
#include "kernels/cuda/rms_norm.hpp"
#include "tests/kernels/cuda/conditions.hpp"
#include "tests/kernels/cuda/kv_on_device.hpp"
#include "tests/kernels/cuda/matrix_on_device.hpp"
#include "tests/kernels/cuda/ranks.hpp"
#include "tests/support/approx.hpp"

using namespace shardscope;
using namespace shardscope::test;
using kernels::DType;

namespace {

constexpr float kEpsilon = 1e-5F;

/// x / sqrt(mean(x^2) + epsilon) * weight, in double, rounded to the floats that the next product gets.
std::vector<float> normed(const std::vector<double>& x, const std::vector<float>& weight) {
  double squares = 0;
  for (const double value : x) squares += value * value;
  const double root = std::sqrt(squares / static_cast<double>(x.size()) + static_cast<double>(kEpsilon));
  std::vector<float> result;
  for (size_t i = 0; i < x.size(); ++i) {
    result.push_back(static_cast<float>(x[i] / root * static_cast<double>(weight[i])));
  }
  return result;
}

constexpr int64_t kHeads = 2;
constexpr int64_t kHeadDim = 32;
constexpr int64_t kWidth = kHeads * kHeadDim;
constexpr int64_t kQkvWidth = kWidth + 2 * kHeadDim;
constexpr int64_t kLength = 150;

/// What a rank of the second chain works on; its memory belongs to the device that is current at birth.
struct ChainRank {
  explicit ChainRank(uint32_t seed)
      : matrix(random_matrix(DType::kBF16, kQkvWidth, kWidth, seed)),
        weights(matrix),
        rotary(random_angles(kHeadDim / 2, seed + 1)),
        cache({.dtype = DType::kF32, .positions = kLength, .head_dim = kHeadDim}),
        slots(std::vector<int32_t>{0}),
        lengths(std::vector<int32_t>{static_cast<int32_t>(kLength)}),
        x(random_values(kWidth, 7)),
        qkv(kQkvWidth),
        attended(kWidth),
        workspace(DeviceArray<std::byte>::zeros(plan.workspace_bytes)) {
    cache.fill(0, kLength - 1, seed + 2);
  }

  cuda::DecodeAttentionShape shape{.kv_dtype = DType::kF32,
                                   .head_dim = kHeadDim,
                                   .rotary_dims = kHeadDim,
                                   .queries_per_kv = kHeads,
                                   .query_heads = kHeads,
                                   .kv_heads = 1,
                                   .sequences = 1,
                                   .max_length = kLength};
  cuda::DecodeAttentionPlan plan = cuda::plan_decode_attention(shape, 132);  // several blocks share the positions
  StoredMatrix matrix;
  MatrixOnDevice weights;
  DeviceArray<float2> rotary;
  KvOnDevice cache;
  DeviceArray<int32_t> slots;
  DeviceArray<int32_t> lengths;
  DeviceArray<float> x;
  DeviceArray<float> qkv;
  DeviceArray<float> attended;
  DeviceArray<std::byte> workspace;
};

void enqueue_layer(const ChainRank& chain, const cuda::PeerRank& rank, bool programmatic, cudaStream_t stream) {
  cuda::MatVec product = chain.weights.arguments();
  product.x = chain.x.data();
  product.x_stride = kWidth;
  product.y = chain.qkv.data();
  product.y_stride = kQkvWidth;
  product.programmatic = programmatic;
  check_cuda(cuda::mat_vec(product, stream), "mat_vec");
  check_cuda(cuda::decode_attention({.shape = chain.shape,
                                     .plan = chain.plan,
                                     .scale = 1.0F,
                                     .qkv = chain.qkv.data(),
                                     .qkv_stride = kQkvWidth,
                                     .rotary = chain.rotary.data(),
                                     .kv = chain.cache.view(),
                                     .lengths = chain.lengths.data(),
                                     .slots = chain.slots.data(),
                                     .out = chain.attended.data(),
                                     .out_stride = kWidth,
                                     .workspace = chain.workspace.data(),
                                     .programmatic = programmatic},
                                    stream),
             "decode_attention");
  check_cuda(
      cuda::all_reduce(
          rank, cuda::Shots::kTwo,
          {.count = kWidth, .x = chain.attended.data(), .out = chain.x.data(), .programmatic = programmatic}, stream),
      "all_reduce");
}

/// x of all ranks after three layers.
std::vector<std::vector<float>> chain_results(bool programmatic) {
  constexpr int kRanks = 2;
  constexpr int kLayers = 3;
  const Ranks ranks(kRanks);
  std::vector<ChainRank> chains;
  chains.reserve(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.use(rank);
    chains.emplace_back(static_cast<uint32_t>(10 * rank));
    check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");  // all is there for all streams
  }
  for (int layer = 0; layer < kLayers; ++layer) {
    for (int rank = 0; rank < kRanks; ++rank) {
      ranks.use(rank);
      enqueue_layer(chains[rank], ranks.rank(rank), programmatic, ranks.stream(rank));
    }
  }
  std::vector<std::vector<float>> results;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.use(rank);
    results.push_back(chains[rank].x.download());
  }
  return results;
}

/// h += W2 norm(W1 norm(h)), `layers` times, from `start` on. Errors grow from layer to layer; their bound is that of
/// one layer, times the layers behind it and what a norm magnifies: at most 1 / the root mean square, here below 8.
Expected layers_of_products(const StoredMatrix& up, const StoredMatrix& down, const std::vector<float>& weight,
                            const std::vector<float>& inner_weight, const std::vector<float>& start, int layers) {
  Expected h{{start.begin(), start.end()}, std::vector<double>(start.size())};
  for (int layer = 0; layer < layers; ++layer) {
    const Expected inner = mat_vec_product(up, normed(h.values, weight), {}, DType::kF32);
    const Expected sum = mat_vec_product(down, normed(inner.values, inner_weight), {}, DType::kF32);
    for (size_t i = 0; i < start.size(); ++i) {
      h.values[i] += sum.values[i];
      h.tolerances[i] += 8 * layers * sum.tolerances[i];
    }
  }
  return h;
}

/// h += W2 norm(W1 norm(h)) over the same buffers: each kernel overwrites what the
/// one before last read.
void check_products_and_norms(int64_t hidden_width, int64_t inner_width, int layers, int seeds) {
  const StoredMatrix up = random_matrix(DType::kBF16, inner_width, hidden_width, 1);
  const StoredMatrix down = random_matrix(DType::kQ4_0, hidden_width, inner_width, 2);
  const std::vector<float> weight = random_values(hidden_width, 3);
  const std::vector<float> inner_weight = random_values(inner_width, 4);
  const std::vector<float> start = random_values(hidden_width, 5);

  const Expected expected = layers_of_products(up, down, weight, inner_weight, start, layers);

  under_conditions({.seeds = seeds}, [&] {
    const MatrixOnDevice device_up(up);
    const MatrixOnDevice device_down(down);
    const DeviceArray<float> device_weight(weight);
    const DeviceArray<float> device_inner_weight(inner_weight);
    const DeviceArray<float> device_h(start);
    const DeviceArray<float> norm(hidden_width);
    const DeviceArray<float> inner(inner_width);
    const auto sum = DeviceArray<float>::zeros(hidden_width);
    const auto enqueue_norm = [&](const DeviceArray<float>& x, const float* addend, const DeviceArray<float>& weights,
                                  const DeviceArray<float>& out) {
      check_cuda(cuda::rms_norm({.rows = 1,
                                 .columns = x.size(),
                                 .x = x.data(),
                                 .x_stride = x.size(),
                                 .addend = addend,
                                 .addend_stride = x.size(),
                                 .sum = x.data(),
                                 .sum_stride = x.size(),
                                 .weight = weights.data(),
                                 .out = out.data(),
                                 .out_stride = x.size(),
                                 .epsilon = kEpsilon,
                                 .programmatic = true},
                                nullptr),
                 "rms_norm");
    };
    const auto enqueue_product = [&](const MatrixOnDevice& matrix, const DeviceArray<float>& x,
                                     const DeviceArray<float>& y) {
      cuda::MatVec arguments = matrix.arguments();
      arguments.x = x.data();
      arguments.x_stride = x.size();
      arguments.y = y.data();
      arguments.y_stride = y.size();
      arguments.programmatic = true;
      check_cuda(cuda::mat_vec(arguments, nullptr), "mat_vec");
    };
    for (int layer = 0; layer < layers; ++layer) {
      enqueue_norm(device_h, sum.data(), device_weight, norm);  // adds the layer before; zeros at first
      enqueue_product(device_up, norm, inner);
      enqueue_norm(inner, nullptr, device_inner_weight, inner);
      enqueue_product(device_down, inner, sum);
    }
    enqueue_norm(device_h, sum.data(), device_weight, norm);
    CHECK(first_difference(device_h.download(), expected.values, expected.tolerances) == "");
  });
}

/// The same with the norms fused to the products, which add the layer before, too. h lies in two buffers by turns: no
/// product reads what another block of it writes.
void check_fused_products(int64_t hidden_width, int64_t inner_width, int layers) {
  const StoredMatrix up = random_matrix(DType::kQ8_0, inner_width, hidden_width, 1);
  const StoredMatrix down = random_matrix(DType::kF16, hidden_width, inner_width, 2);
  const std::vector<float> weight = random_values(hidden_width, 3);
  const std::vector<float> inner_weight = random_values(inner_width, 4);
  const std::vector<float> start = random_values(hidden_width, 5);
  const Expected expected = layers_of_products(up, down, weight, inner_weight, start, layers);

  under_conditions([&] {
    const MatrixOnDevice device_up(up);
    const MatrixOnDevice device_down(down);
    const DeviceArray<float> device_weight(weight);
    const DeviceArray<float> device_inner_weight(inner_weight);
    const DeviceArray<float> h[2] = {DeviceArray<float>(start), DeviceArray<float>(hidden_width)};
    const DeviceArray<float> inner(inner_width);
    const auto sum = DeviceArray<float>::zeros(hidden_width);
    for (int layer = 0; layer < layers; ++layer) {
      cuda::MatVec product = device_up.arguments();
      product.x = h[layer % 2].data();
      product.x_stride = hidden_width;
      product.norm = {.weight = device_weight.data(),
                      .epsilon = kEpsilon,
                      .addend = sum.data(),
                      .addend_stride = hidden_width,
                      .sum = h[(layer + 1) % 2].data(),
                      .sum_stride = hidden_width};
      product.y = inner.data();
      product.y_stride = inner_width;
      product.programmatic = true;
      check_cuda(cuda::mat_vec(product, nullptr), "mat_vec");
      product = device_down.arguments();
      product.x = inner.data();
      product.x_stride = inner_width;
      product.norm = {.weight = device_inner_weight.data(), .epsilon = kEpsilon};
      product.y = sum.data();
      product.y_stride = hidden_width;
      product.programmatic = true;
      check_cuda(cuda::mat_vec(product, nullptr), "mat_vec");
    }
    std::vector<float> actual = h[layers % 2].download();
    const std::vector<float> last = sum.download();
    for (size_t i = 0; i < actual.size(); ++i) actual[i] += last[i];
    CHECK(first_difference(actual, expected.values, expected.tolerances) == "");
  });
}

}  // namespace

// x = all_reduce(attention(W x)), three times over the same buffers. Every sum has its order, so the bits must agree.
TEST_CASE("cuda kernels: attention and all-reduce that start early compute the same bits") {
  under_conditions({.devices = 2}, [] {
    const std::vector<std::vector<float>> expected = chain_results(false);
    CHECK(expected[0] == expected[1]);
    for (const float value : expected[0]) CHECK(std::isfinite(value));
    CHECK(chain_results(true) == expected);
  });
}

TEST_CASE("cuda kernels: a chain of early starts computes what one after another does") {
  check_products_and_norms(96, 160, 3, 5);
}

TEST_CASE("cuda kernels: a chain of early starts with the norms in the products") {
  check_fused_products(96, 160, 3);
}

// Grids of 512 and 128 blocks.
TEST_CASE("cuda kernels: early starts at the width of a real model") {
  check_products_and_norms(2048, 2048, 1, 1);
}
