// The stand-in for cuBLASLt: products against plain sums in double, for all types, orders and algorithms, and what it
// refuses, each refusal beside a call that differs in that point only and is right.
#include <catch2/catch.hpp>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "tests/emulation/emulation.hpp"
#include "tests/emulation/orders.hpp"
#include "tests/emulation/planted_host/gemm.hpp"
#include "tests/emulation/stand.hpp"

namespace shardscope::test {
namespace {

size_t element_bytes(cudaDataType type) {
  return type == CUDA_R_32F ? 4 : 2;
}

double load(const std::byte* data, cudaDataType type, int64_t place) {
  const std::byte* const element = data + static_cast<size_t>(place) * element_bytes(type);
  if (type == CUDA_R_16F) {
    __half value;
    std::memcpy(static_cast<void*>(&value), element, sizeof value);
    return static_cast<double>(__half2float(value));
  }
  if (type == CUDA_R_16BF) {
    __nv_bfloat16 value;
    std::memcpy(static_cast<void*>(&value), element, sizeof value);
    return static_cast<double>(__bfloat162float(value));
  }
  float value = 0;
  std::memcpy(&value, element, sizeof value);
  return static_cast<double>(value);
}

void save(std::byte* data, cudaDataType type, int64_t place, float value) {
  std::byte* const element = data + static_cast<size_t>(place) * element_bytes(type);
  if (type == CUDA_R_16F) {
    const __half rounded = __float2half_rn(value);
    std::memcpy(element, static_cast<const void*>(&rounded), sizeof rounded);
  } else if (type == CUDA_R_16BF) {
    const __nv_bfloat16 rounded = __float2bfloat16_rn(value);
    std::memcpy(element, static_cast<const void*>(&rounded), sizeof rounded);
  } else {
    std::memcpy(element, &value, sizeof value);
  }
}

constexpr size_t kWorkspaceBytes = 64 << 10;
constexpr std::byte kPadding{0x5A};

/// A matrix with its batch, in host memory. Between its elements lies kPadding.
struct HostMatrix {
  HostMatrix(const GemmMatrix& its_shape, int32_t its_batches)
      : shape(its_shape),
        batches(its_batches),
        bytes(static_cast<size_t>(its_shape.batch_stride * its_batches) * element_bytes(its_shape.type), kPadding) {}

  template <class Value>
  void fill(const Value& value) {
    for (int32_t batch = 0; batch < batches; ++batch) {
      for (int64_t row = 0; row < shape.rows; ++row) {
        for (int64_t column = 0; column < shape.columns; ++column) {
          save(bytes.data(), shape.type, shape.place(batch, row, column), value());
        }
      }
    }
  }
  double at(int32_t batch, int64_t row, int64_t column) const {
    return load(bytes.data(), shape.type, shape.place(batch, row, column));
  }

