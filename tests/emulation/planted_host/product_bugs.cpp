// Products by cuBLASLt that are not ordered with what writes or reads their matrices, or share a workspace.
#include <memory>

#include "tests/emulation/planted_host/gemm.hpp"
#include "tests/emulation/planted_host/planted_host.hpp"

namespace shardscope::planted_host {
namespace {

using emulation::Fault;
using test::Gemm;

constexpr int64_t kCount = HostStand::kCount;
constexpr size_t kWorkspaceBytes = 1 << 16;

/// 8 x 8 matrices: all ones, so that each sum is 8.
constexpr test::GemmShape kShape{.m = 8, .n = 8, .k = 8};

void note(HostStand& stand, cublasStatus_t status) {
  if (status != CUBLAS_STATUS_SUCCESS) stand.note(cudaErrorUnknown);
}

bool run_kernel_reads_product(HostStand& stand) {
  const float* const ones = stand.filled(1);
  float* const product = stand.filled(9);
  float* const sum = stand.filled(0);
  Gemm gemm(kShape);
  const cudaStream_t first = stand.stream();
  const cudaStream_t second = stand.stream();
  note(stand, gemm.run(ones, ones, product, nullptr, nullptr, 0, first));
  if (!stand.planted()) stand.wait_for(second, first);
  stand.combine(product, 1, ones, sum, second);
  return stand.holds(sum, 9);
}

enum class Which : uint8_t { kA, kB, kC };

template <Which kWhich>
bool run_product_reads_too_early(HostStand& stand) {
  const float* const ones = stand.filled(1);
  float* const twos = stand.filled(9);
  float* const product = stand.filled(0);
  Gemm gemm(kShape);
  const cudaStream_t first = stand.stream();
  const cudaStream_t second = stand.stream();
  stand.combine(ones, 1, ones, twos, first);
  if (!stand.planted()) stand.wait_for(second, first);
  if constexpr (kWhich == Which::kC) {
    note(stand, gemm.run(ones, ones, twos, nullptr, nullptr, 0, second, 1, 1));
    return stand.holds(twos, 10);
  }
  const bool is_a = kWhich == Which::kA;
  note(stand, gemm.run(is_a ? twos : ones, is_a ? ones : twos, product, nullptr, nullptr, 0, second));
  return stand.holds(product, 16);
}

/// C is another matrix than D.
bool run_c_overwritten(HostStand& stand) {
  const float* const ones = stand.filled(1);
  float* const twos = stand.filled(2);
  float* const product = stand.filled(0);
  Gemm gemm(kShape);
  const cudaStream_t first = stand.stream();
  const cudaStream_t second = stand.stream();
  const float one = 1;
  note(stand, cublasLtMatmul(gemm.handle, gemm.operation, &one, ones, gemm.a, ones, gemm.b, &one, twos, gemm.c, product,
                             gemm.d, nullptr, nullptr, 0, first));
  if (!stand.planted()) stand.wait_for(second, first);
  stand.note(cudaMemsetAsync(twos, 0, HostStand::kBytes, second));
  return stand.holds(product, 10);
}

bool run_matrix_overwritten(HostStand& stand) {
  float* const ones = stand.filled(1);
  float* const product = stand.filled(0);
  Gemm gemm(kShape);
  const cudaStream_t first = stand.stream();
  const cudaStream_t second = stand.stream();
  note(stand, gemm.run(ones, ones, product, nullptr, nullptr, 0, first));
  if (!stand.planted()) stand.wait_for(second, first);
  stand.note(cudaMemsetAsync(ones, 0, HostStand::kBytes, second));
  return stand.holds(product, 8);
}

template <bool kNeeded>
bool run_shared_workspace(HostStand& stand) {
  const float* const ones = stand.filled(1);
  float* const one = stand.filled(0);
  float* const other = stand.filled(0);
  auto* const workspace = stand.unwritten<std::byte>(2 * kWorkspaceBytes);
  stand.finish();
  Gemm gemm(kShape);
  if constexpr (kNeeded) gemm.allow_workspace(kWorkspaceBytes);
  const auto algorithms = gemm.algorithms(1);
  if (algorithms.empty()) return false;
  const cudaStream_t first = stand.stream();
  const cudaStream_t second = stand.stream();
  note(stand, gemm.run(ones, ones, one, &algorithms[0].algo, workspace, kWorkspaceBytes, first));
  note(stand, gemm.run(ones, ones, other, &algorithms[0].algo,
                       stand.planted() ? workspace : workspace + kWorkspaceBytes, kWorkspaceBytes, second));
  return stand.holds(one, 8) && stand.holds(other, 8);
}

/// A workspace is scratch: what lay there before is gone.
bool run_workspace_is_also_data(HostStand& stand) {
  const float* const ones = stand.filled(1);
  float* const product = stand.filled(0);
  float* const workspace = stand.upload(std::vector<float>(kWorkspaceBytes / sizeof(float), 1.0f));
  const float* const data = stand.planted() ? workspace : ones;
  Gemm gemm(kShape);
  gemm.allow_workspace(kWorkspaceBytes);
  const cudaStream_t stream = stand.stream();
  stand.finish();
  note(stand, gemm.run(ones, ones, product, nullptr, workspace, kWorkspaceBytes, stream));
  stand.combine(product, 1, data, product, stream);
  return stand.holds(product, 9);
}

}  // namespace

std::vector<HostBug> product_bugs() {
  const auto race = [](std::string_view name, bool (*scenario)(HostStand&), Plain plain) {
    return HostBug{.name = name,
                   .scenario = scenario,
                   .error = cudaErrorLaunchFailure,
                   .fault = Fault::kGlobalRace,
                   .message = "cublasLtMatmul",
                   .plain = plain};
  };
  return {
      race("kernel_reads_product", run_kernel_reads_product, Plain::kWrongResult),
      race("product_reads_a_too_early", run_product_reads_too_early<Which::kA>, Plain::kWrongResult),
      race("product_reads_b_too_early", run_product_reads_too_early<Which::kB>, Plain::kWrongResult),
      race("product_reads_c_too_early", run_product_reads_too_early<Which::kC>, Plain::kWrongResult),
      race("c_overwritten", run_c_overwritten, Plain::kWrongResult),
      race("matrix_overwritten", run_matrix_overwritten, Plain::kWrongResult),
      // A product runs at one go here, so that the result is right: only the checker sees it.
      race("shared_workspace", run_shared_workspace<true>, Plain::kNothing),
      race("shared_workspace_of_any_algorithm", run_shared_workspace<false>, Plain::kNothing),
      {.name = "workspace_is_also_data", .scenario = run_workspace_is_also_data},
  };
}

}  // namespace shardscope::planted_host
