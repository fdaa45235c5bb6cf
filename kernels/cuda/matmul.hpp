// Products of more rows than mat_vec.hpp is made for, by cuBLASLt. Host code. Owns the library's handle, and for each
// shape that it has met the descriptors and the algorithm that was the fastest.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <array>
#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "kernels/cuda/check.hpp"
#include "kernels/cuda/device_matrix.hpp"
#include "kernels/cuda/owners.hpp"
#include "kernels/dtype.hpp"

namespace shardscope::cuda {

/// Pointers and rows must begin at multiples of 16 bytes; so the strides are multiples of 16 bytes too.
struct MatMulArguments {
  DeviceMatrix weights;     // [n][k], fp32, fp16 or bf16
  int64_t rows = 0;         // of x and out
  const void* x = nullptr;  // [rows][k] of weights.dtype, x_stride elements apart
  int64_t x_stride = 0;
  kernels::DType out_dtype = kernels::DType::kF32;  // fp32, or weights.dtype
  void* out = nullptr;  // [rows][n], out_stride elements apart; shares no bytes with x, weights and workspace
  int64_t out_stride = 0;
};

/// What came of it: at most one of the two is an error, and `operation` says of what.
struct MatMulResult {
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  cudaError_t error = cudaSuccess;
  const char* operation = "";

  bool good() const { return status == CUBLAS_STATUS_SUCCESS && error == cudaSuccess; }
};

/// Device memory for the library's intermediate results, aligned to 256 bytes. A view; `bytes` may be 0.
struct MatMulWorkspace {
  void* data = nullptr;
  int64_t bytes = 0;
};

/// Move-only; belongs to the device that is current at birth. Calls come from one host thread, and all streams that it
/// is given are ordered one after another, since they share the workspace.
class MatMul {
 public:
  /// wait: returns when the event has happened, or throws; called once for each shape that is measured. `workspace`
  /// must outlive this. Throws SystemError, which says `where`, if the library does not start.
  MatMul(MatMulWorkspace workspace, std::function<void(cudaEvent_t)> wait, const CallContext& where);

  /// out = x * weights^T, products and sums in fp32 (no TF32), rounded once to out_dtype. Enqueued on `stream`.
  ///
  /// The first call of a shape (types, sizes, strides) outside of a capture tries up to four algorithms that the
  /// library proposes, which waits for the device and writes `out` several times; the fastest is kept. Other calls do
  /// not wait, and allocate nothing. Within a capture a shape that is not known takes the library's first proposal.
  ///
  /// No rows or no weights' rows: nothing to do. No columns: zeros. CUBLAS_STATUS_INVALID_VALUE for other dtypes,
  /// alignments or strides; CUBLAS_STATUS_NOT_SUPPORTED where the library has no algorithm.
  MatMulResult run(const MatMulArguments& arguments, cudaStream_t stream);

 private:
  using Handle = Owned<cublasLtHandle_t, cublasLtDestroy>;
  using Operation = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
  using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;

  struct Shape {
    kernels::DType dtype = kernels::DType::kF32;
    kernels::DType out_dtype = kernels::DType::kF32;
    int64_t rows = 0;
    int64_t n = 0;
    int64_t k = 0;
    int64_t x_stride = 0;
    int64_t weight_stride = 0;
    int64_t out_stride = 0;
    auto operator<=>(const Shape&) const = default;
  };
  /// For one shape. Once measured, `proposals` holds the fastest alone.
  struct Plan {
    Operation operation;
    Layout weights;
    Layout x;
    Layout out;
    std::vector<cublasLtMatmulAlgo_t> proposals;
    bool measured = false;
  };
  static constexpr int kMostProposals = 4;

  MatMulResult make_plan(const Shape& shape, Plan& plan) const;
  MatMulResult propose(Plan& plan) const;
  MatMulResult measure(Plan& plan, const MatMulArguments& arguments, cudaStream_t stream);
  MatMulResult enqueue(const Plan& plan, const cublasLtMatmulAlgo_t& algorithm, const MatMulArguments& arguments,
                       cudaStream_t stream) const;

  Handle handle_;
  MatMulWorkspace workspace_;
  std::function<void(cudaEvent_t)> wait_;
  std::array<Event, 2 * kMostProposals> events_;  // begin and end of each
  std::map<Shape, Plan> plans_;
};

}  // namespace shardscope::cuda