  GemmMatrix shape;
  int32_t batches;
  std::vector<std::byte> bytes;
};

/// Half the distance between neighbours of 1 in that type.
double rounding(cudaDataType type) {
  return type == CUDA_R_16F ? 0x1p-11 : type == CUDA_R_16BF ? 0x1p-8 : 0x1p-24;
}

/// Where D is not alpha op(A) op(B) + beta C, or the bytes between its elements have changed; empty if it is right.
/// In fp32 a sum of k products is off by at most k + 1 roundings of the sum of their magnitudes, whatever its order;
/// alpha, beta and their sum add three; then D is rounded once, by half of its smallest number at least.
std::string wrong(const GemmShape& shape, const HostMatrix& a, const HostMatrix& b, const HostMatrix& c,
                  const HostMatrix& d, double alpha, double beta) {
  const double per_sum = static_cast<double>(shape.k + 4) * 0x1p-24;
  std::vector<bool> element(d.bytes.size(), false);
  for (int32_t batch = 0; batch < shape.batches; ++batch) {
    for (int64_t row = 0; row < shape.m; ++row) {
      for (int64_t column = 0; column < shape.n; ++column) {
        double sum = 0;
        double magnitude = 0;
        for (int64_t k = 0; k < shape.k; ++k) {
          const double left = shape.transpose_a ? a.at(batch, k, row) : a.at(batch, row, k);
          const double right = shape.transpose_b ? b.at(batch, column, k) : b.at(batch, k, column);
          sum += left * right;
          magnitude += std::abs(left * right);
        }
        const double old = beta == 0 ? 0 : c.at(batch, row, column);
        const double expected = alpha * sum + beta * old;
        const double tolerance = per_sum * (std::abs(alpha) * magnitude + std::abs(beta * old)) +
                                 1.001 * rounding(shape.out) * std::abs(expected) + 0x1p-25;
        const double difference = std::abs(d.at(batch, row, column) - expected);
        if (!(difference <= tolerance)) {
          return fmt::format("batch {}, row {}, column {}: {} instead of {} (tolerance {})", batch, row, column,
                             d.at(batch, row, column), expected, tolerance);
        }
        const auto first = static_cast<size_t>(d.shape.place(batch, row, column)) * element_bytes(shape.out);
        for (size_t i = 0; i < element_bytes(shape.out); ++i) element[first + i] = true;
      }
    }
  }
  for (size_t i = 0; i < element.size(); ++i) {
    if (!element[i] && d.bytes[i] != kPadding) return fmt::format("byte {}, which is no element, was written", i);
  }
  return "";
}

struct Types {
  cudaDataType in;
  cudaDataType out;
};
constexpr Types kTypes[] = {{CUDA_R_16F, CUDA_R_16F},
                            {CUDA_R_16F, CUDA_R_32F},
                            {CUDA_R_16BF, CUDA_R_16BF},
                            {CUDA_R_16BF, CUDA_R_32F},
                            {CUDA_R_32F, CUDA_R_32F}};

/// What each algorithm makes of a product of random numbers; checked.
std::vector<std::vector<std::byte>> results(Stand& stand, const GemmShape& shape, float alpha, float beta,
                                            bool in_place, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> number(-2, 2);
  HostMatrix a(matrix_a(shape), shape.batches);
  HostMatrix b(matrix_b(shape), shape.batches);
  HostMatrix c(matrix_d(shape), shape.batches);
  for (HostMatrix* const it : {&a, &b, &c}) it->fill([&] { return number(random); });
  Gemm gemm(shape);
  gemm.allow_workspace(kWorkspaceBytes);
  const auto algorithms = gemm.algorithms();
  CHECK(gemm.error() == CUBLAS_STATUS_SUCCESS);
  CHECK(algorithms.size() >= 2);
  const std::byte* const a_data = stand.upload(a.bytes);
  const std::byte* const b_data = stand.upload(b.bytes);
  std::byte* const workspace = stand.unwritten<std::byte>(kWorkspaceBytes);
  std::vector<std::vector<std::byte>> all;
  for (const auto& algorithm : algorithms) {
    HostMatrix d(matrix_d(shape), shape.batches);
    std::byte* const d_data = stand.upload(in_place ? c.bytes : d.bytes);
    const std::byte* const c_data = in_place ? d_data : stand.upload(c.bytes);
    CHECK(cublasLtMatmul(gemm.handle, gemm.operation, &alpha, a_data, gemm.a, b_data, gemm.b, &beta, c_data, gemm.c,
                         d_data, gemm.d, &algorithm.algo, workspace, algorithm.workspaceSize,
                         nullptr) == CUBLAS_STATUS_SUCCESS);
    CHECK(emulation::take_refusal() == "");
    d.bytes = stand.download(d_data, d.bytes.size());
    CHECK(wrong(shape, a, b, c, d, static_cast<double>(alpha), static_cast<double>(beta)) == "");
    all.push_back(d.bytes);
  }
  return all;
}

struct Sizes {
  int64_t m;
  int64_t n;
  int64_t k;
};

}  // namespace

TEST_CASE("cublasLtMatmul: every type, order, transpose and algorithm is within the rounding of its sums") {
  const Types types = GENERATE(from_range(std::begin(kTypes), std::end(kTypes)));
  const int variant = GENERATE(range(0, 8));
  uint32_t seed = 1;
  for (const Sizes& sizes : {Sizes{1, 1, 1}, Sizes{3, 5, 7}, Sizes{17, 9, 35}, Sizes{8, 24, 64}, Sizes{40, 1, 130}}) {
    for (const bool padded : {false, true}) {
      const GemmShape shape{.m = sizes.m,
                            .n = sizes.n,
                            .k = sizes.k,
                            .in = types.in,
                            .out = types.out,
                            .transpose_a = (variant & 1) != 0,
                            .transpose_b = (variant & 2) != 0,
                            .row_major = (variant & 4) != 0,
                            .padding = padded ? 3 : 0,
                            .batches = padded ? 3 : 1,
                            .batch_padding = padded ? 5 : 0};
      INFO(fmt::format("{} x {} x {}, padded {}, variant {}", sizes.m, sizes.n, sizes.k, padded, variant));
      emulation::restart({});
      Stand stand;
      results(stand, shape, 1, 0, false, seed++);
      results(stand, shape, 0.75f, -1.5f, false, seed++);
      results(stand, shape, -1, 1, true, seed++);
      CHECK(unread_reports() == "");
      CHECK(stand.error() == cudaSuccess);
    }
  }
}

TEST_CASE("cublasLtMatmul: algorithms differ in the last bits, and each gives the same bits again") {
  emulation::restart({});
  Stand stand;
  const GemmShape shape{.m = 48, .n = 16, .k = 192, .in = CUDA_R_16F};
  const auto first = results(stand, shape, 1, 0, false, 7);
  const auto second = results(stand, shape, 1, 0, false, 7);
  REQUIRE(first.size() == 4);
  CHECK(first == second);
  for (size_t i = 0; i < first.size(); ++i) {
    for (size_t j = i + 1; j < first.size(); ++j) {
      INFO(i << " and " << j);
      CHECK(first[i] != first[j]);
    }
  }
}

TEST_CASE("cublasLtMatmul: every 16-bit number is taken for what it is") {
  const cudaDataType type = GENERATE(CUDA_R_16F, CUDA_R_16BF);
  emulation::restart({});
  Stand stand;
  std::vector<uint16_t> numbers(1 << 16);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<uint16_t>(i);
  const GemmShape shape{.m = 1 << 16, .in = type};
  std::vector<std::byte> one(4);
  save(one.data(), type, 0, 1.0f);
  float* const out = stand.unwritten<float>(numbers.size());
  Gemm gemm(shape);
  gemm.claim_alignment(2);
  CHECK(gemm.run(stand.upload(numbers), stand.upload(one), out, nullptr, nullptr, 0, nullptr) == CUBLAS_STATUS_SUCCESS);
  const std::vector<float> seen = stand.download(out, numbers.size());
  int64_t wrong_numbers = 0;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const double expected = load(reinterpret_cast<const std::byte*>(numbers.data()), type, static_cast<int64_t>(i));
    const auto value = static_cast<double>(seen[i]);
    const bool same = std::isnan(expected) ? std::isnan(value) : value == expected;
    if (!same) ++wrong_numbers;
  }
  CHECK(wrong_numbers == 0);
  CHECK(stand.error() == cudaSuccess);
}

