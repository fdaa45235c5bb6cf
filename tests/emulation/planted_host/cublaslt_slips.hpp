// Slips in calls of cuBLASLt, as tables: each row makes one call that is right, or with the slip. Who tries them is
// cublaslt_refusals_test.cpp.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "tests/emulation/planted_host/gemm.hpp"
#include "tests/emulation/stand.hpp"

namespace shardscope::test {

inline constexpr GemmShape kSlipShape{.m = 16, .n = 8, .k = 32, .in = CUDA_R_16F, .out = CUDA_R_16F};
inline constexpr size_t kSlipWorkspaceBytes = 64 << 10;

/// A call that is right, of which a row changes something.
struct Attempt {
  explicit Attempt(bool slip) : slips(slip), gemm(std::make_unique<Gemm>(kSlipShape)) {
    gemm->allow_workspace(kSlipWorkspaceBytes);
    a = stand.zeros<std::byte>(4096);
    b = stand.zeros<std::byte>(4096);
    c = stand.zeros<std::byte>(4096);
    d = stand.zeros<std::byte>(4096);
    workspace = stand.unwritten<std::byte>(2 * kSlipWorkspaceBytes);
    stand.finish();
  }

  /// Takes the algorithm that needs a workspace (the first), or one that needs 16-byte alignment (the second).
  void choose(size_t number = 0) {
    const auto algorithms = gemm->algorithms();
    if (number < algorithms.size()) algorithm = algorithms[number].algo;
    chosen = number < algorithms.size();
  }
  cublasStatus_t run() {
    return cublasLtMatmul(gemm->handle, gemm->operation, alpha, a, gemm->a, b, gemm->b, beta, c, gemm->c, d, gemm->d,
                          chosen ? &algorithm : nullptr, workspace, workspace_bytes, stream);
  }
  cublasStatus_t choose_and_run(size_t number = 0) {
    choose(number);
    return run();
  }
  template <class T>
  cublasStatus_t set_and_ask(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute, T value) {
    gemm->set_layout(layout, attribute, value);
    return ask();
  }
  cublasStatus_t ask(int most = 4) {
    cublasLtMatmulHeuristicResult_t results[4];
    int count = 99;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        gemm->handle, gemm->operation, gemm->a, gemm->b, gemm->c, gemm->d, gemm->preference, most, results, &count);
    if (status != CUBLAS_STATUS_SUCCESS && count != 0) return CUBLAS_STATUS_INTERNAL_ERROR;
    if (status == CUBLAS_STATUS_SUCCESS && (count < 1 || count > most)) return CUBLAS_STATUS_INTERNAL_ERROR;
    return status;
  }

  bool slips;
  Stand stand;
  std::unique_ptr<Gemm> gemm;
  std::byte* a;
  std::byte* b;
  std::byte* c;
  std::byte* d;
  std::byte* workspace;
  size_t workspace_bytes = kSlipWorkspaceBytes;
  float one = 1;
  float zero = 0;
  const void* alpha = &one;
  const void* beta = &zero;
  cublasLtMatmulAlgo_t algorithm{};
  bool chosen = false;
  cudaStream_t stream = nullptr;
};

struct Slip {
  std::string_view name;
  cublasStatus_t status;
  std::string_view reason;  // what take_refusal must contain
  cublasStatus_t (*attempt)(Attempt&);
};

std::span<const Slip> slips_of_shape();
std::span<const Slip> slips_of_attributes();
std::span<const Slip> slips_of_algorithms();
std::span<const Slip> slips_of_memory();
std::span<const Slip> slips_of_handles();

}  // namespace shardscope::test
