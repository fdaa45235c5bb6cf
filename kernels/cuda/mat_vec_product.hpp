// Between mat_vec.cpp, which checks arguments, and the kernels of the two families of formats: what a kernel is told.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/operation_stamps.hpp"
#include "kernels/dtype.hpp"

namespace shardscope::cuda {

/// A kernel's view of MatVec.
struct Product {
  const unsigned char* codes;  // the rows of a plain type
  const unsigned char* scales;
  int64_t code_row_bytes;
  int64_t scale_row_bytes;
  int64_t outputs;  // elements of a row of y
  int64_t columns;
  // From the first of a warp's rows to the first of the second half of them: to the next rows, or from gate to up.
  int64_t second_rows;
  const void* x;
  int64_t x_stride;
  const float* norm_weight;  // null: no norm
  const void* addend;
  int64_t addend_stride;
  void* sum;
  int64_t sum_stride;
  const float* bias;
  void* y;
  int64_t y_stride;
  OperationStamps* stamps;  // or null
  float epsilon;
  kernels::DType dtype;
  kernels::DType y_dtype;
  bool gated;
  bool whole_x;  // x and all that is added to it or multiplied with it can be moved four elements at a time
  bool read_again;
  int batch;
  int split_bits;    // 2^split_bits warps share the columns of the same rows
  int chunk_groups;  // groups of columns that are staged at once, a multiple of 32
};

/// How the launch of a product depends on more than the product.
struct ProductLaunch {
  int multiprocessors;
  bool programmatic;
  cudaStream_t stream;
};

/// weight_dtype: fp32, fp16 or bf16. Sets the fields that depend on the kernel: second_rows, split_bits, chunk_groups.
[[nodiscard]] cudaError_t mat_vec_plain(kernels::DType weight_dtype, const Product& product,
                                        const ProductLaunch& launch);

/// weight_dtype: q4_0, q4_1 or q8_0.
[[nodiscard]] cudaError_t mat_vec_blocks(kernels::DType weight_dtype, const Product& product,
                                         const ProductLaunch& launch);

}  // namespace shardscope::cuda