TEST_CASE("cublasLtMatmul: what C and D hold does not matter when beta is 0: they are not read") {
  emulation::restart({});
  Stand stand;
  const GemmShape shape{.m = 2, .n = 2, .k = 2};
  Gemm gemm(shape);
  const float* const ones = stand.upload(std::vector<float>(4, 1.0f));
  const float one = 1;
  const float zero = 0;
  const float* const never_written = stand.unwritten<float>(4);
  float* const out = stand.unwritten<float>(4);
  CHECK(cublasLtMatmul(gemm.handle, gemm.operation, &one, ones, gemm.a, ones, gemm.b, &zero, never_written, gemm.c, out,
                       gemm.d, nullptr, nullptr, 0, nullptr) == CUBLAS_STATUS_SUCCESS);
  CHECK(stand.download(out, 4) == std::vector<float>(4, 2.0f));
  float* const poisoned = stand.upload(std::vector<float>(4, std::nanf("")));
  CHECK(gemm.run(ones, ones, poisoned, nullptr, nullptr, 0, nullptr) == CUBLAS_STATUS_SUCCESS);
  CHECK(stand.download(poisoned, 4) == std::vector<float>(4, 2.0f));
  // With a beta it does.
  float* const other = stand.upload(std::vector<float>(4, 5.0f));
  CHECK(gemm.run(ones, ones, other, nullptr, nullptr, 0, nullptr, 1, 2) == CUBLAS_STATUS_SUCCESS);
  CHECK(stand.download(other, 4) == std::vector<float>(4, 12.0f));
  CHECK(unread_reports() == "");
}

