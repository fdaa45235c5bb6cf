// A product by cuBLASLt as a host program makes it: handle, descriptors, algorithms. For tests, which change single
// things of it before they use it. Gives everything back when it ends.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <vector>

namespace shardscope::test {

/// D[m, n] = op(A)[m, k] op(B)[k, n]
struct GemmShape {
  int64_t m = 1;
  int64_t n = 1;
  int64_t k = 1;
  cudaDataType in = CUDA_R_32F;
  cudaDataType out = CUDA_R_32F;
  bool transpose_a = false;
  bool transpose_b = false;
  bool row_major = false;
  int64_t padding = 0;  // of every leading dimension, in elements
  int32_t batches = 1;
  int64_t batch_padding = 0;  // between the products of a batch, in elements
};

/// The elements of one matrix of the product in memory.
struct GemmMatrix {
  cudaDataType type;
  int64_t rows;
  int64_t columns;
  int64_t ld;
  int64_t batch_stride;
  bool row_major;

  int64_t place(int64_t batch, int64_t row, int64_t column) const {
    return batch * batch_stride + (row_major ? row * ld + column : column * ld + row);
  }
};

inline GemmMatrix gemm_matrix(const GemmShape& shape, cudaDataType type, int64_t rows, int64_t columns) {
  const int64_t ld = (shape.row_major ? columns : rows) + shape.padding;
  const int64_t stride = ld * (shape.row_major ? rows : columns) + shape.batch_padding;
  return {type, rows, columns, ld, stride, shape.row_major};
}
inline GemmMatrix matrix_a(const GemmShape& shape) {
  return gemm_matrix(shape, shape.in, shape.transpose_a ? shape.k : shape.m, shape.transpose_a ? shape.m : shape.k);
}
inline GemmMatrix matrix_b(const GemmShape& shape) {
  return gemm_matrix(shape, shape.in, shape.transpose_b ? shape.n : shape.k, shape.transpose_b ? shape.k : shape.n);
}
inline GemmMatrix matrix_d(const GemmShape& shape) {
  return gemm_matrix(shape, shape.out, shape.m, shape.n);
}

class Gemm {
 public:
  explicit Gemm(const GemmShape& shape) {
    note(cublasLtCreate(&handle));
    note(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    set_operation(CUBLASLT_MATMUL_DESC_TRANSA, int32_t{shape.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N});
    set_operation(CUBLASLT_MATMUL_DESC_TRANSB, int32_t{shape.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N});
    a = layout(matrix_a(shape), shape.batches);
    b = layout(matrix_b(shape), shape.batches);
    c = layout(matrix_d(shape), shape.batches);
    d = layout(matrix_d(shape), shape.batches);
    note(cublasLtMatmulPreferenceCreate(&preference));
  }
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;
  ~Gemm() {
    for (cublasLtMatrixLayout_t it : {a, b, c, d}) static_cast<void>(cublasLtMatrixLayoutDestroy(it));
    static_cast<void>(cublasLtMatmulPreferenceDestroy(preference));
    static_cast<void>(cublasLtMatmulDescDestroy(operation));
    static_cast<void>(cublasLtDestroy(handle));
  }

  template <class T>
  cublasStatus_t set_operation(cublasLtMatmulDescAttributes_t attribute, T value) {
    return note(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value));
  }
  template <class T>
  cublasStatus_t set_layout(cublasLtMatrixLayout_t it, cublasLtMatrixLayoutAttribute_t attribute, T value) {
    return note(cublasLtMatrixLayoutSetAttribute(it, attribute, &value, sizeof value));
  }
  template <class T>
  cublasStatus_t set_preference(cublasLtMatmulPreferenceAttributes_t attribute, T value) {
    return note(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value));
  }
  void allow_workspace(uint64_t bytes) { set_preference(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, bytes); }
  void claim_alignment(uint32_t bytes) {
    for (const auto attribute :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      set_preference(attribute, bytes);
    }
  }

  /// At most `most` algorithms; none after an error, which is in error().
  std::vector<cublasLtMatmulHeuristicResult_t> algorithms(int most = 16) {
    std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(most > 0 ? most : 1));
    int count = 0;
    note(cublasLtMatmulAlgoGetHeuristic(handle, operation, a, b, c, d, preference, most, results.data(), &count));
    results.resize(static_cast<size_t>(count));
    return results;
  }

  /// D = A B, or with C = D: D = alpha A B + beta D.
  cublasStatus_t run(const void* a_data, const void* b_data, void* d_data, const cublasLtMatmulAlgo_t* algorithm,
                     void* workspace, size_t workspace_bytes, cudaStream_t stream, float alpha = 1, float beta = 0) {
    return note(cublasLtMatmul(handle, operation, &alpha, a_data, a, b_data, b, &beta, d_data, c, d_data, d, algorithm,
                               workspace, workspace_bytes, stream));
  }

  /// The first that was none of success.
  cublasStatus_t error() const { return error_; }
  cublasStatus_t note(cublasStatus_t status) {
    if (error_ == CUBLAS_STATUS_SUCCESS) error_ = status;
    return status;
  }

  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr;
  cublasLtMatrixLayout_t b = nullptr;
  cublasLtMatrixLayout_t c = nullptr;
  cublasLtMatrixLayout_t d = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;

 private:
  cublasLtMatrixLayout_t layout(const GemmMatrix& matrix, int32_t batches) {
    cublasLtMatrixLayout_t made = nullptr;
    note(cublasLtMatrixLayoutCreate(&made, matrix.type, static_cast<uint64_t>(matrix.rows),
                                    static_cast<uint64_t>(matrix.columns), matrix.ld));
    if (matrix.row_major) set_layout(made, CUBLASLT_MATRIX_LAYOUT_ORDER, int32_t{CUBLASLT_ORDER_ROW});
    if (batches > 1) {
      set_layout(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, batches);
      set_layout(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, matrix.batch_stride);
    }
    return made;
  }

  cublasStatus_t error_ = CUBLAS_STATUS_SUCCESS;
};

}  // namespace shardscope::test
