// A product as its descriptors say it, D = alpha op(A) op(B) + beta C: whether the shapes fit, where its bytes lie, and
// which algorithms there are for it. Knows nothing of handles, streams or memory.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tests/emulation/fakes/call.hpp"

namespace shardscope::emulation::cublaslt {

struct Matrix {
  int32_t type = CUDA_R_32F;
  int32_t order = CUBLASLT_ORDER_COL;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t ld = 0;  // leading dimension, in elements
  int32_t batches = 1;
  int64_t batch_stride = 0;  // in elements

  bool operator==(const Matrix&) const = default;

  /// The stretches of elements that lie side by side: columns, or rows of a row-major one.
  int64_t stretches() const { return order == CUBLASLT_ORDER_ROW ? rows : columns; }
  int64_t stretch_elements() const { return order == CUBLASLT_ORDER_ROW ? columns : rows; }
  int64_t element_bytes() const { return type == CUDA_R_32F ? 4 : 2; }
  /// From the first element to behind the last one.
  int64_t extent_bytes() const;
  /// Exactly the bytes of its elements, in pieces that are in order of the address if none overlaps another.
  std::vector<Range> ranges(const void* begin, bool written) const;
  std::string description() const;  // "576 x 4 fp16, leading dimension 576"
};

struct Product {
  int32_t compute = CUBLAS_COMPUTE_32F;
  int32_t scale = CUDA_R_32F;
  bool transposed_a = false;
  bool transposed_b = false;

  bool operator==(const Product&) const = default;
};

struct Problem {
  Product product;
  Matrix a;
  Matrix b;
  Matrix c;
  Matrix d;

  bool operator==(const Problem&) const = default;

  int64_t terms() const { return product.transposed_a ? a.rows : a.columns; }  // of each sum
  uint64_t hash() const;
};

struct Verdict {
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  std::string why;

  bool good() const { return status == CUBLAS_STATUS_SUCCESS; }
};

/// Whether there is such a product, by types and shapes.
Verdict check(const Problem& problem);

/// True if a byte is in both. Each list is sorted in place.
bool overlap(std::vector<Range>& a, std::vector<Range>& b);
/// True if two of these have a byte in common.
bool overlap(std::vector<Range>& ranges);

/// How a sum is made: chunks of so many terms are summed, then the chunks.
struct Algorithm {
  std::string_view name;
  uint32_t number = 0;
  int64_t chunk_terms = 0;
  bool backwards = false;  // the last term first
  int64_t workspace_bytes = 0;
  int64_t alignment_bytes = 1;  // of matrices, leading dimensions and batch strides
};

/// All of them for this problem, the one that is taken for the fastest first.
std::vector<Algorithm> algorithms(const Problem& problem);

inline constexpr int64_t kWorkspaceAlignmentBytes = 256;

}  // namespace shardscope::emulation::cublaslt