TEST_CASE("cublasLtMatmul: alpha, beta and descriptors are read at the call, matrices when it runs") {
  emulation::restart({});
  Stand stand;
  auto gemm = std::make_unique<Gemm>(GemmShape{.m = 1, .n = 1, .k = 1});
  float* const a = stand.upload(std::vector<float>{3});
  float* const b = stand.upload(std::vector<float>{5});
  float* const out = stand.unwritten<float>(1);
  void* pinned = nullptr;
  stand.note(cudaHostAlloc(&pinned, sizeof(float), cudaHostAllocDefault));
  *static_cast<float*>(pinned) = 7;
  stand.note(cudaMemcpyAsync(b, pinned, sizeof(float), cudaMemcpyHostToDevice, nullptr));
  float alpha = 2;
  const float beta = 0;
  CHECK(cublasLtMatmul(gemm->handle, gemm->operation, &alpha, a, gemm->a, b, gemm->b, &beta, out, gemm->c, out, gemm->d,
                       nullptr, nullptr, 0, nullptr) == CUBLAS_STATUS_SUCCESS);
  alpha = 100;
  gemm.reset();
  CHECK(stand.first(out) == 42.0f);
  CHECK(unread_reports() == "");
}

TEST_CASE("cublasLtMatmul: a captured product works with what its matrices hold at each replay") {
  for (const uint64_t seed : seeds_to_try(3)) {
    emulation::restart({.seed = seed});
    Stand stand;
    Gemm gemm(GemmShape{.m = 4, .n = 2, .k = 16});
    gemm.allow_workspace(1 << 16);
    const auto algorithms = gemm.algorithms(1);
    REQUIRE(algorithms.size() == 1);
    REQUIRE(algorithms[0].workspaceSize > 0);
    float* const a = stand.upload(std::vector<float>(64, 1.0f));
    float* const b = stand.unwritten<float>(32);
    float* const out = stand.unwritten<float>(8);
    auto* const workspace = stand.unwritten<std::byte>(1 << 16);
    cudaStream_t stream = nullptr;
    stand.note(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    stand.finish();
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    stand.note(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK(gemm.run(a, b, out, &algorithms[0].algo, workspace, 1 << 16, stream) == CUBLAS_STATUS_SUCCESS);
    stand.note(cudaStreamEndCapture(stream, &graph));
    stand.note(cudaGraphInstantiate(&executable, graph, 0));
    for (int turn = 1; turn <= 3; ++turn) {
      const std::vector<float> values(32, static_cast<float>(turn));
      stand.note(cudaMemcpyAsync(b, values.data(), 32 * sizeof(float), cudaMemcpyHostToDevice, stream));
      stand.note(cudaGraphLaunch(executable, stream));
      CHECK(stand.download(out, 8) == std::vector<float>(8, 16.0f * static_cast<float>(turn)));
    }
    stand.note(cudaGraphExecDestroy(executable));
    stand.note(cudaGraphDestroy(graph));
    CHECK(unread_reports() == "");
    CHECK(stand.error() == cudaSuccess);
  }
}

}  // namespace shardscope::test
